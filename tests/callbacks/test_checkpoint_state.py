# SPDX-License-Identifier: Apache-2.0
import shutil

import pytest
from _helpers.modules import LIGHTNING_SAYS, fit
from lightning.pytorch.callbacks import ModelCheckpoint

from genmonitor.callbacks.checkpoint_files import look_at
from genmonitor.callbacks.sweep import SweepState, new_checkpoints

pytestmark = LIGHTNING_SAYS


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Checkpoints of three epochs."""
    folder = tmp_path_factory.mktemp("saved")
    fit(folder, ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1), max_epochs=3)
    return [folder / f"epoch={epoch}.ckpt" for epoch in range(3)]


@pytest.fixture
def look(tmp_path):
    """Return a function to look for new checkpoints, the state of a sweep, and what was skipped."""
    state, skipped = SweepState(tmp_path / "genmonitor", []), {}

    def names():
        new = new_checkpoints([tmp_path], state, lambda path, why: skipped.update({path.name: why}))
        return [checkpoint.path.name for checkpoint in new]

    return names, state, skipped


def test_a_sweep_that_is_started_again_skips_what_is_done(saved, look, tmp_path):
    names, state, skipped = look
    for path in saved[:2]:
        shutil.copy(path, tmp_path)
    assert names() == ["epoch=0.ckpt", "epoch=1.ckpt"]
    state.save(look_at(saved[0]).moment)
    assert names() == ["epoch=1.ckpt"]
    state.save(look_at(saved[1]).moment)
    assert names() == []
    shutil.copy(saved[2], tmp_path / "last.ckpt")
    assert names() == ["last.ckpt"]
    shutil.copy(saved[1], tmp_path / "again.ckpt")  # of a moment that is over
    assert names() == ["last.ckpt"]
    assert skipped == {}


def test_what_cannot_be_evaluated_is_told(saved, look, tmp_path):
    names, state, skipped = look
    state.save(look_at(saved[2]).moment)
    shutil.copy(saved[0], tmp_path)
    (tmp_path / "half.ckpt").write_bytes(saved[1].read_bytes()[:1000])  # is being written
    assert names() == []
    assert skipped["epoch=0.ckpt"] == "it is from before the last one that was evaluated, or was skipped then"
    assert "not a checkpoint of tensors" in skipped["half.ckpt"]

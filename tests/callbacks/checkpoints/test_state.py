# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import time

import pytest
from _helpers.modules import LIGHTNING_SAYS, fit
from lightning.pytorch.callbacks import ModelCheckpoint

from genmonitor.callbacks.checkpoints import state as finding
from genmonitor.callbacks.checkpoints.state import CheckpointFinder, SweepState

pytestmark = LIGHTNING_SAYS


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Checkpoints of three epochs."""
    folder = tmp_path_factory.mktemp("saved")
    fit(folder, ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1), max_epochs=3)
    return [folder / f"epoch={epoch}.ckpt" for epoch in range(3)]


@pytest.fixture
def finder(tmp_path):
    state, skipped = SweepState(tmp_path / "genmonitor", []), {}
    found = CheckpointFinder([tmp_path], state, lambda path, why: skipped.update({path.name: why}))
    return found, state, skipped


def names(checkpoints):
    return [checkpoint.path.name for checkpoint in checkpoints]


def test_each_checkpoint_is_new_once(saved, finder, tmp_path):
    finder, state, skipped = finder
    for path in saved[:2]:
        shutil.copy(path, tmp_path)
    found = finder.new()
    assert names(found) == ["epoch=0.ckpt", "epoch=1.ckpt"]
    assert finder.new() == []
    for checkpoint in found:
        state.save(checkpoint.moment)
    shutil.copy(saved[2], tmp_path / "last.ckpt")
    assert names(finder.new()) == ["last.ckpt"]
    shutil.copy(saved[1], tmp_path / "again.ckpt")  # of a moment that is over
    assert finder.new() == []
    assert skipped == {}


def test_a_checkpoint_from_before_the_last_evaluated_is_told(saved, finder, tmp_path):
    finder, state, skipped = finder
    shutil.copy(saved[2], tmp_path)
    state.save(finder.new()[0].moment)
    shutil.copy(saved[0], tmp_path)
    assert finder.new() == []
    assert skipped == {"epoch=0.ckpt": "it is from before the last one that was evaluated, or was skipped then"}


def test_a_file_that_is_being_written_is_waited_for(saved, finder, tmp_path):
    finder, _, skipped = finder
    path = tmp_path / "a.ckpt"
    path.write_bytes(saved[0].read_bytes()[:1000])
    assert finder.new(patient=True) == []
    assert skipped == {}
    path.write_bytes(saved[0].read_bytes())
    assert names(finder.new(patient=True)) == ["a.ckpt"]


def test_a_file_that_stays_broken_is_told_once(saved, finder, tmp_path):
    finder, _, skipped = finder
    path = tmp_path / "a.ckpt"
    path.write_bytes(saved[0].read_bytes()[:1000])
    long_ago = time.time() - 60
    os.utime(path, (long_ago, long_ago))
    assert finder.new(patient=True) == []
    assert "not a checkpoint of tensors" in skipped.pop("a.ckpt")
    assert finder.new(patient=True) == []
    assert skipped == {}


def test_waiting_ends_when_asked_to_or_after_so_long(finder, monkeypatch):
    finder, _, _ = finder
    monkeypatch.setattr(finding, "POLL_SECONDS", 0.01)
    assert finder.wait(lambda: True, idle=None) == []
    assert finder.wait(lambda: False, idle=0.001) == []

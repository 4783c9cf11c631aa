# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, fit

from genmonitor.callbacks.checkpoint_files import (
    Checkpoint,
    find_files,
    has_averaged,
    in_order,
    look_at,
    read_checkpoint,
    run_of,
    weights_in,
)
from genmonitor.callbacks.compat import TrainingProgress

pytestmark = LIGHTNING_SAYS


def checkpoint(name, batches):
    return Checkpoint(Path(name), TrainingProgress(0, batches, batches))


def test_checkpoints_are_found_below_a_folder_and_as_files(tmp_path):
    for name in ("checkpoints/b.ckpt", "checkpoints/.a.ckpt", "checkpoints/a.pt", "deep/er/c.ckpt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_files([tmp_path]) == [tmp_path / "checkpoints/b.ckpt", tmp_path / "deep/er/c.ckpt"]
    assert find_files([tmp_path / "checkpoints/a.pt"]) == [tmp_path / "checkpoints/a.pt"]


def test_checkpoints_are_in_the_order_of_the_training_and_one_of_each_moment():
    given = [checkpoint("epoch=10.ckpt", 30), checkpoint("epoch=9.ckpt", 27), checkpoint("epoch=1.ckpt", 3)]
    assert in_order([checkpoint("last.ckpt", 30), *given]) == [given[2], given[1], given[0]]
    assert in_order([checkpoint("last-v1.ckpt", 40), *given])[-1].path.name == "last-v1.ckpt"


@pytest.mark.parametrize(
    ("place", "run"),
    [("run", "run"), ("run/checkpoints", "run"), ("run/checkpoints/a.ckpt", "run"), ("kept/a.ckpt", "kept")],
)
def test_the_run_is_above_the_checkpoints(place, run):
    assert run_of([Path(place)]) == Path(run)


def test_a_checkpoint_says_how_far_the_training_was(tmp_path):
    runner, module = fit(tmp_path)
    runner.save_checkpoint(tmp_path / "end.ckpt")
    found = look_at(tmp_path / "end.ckpt")
    assert (found.moment, found.progress.epoch, found.progress.step) == (6, 1, 5)
    saved = read_checkpoint(tmp_path / "end.ckpt")
    assert torch.equal(weights_in(saved, averaged=False)["net.weight"], module.net.weight)
    assert weights_in(saved, averaged=True) is weights_in(saved, averaged=False)
    assert not has_averaged(saved)


def test_averaged_weights_are_told_from_the_others():
    saved = {"state_dict": {"w": 1}, "current_model_state": {"w": 2}}
    assert has_averaged(saved)
    assert (weights_in(saved, averaged=True), weights_in(saved, averaged=False)) == ({"w": 1}, {"w": 2})


class Trap:
    """Anything of somebody else's."""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a checkpoint of tensors and plain Python objects"),
        ({"state_dict": {}, "trap": Trap()}, "is not a checkpoint of tensors and plain Python objects"),
        ({"state_dict": {}}, "Expected a Lightning checkpoint, but .* has no global_step, state_dict and loops"),
        (torch.zeros(3), "Expected a Lightning checkpoint"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path, content, said):
    path = tmp_path / "a.ckpt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=said):
        read_checkpoint(path)
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "nowhere.ckpt")


@pytest.mark.parametrize("loops", [{}, {"fit_loop": {}}, {"fit_loop": 3}], ids=["none", "empty", "a number"])
def test_a_checkpoint_that_was_edited_is_refused_by_name(tmp_path, loops):
    path = tmp_path / "a.ckpt"
    torch.save({"epoch": 0, "global_step": 1, "state_dict": {}, "loops": loops}, path)
    with pytest.raises(ValueError, match=r"Expected the state of the training in .*a.ckpt as it was saved"):
        look_at(path)

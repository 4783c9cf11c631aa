# SPDX-License-Identifier: Apache-2.0
"""Models whose parameters are spread over processes: the same numbers, nothing left behind, and none that waits."""

import pytest
import torch
from _helpers.launched import launched
from _helpers.modules import LIGHTNING_SAYS
from _helpers.sharded import FAILURES, outcomes

pytestmark = LIGHTNING_SAYS


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one process measures of the whole model."""
    return launched(outcomes, tmp_path_factory.mktemp("one"), 1, "values")[1][0]


def agree(found, expected, error=1e-6):
    """Whether a process measured what one with the whole model does; fewer batches make an epoch's steps fewer."""
    assert found["evaluations"].keys() == expected["evaluations"].keys()
    for name, history in expected["evaluations"].items():
        for record, reference in zip(found["evaluations"][name], history, strict=True):
            assert record == pytest.approx(reference | {"step": record["step"]}, rel=error, abs=error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "by"),
    [
        (4, "both"),
        pytest.param(3, "fully_shard", marks=pytest.mark.nightly),
        pytest.param(2, "tensor parallel", marks=pytest.mark.nightly),
    ],
)
def test_every_monitor_measures_what_one_process_does(tmp_path, expected, processes, by, record_property):
    _, ranks = launched(outcomes, tmp_path, processes, "values", by)
    for found in ranks:
        agree(found, expected)
        assert found["calls"] == ranks[0]["calls"]  # as many batches, of as many samples
    record_property("sharded models: processes compared with one", processes)


@pytest.mark.slow
def test_training_is_unchanged_whatever_one_process_meets(tmp_path, record_property):
    said, ranks = launched(outcomes, tmp_path, 2, "untouched")
    epochs = {"validated": [0, 1, 2], "between steps": [0.167, 0.5, 1, 1.5, 2, 2.5, 3]}
    epochs |= {f"fails {name}": [0, 2] for name in FAILURES}
    for found in ranks:
        assert {name: each["changed"] for name, each in found.items()} == {name: [] for name in epochs}
        assert {name: each["epochs"] for name, each in found.items()} == epochs
        assert not [note for each in found.values() for note in each["notes"] if "changed the training" in note]
    assert said.count("RuntimeError: no samples today") == 2
    assert said.count("but the processes diverged") == 2  # each of them says so
    assert "generator produced NaN or infinite values at epoch 1" in str(ranks[0]["fails after the model"]["notes"])
    record_property("sharded models: occasions that left no trace", len(epochs))


@pytest.mark.slow
def test_user_is_told_what_went_wrong_on_one_process(tmp_path):
    said, (first, last) = launched(outcomes, tmp_path, 2, "told")
    # batches of 16 become halves on both, where the last process has no memory for more than 10
    assert first["memory"]["history"] == last["memory"]["history"]
    assert last["memory"]["calls"] == [n for n in first["memory"]["calls"] if n <= 8] == [8, 8, 2, 8, 8, 7, 8]
    assert "There is no memory for 16 samples at once, so they are drawn 8 at a time" in said
    for found in (first, last):
        assert "changed the training, which is put back as it was: parameter net.3.bias" in found["meddled"].lower()
        assert "to be used only to draw samples, but FSDPLinear is called" in found["encoder"]
        assert "a separate network" in found["encoder"]


@pytest.mark.slow
def test_resumed_run_gives_the_curves_of_one_in_one_go(tmp_path):
    for found in launched(outcomes, tmp_path, 2, "resumed")[1]:
        assert found["a file"] == found["a folder"] == found["in one go"]
        assert [record["epoch"] for record in found["in one go"]] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("by", ["fully_shard", "tensor parallel"])
def test_sharded_on_gpus(tmp_path, expected, by):
    for found in launched(outcomes, tmp_path, 2, "values", by, "gpu")[1]:
        agree(found, expected, 1e-4)
    if by == "fully_shard":
        for found in launched(outcomes, tmp_path, 2, "untouched", by, "gpu")[1]:
            assert [each["changed"] for each in found.values()] == [[]] * len(found)

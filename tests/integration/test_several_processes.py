# SPDX-License-Identifier: Apache-2.0
"""The same numbers from one process and from several, and no process that waits for one which failed."""

import pytest
import torch
from _helpers.launched import launched
from _helpers.modules import LIGHTNING_SAYS
from _helpers.one_process_fails import EPOCHS, PARTS, histories
from _helpers.several_processes import outcomes
from _helpers.slow import nightly_but

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:Plain. (this evaluation failed|only|no p-values|the generator produced NaN)"),
]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one process measures."""
    return outcomes(tmp_path_factory.mktemp("one"), processes=1)


def agree(found, expected, error=1e-6):
    """Whether a process measured what one process alone does, and skipped where one of several failed."""
    assert found.keys() == expected.keys()
    for name in expected:
        epochs = [record["epoch"] for record in found[name]["history"]]
        assert epochs == ([0, 2] if "fails" in name else [0, 1, 2])
        for record, reference in zip(found[name]["history"], expected[name]["history"], strict=True):
            assert record == pytest.approx(reference | {"step": record["step"]}, rel=error, abs=error)
        assert found[name]["image"] == pytest.approx(expected[name]["image"], rel=error)


@pytest.mark.slow
@pytest.mark.parametrize("processes", nightly_but([2, 3], 2))
def test_several_processes_find_what_one_does(tmp_path, expected, processes, record_property):
    said, ranks = launched(outcomes, tmp_path, processes)
    for found in ranks:
        agree(found, expected)
        # found once and given to all, so equal to the last bit
        assert [found[name].get("fixed") for name in expected] == [expected[name].get("fixed") for name in expected]
    assert said.count("RuntimeError: no samples today") == 1
    assert said.count(f"Plain: this evaluation failed on process {processes - 1} and is skipped") == 2
    assert said.count("Plain: the generator produced NaN or infinite values at epoch 1") >= 1
    assert said.count("Regions, epoch 2") == len(expected)  # one table a fit, not one a process
    record_property("several processes: runs compared with one process", len(expected))


@pytest.mark.slow
def test_process_that_fails_in_any_part_keeps_none_waiting(tmp_path, record_property):
    said, ranks = launched(histories, tmp_path, 2)
    assert ranks[0] == ranks[1]
    failed = {prefix: len(parts) for prefix, parts in PARTS.items()}
    failed["cms"] -= 1  # a metric beside it is left out, and the evaluation stands
    for prefix, history in ranks[0].items():
        left = set(range(10)) - set(EPOCHS[: failed[prefix]])
        assert [record["epoch"] for record in history] == sorted(left)
        for record in history[1:]:  # the weights do not change
            values = {name: history[0].get(name, 0.0) for name in record.keys() - {"epoch", "step", "images_seen"}}
            assert record == pytest.approx(record | values, rel=1e-6, abs=1e-6)
    assert [record["epoch"] for record in ranks[0]["cms"] if "gap" not in record] == [EPOCHS[1]]
    assert said.count("this evaluation failed on process 1 and is skipped") == sum(failed.values())
    record_property("several processes: parts of an evaluation in which one fails", sum(map(len, PARTS.values())))


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_processes_on_gpus_gather_no_tensor_of_the_cpu(tmp_path, expected):
    _, ranks = launched(outcomes, tmp_path, torch.cuda.device_count(), "gpu")
    for found in ranks:
        agree({"the other": found["the other"]}, {"the other": expected["the other"]}, 1e-4)

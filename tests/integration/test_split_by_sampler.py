# SPDX-License-Identifier: Apache-2.0
"""One dataset that samplers split into training and validation: two processes see the images of one, or refuse."""

import json

import pytest
from _helpers.launched import launched
from _helpers.modules import LIGHTNING_SAYS
from _helpers.split_by_sampler import PARTS, outcomes

pytestmark = [*LIGHTNING_SAYS, pytest.mark.slow]
FOLLOWED = ["sampler", "no distributed sampler"]
LOST = ["batch_sampler of a hook", "own batch_sampler"]
"""What Lightning drops under several processes."""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What one process finds, and what each of two does."""
    _, ranks = launched(outcomes, tmp_path_factory.mktemp("two"), 2)
    return json.loads(json.dumps(outcomes(tmp_path_factory.mktemp("one"), processes=1))), ranks


@pytest.mark.parametrize("way", [*FOLLOWED, *LOST])
def test_one_process_follows_every_split(both, way):
    alone, _ = both
    training, validation = alone[way]["training"], alone[way]["validation"]
    assert (len(training), len(validation)) == (500, 301)
    assert [training, validation] == [sorted(part.tolist()) for part in PARTS]


@pytest.mark.parametrize("way", FOLLOWED)
def test_two_processes_see_the_images_of_one(both, way):
    alone, ranks = both
    for rank in ranks:
        assert {name: rank[way][name] for name in ("training", "validation", "compared")} == {
            name: alone[way][name] for name in ("training", "validation", "compared")
        }
    assert sum(rank[way]["held"] for rank in ranks) == alone[way]["held"] == len(set(alone[way]["compared"])) == 101


@pytest.mark.parametrize("way", [*FOLLOWED, "real_images"])
def test_two_processes_find_the_values_of_one(both, way, record_property):
    alone, ranks = both
    for rank in ranks:
        assert rank[way]["clusters"] == alone[way]["clusters"]
        assert len(rank[way]["history"]) == len(alone[way]["history"]) == 2
        for record, expected in zip(rank[way]["history"], alone[way]["history"], strict=True):
            same = {name: record[name] for name in ("step", "images_seen")}  # batches count otherwise
            assert record == pytest.approx(expected | same, rel=1e-6, abs=1e-6)
    record_property("several processes: runs compared with one process", 1)


@pytest.mark.parametrize("way", LOST)
def test_two_processes_refuse_a_split_that_they_would_lose(both, way, record_property):
    _, ranks = both
    for rank in ranks:
        assert "training and validation data are all 801 images of the TensorDataset" in rank[way]
        assert "Make the split by `sampler=` or by Subset, or give `real_images=`." in rank[way]
    record_property("several processes: lost splits refused", 1)

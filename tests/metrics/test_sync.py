# SPDX-License-Identifier: Apache-2.0
"""Two processes with uneven shares, one of them empty, say what one process says."""

import pytest
import torch
from _helpers.citizens import CITIZENS, HALVES
from _helpers.processes import in_two_processes
from _helpers.two_ranks import FAKE, FIRST_BY_ALL, REAL, everything

from genmonitor import GaussianKernel, PixelCKA, PromptSplit, VendiScore, W1KPScore
from genmonitor.functional import cosine_mean_similarity, maximum_mean_discrepancy


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return in_two_processes(everything, tmp_path_factory.mktemp("ranks"))


SHARES = [(share, name) for share in ("uneven", "no rows on one") for name in CITIZENS]
SHARES += [("none on one", name) for name in CITIZENS if name not in FIRST_BY_ALL]


@pytest.mark.parametrize(("share", "name"), SHARES)
def test_both_say_what_one_process_says(ranks, name, share):
    citizen = CITIZENS[name]
    expected = citizen.fed().compute()
    for values in ranks:
        torch.testing.assert_close(values[share][name], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", CITIZENS)
def test_forward_honors_dist_sync_on_step(ranks, name):
    citizen = CITIZENS[name]
    expected = citizen.fed().compute()
    for rank in ranks:
        value, after = rank["on step"][name]
        assert (value is None) == (citizen.make in (PromptSplit, W1KPScore))
        for found in (after,) if value is None else (value, after):
            torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


def test_the_real_side_is_kept_by_each_process(ranks):
    for rank in ranks:
        for power, found in zip((1, 2), rank["real side kept"], strict=True):
            expected = cosine_mean_similarity(FAKE**power, REAL, partition=HALVES)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_a_collection_syncs(ranks):
    cka = PixelCKA()
    cka.update(FAKE)
    expected = {
        "cms": cosine_mean_similarity(FAKE, REAL),
        "mmd": maximum_mean_discrepancy(FAKE, REAL),
        "cka": cka.compute(),
    }
    for rank in ranks:
        torch.testing.assert_close(dict(rank["collection"]), expected, rtol=0, atol=1e-6)


def test_an_error_of_rank_zero_is_everyones(ranks):
    assert ranks[0]["refused"] == ranks[1]["refused"]
    assert "at least 2 samples" in ranks[0]["refused"]


def test_modes_are_found_where_one_process_has_no_samples(ranks):
    alone = VendiScore()
    alone.update(FAKE.flatten(1))
    for rank in ranks:
        torch.testing.assert_close(rank["modes"], alone.modes(3).eigenvalues)


def test_one_gamma_for_all(ranks):
    whole = GaussianKernel().resolved(REAL.flatten(1)).gamma
    first = GaussianKernel().resolved(REAL[:12].flatten(1)).gamma  # rank zero's first update
    assert ranks[0]["gamma"] == ranks[1]["gamma"] == pytest.approx({"streaming": first, "kept": whole})


def test_each_process_keeps_its_own_samples_afterwards(ranks):
    assert [rank["local"] for rank in ranks] == [11, 19]

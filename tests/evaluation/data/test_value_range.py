# SPDX-License-Identifier: Apache-2.0
import re

import pytest
import torch

from genmonitor.evaluation.data.value_range import check_value_range


def between(low, high, n=20):
    x = torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(n))
    return low + (high - low) * x


REFUSED = {
    "[0, 1] against 0..255": (between(0, 255), between(0, 1), "real images reach 25.* generated ones (0.99|1)"),
    "[-1, 1] against 0..255": (between(0, 255), between(-1, 1), "real images reach 25"),
    "integers 0 and 1 read as 0..255": (between(0, 1).round() / 255, between(0, 1), "reach no more than 1/255"),
}
NOTED = {
    "[-1, 1] against [0, 1]": (between(0, 1), between(-1, 1), "0.4[0-9] of the generated values are negative"),
    "[0, 1] against [-1, 1]": (between(-1, 1), between(0, 1), "no generated value is negative"),
    "0..255 against [0, 1]": (between(0, 1), between(0, 255), "generated ones 25"),
    "0..255 against [-1, 1]": (between(-1, 1), between(0, 255), "generated ones 25"),
    "[0, 1] against 0..16": (between(0, 16), between(0, 1), "real images reach 1[56].* generated ones (0.99|1)"),
    "a new sigmoid against [-1, 1]": (between(-1, 1), between(0.45, 0.55), "no generated value is negative"),
    "a tanh against standardized": (between(-0.42, 2.82), between(-0.9, 0.9), "as behind a tanh"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_value_range_refuses_what_no_training_mends(name):
    real, fake, problem = REFUSED[name]
    with pytest.raises(ValueError, match=problem):
        check_value_range(real, fake)


@pytest.mark.parametrize("name", NOTED)
def test_value_range_notes_what_training_may_mend(name):
    real, fake, doubt = NOTED[name]
    (note,) = check_value_range(real, fake)
    assert re.search(doubt, note)


@pytest.mark.parametrize("remedy", ["`sample_fn`", "the dataset's transform", "`image_key`"])
def test_value_range_names_each_remedy(remedy):
    assert remedy in check_value_range(between(0, 1), between(-1, 1))[0]
    with pytest.raises(ValueError, match=remedy):
        check_value_range(between(0, 255), between(-1, 1))


@pytest.mark.parametrize("seed", range(20))
def test_value_range_never_refuses_an_untrained_decoder(seed):
    torch.manual_seed(seed)
    decoder = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 64))
    with torch.no_grad():
        fake = decoder(torch.randn(16, 8)).view(16, 1, 8, 8)
    check_value_range(between(0, 1), fake)


@pytest.mark.parametrize(
    ("real", "fake"),
    [
        (between(-1, 1), between(-1, 1, 9)),
        (between(0, 1), between(0, 1, 9)),
        (between(0, 255), between(0, 255, 9)),
        (between(0, 1), between(-0.04, 1.2)),  # unbounded, near enough
        (between(-1, 1), between(-0.01, 0.01)),  # a new network before its tanh
        (between(-1, 1), torch.zeros(9, 1, 8, 8)),  # an output layer that is still zero
        (between(0, 1), torch.zeros(9, 1, 8, 8)),
        (between(-1, 1), torch.full((9, 1, 8, 8), -1.0)),
        (between(-2.1, 2.6), between(-3, 4)),  # standardized
        (between(0, 255), between(90, 100)),
        (between(0, 16), between(0, 0.1)),  # a new network behind a ReLU
        *((between(-1, 1), torch.full((9, 1, 8, 8), value)) for value in (0.3, 0.5, 1.0)),  # constant, untrained
    ],
)
def test_value_range_lets_a_bad_generator_through(real, fake):
    assert check_value_range(real, fake) == ()

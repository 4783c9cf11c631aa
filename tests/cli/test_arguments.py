# SPDX-License-Identifier: Apache-2.0
import argparse
from pathlib import Path

import pytest

from genmonitor.cli.arguments import gaussian_sigma, nonempty, nonempty_path, number, number_above, whole_number


def test_nonempty_path_is_a_path():
    assert nonempty_path("a/b") == Path("a/b")


@pytest.mark.parametrize("read", [nonempty, nonempty_path])
@pytest.mark.parametrize("text", ["", " "])
def test_nonempty_refuses_an_empty_path(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a path, but got an empty one"):
        read(text)


@pytest.mark.parametrize("text", ["1", "99", str(2**63 - 1)])
def test_whole_number_reads_what_is_within_bounds(text):
    assert whole_number(1)(text) == int(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "of at least 1, but got 0"),
        ("-5", "of at least 1, but got -5"),
        ("2.5", "of at least 1, but got 2.5"),
        ("many", "of at least 1, but got many"),
        (str(2**63), f"of at most {2**63 - 1}"),
    ],
)
def test_whole_number_refuses(text, message):
    with pytest.raises(argparse.ArgumentTypeError, match=f"expected a whole number {message}"):
        whole_number(1)(text)


@pytest.mark.parametrize("text", ["0", "-1", "many", "nan", "inf"])
def test_number_above_names_what_it_takes(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"expected a number above 0, but got {text}"):
        number_above(0)(text)


def test_number_above_reads_fractions():
    assert number_above(0)("0.25") == 0.25


@pytest.mark.parametrize("text", ["0", "-1", "1e-300", "1e300", "nan", "inf", "many"])
def test_gaussian_sigma_is_one_whose_gamma_is_a_number(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"expected a number from 1e-18 to 1e18, but got {text}"):
        gaussian_sigma(text)
    assert gaussian_sigma("0.5") == 0.5


@pytest.mark.parametrize("text", ["nan", "inf", "many"])
def test_number_is_finite(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"expected a number, but got {text}"):
        number(text)
    assert number("-1e-3") == -0.001

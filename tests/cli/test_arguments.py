# SPDX-License-Identifier: Apache-2.0
import argparse
from pathlib import Path

import pytest

from genmonitor.cli.arguments import given, given_path, number_above, whole_number


def test_given_path_is_a_path():
    assert given_path("a/b") == Path("a/b")


@pytest.mark.parametrize("read", [given, given_path])
@pytest.mark.parametrize("text", ["", " "])
def test_given_refuses_an_empty_path(read, text):
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

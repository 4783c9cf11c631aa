# SPDX-License-Identifier: Apache-2.0
import argparse
import re
from pathlib import Path

import pytest

from genmonitor.cli.arguments import add_sigma_arguments, nonempty, nonempty_path, number_within, whole_number


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
        (str(2**63), f"of at least 1 and below 2^63, but got {2**63}"),
    ],
)
def test_whole_number_refuses(text, message):
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(f"expected a whole number {message}")):
        whole_number(1)(text)


@pytest.mark.parametrize("text", ["0", "-1", "many", "nan", "inf", "9"])
def test_number_within_names_what_it_takes(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"expected a number above 0, but got {text}"):
        number_within("a number above 0", 0, 9)(text)


def test_number_within_reads_fractions():
    assert number_within("a number above 0", 0)("0.25") == 0.25
    assert number_within("a number")("-2") == -2


@pytest.mark.parametrize("text", ["0", "-1", "1e-300", "1e300", "nan", "inf", "many"])
def test_sigma_is_one_whose_gamma_is_a_number(text, capsys):
    parser = argparse.ArgumentParser()
    add_sigma_arguments(parser, "a", "b")
    assert parser.parse_args(["--sigma", "0.5"]).sigma == 0.5
    with pytest.raises(SystemExit):
        parser.parse_args([f"--sigma={text}"])
    assert f"expected a number between 1e-18 and 1e18, but got {text}" in capsys.readouterr().err

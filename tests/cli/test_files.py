# SPDX-License-Identifier: Apache-2.0
import zipfile

import numpy as np
import pytest

from genmonitor.cli.outputs import read_array, split_key
from genmonitor.cli.prompts import read_csv


def test_a_name_behind_a_colon_is_the_array_of_a_file(tmp_path):
    assert split_key("data.npz:train") == (tmp_path.__class__("data.npz"), "train")
    (tmp_path / "a:b").mkdir()
    assert split_key(str(tmp_path / "a:b")) == (tmp_path / "a:b", None)


def test_the_array_of_a_file_is_found_by_its_name(tmp_path):
    np.savez(tmp_path / "x.npz", labels=[1, 2], embeddings=[[0.5], [1.5]])
    assert read_array(tmp_path / "x.npz").tolist() == [[0.5], [1.5]]
    assert read_array(tmp_path / "x.npz", names=("labels",)).tolist() == [1, 2]
    with pytest.raises(
        ValueError, match=r"one of the arrays in .*x.npz: labels, embeddings. Give it as in .*x.npz:labels"
    ):
        read_array(tmp_path / "x.npz", "nothing")


@pytest.mark.parametrize(
    ("content", "row", "why"),
    [
        ('name,prompt\n1,"a cat\n2,a dog\n', 1, "unexpected end of data"),
        ('name,prompt\n1,a cat\n2,"a" dog\n', 2, "',' expected after '\"'"),
        ("name,prompt\n1,a cat, sitting\n", 1, "it has more values than the 2 columns"),
        (f'name,prompt\n1,"{"x" * 140_000}\n2,a dog\n', 1, "field larger than field limit"),
    ],
)
def test_rows_with_quotes_that_do_not_match_are_refused(tmp_path, content, row, why):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(ValueError, match=f"cannot read row {row}: {why}"):
        read_csv(tmp_path / "x.csv")


def test_quoted_values_may_hold_commas_quotes_and_line_breaks(tmp_path):
    (tmp_path / "x.csv").write_text('name,prompt,\n1,"a ""big"" cat,\nsitting",\n2,a 5" nail,,\n')
    assert [row["prompt"] for row in read_csv(tmp_path / "x.csv")] == ['a "big" cat,\nsitting', 'a 5" nail']


def pickled(path):
    np.savez(path, images=np.array([{"a": 1}], dtype=object))


def parquet_by_another_name(path):
    path.write_bytes(b"PAR1" + bytes(40) + b"PAR1")


def cut(path):
    np.savez(path, images=np.zeros((3, 4)))
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize("write", [pickled, parquet_by_another_name, cut])
@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_no_message_advises_to_load_unsafely(tmp_path, write, suffix):
    write(tmp_path / "x.npz")
    path = (tmp_path / "x.npz").rename(tmp_path / f"x{suffix}")
    with pytest.raises(ValueError, match=r"file of plain numbers, but .* is not") as caught:
        read_array(path)
    assert "pickle" not in str(caught.value).lower()


@pytest.mark.parametrize("key", [None, "data.pkl"])
def test_an_archive_of_other_files_holds_no_array(tmp_path, key):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("data.pkl", "no array")
    with pytest.raises(ValueError, match=r"name of one of the arrays in .*: nothing"):
        read_array(tmp_path / "x.npz", key)


def test_another_kind_of_file_is_refused_by_its_name(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"or .npz file, but got .*x.parquet. Convert it"):
        read_array(tmp_path / "x.parquet")

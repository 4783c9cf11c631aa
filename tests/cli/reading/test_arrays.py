# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from genmonitor.cli.reading.arrays import read_array, split_key


def test_a_name_behind_a_colon_is_the_array_of_a_file(tmp_path):
    assert split_key("data.npz:train") == (tmp_path.__class__("data.npz"), "train")
    (tmp_path / "a:b").mkdir()
    assert split_key(str(tmp_path / "a:b")) == (tmp_path / "a:b", None)


def test_safetensors_are_read_as_other_arrays(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"embeddings": torch.ones(2, 3), "other": torch.zeros(1)}, tmp_path / "x.safetensors")
    assert torch.equal(read_array(tmp_path / "x.safetensors"), torch.ones(2, 3))
    assert torch.equal(read_array(tmp_path / "x.safetensors", "other"), torch.zeros(1))


def test_the_array_of_a_file_is_found_by_its_name(tmp_path):
    np.savez(tmp_path / "x.npz", labels=[1, 2], embeddings=[[0.5], [1.5]])
    assert read_array(tmp_path / "x.npz").tolist() == [[0.5], [1.5]]
    assert read_array(tmp_path / "x.npz", names=("labels",)).tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"Which of labels, embeddings in .* is meant\? Say it as in .*x.npz:labels"):
        read_array(tmp_path / "x.npz", "nothing")

# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest
import torch
from PIL import Image

from genmonitor.cli.reading.outputs import cut, read_outputs
from genmonitor.evaluation.progress import no_progress


def read(where, size=None):
    return read_outputs(str(where), size, no_progress)


def lines(path, *rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_a_folder_holds_images_named_by_their_files(tmp_path):
    for name in ("b/1.png", "a.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.zeros((4, 5), dtype=np.uint8)).save(tmp_path / name)
    outputs = read(tmp_path)
    assert (outputs.kind, outputs.names, outputs.images.shape) == ("images", ["a.png", "b/1.png"], (2, 1, 4, 5))


@pytest.mark.parametrize(("shape", "kind"), [((3, 7), "embeddings"), ((3, 7, 7), "images"), ((3, 1, 7, 7), "images")])
def test_arrays_of_two_dimensions_are_embeddings(tmp_path, shape, kind):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random(shape))
    outputs = read(tmp_path / "x.npy")
    assert (outputs.kind, len(outputs), outputs.names[2]) == (kind, 3, "row 2")
    assert (outputs.features is not None) is (kind == "embeddings")


def test_lines_of_json_are_texts_with_their_prompts(tmp_path):
    outputs = read(lines(tmp_path / "x.jsonl", {"prompt": "2+2?", "output": "4"}, {"question": "3?", "answer": "no"}))
    assert (outputs.kind, outputs.texts, outputs.prompts) == ("texts", ["4", "no"], ["2+2?", "3?"])


def test_texts_may_be_without_prompts(tmp_path):
    assert read(lines(tmp_path / "x.jsonl", "one", {"text": "two"})).prompts is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("no json", "a JSON value in line 1"),
        ('{"prompt": "x"}', "a text as output, but the 1. has"),
        ("", "is empty"),
        ('{"prompt": "x", "output": "y"}\n"z"', "`prompt` in each row of .* or in none, but the 2. of 2 has none"),
        (b"\xff\xfe", "Expected text in UTF-8"),
    ],
)
def test_lines_that_hold_no_texts_are_refused(tmp_path, content, complaint):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=complaint):
        read(path)


def test_what_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a folder of image files, .* but there is no .*nothing"):
        read(tmp_path / "nothing")


def test_embeddings_that_are_not_finite_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match=r"`embeddings of .*x.npy` to be finite, but 6"):
        read(tmp_path / "x.npy")


def test_a_file_is_not_resized(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match="Leave out --size"):
        read(tmp_path / "x.npy", size=4)


def test_a_table_shows_an_output_by_its_text_or_by_name_and_prompt(tmp_path):
    texts = read(lines(tmp_path / "x.jsonl", {"prompt": "p", "output": "a  long\ntext"}))
    assert texts.shown(0, ["p"], length=6) == "a lon…"
    np.save(tmp_path / "x.npy", torch.zeros(2, 3).numpy())
    assert read(tmp_path / "x.npy").shown(1, ["a", "b"]) == "row 1 (b)"


def test_a_text_cannot_move_the_cursor():
    assert cut("\x1b[2Jx", 9) == "?[2Jx"

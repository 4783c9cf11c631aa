# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest
import torch
from PIL import Image

from genmonitor._io import no_progress
from genmonitor.cli.outputs import Outputs, read_outputs
from genmonitor.cli.prompts import PromptRows, read_prompts

IMAGES = Outputs("a", ["cat/1.png", "dog/2.png", "dog/3.png"], images=torch.zeros(3, 1, 2, 2))
EXPECTED = ["a cat", "a dog", "a pug"]


def write(path, content):
    path.write_text(content, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", "a cat\na dog\na pug\n"),
        ("p.csv", "id,caption\n1,a cat\n2,a dog\n3,a pug\n"),
        ("p.jsonl", "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in EXPECTED)),
        ("q.jsonl", "".join(json.dumps(prompt) + "\n" for prompt in EXPECTED)),
        ("q.csv", "file_name,prompt\n3.png,a pug\n1.png,a cat\n2.png,a dog\n"),
        ("r.csv", "file_name,text\ndog/3.png,a pug\ncat/1.png,a cat\ndog/2.png,a dog\n"),
        (
            "r.jsonl",
            "".join(f'{{"file_name": "{n}", "text": "{p}"}}\n' for n, p in zip((1, 2, 3), EXPECTED, strict=True)),
        ),
    ],
)
def test_prompts_are_matched_by_order_or_by_file(tmp_path, name, content):
    outputs = (
        IMAGES if "jsonl" not in name or "file" not in content else Outputs("a", ["1", "2", "3"], images=IMAGES.images)
    )
    assert read_prompts(write(tmp_path / name, content), outputs).values == EXPECTED


@pytest.mark.parametrize("kind", ["text", "labels"])
def test_prompts_in_order_belong_to_files_by_number_and_a_note_says_so(tmp_path, kind):
    (tmp_path / "x").mkdir()
    for i in range(12):
        Image.new("L", (2, 2)).save(tmp_path / "x" / f"{i}.png")
    outputs = read_outputs(str(tmp_path / "x"), None, no_progress)
    assert outputs.names == [f"{i}.png" for i in range(12)]
    np.savez(tmp_path / "p.npz", labels=np.arange(12))
    text = write(tmp_path / "p.txt", "".join(f"{i}\n" for i in range(12)))
    (note,) = read_prompts(text if kind == "text" else f"{tmp_path / 'p.npz'}:{kind}", outputs).notes
    assert note.endswith("in the order of their paths, '0' to 0.png, '1' to 1.png")
    named = write(tmp_path / "p.csv", "file_name,prompt\n" + "".join(f"{i}.png,{i}\n" for i in range(12)))
    assert read_prompts(named, outputs).notes == ()


def test_prompts_may_be_the_names_of_folders():
    assert read_prompts("folders", IMAGES).values == ["cat", "dog", "dog"]
    with pytest.raises(ValueError, match=r"in a folder named after its prompt or class, but got 1.png"):
        read_prompts("folders", Outputs("a", ["1.png"], images=torch.zeros(1, 1, 2, 2)))


def test_prompts_may_be_class_labels(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=np.zeros((3, 2)), labels=[4, 4, 9])
    prompts = read_prompts(str(tmp_path / "x.npz") + ":labels", IMAGES)
    assert (prompts.values, prompts.are_texts) == ([4, 4, 9], False)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int32])
@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_class_labels_may_be_of_any_width_and_a_column(tmp_path, dtype, shape):
    labels = np.array([4, 4, 200 if dtype is np.uint8 else 999], dtype=dtype)
    np.save(tmp_path / "x.npy", labels.reshape(shape))
    assert read_prompts(str(tmp_path / "x.npy"), IMAGES).values == labels.tolist()


def test_prompts_may_hold_what_unicode_calls_a_line_break(tmp_path):
    prompts = ["a\u2028cat", "a\x85dog", "a\x0cpug"]
    assert read_prompts(write(tmp_path / "p.txt", "\r\n".join(prompts)), IMAGES).values == prompts
    rows = "".join(json.dumps({"prompt": prompt}, ensure_ascii=False) + "\n" for prompt in prompts)
    assert read_prompts(write(tmp_path / "p.jsonl", rows), IMAGES).values == prompts


def test_prompts_of_two_sides_are_of_one_kind():
    assert (PromptRows(["a"]) + PromptRows(["b"])).values == ["a", "b"]
    with pytest.raises(ValueError, match="of one kind on both sides, but got str and int"):
        PromptRows(["a"]) + PromptRows([1])


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("p.txt", "a cat\na dog\n", r"one prompt for each of the 3 images of a, in the same order, but .* holds 2"),
        ("p.txt", "", "has no row of them"),
        ("p.txt", "a cat\n\na dog\n", r"a prompt in each row of .*, but row 2 has none"),
        (
            "p.csv",
            "id,words\n1,a cat\n",
            "row 1 has none. The column or key that holds it may be called prompt, question",
        ),
        (
            "p.csv",
            "file,prompt\n1.png,x\n,x\n3.png,x\n",
            "`file_name` in each row .* but row 2 has none",
        ),
        (
            "p.jsonl",
            '{"file": "1.png", "prompt": "x"}\n{"file": "2.png", "prompt": "x"}\n{"prompt": "x"}\n',
            "but row 3 has none",
        ),
        ("p.csv", "file,prompt\n1.png,x\n2.png,x\n", "has no row for dog/3.png"),
        ("p.csv", "file,prompt\n1.png,x\n1.png,x\n2.png,x\n3.png,x\n", "has more than one row for 1.png"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(tmp_path, name, content, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_prompts(write(tmp_path / name, content), IMAGES)


def test_a_file_of_one_name_in_two_folders_is_refused(tmp_path):
    images = Outputs("a", ["cat/1.png", "dog/1.png"], images=torch.zeros(2, 1, 2, 2))
    with pytest.raises(ValueError, match=r"does not say which folder the file is in: 1.png"):
        read_prompts(write(tmp_path / "p.csv", "file,prompt\n1.png,x\n"), images)


def test_an_array_that_holds_no_prompts_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"class labels, whole numbers \[n\], but .* holds \[3\], float64"):
        read_prompts(str(tmp_path / "x.npy"), IMAGES)


def test_no_file_is_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="a file of prompts, but there is no"):
        read_prompts(str(tmp_path / "none.txt"), IMAGES)

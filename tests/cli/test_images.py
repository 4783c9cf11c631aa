# SPDX-License-Identifier: Apache-2.0
import io
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from genmonitor.cli.images import read_images


def save(path, values, **settings):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path, **settings)


@pytest.fixture
def pictures():
    return np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3), dtype=np.uint8)


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path, pictures):
    for name, picture in zip(("b/2.png", "a.png", "b/10.png"), pictures, strict=True):
        save(tmp_path / name, picture)
    (tmp_path / "notes.txt").write_text("no picture")
    images = read_images(str(tmp_path))
    assert images.dtype == torch.float32
    assert torch.equal(images, torch.from_numpy(pictures[[1, 2, 0]]).permute(0, 3, 1, 2) / 255)
    assert torch.equal(read_images(str(tmp_path), limit=2), images[:2])


def test_grey_pictures_have_one_channel_unless_some_are_colored(tmp_path, pictures):
    save(tmp_path / "1.png", pictures[0, :, :, 0])
    assert read_images(str(tmp_path)).shape == (1, 1, 6, 5)
    save(tmp_path / "2.png", pictures[1])
    images = read_images(str(tmp_path))
    assert images.shape == (2, 3, 6, 5)
    assert torch.equal(images[0, 0], images[0, 2])


def test_pictures_of_several_sizes_are_refused_or_resized(tmp_path, pictures):
    save(tmp_path / "1.png", pictures[0])
    save(tmp_path / "2.png", pictures[0, :4])
    with pytest.raises(ValueError, match=r"images of one size, but .* holds 4×5, 6×5. Give --size"):
        read_images(str(tmp_path))
    assert read_images(str(tmp_path), size=4).shape == (2, 3, 4, 4)


def test_pictures_of_16_bits_are_refused(tmp_path):
    save(tmp_path / "1.png", np.zeros((4, 4), dtype=np.uint16))
    with pytest.raises(ValueError, match=r"8 bits per channel, but .*1.png has pillow's mode 'I"):
        read_images(str(tmp_path))


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nhw"])
def test_arrays_of_any_usual_layout_are_read(tmp_path, pictures, layout):
    values = {"nchw": pictures.transpose(0, 3, 1, 2), "nhwc": pictures, "nhw": pictures[..., 0]}[layout]
    np.save(tmp_path / "x.npy", values)
    torch.save(torch.from_numpy(values.copy()), tmp_path / "x.pt")
    expected = torch.from_numpy(pictures).permute(0, 3, 1, 2)[:, : 1 if layout == "nhw" else 3] / 255
    for name in ("x.npy", "x.pt"):
        assert torch.equal(read_images(str(tmp_path / name)), expected)


def test_floating_point_is_left_as_it_is(tmp_path):
    values = torch.linspace(-1, 1, 72).view(2, 1, 6, 6)
    torch.save({"images": values, "labels": torch.zeros(2)}, tmp_path / "x.pt")
    assert torch.equal(read_images(str(tmp_path / "x.pt")), values)


def test_of_several_arrays_one_is_named(tmp_path, pictures):
    np.savez(tmp_path / "x.npz", train=pictures, val=pictures[:1])
    with pytest.raises(ValueError, match=r"Which of train, val in .* holds the images\? Say it as in .*x.npz:train"):
        read_images(str(tmp_path / "x.npz"))
    assert len(read_images(f"{tmp_path / 'x.npz'}:val")) == 1
    with pytest.raises(ValueError, match="Which of train, val"):
        read_images(f"{tmp_path / 'x.npz'}:test")
    np.savez(tmp_path / "one.npz", whatever=pictures)
    assert len(read_images(str(tmp_path / "one.npz"))) == 3


class Trap:
    """Unpickling it would run code."""

    def __reduce__(self):
        return (exec, ("import builtins; builtins.sprung = True",))


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.pt"])
def test_nothing_is_unpickled(tmp_path, name):
    import builtins

    trap, path = np.array([Trap()], dtype=object), tmp_path / name
    if name == "x.npy":
        np.save(path, trap, allow_pickle=True)
    elif name == "x.npz":
        np.savez(path, images=trap)
    else:
        buffer = io.BytesIO()
        torch.save({"images": Trap()}, buffer, pickle_module=pickle)
        path.write_bytes(buffer.getvalue())
    with pytest.raises(ValueError, match=r"no .npy, .npz or .pt file of plain numbers"):
        read_images(str(path))
    assert not hasattr(builtins, "sprung")


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no .*nothing"):
        read_images(str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError, match=r"Expected image files .* under .*, but found none"):
        read_images(str(tmp_path))
    np.save(tmp_path / "x.npy", np.zeros((2, 4, 4)))
    with pytest.raises(ValueError, match="Leave out --size"):
        read_images(str(tmp_path / "x.npy"), size=4)

# SPDX-License-Identifier: Apache-2.0
import os

import numpy as np
import pytest
import torch
from data import ImageData, digits, folder, medmnist
from PIL import Image
from sklearn.datasets import load_digits


@pytest.mark.parametrize(("cores", "workers"), [(1, 0), (2, 0), (3, 2), (4, 3), (64, 4)])
def test_workers_load_only_where_cores_are_left_for_training(monkeypatch, cores, workers):
    monkeypatch.undo()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores), raising=False)
    loader = ImageData("digits").train_dataloader()
    assert (loader.num_workers, loader.persistent_workers) == (workers, workers > 0)
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert ImageData("digits").train_dataloader().num_workers == workers


def batches(loader):
    return torch.cat(list(loader))


def test_digits_are_scikit_learns_each_used_once():
    train, val = digits()
    assert train.images.shape == (1297, 1, 8, 8)
    assert val.images.shape == (500, 1, 8, 8)
    assert train.images.dtype == torch.float32
    ours = torch.cat([train.images, val.images]).flatten(1)
    theirs = torch.from_numpy(load_digits().data / 8 - 1).float()
    assert sorted(map(tuple, ours.tolist())) == sorted(map(tuple, theirs.tolist()))


def test_digits_are_split_alike_every_time_and_seed_nothing():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = digits()[1].images
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(digits()[1].images, first)


def test_loaders_shuffle_training_images_alone():
    data = ImageData("digits", batch_size=100)
    assert data.image_shape == (1, 8, 8)
    epoch, next_epoch = (list(data.train_dataloader()) for _ in range(2))
    assert [len(batch) for batch in epoch] == [100] * 12
    assert not torch.equal(epoch[0], next_epoch[0])
    assert torch.equal(batches(data.val_dataloader()), data.val_images.images)


def test_fewer_images_than_a_batch_still_make_one():
    data = ImageData("digits", batch_size=2000)
    assert [len(batch) for batch in data.train_dataloader()] == [1297]


def test_planted_training_and_held_out_images_differ():
    data = ImageData("planted")
    assert (len(data.train_images), len(data.val_images), data.image_shape) == (4000, 1000, (1, 16, 16))
    assert not torch.equal(data.train_images.images[:1000], data.val_images.images)


@pytest.fixture
def photos(tmp_path):
    """20 images 30 wide, 50 high, in all of pillow's common modes: red in the central square, blue outside."""
    for i, mode in enumerate(["RGB", "RGBA", "L", "P"] * 5):
        image = Image.new("RGB", (30, 50), (0, 0, 255))
        image.paste((255, 0, 0), (0, 10, 30, 40))
        nested = tmp_path / "deeper" if i % 2 else tmp_path
        nested.mkdir(exist_ok=True)
        image.convert(mode).save(nested / f"{i:02}_{mode}.{'PNG' if i % 3 else 'png'}")
    (tmp_path / "list_attr.txt").write_text("not an image")
    return tmp_path


def test_folder_reads_the_central_square_as_rgb(photos):
    train, val = folder(photos, size=16)
    assert (len(train), len(val)) == (18, 2)
    assert len({*train.files, *val.files}) == 20
    for images in (train, val):
        for file, image in zip(images.files, images, strict=False):
            assert image.shape == (3, 16, 16)
            assert image.dtype == torch.float32
            gray = 2 * 76 / 255 - 1
            color = [gray, gray, gray] if file.stem.endswith("_L") else [1.0, -1.0, -1.0]
            # The outermost rows mix with what lies outside the square, as in any antialiased resize.
            inside = image[:, 1:-1]
            expected = torch.tensor(color)[:, None, None].expand_as(inside)
            torch.testing.assert_close(inside, expected, atol=0.01, rtol=0)


def test_folder_is_split_alike_every_time(photos):
    assert folder(photos)[1].files == folder(photos)[1].files
    data = ImageData("folder", photos, batch_size=4, image_size=8)
    assert data.image_shape == (3, 8, 8)
    assert batches(data.val_dataloader()).shape == (2, 3, 8, 8)


def test_folder_refuses_images_of_16_bits(photos):
    for i in range(10):
        Image.fromarray(np.full((5, 5), 40_000, dtype=np.uint16)).save(photos / f"deep_{i}.png")
    train, _ = folder(photos)
    deep = next(i for i, file in enumerate(train.files) if file.name.startswith("deep"))
    with pytest.raises(ValueError, match=r"8 bits per channel, but .*deep_\d.png"):
        train[deep]


@pytest.mark.parametrize("color", [(), (3,)])
def test_medmnist_uses_the_files_own_splits(tmp_path, color):
    rng = np.random.default_rng(0)
    arrays = {
        f"{split}_images": rng.integers(0, 256, (n, 28, 28, *color), dtype=np.uint8)
        for split, n in [("train", 12), ("val", 5), ("test", 3)]
    }
    arrays["train_images"][0, 0, :2] = np.reshape([0, 255], (2, *[1 for _ in color]))
    np.savez(tmp_path / "chestmnist.npz", **arrays)
    train, val = medmnist(tmp_path / "chestmnist.npz")
    assert train.images.shape == (12, 3 if color else 1, 28, 28)
    assert train.images[0, 0, 0, :2].tolist() == [-1, 1]
    back = ((val.images + 1) * 127.5).round().permute(0, 2, 3, 1).numpy()
    assert np.array_equal(back.squeeze(-1) if not color else back, arrays["val_images"])

    test = ImageData("medmnist", tmp_path / "chestmnist.npz", held_out="test").val_images
    assert torch.equal(test.images, medmnist(tmp_path / "chestmnist.npz", "test")[1].images)
    assert len(test) == 3


@pytest.mark.parametrize(("name", "held_out"), [("medmnist", "train"), ("digits", "test")])
def test_a_split_that_there_is_none_of_is_refused(name, held_out):
    with pytest.raises(ValueError, match=f'`held_out` as "val", or "test" with medmnist, but got {held_out!r}'):
        ImageData(name, held_out=held_out)


def test_medmnist_refuses_volumes(tmp_path):
    np.savez(
        tmp_path / "organmnist3d.npz",
        **{k: np.zeros((2, 28, 28, 28), np.uint8) for k in ("train_images", "val_images")},
    )
    with pytest.raises(ValueError, match=r"organmnist3d.npz.*\(2, 28, 28, 28\).*chestmnist.npz"):
        medmnist(tmp_path / "organmnist3d.npz")


@pytest.mark.parametrize("path", [None, "no/such/place"])
@pytest.mark.parametrize(
    ("name", "file", "origin"),
    [
        ("folder", "img_align_celeba.zip", "mmlab.ie.cuhk.edu.hk"),
        ("medmnist", "chestmnist.npz", "zenodo.org"),
    ],
)
def test_a_missing_file_is_named_with_its_origin(name, file, origin, path):
    with pytest.raises(FileNotFoundError, match=f"got {path}.*{file}.*{origin}"):
        ImageData(name, path)


def test_an_almost_empty_folder_is_refused(tmp_path):
    Image.new("L", (5, 5)).save(tmp_path / "only.png")
    with pytest.raises(FileNotFoundError, match="Only 1 image files"):
        folder(tmp_path)


def test_wrong_names_and_superfluous_paths_are_refused():
    with pytest.raises(ValueError, match="digits, planted, folder or medmnist, but got 'mnist'"):
        ImageData("mnist")
    with pytest.raises(ValueError, match="'digits' needs no file"):
        ImageData("digits", "somewhere")

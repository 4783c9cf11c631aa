# SPDX-License-Identifier: Apache-2.0
import random

import numpy as np
import pytest
import torch
from _helpers.meta_tensor import MetaTensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from genmonitor.images import image_set as module
from genmonitor.images.batches import find_images
from genmonitor.images.image_set import ImageSet, StreamedItems, fingerprint
from genmonitor.training_state.data import preserve_data

IMAGES = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6)


def test_images_of_a_subclass_of_tensor_are_read_as_tensors():
    images, gray = MetaTensor(IMAGES), MetaTensor(IMAGES[:, 0])
    assert {type(find_images(batch, None)) for batch in (images, gray, {"image": images})} == {torch.Tensor}
    read = ImageSet(TensorDataset(images), None, "data").read([4, 0])
    assert type(read) is torch.Tensor
    assert torch.equal(read, IMAGES[[4, 0]])


def collate(items):
    return {"image": torch.stack([image for image, _ in items]) + 1}


@pytest.mark.parametrize(
    "data",
    [
        IMAGES,
        TensorDataset(IMAGES, LABELS),
        Subset(TensorDataset(IMAGES, LABELS), range(6)),
        [{"image": image, "label": 0} for image in IMAGES],
        DataLoader(TensorDataset(IMAGES), 2, shuffle=True, drop_last=True),
        DataLoader([image.numpy() for image in IMAGES], 4, sampler=[5, 4, 3, 2, 1, 0]),
    ],
)
def test_image_source_reads_data_of_any_kind_by_index(data):
    source = ImageSet(data, None, "the training data")
    assert len(source) == 6
    assert torch.equal(source.read([4, 0, 0, 5]), IMAGES[[4, 0, 0, 5]])


def test_image_source_uses_the_loaders_collate_function():
    source = ImageSet(DataLoader(TensorDataset(IMAGES, LABELS), 2, collate_fn=collate), None, "the training data")
    assert torch.equal(source.read(range(6)), IMAGES + 1)


def test_image_source_reads_several_batches_in_order():
    images = torch.arange(300.0).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    order = torch.randperm(300)
    assert torch.equal(ImageSet(images, None, "x").read(order.tolist()), images[order])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_image_source_reads_integers_as_0_to_255(dtype):
    pixels = (IMAGES * 255).round().to(dtype)
    read = ImageSet(pixels, None, "x").read([0, 1])
    assert read.dtype == torch.float32
    torch.testing.assert_close(read, pixels[:2] / 255)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_image_source_reads_floats_as_float32(dtype):
    assert ImageSet(IMAGES.to(dtype), None, "x").read([0]).dtype == torch.float32


class Stream(IterableDataset):
    def __iter__(self):
        return iter(IMAGES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Stream(), "Expected the training data .* but got Stream. Give `real_images=`"),
        (DataLoader(TensorDataset(IMAGES)).batch_sampler, "but got BatchSampler"),
        (IMAGES.permute(0, 2, 3, 1), r"looks like \[N, H, W, C\]"),
        (IMAGES.where(IMAGES < 0.9, float("nan")), "`images of the training data` to be finite"),
        (IMAGES.where(IMAGES < 0.9, float("inf")), "`images of the training data` to be finite"),
        ((IMAGES * 300).int(), r"integer `images of the training data` within 0\.\.255"),
        (torch.stack([LABELS, LABELS - 1])[:, :, None, None], r"within 0\.\.255, but got -1\.\."),
    ],
)
def test_image_source_refuses_what_are_no_images(data, message):
    with pytest.raises(ValueError, match=message):
        ImageSet(data, None, "the training data").read([0, 1])


class TooLong(TensorDataset):
    def __len__(self):
        return 9


def test_image_source_says_that_a_length_is_wrong():
    with pytest.raises(ValueError, match=r"the training data to hold 9 images, .* but there is none at 7"):
        ImageSet(TooLong(IMAGES), None, "the training data").read([7])


def test_image_source_finds_its_root_through_subsets():
    inner = TensorDataset(IMAGES)
    source = ImageSet(Subset(Subset(inner, [5, 3, 1]), [2, 0]), None, "x")
    assert source.subset([1, 0, 1]).places() == (inner, [5, 1, 5])


@pytest.mark.parametrize("workers", [0, 1])
def test_image_source_refuses_images_of_several_sizes(workers):
    images = DataLoader([torch.zeros(1, 8, 8)] * 150 + [torch.zeros(1, 8, 9)], num_workers=workers)
    with pytest.raises(ValueError, match=r"images of x of one size, but .*\[1, 8, 9\] at entry 150.* Resize them in"):
        ImageSet(images, None, "x").read(range(151))


def test_image_source_refuses_a_key_to_one_image_only():
    source = ImageSet(DataLoader(list(IMAGES[:, :1])), 0, "the training data")
    with pytest.raises(
        ValueError, match=r"one image from each of 6 items of the training data, but got 1.*`image_key=`"
    ):
        source.read(range(6))


class Augmented(Dataset):
    """Draws from every global random generator, as transforms do."""

    def __len__(self):
        return 300

    def __getitem__(self, index):
        return IMAGES[index % 6] + torch.rand(1) + np.random.rand() + random.random()  # noqa: NPY002


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_image_source_reads_an_augmented_image_alike(workers):
    source = ImageSet(DataLoader(Augmented(), num_workers=workers), None, "x")
    first = source.read(range(200))
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    assert torch.equal(source.read([150, 3]), first[[150, 3]])
    assert torch.equal(source.read(range(199, -1, -1)).flip(0), first)
    assert len({float((first[i] - IMAGES[i % 6]).mean()) for i in range(200)}) > 190


class Counting(TensorDataset):
    read = 0

    def __getitem__(self, index):
        self.read += 1
        return super().__getitem__(index)


@pytest.fixture
def begun():
    """A shuffling loader that has given its first batch, its generator and its iterator."""
    generator = torch.Generator().manual_seed(0)
    data = DataLoader(Counting(IMAGES), 2, shuffle=True, generator=generator)
    iterator = iter(data)
    next(iterator)
    return data, generator, iterator


def test_image_source_moves_no_generator_of_the_loader(begun):
    data, generator, _ = begun
    state = generator.get_state()
    ImageSet(data, None, "x").read(range(6))
    assert torch.equal(generator.get_state(), state)


def test_image_source_takes_no_batch_from_the_loader(begun):
    data, _, iterator = begun
    ImageSet(data, None, "x").read(range(6))
    assert data.dataset.read == 2
    assert sum(len(batch) for (batch,) in iterator) == 4


def test_fingerprint_tells_other_images_apart():
    assert fingerprint(IMAGES) == fingerprint(IMAGES.clone()) != fingerprint(IMAGES.flip(0))


FLIPS = random.SystemRandom()
"""A generator without a state."""


class Flipped(Dataset):
    def __init__(self, n):
        self.images = torch.rand(n, 1, 2, 2, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return image.flip(-1) if FLIPS.random() < 0.5 else image


def test_image_source_notices_flips_that_cannot_be_seeded():
    (note,) = ImageSet(Flipped(500), None, "the data").reading_notes()
    assert "an image of the data differs each time it is read" in note
    assert "a state that cannot be put back" in note
    assert ImageSet(Flipped(500).images, None, "x").reading_notes() == ()


def test_a_set_of_streamed_items_says_how_many_there_are():
    (note,) = ImageSet(StreamedItems([IMAGES[0], IMAGES[1]]), None, "the data").notes()
    assert "the data can only be streamed, so its first 2 images" in note


def test_a_subset_reads_an_augmented_image_as_its_set_does():
    whole = ImageSet(Augmented(), None, "x")
    assert torch.equal(whole.subset([150, 3]).subset([1]).read(), whole.read([3]))


def test_images_that_were_all_read_are_read_once_unless_they_are_large(monkeypatch):
    data = Counting(IMAGES)
    some = ImageSet(data, None, "x").subset([4, 0, 2])
    with preserve_data({}):  # which restores the count at its end
        assert torch.equal(some.read(), IMAGES[[4, 0, 2]])
        assert torch.equal(some.read([2, 0]), IMAGES[[2, 4]])
        assert data.read == 3
        monkeypatch.setattr(module, "MAX_HELD", 3 * IMAGES[0].nbytes - 1)
        some = some.subset([0, 1, 2])
        some.read()
        some.read([0])
        assert data.read == 3 + 3 + 1

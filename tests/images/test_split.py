# SPDX-License-Identifier: Apache-2.0
import random
import tracemalloc

import pytest
import torch
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

from genmonitor.images.split import (
    ImageSet,
    chosen_patch_size,
    cka_work,
    evenly_spread,
    image_budget,
    split_reference,
)

AGAINST_TRAINING = (
    "there is no validation data, no `validation_step`, or validation is switched off. Generated images are compared "
    "with training images, so p-values may be too small or too large. Give validation data, in Lightning with a "
    "`validation_step`, which may be empty"
)


def numbered(count, start=0):
    """Return images that know their own index."""
    return torch.arange(start, start + count, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)


def split(training=None, validation=None, given=None, n_clusters=20, n_samples=30, block_size=None, seed=0):
    reference = ImageSet.of_training(training, validation) if given is None else ImageSet(given)
    return split_reference(reference, n_clusters, n_samples, block_size, seed)


def for_baseline(found):
    return found.baseline.read()[:, 0, 0, 0].tolist()


def compared(found):
    return found.comparison.read()[:, 0, 0, 0].tolist()


def test_split_compares_with_validation_data_alone():
    found = split(numbered(100), numbered(50, start=1000))
    assert max(found.regions.read()[:, 0, 0, 0].tolist()) < 1000 <= min(compared(found))
    assert sorted(for_baseline(found)) == list(range(100))
    assert (len(set(found.regions.indices)), len(set(found.comparison.indices))) == (20, 30)
    assert found.notes == ()


def test_split_without_validation_data_divides_training_images():
    found = split(numbered(100))
    assert found.comparison.data is found.baseline.data
    assert not set(found.comparison.indices) & set(found.baseline.indices)
    assert len(found.comparison) + len(found.baseline) == 100
    assert found.notes == (AGAINST_TRAINING,)


def test_split_of_given_images_looks_at_no_others():
    found = split(numbered(9, start=500), numbered(9, start=500), given=numbered(100))
    assert sorted(for_baseline(found) + compared(found)) == list(range(100))
    assert found.notes == ()


def test_split_notes_few_images():
    assert split(numbered(40)).notes[1:] == (
        "only 20 real images available for comparison with 30 generated ones",
        "only 20 real images for 30-image draws: treat the baseline as approximate (60 or more is better)",
    )


@pytest.mark.parametrize(("training", "notes"), [(60, 0), (59, 1)])
def test_split_notes_overlapping_draws_below_2n(training, notes):
    assert len(split(numbered(training), numbered(30)).notes) == notes


def test_split_compares_with_whole_blocks():
    assert len(split(numbered(100), numbered(29), block_size=8).comparison) == 24


def test_split_follows_its_seed_alone():
    first = split(numbered(100), numbered(50))
    torch.manual_seed(9)
    again, other = (split(numbered(100), numbered(50), seed=seed) for seed in (0, 1))
    assert again.regions.indices == first.regions.indices
    assert again.comparison.indices == first.comparison.indices != other.comparison.indices
    assert again.baseline.indices == first.baseline.indices
    assert other.regions.indices == first.regions.indices


def test_split_finds_clusters_in_all_images_that_the_budget_allows():
    assert split(numbered(100), n_clusters=None).regions.indices == list(range(100))
    assert len(split(numbered(6000), n_clusters=None).regions.indices) == 5000


def test_split_spreads_images_for_clusters_over_the_data():  # which is often ordered by class
    chosen = split(numbered(1000), n_clusters=50).regions.indices
    assert all(20 * i <= index < 20 * (i + 1) for i, index in enumerate(chosen))
    assert len({index % 10 for index in chosen}) > 5  # or its classes take turns


def test_split_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    split(numbered(100), numbered(50))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, r"the Trainer has no training data\. Give `real_images=`"),
        (
            {"training": numbered(3)},
            "Too few real images: the training data holds 3, which leaves 1 to compare with, but a comparison needs 2",
        ),
        ({"given": numbered(1)}, "Too few real images: `real_images` holds 1, .* with `real_images=`"),
        (
            {"training": numbered(1), "validation": numbered(30)},
            "Too few real images: the training data holds 1, which leaves 1 for clusters and baseline, but they need 2",
        ),
        (
            {"training": numbered(100), "validation": numbered(7), "block_size": 8},
            "Too few real images: the validation data holds 7, which leaves 0 to compare with, but one block needs 8",
        ),
        (
            {"training": numbered(60), "validation": torch.zeros(60, 3, 2, 2)},
            r"of one shape, but the training data holds \[1, 2, 2\] and the validation data \[3, 2, 2\]",
        ),
    ],
)
def test_split_refuses(data, message):
    with pytest.raises(ValueError, match=message):
        split(**data)


def test_split_keeps_to_samplers_of_one_dataset():
    images = TensorDataset(numbered(100))
    loaders = [DataLoader(images, 10, sampler=SubsetRandomSampler(part)) for part in (range(60), range(60, 100))]
    found = split(*loaders)
    assert max(for_baseline(found)) < 60 <= min(compared(found))
    assert found.notes == ()


@pytest.mark.parametrize("opened", ["once", "twice"])
def test_split_takes_compared_images_out_of_the_training_set(opened):
    images = TensorDataset(numbered(100))
    again = images if opened == "once" else TensorDataset(numbered(100))
    found = split(DataLoader(images), DataLoader(Subset(again, range(50, 100))))
    assert not set(compared(found)) & set(for_baseline(found))
    assert len(found.baseline) == 100 - 30
    assert found.notes[0].startswith("30 of the 30 validation images that were chosen are training images too")


class OutOfSight(TensorDataset):
    random = random.SystemRandom()  # has no state

    def __getitem__(self, index):
        return super().__getitem__(index)[0] + self.random.random()


@pytest.mark.parametrize("moved", ["training", "validation"])
def test_split_notes_a_generator_out_of_sight(moved):
    sides = {name: TensorDataset(numbered(200)) for name in ("training", "validation")}
    notes = split(*(sides | {moved: OutOfSight(numbered(200))}).values()).notes
    assert f"an image of the {moved} data differs each time it is read" in notes[-1]


def test_split_signature_tells_other_images():
    first, same, other = (split(given=images) for images in (numbered(80), numbered(80), numbered(80) + 1))
    assert first.signature() == same.signature() != other.signature()


def test_reference_without_validation_compares_with_training():
    assert ImageSet.of_training(numbered(5), None).compared.name == "the training data"
    assert ImageSet.of_training(numbered(5), numbered(5)).compared.name == "the validation data"


def test_reference_calls_a_given_set_by_its_name():
    with pytest.raises(ValueError, match="Expected the photos to be a Dataset"):
        len(ImageSet(3, name="the photos"))


class Millions:
    """Images made when they are asked for, with a length and access by index and nothing else."""

    def __len__(self):
        return 20_000_000

    def __getitem__(self, index):
        return torch.full((1, 2, 2), index / len(self))


@pytest.mark.parametrize("validated", [True, False])
def test_split_of_millions_of_images_is_small(validated):
    data = {"training": Millions(), "validation": Millions() if validated else None}
    tracemalloc.start()
    try:
        found = split_reference(ImageSet.of_training(**data), 1000, 1200, None, seed=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200 * 2**20
    assert len(found.regions.indices) == 1000
    assert len(set(found.comparison.indices)) == 1200
    assert validated or not set(found.comparison.indices) & set(found.baseline.indices)


@pytest.mark.parametrize(
    ("shape", "patch_size"),
    [((1, 8, 8), 1), ((3, 32, 32), 1), ((3, 64, 64), 1), ((3, 256, 256), 4), ((3, 256, 256), None), ((1, 8, 8), 9)],
)
def test_image_budget_is_within_its_bounds(shape, patch_size):
    assert 1000 <= image_budget(shape, patch_size) <= 5000


def test_image_budget_falls_with_the_size():
    budgets = [image_budget((3, side, side)) for side in (8, 32, 64, 96, 128, 512, 1024)]
    assert budgets == sorted(budgets, reverse=True)
    assert 4 * 3 * 1024**2 * budgets[-1] <= 2**30
    assert image_budget((3, 128, 128), 2) > image_budget((3, 128, 128), 1)


def test_cka_work_grows_with_images_and_with_pairs_of_sites():
    assert cka_work(10, (3, 8, 8)) == 10 * 64**2 * 3
    assert cka_work(10, (3, 8, 8), patch_size=2) == 10 * 16**2 * 12
    # beyond 32×32 of averages over cells
    assert cka_work(10, (3, 512, 512)) == cka_work(10, (3, 256, 256), patch_size=8) == 10 * 32**4 * 3
    assert cka_work(10, (3, 256, 256), patch_size=16) == 10 * 16**4 * 12


@pytest.mark.parametrize(
    ("height", "width", "side"), [(64, 64, 2), (28, 28, 1), (80, 120, 4), (240, 320, 10), (7, 500, 1), (47, 47, 1)]
)
def test_sites_are_as_small_as_their_number_allows(height, width, side):
    assert chosen_patch_size((3, height, width)) == side


@pytest.mark.parametrize("size", [(218, 178), (101, 101)])
def test_images_that_no_patches_tile_are_refused_with_what_to_do(size):
    with pytest.raises(ValueError, match=rf"got {size[0]}×{size[1]}. Crop or resize them, give `patch_size`, or"):
        chosen_patch_size((3, *size))


@pytest.mark.parametrize(("length", "count"), [(10, 3), (7, 7), (100, 99), (5, 50), (20_000_000, 5000)])
def test_evenly_spread_takes_different_indices_in_order(length, count):
    state = torch.get_rng_state()
    chosen = evenly_spread(length, count)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(set(chosen)) == min(length, count)
    assert chosen == sorted(chosen)
    assert chosen[0] >= 0
    assert chosen[-1] < length


SCALES = {
    "[0, 1]": lambda x: x,
    "[-1, 1]": lambda x: 2 * x - 1,
    "0..255": lambda x: 255 * x,
    "mean and deviation": lambda x: (x - 0.45) / 0.225,
}


@pytest.mark.parametrize("validation", SCALES)
@pytest.mark.parametrize("training", SCALES)
def test_a_transform_that_one_of_both_data_lacks_is_noted(training, validation):
    images = torch.rand(120, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    found = split(SCALES[training](images[:80]), SCALES[validation](images[80:]), n_samples=20)
    notes = [note for note in found.notes if "Give both the same transform" in note]
    assert len(notes) == (training != validation)

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers.evaluations import ScriptedCollective, labeled
from torch.utils.data import Dataset, TensorDataset

from genmonitor.distributed import SingleProcess
from genmonitor.images import prompts as real_subset
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import Prompts, choose_by_prompt, find_prompts, subset_by_prompt


def numbered(count, start=0):
    """Return images that know their own index."""
    return torch.arange(start, start + count, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)


def subset(count, n, shape=(1, 2, 2)):
    return ImageSet(numbered(count)).to_compare(n, 0, shape)


def test_real_subset_is_n_images_at_random():
    values = subset(50, 10).read(range(10))[:, 0, 0, 0].tolist()
    assert len(set(values)) == 10
    assert values != sorted(values)
    assert subset(50, 10).read(range(4, 6))[:, 0, 0, 0].tolist() == values[4:6]


def test_real_subset_of_a_smaller_set_is_all_and_says_so():
    found = subset(7, 10)
    assert len(found) == 7
    assert found.few_notes(10) == ("only 7 real images available for comparison with 10 generated ones",)
    assert found.few_notes(7) == ()


def test_real_subset_reads_none_in_their_shape():
    assert subset(7, 7).read(range(0)).shape == (0, 1, 2, 2)


def test_real_subset_refuses_another_shape():
    with pytest.raises(ValueError, match=r"of shape \[3, 2, 2\] like the generated ones, but got \[1, 2, 2\]"):
        subset(7, 7, (3, 2, 2))


def test_real_subset_refuses_a_single_image():
    with pytest.raises(ValueError, match="at least 2 real images, but `real_images` holds 1"):
        subset(1, 7)


IMAGES, LABELS, TEXTS = torch.zeros(3, 1, 8, 8), torch.tensor([7, 3, 7]), ["a", "b", "a"]


@pytest.mark.parametrize(
    ("batch", "key"),
    [
        ((IMAGES, LABELS), None),
        ([LABELS, IMAGES], None),
        ((torch.zeros(3), IMAGES, LABELS), None),
        ({"image": IMAGES, "label": LABELS}, None),
        ({"pixel_values": IMAGES, "target": LABELS}, None),
        ({"image": IMAGES, "y": LABELS}, "y"),
        ((LABELS + 1, IMAGES, LABELS), 2),
        ({"meta": {"digit": [7, 3, 7]}}, lambda batch: batch["meta"]["digit"]),
    ],
)
def test_find_prompts_finds_labels_in_common_batches(batch, key):
    assert find_prompts(batch, key, labels=True) == [7, 3, 7]


@pytest.mark.parametrize(
    ("batch", "key"),
    [
        ((IMAGES, TEXTS), None),
        ((IMAGES, LABELS, tuple(TEXTS)), None),
        ({"image": IMAGES, "caption": TEXTS, "label": LABELS}, None),
        ({"pixel_values": IMAGES, "text": TEXTS}, None),
        ({"image": IMAGES, "description": TEXTS}, "description"),
        ({"captions": [["a", "x"], ["b", "x"], ["a", "x"]]}, lambda batch: [texts[0] for texts in batch["captions"]]),
    ],
)
def test_find_prompts_finds_strings_in_common_batches(batch, key):
    assert find_prompts(batch, key, labels=False) == TEXTS


@pytest.mark.parametrize(
    ("batch", "key", "labels", "said"),
    [
        (IMAGES, None, True, r"class labels, whole numbers \[N\], .* a tensor of shape \[3, 1, 8, 8\]"),
        ((IMAGES, TEXTS), None, True, "a tuple of a tensor of shape .*, a list of str, str, str"),
        ((IMAGES, LABELS), None, False, "prompts, a list of strings, .*`prompt_key=`"),
        ({"label": LABELS}, "y", True, r"`prompt_key`='y' to lead to .* the keys \['label'\]"),
        ({"label": LABELS.float()}, None, True, r"a tensor of shape \[3\]"),
        ((IMAGES, LABELS[:, None]), None, True, "a tuple"),
        ((IMAGES, 200 * TEXTS), None, True, "str, str, str, str, str, …"),
    ],
)
def test_find_prompts_describes_a_batch_without_any(batch, key, labels, said):
    with pytest.raises(ValueError, match=said):
        find_prompts(batch, key, labels)


def choose(prompts, labels, n, seed=0):
    data = TensorDataset(torch.zeros(len(labels), 1, 2, 2), torch.tensor(labels))
    source = ImageSet(data, None, "`real_images`")
    return choose_by_prompt(source, None, Prompts(prompts), n, seed)


def test_choose_by_prompt_follows_the_order_of_the_prompts():
    labels = [i % 4 for i in range(400)]
    chosen = choose([2, 0, 2], labels, 30)
    assert [labels[i] for i in chosen] == 10 * [2, 0, 2]
    assert len(set(chosen)) == 30


def test_choose_by_prompt_follows_its_seed():
    labels = [i % 4 for i in range(40)]
    assert choose([0, 1], labels, 6) == choose([0, 1], labels, 6) != choose([0, 1], labels, 6, seed=1)


def test_choose_by_prompt_takes_fewer_of_all_if_one_is_rare():
    labels = 50 * [0] + 7 * [1]
    assert [labels[i] for i in choose([0, 1, 0], labels, 30)] == 7 * [0, 1, 0]
    assert [labels[i] for i in choose([0, 1, 1], labels, 30)] == 3 * [0, 1, 1]


def test_choose_by_prompt_names_a_prompt_without_images():
    with pytest.raises(ValueError, match="among 57 items of `real_images` there is none, or too few, of 2, such as 5"):
        choose([0, 5, 6], 50 * [0] + 7 * [1], 30)


def test_choose_by_prompt_ends_its_search(monkeypatch):
    monkeypatch.setattr(real_subset, "MAX_READ", 300)
    with pytest.raises(ValueError, match="among 300 items"):
        choose([5], 1000 * [0], 30)


def test_choose_by_prompt_leaves_global_random_states_alone():
    torch.manual_seed(3)
    choose([0, 1], 50 * [0, 1], 20)
    after = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(3))


class Augmented(Dataset):
    """Draws from a generator of its own, as a transform does."""

    def __init__(self):
        self.rng = np.random.default_rng(7)

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((1, 2, 2), self.rng.random()), index % 3


@pytest.mark.parametrize(
    "use",
    [
        lambda data: choose_by_prompt(ImageSet(data, None, "the data"), None, Prompts(range(3)), 6, seed=0),
        lambda data: subset_of(data, n=6),
    ],
    ids=["choose_by_prompt", "subset_by_prompt"],
)
def test_choosing_leaves_the_datasets_own_generator_alone(use):
    data = Augmented()
    use(data)
    assert data.rng.random() == np.random.default_rng(7).random()


def subset_of(data, n):
    reference = ImageSet(data)
    shape = tuple(data[0][0].shape) if not isinstance(data, Augmented) else (1, 2, 2)
    return subset_by_prompt(reference, None, Prompts(range(3)), n, 0, shape, SingleProcess())


def test_subset_by_prompt_reads_images_of_each_prompt():
    data = labeled(30)
    subset, notes = subset_of(data, n=6)
    rows = subset.read(range(6))[:, 0].mean(2).argmax(1)
    assert rows.tolist() == [0, 1, 2, 0, 1, 2]  # the bright row of each class
    assert notes == ()


def test_subset_by_prompt_says_that_images_are_few():
    subset, notes = subset_of(labeled(7), n=12)
    assert len(subset) == 6
    assert notes == (
        "only 6 real images, equally many of each prompt, available for comparison with 12 generated ones",
    )


def test_subset_by_prompt_takes_the_choice_of_rank_zero():
    comm = ScriptedCollective(rank=1, sent=[2, 0, 1])
    subset, _ = subset_by_prompt(ImageSet(labeled(30)), None, Prompts(range(3)), 3, 0, (1, 4, 4), comm)
    assert torch.equal(subset.read(range(3)), labeled(30).tensors[0][[2, 0, 1]])

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS

from genmonitor.callbacks import real_pairs
from genmonitor.evaluation.data.images import ImageSource
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.data.prompted_images import choose_by_prompt, find_prompts

pytestmark = LIGHTNING_SAYS
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
def test_labels_are_found_in_every_common_kind_of_batch(batch, key):
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
def test_strings_are_found_too(batch, key):
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
def test_a_batch_without_prompts_is_described_together_with_the_remedy(batch, key, labels, said):
    with pytest.raises(ValueError, match=said):
        find_prompts(batch, key, labels)


def choose(prompts, labels, n, seed=0):
    data = torch.utils.data.TensorDataset(torch.zeros(len(labels), 1, 2, 2), torch.tensor(labels))
    source = ImageSource(data, None, "`real_images`")
    return choose_by_prompt(source, None, Prompts(prompts), n, seed, iter)


def test_items_are_chosen_without_repetition_in_the_order_of_the_prompts():
    labels = [i % 4 for i in range(400)]
    chosen = choose([2, 0, 2], labels, 30)
    assert [labels[i] for i in chosen] == 10 * [2, 0, 2]
    assert len(set(chosen)) == 30
    assert chosen == choose([2, 0, 2], labels, 30) != choose([2, 0, 2], labels, 30, seed=1)


def test_with_few_of_one_prompt_all_have_fewer():
    labels = 50 * [0] + 7 * [1]
    assert [labels[i] for i in choose([0, 1, 0], labels, 30)] == 7 * [0, 1, 0]
    assert [labels[i] for i in choose([0, 1, 1], labels, 30)] == 3 * [0, 1, 1]


def test_a_prompt_without_images_is_named():
    with pytest.raises(ValueError, match="among 57 items of `real_images` there is none, or too few, of 2, such as 5"):
        choose([0, 5, 6], 50 * [0] + 7 * [1], 30)


def test_the_search_has_an_end(monkeypatch):
    monkeypatch.setattr(real_pairs, "MAX_READ", 300)
    with pytest.raises(ValueError, match="among 300 items"):
        choose([5], 1000 * [0], 30)


def test_choosing_leaves_the_random_states_alone():
    torch.manual_seed(3)
    choose([0, 1], 50 * [0, 1], 20)
    after = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(3))

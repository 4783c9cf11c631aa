# SPDX-License-Identifier: Apache-2.0
"""DisagreementMonitor: what it measures against each reference, and what it asks of its user."""

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit
from _helpers.prompted import Changed, Prompted, disagreeing, evaluations, labelled, watch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from genmonitor import GaussianKernel

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:.*there is no validation data")]


MODES = [f"{sign}_{rank}" for sign in ("top", "bottom") for rank in range(1, 6)]


class Still(Prompted):
    """Whatever it draws, it does not learn from it."""

    def training_step(self, batch, index):
        return self.net.weight.square().sum()


def sums(monitor):
    """Return top and bottom of each record, the latter turned positive."""
    return [[sum(abs(c[f"{sign}_{i}"]) for i in range(1, 6)) for sign in ("top", "bottom")] for c in monitor.history]


# behavior


@pytest.mark.parametrize("reference", ["start", "previous"])
def test_prompt_whose_outputs_changed_comes_first(tmp_path, reference):
    monitor = disagreeing(reference=reference, real_images=digits(0, 200))
    kept = evaluations(monitor)
    fit(tmp_path, monitor, module=Changed(prompt=3, epoch=2), max_epochs=4)
    still, same, changed, after = sums(monitor)
    assert max(*still, *same) < 1e-6
    assert changed[0] == pytest.approx(changed[1], rel=1e-6)
    assert changed[0] > 0.01
    found = kept[-1].found
    if reference == "start":
        assert after == pytest.approx(changed)
        assert found.changed[0] == (3, pytest.approx(1, abs=0.01))
        assert found.top[0].prompts[0][0] == found.bottom[0].prompts[0][0] == 3
    else:
        assert max(after) < 1e-6
        assert set(dict(found.changed).values()) == {0.0}


def test_against_data_the_prompt_that_goes_wrong_comes_first(tmp_path):
    class Perfect(Still):
        """Draws held-out images of the class, but for one class from an epoch on."""

        def sample_prompts(self, labels):
            picks = torch.randint(10_000, (len(labels),)).tolist()
            of_label = zip(labels.tolist(), picks, strict=True)
            chosen = torch.stack([held_out[label][pick % len(held_out[label])] for label, pick in of_label])
            wrong = (labels == 4) & (self.current_epoch >= 1)
            return torch.where(wrong[:, None, None, None], held_out[0][0], chosen)

    data = labelled(900, 1797).dataset
    held_out = {label: torch.stack([x for x, y in data if y == label]) for label in range(10)}
    monitor = disagreeing(range(10), n_samples=300, reference="data")
    kept = evaluations(monitor)
    fit(tmp_path, monitor, module=Perfect(), train=labelled(0, 900), val=labelled(0, 900), max_epochs=2)
    well, wrong = monitor.history
    assert wrong["top_1"] > 2 * well["top_1"]
    found = kept[-1].found
    assert found.changed[0][0] == 4
    assert found.top[0].prompts[0][0] == found.bottom[0].prompts[0][0] == 4


# the values


def test_random_features_come_near_the_exact_values(tmp_path):
    settings = {"reference": "start", "kernel": GaussianKernel(0.02), "n_samples": 500}
    exact, random = disagreeing(**settings), disagreeing(num_features=240, **settings)
    for monitor in (exact, random):
        fit(tmp_path, monitor, module=Changed(prompt=2, epoch=1), max_epochs=2)
    assert exact.history[1]["top_1"] > 0.02
    assert random.history[1]["top_1"] == pytest.approx(exact.history[1]["top_1"], rel=0.3)
    assert random.history[1]["top_1"] != exact.history[1]["top_1"]


# real images and their prompts


def test_real_images_follow_the_prompts_of_the_generated(tmp_path):
    data = labelled(0, 400).dataset
    label_of = {tuple(image.flatten().tolist()): int(label) for image, label in data}
    sides = []
    for _ in range(2):
        monitor = disagreeing([3, 1, 3], n_samples=30, real_images=data)
        kept = evaluations(monitor)
        watch(tmp_path, monitor)
        sides.append([tuple(row) for row in kept[0].reference.features.tolist()])
    assert [label_of[row] for row in sides[0]] == 10 * [3, 1, 3]
    assert len(set(sides[0])) == 30
    assert sides[0] == sides[1]


class Captioned(Dataset):
    """Digits as dictionaries with a caption."""

    def __init__(self, key="caption"):
        self.key = key
        self.pairs = labelled(0, 200).dataset

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        image, label = self.pairs[index]
        return {"image": image, self.key: f"digit {label}"}


@pytest.mark.parametrize("key", ["caption", "words"])
def test_captions_of_a_dictionary_are_the_prompts(tmp_path, key):
    def sample(module, texts):
        return module.sample_prompts(torch.tensor([int(text[-1]) for text in texts]))

    def encode(texts):
        return nn.functional.one_hot(torch.tensor([int(text[-1]) for text in texts]), 10).float()

    monitor = disagreeing(
        ["digit 4", "digit 1"],
        n_samples=20,
        sample_fn=sample,
        prompt_encoder=encode,
        prompt_kernel=GaussianKernel(8.0),
        real_images=Captioned(key),
        prompt_key=None if key == "caption" else key,
    )
    labels = disagreeing([4, 1], n_samples=20, real_images=labelled(0, 200).dataset)
    kept = evaluations(monitor)
    strings, numbers = watch(tmp_path, monitor), watch(tmp_path, labels)
    assert {name: strings[name] for name in MODES} == pytest.approx({name: numbers[name] for name in MODES}, abs=1e-6)
    assert {prompt for prompt, _ in kept[0].found.changed} == {"digit 4", "digit 1"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompts": [3, 77], "n_samples": 20}, r"real image of each prompt, but among 200 items .* such as 77"),
        (
            {"real_images": digits(0, 60)},
            r"class labels, whole numbers \[N\], in a batch of real images, but got a list",
        ),
        ({"prompt_key": "label"}, "`prompt_key`='label' to lead to the prompts"),
        ({"prompt_key": lambda batch: batch[1][:7]}, "one prompt from each of 128 items"),
        ({"image_key": 1}, "image_key"),
        ({"real_images": [(torch.zeros(1, 4, 4), i % 5) for i in range(99)]}, r"shape \[1, 8, 8\] like the generated"),
        ({"real_images": [(255 * torch.rand(1, 8, 8), i % 5) for i in range(99)]}, "in one value range"),
        ({"kernel": GaussianKernel(), "reference": "start", "real_images": digits(0, 1)}, "at least 2 real images"),
    ],
)
def test_real_images_that_do_not_do_are_refused(tmp_path, settings, message):
    settings = {"real_images": labelled(0, 200).dataset, "on_error": "warn"} | settings
    with pytest.raises(ValueError, match=message):
        watch(tmp_path, disagreeing(settings.pop("prompts", range(5)), **settings))


# wrong configuration


def test_module_without_sample_prompts_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Linear has no method `sample_prompts\(prompts\)`"):
        watch(tmp_path, disagreeing(on_error="warn"), Linear())


# training


@pytest.mark.parametrize("reference", ["data", "start", "previous"])
def test_training_is_unchanged(tmp_path, reference):
    def run(*monitors):
        torch.manual_seed(5)
        train = labelled(0, 300, shuffle=True)
        trainer, module = fit(tmp_path, *monitors, module=Prompted(lr=1e-2), train=train, val=labelled(300, 500))
        return module.state_dict(), trainer.optimizers[0].state_dict()["state"][0], torch.rand(3)

    monitor = disagreeing(reference=reference)
    alone, watched = run(), run(monitor)
    assert alone[0].keys() == watched[0].keys()
    assert all(torch.equal(alone[0][name], watched[0][name]) for name in alone[0])
    assert all(torch.equal(alone[1][name], watched[1][name]) for name in ("exp_avg", "exp_avg_sq"))
    assert torch.equal(alone[2], watched[2])
    assert monitor.history[1]["top_1"] > 1e-5


def test_previous_is_the_last_evaluation_that_succeeded(tmp_path):
    def sample(module, labels):
        if module.current_epoch == 1 and len(labels) == 60:
            raise RuntimeError("no samples today")
        return module.sample_prompts(labels)

    monitor = disagreeing(reference="previous", sample_fn=sample, real_images=digits(0, 99), on_error="warn")
    with pytest.warns(UserWarning, match="no samples today"):
        fit(tmp_path, monitor, module=Changed(prompt=3, epoch=1), max_epochs=4)
    assert [record["epoch"] for record in monitor.history] == [0, 2, 3]
    assert [record["top_1"] > 0.01 for record in monitor.history] == [False, True, False]


def test_loader_is_not_read_as_a_whole(tmp_path):
    read = []

    class Large(Captioned):
        def __getitem__(self, index):
            read.append(index)
            return self.pairs[index % len(self.pairs)]

        def __len__(self):
            return 100 * len(self.pairs)

    watch(tmp_path, disagreeing(real_images=DataLoader(Large(), 7)))
    assert len(set(read)) < 1000

# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor: what it measures, of which samples, and what it asks of its user."""

from queue import SimpleQueue

import pytest
import torch
from _helpers.logged import read_tensorboard
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit, loader
from _helpers.prompted import Prompted, evaluations, plain, watch
from _helpers.runs import manifests
from lightning.pytorch.loggers import TensorBoardLogger
from matplotlib.figure import Figure
from torch import nn

from genmonitor.callbacks import DiversityMonitor
from genmonitor.functional import conditional_vendi_score, rke_score, scendi_score, vendi_score
from genmonitor.plotting import diversity as diversity_figures

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:.*there is no validation data")]

SCORES = {"vendi", "rke", "scendi", "scendi_prompt", "prompt_share", "conditional_vendi", "information_vendi"}
SCORES |= {"one_prompt_share"}
AGAINST_REAL = {"precision", "recall", "density", "coverage", "real_vendi", "real_rke"}
SPREADS = {f"spread_{number}" for number in range(1, 6)}
CLOCK = {"sampling_seconds", "metric_seconds", "images_seen", "epoch", "step"}


class Kept:
    """An encoder that keeps what it was given."""

    def __init__(self):
        self.batches = []

    def __call__(self, images):
        self.batches.append(images.clone())
        return images.flatten(1)

    def last(self, n):
        return torch.cat(self.batches)[-n:]


def test_scores_are_those_of_samples_and_their_prompts(tmp_path):
    encoder = Kept()
    record = watch(tmp_path, plain(output_encoder=encoder), val=loader(digits(300, 400)))
    features, prompts = encoder.last(60).flatten(1), torch.eye(5).repeat(12, 1)
    expected = {name: float(value) for name, value in scendi_score(features, prompts).items()}
    expected |= {name: float(value) for name, value in conditional_vendi_score(features, prompts).items()}
    expected |= {"vendi": float(vendi_score(features)), "rke": float(rke_score(features))}
    expected["one_prompt_share"] = float(scendi_score(features, torch.ones(60, 1))["prompt_share"])
    assert {name: record[name] for name in SCORES} == pytest.approx(expected, rel=1e-5)
    assert set(record) == SCORES | SPREADS | AGAINST_REAL | CLOCK


def test_generator_without_prompts_is_measured_by_its_samples_alone(tmp_path):
    monitor = plain(None)
    watch(tmp_path, monitor, Linear())
    values = monitor.history[-1]
    assert values["vendi"] > 1
    assert values["recall"] >= 0
    assert not any("scendi" in name or "prompt" in name for name in values)


def test_samples_and_prompts_are_the_same_in_any_batch(tmp_path):
    seen = SimpleQueue()  # a list would be put back

    def sample(module, labels):
        images = module.sample_prompts(labels)
        seen.put((labels, images))
        return images

    runs = []
    for size in (7, 60):
        watch(tmp_path, plain([3, 1, 4], sample_fn=sample, sample_batch_size=size), max_epochs=2)
        drawn = [seen.get() for _ in range(seen.qsize())]
        runs.append([torch.cat(parts)[-120:] for parts in zip(*drawn, strict=True)])
    (labels, images), (others, same) = runs
    assert labels.tolist() == others.tolist() == 40 * [3, 1, 4]
    assert torch.equal(images[:60], images[60:])
    assert torch.allclose(images, same, atol=1e-6)
    assert len(images[:60].unique(dim=0)) == 60


def test_strings_reach_sample_fn_and_encoder_as_lists(tmp_path):
    seen = SimpleQueue()  # a list would be put back

    def sample(module, prompts):
        seen.put(prompts)
        return module.sample_prompts(torch.tensor([len(prompt) for prompt in prompts]))

    def encode(prompts):
        assert isinstance(prompts, list)
        return nn.functional.one_hot(torch.tensor([len(prompt) for prompt in prompts]), 5).float()

    strings = watch(tmp_path, plain(["a", "bb", "ccc"], sample_fn=sample, prompt_encoder=encode))
    labels = watch(tmp_path, plain([1, 2, 3]))
    assert [seen.get() for _ in range(seen.qsize())][-1] == 20 * ["a", "bb", "ccc"]
    assert {name: strings[name] for name in SCORES} == pytest.approx({name: labels[name] for name in SCORES})


# encoders and training


class Noisy(nn.Module):
    """An encoder with everything that training could be disturbed by."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))

    def forward(self, images):
        torch.rand(3)
        return self.net(images)


def test_training_is_unchanged_and_the_encoder_out_of_it(tmp_path):
    def run(*monitors):
        module = Prompted(lr=1e-2)
        train = loader(digits(0, 300), shuffle=True)
        trainer, _ = fit(tmp_path, *monitors, module=module, train=train, val=loader(digits(300, 400)))
        numbers = sum(len(group["params"]) for group in trainer.optimizers[0].param_groups)
        return module.state_dict(), trainer.optimizers[0].state_dict()["state"], numbers, torch.rand(3)

    encoder = Noisy()
    statistics = encoder.net[2].running_mean.clone()
    alone, watched = run(), run(plain(output_encoder=encoder))
    assert alone[0].keys() == watched[0].keys()
    assert all(torch.equal(alone[0][name], watched[0][name]) for name in alone[0])
    assert all(torch.equal(alone[1][0][name], watched[1][0][name]) for name in ("exp_avg", "exp_avg_sq"))
    assert alone[2] == watched[2] == 2
    assert torch.equal(alone[3], watched[3])
    assert torch.equal(encoder.net[2].running_mean, statistics)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


def test_evaluation_whose_encoder_fails_is_skipped(tmp_path):
    calls = []

    def encode(images):
        calls.append(len(images))
        if len(calls) == 4:  # a probe, the real images, the first record, the second
            raise RuntimeError("no features today")
        return images.flatten(1)

    monitor = plain(output_encoder=encode, on_error="warn")
    with pytest.warns(UserWarning, match="no features today"):
        watch(tmp_path, monitor, val=loader(digits(300, 400)), max_epochs=3)
    assert [record["epoch"] for record in monitor.history] == [0, 2]
    first, second = ({name: record[name] for name in SCORES} for record in monitor.history)
    assert first == second


# kernels


def test_prompts_that_would_explain_anything_are_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="rank 60 for 60 samples"):
        record = watch(tmp_path, plain(range(60)))
    assert record["scendi"] == pytest.approx(1, abs=1e-3)


# real images


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"train": loader(torch.randn(100, 16))}, r"Expected images \[N, C, H, W\] in a batch"),
        (
            {"train": loader(torch.randn(100, 4, 3, 3))},
            r"shape \[1, 8, 8\] like the generated ones, but got \[4, 3, 3\]",
        ),
        ({"val": loader(digits(0, 5))}, "more than 5 real and generated images"),
    ],
)
def test_fidelity_is_left_out_without_such_real_images(tmp_path, settings, why):
    class Fixed(Prompted):
        def training_step(self, batch, index):
            return self.net.weight.square().sum()

    monitor = plain()
    with pytest.warns(UserWarning, match=f"precision, recall, density and coverage are not measured. .*{why}"):
        record = watch(tmp_path, monitor, Fixed(), **settings)
    assert set(record) == SCORES | SPREADS | CLOCK


def test_real_images_that_were_given_must_do(tmp_path):
    with pytest.raises(ValueError, match=r"like the generated ones, but got \[4, 3, 3\]"):
        watch(tmp_path, plain(real_images=torch.randn(100, 4, 3, 3)))
    with pytest.raises(ValueError, match="in one value range"):
        watch(tmp_path, plain(real_images=255 * torch.rand(100, 1, 8, 8)))


# wrong configuration


def test_module_without_sample_prompts_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Linear has no method `sample_prompts\(prompts\)`"):
        watch(tmp_path, plain(on_error="warn"), Linear())


# what is shown


def test_figures_manifest_and_prompts_lie_in_the_folder(tmp_path, capsys):
    logger = TensorBoardLogger(tmp_path, name="run")
    monitor = DiversityMonitor(
        ["$5 <b>", "line\nbreak", "\u732b"],
        n_samples=30,
        prompt_encoder=lambda texts: torch.tensor([[len(t), 1.0] for t in texts]),
        sample_fn=lambda module, texts: module.sample_prompts(torch.tensor([len(t) for t in texts])),
        on_error="raise",
        log="all",
    )
    watch(tmp_path, monitor, val=loader(digits(300, 400)), max_epochs=2, logger=logger, log_every_n_steps=1)
    folder = tmp_path / "run" / "version_0" / "genmonitor"
    names = {path.name for path in folder.iterdir()}
    assert "diversity_run.json" in names
    drawn = [name for name in names if name.startswith("diversity_modes_epoch_000")]
    assert sorted(name[-4:] for name in drawn) == [".png", ".png", ".svg", ".svg"]
    _, manifest = manifests(folder, "diversity")
    assert manifest["prompts"] == monitor.sampler.prompts.values
    assert manifest["values"] == monitor.history[1]
    assert manifest["kernel"] == "CosineKernel(gamma=None)"
    assert "lambda" in manifest["prompt_encoder"]
    events = read_tensorboard(folder.parent)
    scalars = {tag for tag in events.Tags()["scalars"] if tag.startswith("diversity/")}
    curves = (SCORES | AGAINST_REAL | CLOCK | {"spread_1", "spread_2", "spread_3"}) - {"epoch", "step"}
    assert scalars == {f"diversity/{name}" for name in curves}
    logged = [event.value for event in events.Scalars("diversity/scendi")]
    assert logged == pytest.approx([record["scendi"] for record in monitor.history], rel=1e-6)
    assert {"diversity/modes"} == set(events.Tags()["images"])
    layout = events.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0].decode(errors="ignore")
    assert "Modes of 30 images (Vendi grows with n)" in layout
    said = capsys.readouterr().out
    assert " modes, real images " in said


def test_figures_are_given_what_was_found(tmp_path, monkeypatch):
    given = {}

    def keep(name):
        return lambda *arguments: given.update({name: arguments}) or Figure()

    monkeypatch.setattr(diversity_figures, "mode_samples", keep("mode_samples"))
    monitor = DiversityMonitor(range(5), n_samples=60, on_error="raise")
    kept = evaluations(monitor)
    watch(tmp_path, monitor, val=loader(digits(300, 400)))
    shares, images, texts, value_range = given["mode_samples"]
    assert shares == kept[-1].shares
    assert images.shape == (5, 10, 1, 8, 8)
    assert texts == [[str(i % 5) for i in row] for row in kept[-1].ends.indices.tolist()]
    assert value_range == (-1, 1)

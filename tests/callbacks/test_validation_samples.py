# SPDX-License-Identifier: Apache-2.0
"""Samples that validation drew are evaluated, in place of ones drawn for it."""

import pytest
import torch
from _helpers.evaluations import ScriptedCollective
from _helpers.loops import without_figures
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, ema_averaging, epochs, fit, loader, measured, plain
from _helpers.runs import manifests
from lightning.pytorch.callbacks import ModelCheckpoint

from genmonitor.callbacks import GenerativeMonitor, PixelClusterMonitor, ValidationSamples
from genmonitor.evaluation import DisagreementEvaluator, DisagreementSettings, SingleProcess
from genmonitor.images.model import SampledModel

pytestmark = LIGHTNING_SAYS


class Draws(Linear):
    """Draws samples in its validation: returned, or left in an attribute; counts those that it draws for others."""

    def __init__(self, how="returned", of=None):
        super().__init__()
        self.how, self.of, self.asked = how, of or (lambda images: images), 0
        self.generated = []

    def draw(self, n):
        return super().sample(n)

    def sample(self, n):
        self.asked += not self.trainer.training
        return self.draw(n)

    def validation_step(self, batch, index):
        images = self.of(self.draw(len(batch[0])))
        self.generated.append(images.clone())
        if self.how == "returned":
            return {"samples": images}
        self.left = images if self.how == "left" else None
        return None


def validation(size=40):
    return loader(digits(300, 400), size)


def run(folder, module=None, monitor=None, *others, **settings):
    monitor = monitor or plain(reuse="validation")
    runner, module = fit(folder, monitor, *others, module=module or Draws(), **({"val": validation()} | settings))
    return monitor, runner, module


def test_values_are_those_of_the_images_that_validation_drew(tmp_path):
    monitor, _, module = run(tmp_path)
    assert module.asked == 0
    assert epochs(monitor) == [0, 1]
    # the sanity check drew two batches, each validation three
    for record, batches in zip(monitor.history, (module.generated[2:5], module.generated[5:8]), strict=True):
        metrics = monitor.evaluator.fitted.metrics
        metrics.update(torch.cat(batches)[:60])
        measured_again = metrics.compute(SingleProcess())
        assert measured_again.p["image"] == record["p_image"]
        assert measured_again.values.items() <= record.items()
    _, manifest = manifests(tmp_path / "genmonitor")
    assert manifest["unserializable_args"] == ["reuse"]


def test_an_attribute_serves_as_well(tmp_path):
    torch.manual_seed(0)
    expected = measured(run(tmp_path / "returned")[0])
    torch.manual_seed(0)
    assert measured(run(tmp_path / "left", Draws("left"), plain(reuse="validation", reuse_key="left"))[0]) == expected


def test_training_is_what_it_would_be_without(tmp_path):
    weights = []
    for monitors in ([], [plain(reuse="validation")]):
        torch.manual_seed(0)
        module = Draws()
        fit(tmp_path, *monitors, module=module, val=validation())
        weights.append(module.net.weight)
    assert torch.equal(*weights)


def test_a_missing_key_is_refused_before_the_first_step(tmp_path):
    module = Draws("nowhere")
    with pytest.raises(
        ValueError, match=r"`validation_step` to return .* under 'samples'.*got NoneType. Give reuse_key="
    ):
        run(tmp_path, module, plain(reuse="validation", on_error="warn"))
    assert module.trainer.global_step == 0


def test_images_of_another_shape_are_refused_before_the_first_step(tmp_path):
    module = Draws(of=lambda images: images[..., :4])
    with pytest.raises(ValueError, match=r"Expected generated images of shape \[1, 8, 8\]"):
        run(tmp_path, module, plain(reuse="validation", on_error="warn"))
    assert module.trainer.global_step == 0


def test_without_a_sanity_check_real_images_stand_for_the_first(tmp_path):
    assert len(run(tmp_path, num_sanity_val_steps=0)[0].history) == 2


def test_too_few_images_are_said_and_skipped(tmp_path):
    with pytest.warns(UserWarning, match="Expected 60 images from `validation_step`, but a validation run gave 40"):
        monitor, _, _ = run(tmp_path, None, plain(reuse="validation", on_error="warn"), limit_val_batches=1)
    assert monitor.history == []


@pytest.mark.filterwarnings("ignore:Plain. the generator produced NaN")
def test_nan_is_the_finding(tmp_path):
    module = Draws()
    module.of = lambda images: images * (float("nan") if module.trainer.global_step else 1)
    with pytest.warns(UserWarning, match="this evaluation failed"):
        monitor, _, _ = run(tmp_path, module, plain(reuse="validation", on_error="warn"))
    assert monitor.failures.not_finite


def test_a_resumed_run_goes_on(tmp_path):
    keep = ModelCheckpoint(tmp_path, save_last=True)
    fit(tmp_path, plain(reuse="validation"), keep, module=Draws(), val=validation(), max_epochs=1)
    monitor = plain(reuse="validation")
    run(tmp_path, Draws(), monitor, keep, max_epochs=2, ckpt_path=tmp_path / "last.ckpt")
    assert epochs(monitor) == [0, 1]


@pytest.mark.filterwarnings("ignore:Plain. resumed with seed changed")
def test_samples_that_are_drawn_again_start_new_curves(tmp_path):
    keep = ModelCheckpoint(tmp_path, save_last=True)
    fit(tmp_path, plain(reuse="validation"), keep, module=Draws(), val=validation(), max_epochs=1)
    monitor = plain()
    run(tmp_path, Draws(), monitor, keep, max_epochs=2, ckpt_path=tmp_path / "last.ckpt")
    assert epochs(monitor) == [1]


def test_each_process_takes_its_part():
    sampler, comm = ValidationSamples(5), ScriptedCollective(rank=1)
    for start in (0, 2):
        sampler.take(Linear(), {"samples": digits(start, start + 2)}, comm)
    found = sampler.samples(SampledModel(Linear(), torch.device("cpu")), comm)
    assert torch.equal(found.images, digits(0, 3))
    assert found.indices.tolist() == [2, 3, 4]


REFUSED = {
    "no validation": ({}, {"val": None}, "validates nothing. Give validation data"),
    "by steps": ({"every_n_train_steps": 2}, {}, "evaluates between validations, by `every_n_train_steps`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused(tmp_path, name):
    settings, how, said = REFUSED[name]
    with pytest.raises(ValueError, match=f"`reuse`='validation', but this one {said}"):
        run(tmp_path, None, plain(reuse="validation", **settings), **how)


def test_raw_weights_are_not_those_of_an_averaged_validation(tmp_path):
    with pytest.raises(ValueError, match="validates with averaged weights, and `weights`='raw' asks for others"):
        fit(
            tmp_path,
            plain(reuse="validation", weights="raw"),
            ema_averaging(decay=0.5),
            module=Draws(),
            val=validation(),
        )


def test_samples_by_prompt_are_refused(tmp_path):
    evaluator = without_figures(DisagreementEvaluator(DisagreementSettings.of(range(5), 60)))
    with pytest.raises(ValueError, match="prompts of the evaluator, but its prompts differ"):
        GenerativeMonitor(evaluator, ValidationSamples(60))


def test_two_ways_to_samples_are_refused():
    with pytest.raises(ValueError, match="`reuse`, or `sample_fn` and `prompts` to draw samples with, but got both"):
        PixelClusterMonitor(reuse="validation", sample_fn=lambda module, n: module.sample(n))
    with pytest.raises(ValueError, match="`reuse` to be one of 'validation', but got 'training'"):
        PixelClusterMonitor(reuse="training")

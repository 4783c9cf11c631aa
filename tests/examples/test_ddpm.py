# SPDX-License-Identifier: Apache-2.0

import pytest
import torch
from _helpers.modules import ema_averaging
from _helpers.presenters import without_figures
from data import ImageData
from ddpm import DDPM, STEPS
from lightning import Trainer

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.images.seeding import SeededRows

FIT = ["ignore:.*LeafSpec", "ignore:.*does not have many workers"]


def small(**settings):
    torch.manual_seed(0)
    return DDPM(**({"widths": (8, 16), "sampling_steps": 4} | settings)).eval().requires_grad_(False)


@pytest.mark.parametrize(
    ("shape", "widths", "attention"),
    [((1, 8, 8), (8, 16), False), ((1, 28, 28), (8, 16, 24), True), ((3, 64, 64), (8, 16, 24, 32), True)],
)
def test_each_size_makes_images_in_range(shape, widths, attention):
    images = small(image_shape=shape, widths=widths, attention=attention, sampling_steps=2).sample(2)
    assert images.shape == (2, *shape)
    assert images.abs().max() <= 1


def test_attention_is_at_all_resolutions_but_the_first():
    blocks = small(image_shape=(1, 28, 28), widths=(8, 16, 24), attention=True).unet.down_blocks
    assert [hasattr(block, "attentions") for block in blocks] == [False, True, True]
    assert not any(hasattr(block, "attentions") for block in small().unet.down_blocks)


def test_a_side_that_cannot_be_halved_so_often_is_refused():
    with pytest.raises(ValueError, match=r"multiples of 8 for 4 `widths`, but got \(1, 28, 28\)"):
        DDPM((1, 28, 28), (8, 16, 24, 32))


def test_steps_that_do_not_lead_to_the_image_are_refused():
    with pytest.raises(ValueError, match="`sampling_steps` to divide `steps`=1000, but got 7"):
        DDPM(sampling_steps=7)
    with pytest.raises(ValueError, match='`sampler` as "ddim" or "ancestral", but got \'ddpm\''):
        DDPM(sampler="ddpm")


def test_the_schedule_is_the_papers():
    betas = small().schedule.betas
    assert len(betas) == STEPS == 1000
    assert betas.tolist() == pytest.approx(torch.linspace(1e-4, 0.02, 1000).tolist())


def test_ddim_takes_the_steps_asked_for_from_pure_noise(monkeypatch):
    model, seen = small(sampling_steps=5), []
    predict = model.predict
    monkeypatch.setattr(model, "guided", lambda x, time, labels: seen.append(int(time)) or predict(x, time, labels))
    model.sample(2)
    assert seen == [999, 799, 599, 399, 199]


def test_the_true_noise_is_turned_into_the_true_image(monkeypatch):
    model = small(sampling_steps=10)
    images, noise = torch.rand(3, 1, 8, 8) * 2 - 1, torch.randn(3, 1, 8, 8)
    start = model.schedule.add_noise(images, noise, torch.full((3,), STEPS - 1))
    monkeypatch.setattr(model, "predict", lambda x, time, labels: noise)
    torch.testing.assert_close(model.denoise(start, None), images, atol=1e-3, rtol=0)


def batched(draw, size):
    parts = []
    for start in range(0, 6, size):
        with SeededRows(range(start, start + size)):
            parts.append(draw(size, start))
    return torch.cat(parts)


@pytest.mark.parametrize("classes", [None, 10])
def test_sample_i_comes_from_seed_i_in_any_batch(classes):
    model = small(classes=classes)
    together = batched(lambda n, start: model.sample(n), 6)
    for size in (1, 2, 3):
        torch.manual_seed(size)
        torch.testing.assert_close(batched(lambda n, start: model.sample(n), size), together, atol=1e-4, rtol=0)
    assert len(together.flatten(1).unique(dim=0)) == 6


def test_ancestral_sampling_draws_from_the_seeds():
    model = small(sampler="ancestral", steps=6, sampling_steps=6)
    together = batched(lambda n, start: model.sample(n), 6)
    torch.manual_seed(3)
    torch.testing.assert_close(batched(lambda n, start: model.sample(n), 2), together, atol=1e-4, rtol=0)
    assert len(together.flatten(1).unique(dim=0)) == 6


def test_ancestral_sampling_is_that_of_the_ddpm_paper(monkeypatch):
    """Algorithm 2 of arXiv 2006.11239, with the variance beta of each step."""
    model = small(sampler="ancestral", steps=20, sampling_steps=20)
    monkeypatch.setattr(model, "predict", lambda images, time, labels: torch.sin(3 * images + time / 20))
    start = torch.randn(4, 1, 8, 8)
    torch.manual_seed(1)
    found = model.denoise(start, None)
    torch.manual_seed(1)
    betas = torch.linspace(1e-4, 0.02, 20, dtype=torch.float64)
    kept, x = (1 - betas).cumprod(0), start.double()
    for t in reversed(range(20)):
        x = (x - betas[t] / (1 - kept[t]).sqrt() * torch.sin(3 * x + t / 20)) / (1 - betas[t]).sqrt()
        if t:
            x += betas[t].sqrt() * torch.randn(4, 1, 8, 8)
    torch.testing.assert_close(found, x.clamp(-1, 1).float(), atol=1e-4, rtol=0)


def test_guidance_goes_from_without_a_class_past_the_class():
    images, labels, time = torch.randn(4, 1, 8, 8), torch.arange(4), torch.tensor(500)
    found = {}
    for guidance in (0.0, 1.0, 3.0):
        found[guidance] = small(classes=10, guidance=guidance).guided(images, time, labels)
    without = small(classes=10).unet(images, time, class_labels=torch.full((4,), 10)).sample
    torch.testing.assert_close(found[0.0], without)
    torch.testing.assert_close(found[3.0], without + 3 * (found[1.0] - without))
    assert (found[1.0] - without).abs().max() > 1e-3


def test_training_sees_its_labels_and_withholds_some(monkeypatch):
    model = DDPM(widths=(8, 16), classes=3, label_dropout=0.25)
    seen = []
    forward = model.unet.forward
    monkeypatch.setattr(
        model.unet,
        "forward",
        lambda *a, class_labels: seen.append(class_labels) or forward(*a, class_labels=class_labels),
    )
    monkeypatch.setattr(model, "log", lambda *args, **kwargs: None)
    torch.manual_seed(0)
    labels = torch.arange(3).repeat(200)
    model.training_step((torch.zeros(600, 1, 8, 8), labels), 0)
    withheld = seen[0] == 3
    assert float(withheld.float().mean()) == pytest.approx(0.25, abs=0.06)
    assert torch.equal(seen[0][~withheld], labels[~withheld])


def trainer(folder, *callbacks, **settings):
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(accelerator="cpu", default_root_dir=folder, callbacks=list(callbacks), **quiet, **settings)


@pytest.mark.slow
@pytest.mark.filterwarnings(*FIT)
def test_it_learns_to_tell_noise_from_digits(tmp_path):
    torch.manual_seed(0)
    model = DDPM(widths=(16, 32), classes=10, lr=2e-3)
    runner = trainer(tmp_path, max_epochs=6)
    runner.fit(model, datamodule=ImageData("digits", with_labels=True))
    assert runner.callback_metrics["loss"] < 0.25  # predicting 0 gives 1


@pytest.mark.filterwarnings(*FIT, "ignore:PixelClusterMonitor.*(baseline|there is no|only)")
def test_monitor_evaluates_the_averaged_weights_in_both_orders(tmp_path):
    histories = {}
    for run, (weights, monitor_first) in enumerate([("auto", True), ("auto", False), ("raw", False)]):
        torch.manual_seed(0)
        monitor = PixelClusterMonitor(3, n_samples=20, n_cluster_images=100, weights=weights, on_error="raise")
        without_figures(monitor.evaluator)
        callbacks = [monitor, ema_averaging(decay=0.9)]
        runner = trainer(
            tmp_path / str(run), *(callbacks if monitor_first else callbacks[::-1]), max_epochs=1, limit_train_batches=3
        )
        runner.fit(DDPM(widths=(8, 16), sampling_steps=2), datamodule=ImageData("digits"))
        histories[weights, monitor_first] = [record["image"] for record in monitor.history]
    assert histories["auto", True] == histories["auto", False] != histories["raw", False]

# SPDX-License-Identifier: Apache-2.0
"""A monitor takes its settings, the objects that no manifest holds, and the options that all monitors share."""

import inspect
from dataclasses import fields

import pytest
import torch
from _helpers.changed_settings import CHANGED

from genmonitor import GaussianKernel, LoopMonitor, compare
from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor, MonitorOptions, PixelClusterMonitor
from genmonitor.evaluation import DisagreementSettings, DiversitySettings, RegionSettings
from genmonitor.functional import calibrate
from genmonitor.monitoring import EvaluationOptions

ENCODERS = {"output_encoder", "prompt_encoder"}
TAKES = [
    (
        PixelClusterMonitor,
        RegionSettings,
        {"extra_metrics", "fault_models", "readings", "site_encoder", "prompts", "reuse", "reuse_key"},
    ),
    (DiversityMonitor, DiversitySettings, {"extra_metrics", *ENCODERS}),
    (DisagreementMonitor, DisagreementSettings, {"prompt_key", *ENCODERS}),
]


PROMPTS = [1, 2, 3]
OTHERS = {
    "prompts": PROMPTS,
    "n_samples": 300,
    "reference": "previous",
    "num_modes": 3,
    "kernel": GaussianKernel(0.5),
    "prompt_kernel": GaussianKernel(2.0),
    "num_features": 50,
    "rcond": 1e-3,
    "eta": 0.5,
    "calibration": calibrate(torch.rand(20, 3, generator=torch.Generator().manual_seed(0))),
    "seed": 7,
}


@pytest.mark.parametrize(("monitor", "settings", "objects"), TAKES)
def test_monitor_takes_every_setting_with_its_default_and_nothing_else(monitor, settings, objects):
    signature = inspect.signature(monitor).parameters
    assert signature.keys() == {field.name for field in fields(settings)} | objects | {"prefix", "options"}
    needed = {} if signature.get("prompts") is None or signature["prompts"].default is None else {"prompts": PROMPTS}
    assert monitor(**needed).evaluator.settings == settings.of(**needed)


@pytest.mark.parametrize(
    ("monitor", "name"), [(monitor, field.name) for monitor, settings, _ in TAKES for field in fields(settings)]
)
def test_every_setting_reaches_the_evaluator(monitor, name):
    changed = CHANGED if monitor is PixelClusterMonitor else OTHERS
    gaussians = {"kernel": GaussianKernel(), "prompt_kernel": GaussianKernel(), "num_features": 60}
    needed = {} if monitor is PixelClusterMonitor else {"prompts": PROMPTS, **gaussians}
    given = needed | {name: changed[name]}
    made = monitor(**given).evaluator.settings
    assert made == type(made).of(**given)
    assert name == "prompts" or made != type(made).of(**needed)


def test_compare_takes_its_settings_as_one():
    of_sets = {"real", "fake", "other", "paired", "train", "real_labels", "fake_labels"}
    of_running = {"settings", "comm", "device", "progress", "refuse_shared"}
    assert inspect.signature(compare).parameters.keys() == of_sets | of_running


@pytest.mark.parametrize("monitor", [monitor for monitor, *_ in TAKES])
def test_docstring_tells_of_every_argument(monitor):
    for name in inspect.signature(monitor).parameters.keys() - {"options"}:
        assert f"        {name}: " in monitor.__doc__


@pytest.mark.parametrize("settings", [settings for _, settings, _ in TAKES])
def test_every_setting_has_a_help_in_ascii(settings):
    for field in fields(settings):
        assert field.metadata.get("help", "none").isascii()


@pytest.mark.parametrize(("monitor", "settings", "objects"), TAKES)
def test_docstring_of_a_monitor_names_the_options_that_all_share(monitor, settings, objects):
    assert "**options: Those that all monitors share, by keyword: see `MonitorOptions`" in monitor.__doc__


def test_options_are_documented_once():
    documents = "".join(kind.__doc__ for kind in (MonitorOptions, EvaluationOptions))
    for name in MonitorOptions.__annotations__:
        assert documents.count(f"        {name}: ") == 1


@pytest.mark.parametrize(
    ("given", "near"), [("nn_samples", "n_samples"), ("on_errors", "on_error"), ("weight", "weights")]
)
def test_a_misspelt_argument_is_named_with_the_nearest_one(given, near):
    for monitor, prompts in ((PixelClusterMonitor, ()), (DiversityMonitor, ()), (DisagreementMonitor, (range(3),))):
        with pytest.raises(TypeError, match=rf"{monitor.__name__} got .*argument '{given}'. Did you mean {near}="):
            monitor(*prompts, **{given: 3})


def test_a_misspelt_argument_of_a_loop_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"LoopMonitor got .*argument 'logger'. Did you mean loggers="):
        LoopMonitor(folder=tmp_path, real_images=None, logger=None)


def test_a_monitor_without_options_has_the_defaults():
    monitor = PixelClusterMonitor()
    assert (monitor.sampler.batch_size, monitor.weights, monitor.schedule.every_n_epochs) == (100, "auto", 1)
    monitor = PixelClusterMonitor(sample_batch_size=7, weights="raw", every_n_epochs=2, evaluate_on="cpu")
    assert (monitor.sampler.batch_size, monitor.weights, monitor.schedule.every_n_epochs) == (7, "raw", 2)
    assert str(monitor.evaluate_on) == "cpu"

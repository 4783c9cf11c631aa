# SPDX-License-Identifier: Apache-2.0
"""A monitor takes its settings, the objects that no manifest holds, and the options that all monitors share."""

import inspect
from dataclasses import MISSING, fields

import pytest

from genmonitor import LoopMonitor, compare
from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor, MonitorOptions, PixelClusterMonitor
from genmonitor.evaluation import DisagreementSettings, DiversitySettings, RegionSettings
from genmonitor.monitoring import EvaluationOptions

ENCODERS = {"output_encoder", "prompt_encoder"}
TAKES = [
    (
        PixelClusterMonitor,
        RegionSettings,
        {"extra_metrics", "fault_models", "site_encoder", "prompts", "reuse", "reuse_key"},
    ),
    (DiversityMonitor, DiversitySettings, {"extra_metrics", *ENCODERS}),
    (DisagreementMonitor, DisagreementSettings, {"prompt_key", *ENCODERS}),
]


@pytest.mark.parametrize(("monitor", "settings", "objects"), TAKES)
def test_monitor_takes_every_setting_with_its_default_and_nothing_else(monitor, settings, objects):
    signature = inspect.signature(monitor).parameters
    assert signature.keys() == {field.name for field in fields(settings)} | objects | {"prefix", "options"}
    defaults = {field.name: field.default for field in fields(settings) if field.default is not MISSING}
    assert {name: signature[name].default for name in defaults} == defaults


def test_compare_takes_every_setting_with_its_default():
    signature = inspect.signature(compare).parameters
    defaults = {field.name: field.default for field in fields(RegionSettings) if field.name != "diagnose_every"}
    of_sets = {"real", "fake", "other", "paired", "train", "real_labels", "fake_labels"}
    assert signature.keys() - defaults == of_sets | {"comm", "device", "progress"}
    assert {name: signature[name].default for name in defaults} == defaults


@pytest.mark.parametrize("thing", [kind for pair in TAKES for kind in pair[:2]])
def test_docstring_tells_of_every_argument(thing):
    for name in inspect.signature(thing).parameters.keys() - {"options"}:
        assert f"        {name}: " in thing.__doc__


def test_docstring_of_compare_tells_of_all_but_the_settings_which_it_names():
    names = list(inspect.signature(compare).parameters)
    settings = [name for name in names if name in RegionSettings.__doc__ and f"        {name}: " not in compare.__doc__]
    assert f"from `{settings[0]}` to `{settings[-1]}` are settings of `genmonitor.evaluation.RegionSettings`" in (
        compare.__doc__
    )
    assert settings == names[names.index(settings[0]) : names.index(settings[-1]) + 1]
    for name in set(names) - set(settings):
        assert f"        {name}: " in compare.__doc__


@pytest.mark.parametrize(("monitor", "settings", "objects"), TAKES)
def test_docstring_of_a_monitor_names_the_options_that_all_share(monitor, settings, objects):
    assert "**options: those that all monitors share, by keyword: see `MonitorOptions`" in monitor.__doc__


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

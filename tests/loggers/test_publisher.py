# SPDX-License-Identifier: Apache-2.0
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
from _helpers.loggers import AnyLogger
from _helpers.modules import LIGHTNING_SAYS, digits, epochs, fit, loader, plain, trainer
from _helpers.presenters import present_with
from lightning import Callback

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.evaluation.results import Alert
from genmonitor.findings.values import RUN_VALUES
from genmonitor.loggers.publisher import Publisher, print_reports
from genmonitor.plotting.pixel_clusters import cluster_map

pytestmark = LIGHTNING_SAYS


def started(folder, **settings):
    publisher = Publisher("Name", "cms", **settings)
    publisher.start(folder, trainer(folder).loggers)
    return publisher


def fails(error):
    def part(*args, **kwargs):
        raise error

    return part


@pytest.mark.filterwarnings(r"ignore:Name. It fell\.")
def test_alert_reaches_the_users_function_whose_failure_is_said(tmp_path):
    said = []
    with pytest.warns(UserWarning, match=r"Name: It fell\."):
        started(tmp_path, on_alert=said.append).publish_alert(Alert("fell", "It fell."), "cluster_1")
    assert said == ["It fell."]
    with pytest.warns(UserWarning, match="(?s)could not be shown or written.*no network"):
        started(tmp_path, on_alert=fails(ConnectionError("no network"))).publish_alert(
            Alert("fell", "It fell."), "cluster_1"
        )


SHOWN = ["fit_figures", "figures", "tables", "table", "shown_real", "shown_samples"]
DECLARED = ["values", "presenter", "write_artifacts", "manifest"]


@pytest.mark.filterwarnings("ignore:Plain. part of an evaluation")
@pytest.mark.parametrize("part", [*SHOWN, *DECLARED])
def test_what_an_evaluator_cannot_show_stops_no_training(tmp_path, part):
    monitor = plain(on_error="warn")
    failing = fails(ArithmeticError("no ink"))
    if part in DECLARED:
        setattr(monitor.evaluator, part, failing)
    else:
        present_with(monitor.evaluator, **{part: failing})
    with pytest.warns(UserWarning, match="(?s)Plain: part of an evaluation could not be.*no ink"):
        runner, _ = fit(tmp_path, monitor, val=loader(digits(300, 400)))
    assert epochs(monitor) == [0, 1]
    assert runner.current_epoch == 2


def test_nothing_is_written_before_the_first_evaluation(tmp_path):
    publisher = started(tmp_path)
    publisher.notes.record("Few images.")
    publisher.write_report()
    assert not (tmp_path / "genmonitor").exists()


def test_figure_that_cannot_be_drawn_is_named_and_those_after_it_are_shown(tmp_path):
    publisher = started(tmp_path)
    after = partial(cluster_map, [[0, 1], [2, 1]])
    with pytest.warns(UserWarning, match="(?s)could not be shown or written.*not a number"):
        publisher._publish_figures({"lost": fails(TypeError("not a number")), "after": after}, 5, 1)
    assert [path.name for path in (tmp_path / "genmonitor").glob("*.png")] == ["cms_after_epoch_0001_step_5.png"]


def test_figure_for_which_the_disk_has_no_room_reaches_the_loggers(tmp_path):
    taken = []
    writer = SimpleNamespace(
        add_figure=None,
        add_text=None,
        add_image=lambda tag, image, global_step, **rest: taken.append((tag, global_step)),
    )
    publisher = Publisher("Name", "cms")
    publisher.start(tmp_path, [AnyLogger(writer)])
    (tmp_path / "genmonitor").write_text("no folder")
    with pytest.warns(UserWarning, match="could not be shown or written"):
        publisher._publish_figures({"map": partial(cluster_map, [[0, 1], [2, 1]])}, 5, 1)
    assert taken == [("cms/map", 5)]


class Fails(Callback):
    """Ends a training before its time."""

    def __init__(self, error):
        self.error = error

    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch == 1:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("no more"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
def test_page_is_of_the_last_evaluation_where_a_training_ends_before_its_time(tmp_path, error):
    monitor = PixelClusterMonitor(n_clusters=3, n_samples=100, n_cluster_images=200, verbose=False)
    with pytest.raises((RuntimeError, SystemExit)):
        fit(tmp_path, monitor, Fails(error), val=loader(digits(300, 400)), max_epochs=4, logger=False)
    assert ["explained" in record for record in monitor.history] == [True, False]
    written = {path.name for path in (tmp_path / "genmonitor").iterdir()}
    assert written >= {"cms_samples_epoch_0000_step_2.png", "cms_images_epoch_0001_step_5.webp"}
    assert "the last at epoch\n    1" in (tmp_path / "genmonitor" / "report.html").read_text()


def test_trial_run_writes_nothing_and_says_so_to_nobody(tmp_path, capsys):
    publisher = Publisher("Name", "cms")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        publisher.start(tmp_path, [], writes=False)
        publisher.write_report()
        print_reports([publisher])
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out.count("Report") == 0


def test_print_reports_says_each_page_once(tmp_path, capsys):
    publishers = [started(tmp_path) for _ in range(4)]
    for publisher, page in zip(publishers, ("a", "b", "a", None), strict=True):
        publisher.page = page and tmp_path / page
    print_reports(publishers)
    assert capsys.readouterr().out == f"Report: {tmp_path / 'a'}\nReport: {tmp_path / 'b'}\n"


REGIONS = RegionValues([*(f"cluster_{i}" for i in range(1, 6)), "constant"], ["image", "product"])


@pytest.mark.parametrize("logs_all", [False, True])
def test_a_logger_gets_the_main_values_unless_all_are_asked_for(tmp_path, logs_all):
    logger = AnyLogger()
    publisher = Publisher("Name", "cms", logs_all=logs_all)
    publisher.start(tmp_path, [logger])
    values = {spec.key: 0.5 for spec in (*REGIONS.specs, *RUN_VALUES)}
    publisher.publish_values(values, lambda: [*REGIONS.specs, *RUN_VALUES], epoch=1, step=9)
    ((step, logged),) = logger.logged
    assert step == 9
    assert len(logged.keys() - {"epoch"}) == (len(values) if logs_all else 20)
    assert {"cms/image", "cms/cluster_5", "cms/error_ratio_5", "cms/p", "cms/spread", "epoch"} <= logged.keys()
    assert ({"cms/share_1", "cms/metric_seconds", "cms/baseline_image"} <= logged.keys()) is logs_all


def test_a_value_of_the_users_own_is_logged(tmp_path):
    logger = AnyLogger()
    publisher = Publisher("Name", "mine")
    publisher.start(tmp_path, [logger])
    publisher.publish_values({"left": 0.5}, list, epoch=1, step=9)
    assert logger.logged == [(9, {"mine/left": 0.5, "epoch": 1})]

# SPDX-License-Identifier: Apache-2.0
"""W1KP in DiversityMonitor: how alike the images of one prompt are, where a calibration is given."""

import json

import pytest
import torch
from _helpers.logged import read_tensorboard
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit, loader, measured
from _helpers.prompted import Prompted, plain, watch
from lightning.pytorch.loggers import TensorBoardLogger

from genmonitor.callbacks import DiversityMonitor
from genmonitor.callbacks.sampling.seeding import draw
from genmonitor.functional import W1KPCalibration, calibrate, w1kp_score
from genmonitor.plotting import diversity as diversity_figures

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:.*there is no validation data")]
CALIBRATION = calibrate(digits(0, 100).flatten(1))


class Dull(Prompted):
    """The images of class 2 are all the same, those of class 4 nearly."""

    def sample_prompts(self, labels):
        images = super().sample_prompts(labels)
        still = torch.full_like(images, 0.3)
        images = torch.where((labels == 4)[:, None, None, None], 0.95 * still + 0.05 * images, images)
        return torch.where((labels == 2)[:, None, None, None], still, images)


def test_the_value_is_that_of_the_samples_and_their_prompts(tmp_path):
    module = Prompted()
    check = watch(tmp_path, plain([3, 1, 3], calibration=CALIBRATION), module)
    prompts = torch.tensor(20 * [3, 1, 3])
    with torch.no_grad():
        images = draw(lambda batch: module.sample_prompts(prompts[batch]), [list(range(60))], seed=0)
    expected = w1kp_score(images.flatten(1), prompts, calibration=CALIBRATION)
    assert check["w1kp"] == pytest.approx(float(expected["w1kp"]), rel=1e-5)
    assert 0 < check["w1kp"] < 1


def test_it_is_measured_with_a_calibration_only(tmp_path):
    monitor = plain()
    assert "w1kp" not in watch(tmp_path, monitor)
    assert "w1kp" not in monitor.names()
    calibrated = plain(calibration=CALIBRATION)
    watch(tmp_path, calibrated)
    assert "w1kp" in calibrated.names()


def test_the_least_varied_prompts_are_listed_first_with_their_images(tmp_path, monkeypatch, capsys):
    given = []
    monkeypatch.setattr(diversity_figures, "least_varied", lambda *arguments: given.append(arguments))
    monitor = plain(calibration=CALIBRATION)
    watch(tmp_path, monitor, Dull())
    assert [row.prompt for row in monitor._variability.least][:2] == ["2", "4"]
    assert monitor._variability.least[0].w1kp == 1
    monitor._variability.figure((-1, 1))
    ((rows, value_range),) = given
    assert value_range == (-1, 1)
    prompt, w1kp, remark, images = rows[0]
    assert (prompt, w1kp, images.shape) == ("2", 1, (6, 1, 8, 8))
    assert "high similarity\ngood for 1 of 12 images" in remark
    assert bool((images == images[0]).all())
    assert bool((rows[-1][3] != rows[-1][3][0]).any())
    assert "  1.00 high   '2'" in capsys.readouterr().out


def test_charts_figure_calibration_and_manifest_are_written(tmp_path):
    logger = TensorBoardLogger(tmp_path, name="run")
    monitor = DiversityMonitor(range(5), n_samples=60, calibration=CALIBRATION, on_error="raise")
    watch(tmp_path, monitor, val=loader(digits(300, 400)), logger=logger, log_every_n_steps=1)
    folder = tmp_path / "run" / "version_0"
    events = read_tensorboard(folder)
    assert events.Scalars("diversity/w1kp")[0].value == pytest.approx(monitor.history[0]["w1kp"], rel=1e-6)
    assert "diversity/least_varied" in events.Tags()["images"]
    layout = events.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0].decode(errors="ignore")
    assert "Likeness of the images of one prompt (W1KP)" in layout
    manifest = json.loads((folder / "genmonitor" / "diversity_evaluation_00001.json").read_text())
    kept = W1KPCalibration.load(folder / "genmonitor" / manifest["calibration"])
    assert torch.equal(kept.distances, CALIBRATION.distances)
    assert len(list((folder / "genmonitor").glob("diversity_least_varied_epoch_*.png"))) == 1


def test_another_calibration_starts_the_curves_anew():
    first, same, other = plain(calibration=CALIBRATION), plain(calibration=CALIBRATION), plain()
    same.load_state_dict(first.state_dict())
    with pytest.warns(UserWarning, match="resumed with another calibration"):
        other.load_state_dict(first.state_dict())


def test_a_resumed_run_has_the_same_curve(tmp_path):
    def make():
        return plain(calibration=CALIBRATION)

    whole, first, second = make(), make(), make()
    fit(tmp_path, whole, module=Prompted(), max_epochs=2)
    fit(tmp_path, first, module=Prompted(), max_epochs=1)
    second.load_state_dict(first.state_dict())
    fit(tmp_path, second, module=Prompted(), max_epochs=1)
    assert [check["w1kp"] for check in measured(second)] == [check["w1kp"] for check in measured(whole)]


def test_there_are_two_images_of_each_prompt_or_an_error():
    assert DiversityMonitor(range(800), calibration=CALIBRATION).n_samples == 1600
    with pytest.raises(ValueError, match="at least 2 samples of each prompt for W1KP, but 7 has one of 15"):
        DiversityMonitor(range(8), 15, calibration=CALIBRATION)


def test_what_is_no_calibration_or_of_another_embedding_is_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="`calibration` to be a W1KPCalibration, but got 5"):
        plain(calibration=5)
    with pytest.raises(ValueError, match="of the embedding that the calibration is of, with 9 values"):
        watch(tmp_path, plain(calibration=calibrate(torch.randn(20, 9)), on_error="warn"))


def test_a_module_that_knows_no_prompts_is_still_refused(tmp_path):
    with pytest.raises(ValueError, match="sample_prompts"):
        watch(tmp_path, plain(calibration=CALIBRATION), Linear())

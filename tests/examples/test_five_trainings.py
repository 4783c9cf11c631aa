# SPDX-License-Identifier: Apache-2.0
import inspect
import random
import types
from functools import partial

import five_trainings
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS
from _helpers.runs import manifests
from _helpers.slow import nightly_but

from genmonitor.evaluation import RegionEvaluator, RegionSettings

FROZEN = pytest.mark.filterwarnings("ignore:Found 9 module")  # the first stage, as it should be
pytestmark = [*LIGHTNING_SAYS, FROZEN, pytest.mark.slow]

ADDED = "# monitor"
SHORT = {
    "latent_diffusion": {"epochs": 2},
    "scans": {"epochs": 2, "val_interval": 1},
    "scans of three channels": {"epochs": 2, "val_interval": 1, "channels": 3},
    "adaptive_gan": {"kimg": 2.56, "tick": 1280},
    "edm": {"steps": 4},
    "flow_matching": {"steps": 20},
}


@pytest.fixture(scope="module")
def unmonitored():
    """The script as it was before the lines were added."""
    lines = inspect.getsource(five_trainings).splitlines()
    module = types.ModuleType("unmonitored")
    exec("\n".join(line for line in lines if not line.endswith(ADDED)), module.__dict__)
    assert "monitor" not in vars(module)
    assert not any(name.endswith("Monitor") for name in vars(module))
    return module


@pytest.fixture(autouse=True)
def few_samples(monkeypatch):
    """Draw 60 samples an evaluation."""
    settings = RegionSettings(n_samples=60, n_clusters=3, n_cluster_images=100)
    monkeypatch.setattr("genmonitor.monitoring.loop.RegionEvaluator", lambda: RegionEvaluator(settings))
    options = {"n_samples": 60, "n_clusters": 3, "n_cluster_images": 100}
    monkeypatch.setattr(five_trainings, "PixelClusterMonitor", partial(five_trainings.PixelClusterMonitor, **options))


def trained(module, name, folder):
    """Train, and return the weights and buffers, and what random numbers come next."""
    folder.mkdir()
    torch.manual_seed(0)
    random.seed(0)
    model = module.TRAININGS[name.split()[0]](folder, **SHORT[name])
    return model.state_dict(), [torch.rand(2).tolist(), random.random()]


@pytest.mark.parametrize("name", nightly_but(SHORT, "latent_diffusion", "adaptive_gan", "edm"))
def test_three_added_lines_evaluate_a_training_and_leave_it_as_it_was(name, unmonitored, tmp_path):
    expected, after = trained(unmonitored, name, tmp_path / "without")
    found, then = trained(five_trainings, name, tmp_path / "with")
    assert after == then
    assert all(torch.equal(found[key], value) for key, value in expected.items())
    (written,) = (tmp_path / "with").rglob("cms_run.json")
    assert len(manifests(written.parent)) == 2
    assert [*(tmp_path / "with").rglob("report.html")]

# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader, plain
from _helpers.runs import manifests
from torchmetrics import MeanMetric

from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor, PixelClusterMonitor

pytestmark = LIGHTNING_SAYS


@pytest.mark.filterwarnings("ignore:Plain. there is no validation data")
def test_file_of_a_run_holds_the_last_evaluation_and_its_samples(tmp_path):
    monitor = plain(sample_batch_size=25, prompts=None, image_key=0, seed=4)
    fit(tmp_path, monitor, val=loader(digits(300, 400)))
    found = json.loads(json.dumps(monitor.manifest()))
    expected = {"monitor": "Plain", "seed": 4, "n_samples": 60}
    expected |= {"sample_batch_size": 25, "prompts": None, "image_key": 0}
    assert found.items() >= expected.items()
    last = manifests(tmp_path / "genmonitor")[-1]
    assert last.items() >= {**found, "prefix": "cms", "values": monitor.history[-1]}.items()
    assert found["unserializable_args"] == []
    assert found["folder"] == str((tmp_path / "genmonitor").resolve())


@pytest.mark.parametrize("make", [PixelClusterMonitor, DiversityMonitor, lambda: DisagreementMonitor([0, 1] * 5)])
def test_a_summary_before_the_first_evaluation_says_so(make):
    """As in a script whose training ran in processes of its own."""
    monitor = make()
    assert monitor.summary() == repr(monitor)
    assert "evaluations=0" in monitor.summary()


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (DiversityMonitor, "monitor='diversity/coverage', mode='max'"),
        (lambda: DisagreementMonitor([0, 1], reference="start"), "none of them is better"),
    ],
)
def test_the_key_of_a_monitor_without_an_order_is_refused(make, advice):
    assert DisagreementMonitor([0, 1]).key == "disagreement/distance"
    with pytest.raises(AttributeError, match="ranks its evaluations.*no order of preference.*" + advice):
        make().key  # noqa: B018
    assert PixelClusterMonitor(prefix="a").key == "a/error_ratio_image"


GIVEN = {
    "sample_fn": lambda module, n: module.sample(n),
    "real_images": digits(0, 100),
    "image_key": lambda batch: batch[0],
    "extra_metrics": {"mean": MeanMetric()},
    "site_encoder": lambda images: images,
}


@pytest.mark.parametrize("name", GIVEN)
def test_unserializable_args_are_named(name):
    assert plain(**{name: GIVEN[name]})._unserializable_args() == [name]


def test_unserializable_args_are_not_those_that_json_holds():
    assert plain(image_key="image", prompts=[1, 2])._unserializable_args() == []

# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor.evaluation.regions.values import RegionValues, check_distinct_keys
from genmonitor.findings.values import RUN_VALUES, ValueSpec, grouped_by_chart, lookup

REGIONS = ["cluster_1", "cluster_10", "constant"]
VALUES = RegionValues(REGIONS, ["image", "cluster_1", "mmd"])


def test_keys_follow_one_pattern():
    assert list(VALUES.distance) == ["structure", "texture"]
    measures = {"error_ratio": VALUES.error_ratio, "p": VALUES.p, "vs_best": VALUES.vs_best, **VALUES.distance}
    for measure, keys in measures.items():
        assert keys == {
            "image": f"{measure}_image",
            "cluster_1": f"{measure}_1",
            "cluster_10": f"{measure}_10",
            "constant": f"{measure}_constant",
        }
    assert VALUES.share == {"cluster_1": "share_1", "cluster_10": "share_10", "constant": "share_constant"}
    assert VALUES.baseline == {"image": "baseline_image", "cluster_1": "baseline_1", "mmd": "baseline_mmd"}


def test_each_key_is_declared_once_and_explained():
    keys = [spec.key for spec in (*VALUES.specs, *RUN_VALUES)]
    assert len(keys) == len(set(keys))
    assert all(spec.about for spec in (*VALUES.specs, *RUN_VALUES))


def test_regions_share_charts():
    charts = {title: {spec.region for spec in specs} for title, specs in grouped_by_chart(VALUES.specs).items()}
    assert charts["CMS by region"] == charts["Share of the loss"] == set(REGIONS)
    assert charts["Error ratio"] == charts["Structure: distance from real images"] == {"image", *REGIONS}
    assert charts["CMS of image and product"] == {"image"}


def test_baselines_have_no_chart():
    assert not any("baseline" in title for title in grouped_by_chart(VALUES.specs))


def test_undeclared_value_has_a_plain_axis():
    assert lookup({}, "p_value_of_mine") == ValueSpec("p_value_of_mine")
    assert ValueSpec("share_of_mine").scale == "linear"


@pytest.mark.parametrize("wrong", [{"key": ""}, {"key": "a", "scale": "logarithmic"}, {"key": "a", "better": True}])
def test_refused(wrong):
    with pytest.raises(ValueError, match="Expected `"):
        ValueSpec(**wrong)


@pytest.mark.parametrize(
    ("spec", "value", "text"),
    [
        (ValueSpec("x", scale="cms"), 0.99964, "0.99964"),
        (ValueSpec("x", scale="share"), 0.2, "20 %"),
        (ValueSpec("x", scale="p"), 0.005, "p = 0.005"),
        (ValueSpec("x", unit="×"), 12.4, "12 ×"),
        (ValueSpec("x", unit="×"), 0.43, "0.4 ×"),
        (ValueSpec("x", unit="×", better="low"), 0.43, "1 × (chance)"),
        (ValueSpec("x", unit="s"), 1.25, "1.25 s"),
        (ValueSpec("x"), 1234.5, "1234"),
    ],
)
def test_format(spec, value, text):
    assert spec.format(value) == text


@pytest.mark.parametrize("name", ["epoch", "step", "images_seen", "p_image", "p_7", "mmd"])
def test_a_name_that_another_value_has_is_refused(name):
    check_distinct_keys(["eyes_1", "eyes_2"])
    with pytest.raises(ValueError, match=f"got '{name}'"):
        check_distinct_keys(["eyes", name])

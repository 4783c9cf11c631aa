# SPDX-License-Identifier: Apache-2.0
"""Settings are checked, compared, written to a manifest and read from it by their fields."""

import json
from dataclasses import dataclass, fields

import pytest
import torch
from _helpers.changed_settings import CHANGED

from genmonitor import CosineKernel, GaussianKernel, PixelPartition, PromptSplit, VendiScore, diagnose
from genmonitor.evaluation import DisagreementSettings, DiversitySettings, RegionSettings, Sampler
from genmonitor.functional import calibrate, two_sample_test, uncovered_test, vendi_score

COLUMNS = PixelPartition.grid((4, 6), 1, 2)
OTHERS = [
    DiversitySettings.of(["a", "b"], kernel=GaussianKernel(2), num_features=50, prompt_kernel=GaussianKernel(0.5)),
    DiversitySettings.of(range(3), rcond=1e-3, calibration=calibrate(torch.rand(20, 3)), seed=2),
    DiversitySettings(),
    DisagreementSettings.of(torch.arange(3), 9, reference="start", num_modes=2, eta=0.5),
    DisagreementSettings.of([1, 2], kernel=CosineKernel(), num_features=8),
]


@pytest.mark.parametrize("name", [field.name for field in fields(RegionSettings)])
def test_every_region_setting_survives_a_manifest(name):
    assert name in CHANGED, "a setting needs another value than its default in _helpers/changed_settings.py"
    settings = RegionSettings(**{name: CHANGED[name]})
    saved = settings.to_manifest()
    assert json.loads(json.dumps(saved)) == saved
    assert [key for key, value in RegionSettings().to_manifest().items() if value != saved[key]] == [name]


@pytest.mark.parametrize("settings", OTHERS, ids=lambda settings: type(settings).__name__)
def test_other_settings_survive_a_manifest(settings):
    assert json.loads(json.dumps(settings.to_manifest())) == settings.to_manifest()


def test_settings_are_the_same_however_a_default_is_given(tmp_path):
    COLUMNS.save(tmp_path / "partition.npz")
    assert RegionSettings(kernel=GaussianKernel()) == RegionSettings()
    assert RegionSettings.of(partition=tmp_path) == RegionSettings(partition=COLUMNS)
    assert DiversitySettings.of(range(3), kernel=CosineKernel()) == DiversitySettings.of([0, 1, 2], 1000)
    assert DisagreementSettings.of([5]) == DisagreementSettings.of([5], 1000, kernel=GaussianKernel())
    assert RegionSettings(3) != RegionSettings(4)


@dataclass(frozen=True)
class Sharper(GaussianKernel):
    power: float = 2.0


def test_a_kernel_of_ones_own_is_compared_by_name():
    saved = RegionSettings(kernel=Sharper(0.5)).to_manifest()
    assert saved["kernel"] == {"kernel": f"{__name__}.Sharper", "gamma": 0.5, "power": 2.0}
    assert RegionSettings(kernel=Sharper(0.5)) != RegionSettings(kernel=Sharper(0.5, power=3.0))


@pytest.mark.parametrize("kind", [RegionSettings, DiversitySettings, DisagreementSettings])
def test_every_setting_is_checked(kind):
    needed = {} if kind is RegionSettings else {"prompts": range(3)}
    for field in fields(kind):
        with pytest.raises((TypeError, ValueError), match=f"`{field.name}`"):
            kind.of(**needed | {field.name: object()})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_cluster_images": 9}, "`n_cluster_images` of at least 10 images, 10, 2 per cluster .*, but got 9"),
        ({"n_clusters": 30, "n_cluster_images": 40}, "`n_cluster_images` of at least 60 images"),
        ({"batch_estimator": 1}, "`batch_estimator` to be a whole number >= 2"),
        (
            {"batch_estimator": 21, "n_cluster_images": 40},
            "at least 42 images, .* 2 mini-batches of `batch_estimator`, but got 40",
        ),
        ({"linkage": "single"}, "`linkage` to be one of 'average', 'ward', 'smoothed', but got 'single'"),
    ],
)
def test_region_settings_refuse(settings, message):
    with pytest.raises(ValueError, match=message):
        RegionSettings(**({"n_samples": 24} | settings))


@pytest.mark.parametrize("kind", [DiversitySettings, DisagreementSettings])
def test_settings_refuse_fewer_samples_than_prompts(kind):
    with pytest.raises(ValueError, match="`n_samples` to be at least the number of prompts, 3, but got 2"):
        kind.of([5, 3, 4], 2)


@pytest.mark.parametrize(
    "seeded",
    [
        lambda seed: RegionSettings(seed=seed),
        lambda seed: Sampler(10, seed=seed),
        lambda seed: VendiScore(seed=seed),
        lambda seed: PromptSplit(seed=seed),
        lambda seed: two_sample_test(torch.rand(9, 2), torch.rand(9, 2), seed=seed),
        lambda seed: uncovered_test(*torch.rand(3, 9, 2), seed=seed),
        lambda seed: vendi_score(torch.rand(9, 2), kernel=GaussianKernel(1.0), num_features=5, seed=seed),
        lambda seed: diagnose(fake=torch.rand(9, 2), real=torch.rand(9, 2), seed=seed),
    ],
)
@pytest.mark.parametrize("seed", [2**63, 2**70])
def test_a_seed_beyond_int64_is_refused_by_its_name(seeded, seed):
    with pytest.raises(ValueError, match=r"Expected `seed` to be a whole number < 2\*\*63, but got"):
        seeded(seed)

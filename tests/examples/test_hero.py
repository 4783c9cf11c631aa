# SPDX-License-Identifier: Apache-2.0
import hero
import pytest
import torch

from genmonitor import PixelPartition


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(hero, "EPOCHS", 5)
    monkeypatch.setattr(hero, "FAULT", 3)
    # clusters that are given take no looking for
    grid = PixelPartition.grid((8, 8), rows=2, columns=2)
    settings = hero.RegionSettings
    monkeypatch.setattr(hero, "RegionSettings", lambda n_clusters, **rest: settings(partition=grid, **rest))


@pytest.mark.slow
def test_the_region_that_fades_is_found_and_drawn(quick):
    evaluator, history, alerts, real, fake, found = hero.evaluate()
    assert [(epoch, alert.area.region) for epoch, alert in alerts] == [(4, "cluster_3")]
    figure = hero.picture(evaluator, history, alerts, real, fake, found)
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles[:4] == ["real", "generated", "cluster 3 alone", "error ratio"]
    assert "cluster_3 (lower left) differs from real images" in figure.texts[0].get_text()
    said = hero.diagnosis(evaluator, history, fake, found).texts[0].get_text()
    assert said.startswith("Lower left")
    assert "contrast" in said or "darker" in said or "brightness" in said


def test_only_the_lower_left_quarter_fades():
    images = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    late = hero.generate(images, 60)  # no noise is left
    assert torch.allclose(late[..., :4, :], images[..., :4, :], atol=1e-6)
    assert torch.allclose(late[..., 4:, 4:], images[..., 4:, 4:], atol=1e-6)
    assert torch.allclose(late[..., 4:, :4] + 1, hero.KEPT * (images[..., 4:, :4] + 1), atol=1e-6)

# SPDX-License-Identifier: Apache-2.0
import math
import re
from dataclasses import replace
from pathlib import Path

import compare_seeds
import pytest
import torch
from compare_seeds import Runs, at_the_end, comparison, learned_first, whole_images

CONFIG = Path(__file__).parents[4] / "examples" / "configs" / "dcgan-digits.yaml"


def history(*losses, other=1.0):
    """Evaluations with these losses of cluster 1; cluster 2 has `other` times as much."""
    values = [{"cluster_1": math.exp(-x), "cluster_2": math.exp(-other * x)} for x in losses]
    products = [v["cluster_1"] * v["cluster_2"] for v in values]
    whole = [{"image": p, "product": p, "mmd": 1 - p, "epoch": 5.0 * i} for i, p in enumerate(products)]
    return [v | of for v, of in zip(values, whole, strict=True)]


LABELS = torch.tensor([[1, 1], [2, 0]])
RUNS = Runs("gan", {0: history(1.0, 0.2, 0.1), 1: history(1.0, 0.3, 0.09), 2: history(1.0, 0.9, 0.8)}, LABELS)


def test_seed_whose_loss_stays_far_above_is_named_and_left_out():
    assert RUNS.collapsed() == [2]
    assert len(RUNS.curves("cluster_1")) == 2
    assert Runs("gan", {0: RUNS.histories[0], 1: RUNS.histories[1]}, LABELS).collapsed() == []
    assert "gan: collapsed seeds: 2" in learned_first([RUNS])


def test_collapsed_seed_is_among_the_curves_where_it_is_asked_for():
    runs = replace(RUNS, with_collapsed=True)
    assert (runs.collapsed(), runs.left_out(), len(runs.curves("image"))) == ([2], [], 3)
    assert comparison([runs]).axes[0].get_title(loc="left") == "gan, seeds: 3"


def test_table_has_the_last_values_with_and_without_collapsed_seeds():
    rows = {line.split("  ")[0]: line for line in at_the_end([RUNS]).splitlines()}
    assert re.search(r"all: 3 +not collapsed: 2", rows["seeds"])
    ends = [1 - math.exp(-2 * x) for x in (0.09, 0.1, 0.8)]
    with_it, without = sum(ends) / 3, sum(ends[:2]) / 2
    assert f"{with_it:.4g} ({ends[0]:.4g} to {ends[2]:.4g})" in rows["mmd"]
    assert f"{without:.4g} ({ends[0]:.4g} to {ends[1]:.4g})" in rows["mmd"]
    assert "cluster_2" in rows
    assert "not collapsed" not in at_the_end([Runs("gan", {0: RUNS.histories[0]}, LABELS)])


def test_values_of_whole_images_have_a_panel_each():
    other = {0: [record | {"fid": 3.0} for record in history(1.0, 0.5)]}
    figure = whole_images([RUNS, Runs("ddpm", other, LABELS)])
    titles = ["CMS of the image (higher is better)", "product of the clusters' CMS", "squared MMD (lower is better)"]
    assert [ax.get_title(loc="left") for ax in figure.axes] == titles
    lines = {line.get_label(): line for line in figure.axes[2].lines}
    assert lines["gan"].get_ydata()[-1] == pytest.approx(1 - (math.exp(-0.2) + math.exp(-0.18)) / 2)
    assert {"gan", "ddpm"} <= set(lines)
    assert [line.get_linestyle() for line in figure.axes[0].lines].count(":") == 1
    with_fid = whole_images([Runs("ddpm", other, LABELS)])
    assert with_fid.axes[3].get_title(loc="left") == "FID (lower is better)"


def test_cluster_is_learned_at_a_tenth_of_its_first_mean_loss():
    late = [record | {"cluster_2": math.exp(-1)} for record in history(1.0, 0.05, 0.05)]
    runs = Runs("gan", {0: late}, LABELS)
    # a straight line between evaluations, in the logarithm of the loss: 1 at epoch 0, 0.05 at epoch 5
    assert runs.learned("cluster_1") == pytest.approx(5 * math.log(10) / math.log(20))
    assert runs.learned("cluster_2") == math.inf
    assert "in the order cluster_1 (epoch 3.8), cluster_2 (not)" in learned_first([runs])


def test_figure_has_means_bands_and_the_collapsed_seed_dotted():
    figure = comparison([RUNS, Runs("ddpm", {0: history(1.0, 0.5)}, LABELS)])
    first, second = figure.axes[:2]
    assert first.get_title(loc="left") == "gan, seeds: 2, collapsed (dotted): seed 2"
    assert second.get_title(loc="left") == "ddpm, seeds: 1"
    lines = {line.get_label(): line for line in first.lines}
    mean = (math.exp(-0.1) + math.exp(-0.09)) / 2
    assert lines["cluster 1"].get_ydata()[-1] == pytest.approx(mean, rel=1e-6)
    assert [line.get_linestyle() for line in first.lines].count(":") == 2
    band = first.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(math.exp(-1.0), rel=1e-6)
    assert band.max() == pytest.approx(math.exp(-0.09), rel=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_script_trains_every_seed_and_draws_them(tmp_path, capsys, monkeypatch):
    small = [f"--model.init_args.{side}_features=4" for side in ("generator", "discriminator")]
    quiet = ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.accelerator=cpu"]
    words = ["--trainer.max_epochs=2", "--trainer.limit_train_batches=1", *small, *quiet]
    seen = []
    monkeypatch.setattr(compare_seeds, "comparison", lambda runs: seen.extend(runs) or comparison(runs))
    command = ["--config", str(CONFIG), "--seeds", "2", "--out", str(tmp_path), *words]
    compare_seeds.main(command)
    assert all((tmp_path / f"{name}.png").exists() for name in ("comparison", "whole-images"))
    assert "dcgan-digits: learned in the order cluster_" in capsys.readouterr().out
    (runs,) = seen
    ends = [history[-1]["image"] for history in runs.histories.values()]
    assert len(ends) == 2
    assert ends[0] != ends[1]
    assert (tmp_path / "dcgan-digits-seed-1" / "version_0" / "genmonitor" / "cms_clusters.png").exists()
    monkeypatch.setattr(compare_seeds, "run_seed", lambda config, seed, *rest: pytest.fail(f"seed {seed} again"))
    compare_seeds.main(command)
    assert seen[1].histories == runs.histories
    with pytest.raises(pytest.fail.Exception, match="seed 0 again"):
        compare_seeds.main([*command, "--trainer.gradient_clip_val=1"])

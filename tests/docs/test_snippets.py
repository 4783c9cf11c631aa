# SPDX-License-Identifier: Apache-2.0
"""Every snippet of README and docs/ runs, the snippets of a page one after the other, and says what the page says."""

import re
import sys
from pathlib import Path

import pytest
from _helpers.pages import PAGES, ROOT, snippets
from _helpers.slow import slow_but
from lightning import seed_everything

sys.path.insert(0, str(ROOT / "examples"))

from conditional_dcgan import ConditionalDCGAN
from data import ImageData
from dcgan import DCGAN

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="needs the repository: README.md and docs/ are not beside the tests"),
    # Lightning's advice on workers and on validation, and the monitor's own on the latter, are what a reader would see
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]

BY_CLASS = {"docs/monitors/diversity.md", "docs/monitors/disagreement.md"}
"""Pages whose `model` has `sample_prompts` and whose `data` have labels."""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a page's snippets in an empty folder, with a model and data that stand for the reader's own."""
    monkeypatch.chdir(tmp_path)

    def run_page(page):
        seed_everything(0, verbose=False)
        by_class = page in BY_CLASS
        model = ConditionalDCGAN(features=8) if by_class else DCGAN((1, 8, 8), 8, 8, 8)
        space = {"__name__": "snippet", "model": model, "data": ImageData("digits", with_labels=by_class)}
        for number, code in enumerate(snippets(PAGES[page]), 1):
            exec(compile(code, f"{page}, snippet {number}", "exec"), space)
        return space | {"printed": capsys.readouterr().out}

    return run_page


def lit_halves(space):
    labels = space["partition"].labels
    return bool((labels[:, :4] == labels[0, 0]).all() and (labels[:, 4:] == 3 - labels[0, 0]).all())


def last(space):
    return space["monitor"].history[-1]


SAYS = {
    "README.md": lambda s: len(s["monitor"].history) == 2 and 0 <= last(s)["image"] <= 1,
    "docs/start.md": lambda s: len(list(Path().glob("**/genmonitor/report.html"))) == 1,
    "docs/reading.md": lambda s: s["nearest"](s["generated"]) == 0 < s["nearest"](s["held_out"]),
    "docs/metrics/index.md": lambda s: (s["epochs"]["cluster_2"], s["epochs"]["coverage"]) == (1, 1),
    "docs/metrics/pixel-cka.md": lit_halves,
    "docs/metrics/cms.md": lambda s: s["values"]["share_2"] > 0.9,
    "docs/metrics/mmd.md": lambda s: s["mmd"].compute() > 0,
    "docs/metrics/two-sample-test.md": lambda s: (
        s["test"].compute()["cluster_2"] <= 0.05 < s["test"].compute()["cluster_1"]
    ),
    "docs/metrics/discrepancy-map.md": lambda s: (
        s["found"]["p"] < 0.006 and bool(s["significant_areas"](s["found"])[0][10:, 10:].all())
    ),
    "docs/metrics/relative-similarity.md": lambda s: s["found"].difference > 0 and s["found"].p_value < 0.05,
    "docs/metrics/vendi.md": lambda s: 9 < s["rke"].compute() < s["vendi"].compute() < 10.5,
    "docs/metrics/scendi.md": lambda s: s["scendi"].compute()["scendi"] > 1.5,
    "docs/metrics/conditional-vendi.md": lambda s: (
        [round(float(value), 6) for value in s["score"].compute().values()] == [2, 3]
    ),
    "docs/metrics/authenticity.md": lambda s: 0.5 < s["metric"].compute() / s["usual"] < 0.7,
    "docs/metrics/prdc.md": lambda s: s["prdc"].compute()["precision"] > 0.95 and s["prdc"].compute()["recall"] < 0.1,
    "docs/metrics/promptsplit.md": lambda s: (
        s["split"].compute()["eigenvalues"].abs().sort().values.diff().argmax() == 1  # between the pair and the rest
    ),
    "docs/metrics/w1kp.md": lambda s: s["w1kp"].per_prompt()[0].prompt == 2 and s["w1kp"].per_prompt()[0].w1kp > 0.9,
    "docs/monitors/pixel-clusters.md": lambda s: Path(s["best"].best_model_path).exists(),
    "docs/monitors/diversity.md": lambda s: (
        0 <= last(s)["prompt_share"] <= 1
        and abs(last(s)["vendi_2"] - last(s)["rke"]) < 1e-6
        and last(s)["novel_total"] > 0
    ),
    "docs/monitors/disagreement.md": lambda s: last(s)["total"] > 0,
    "docs/how-to/lightning.md": lambda s: 0 <= last(s)["image"] <= 1,
    "docs/how-to/metrics-in-a-module.md": lambda s: (
        {"val/mmd", "val/vendi", "val/coverage"} < s["trainer"].callback_metrics.keys() and "at epoch" in s["printed"]
    ),
    "docs/how-to/plain-loop.md": lambda s: f"Report: {Path.cwd()}/runs/loop/genmonitor/report.html" in s["printed"],
    "docs/how-to/diffusers.md": lambda s: 0 <= last(s)["image"] <= 1,
    "docs/how-to/finished-runs.md": lambda s: s["found"].finding.startswith(
        "fake is closer to the real images than other (p < 0.0001), in cluster_2 (p < 0.0001), "
    ),
    "docs/how-to/diagnose.md": lambda s: (
        s["first"].area.mask[4:, 4:].sum() > s["first"].area.mask.sum() / 2
        and s["first"].kinds[0].name == "brighter"
        and s["printed"].count("no difference from real images beyond chance") >= 2
        and "Left out" in s["printed"]
        and "\nAnywhere: noise 0.0" in s["printed"]
    ),
    "docs/how-to/classes-and-samples.md": lambda s: (
        [x.label for x in s["found"].classes if x.differs] == [1] and 0 < float(s["odd"].p_value) <= 1
    ),
    "docs/how-to/fault-models.md": lambda s: (
        s["found"].findings[0].kinds[0].name == "vignette"
        and abs(s["found"].findings[0].kinds[0].strength - 0.3) < 0.05
        and "brightness of the lower right corner" in s["of_readings"].findings[0].text
    ),
    "docs/how-to/own-regions.md": lambda s: s["monitor"].partition == s["partition"],
    "docs/how-to/latents.md": lambda s: s["monitor"].partition.labels.shape == (4, 4),
    "docs/how-to/medical.md": lambda s: re.match(
        r"Lower left corner, \d+×\d+ px: contrast − \d+ %; explains", s["found"].finding
    ),
    "docs/how-to/guidance.md": lambda s: (
        s["maximum_mean_discrepancy"](s["samples"], s["real"], kernel=s["kernel"]) < 0.02 and s["variety"] > 5
    ),
    "docs/how-to/other-metrics.md": lambda s: "kid" in s["printed"] and "features_coverage" in s["printed"],
    "docs/how-to/own-monitor.md": lambda s: str(s["brightness"].history[-1]["cluster_1"]) in s["printed"],
}
"""What must hold after the snippets of a page."""


def test_every_page_with_snippets_is_here():
    assert {page for page, text in PAGES.items() if snippets(text)} == SAYS.keys()


@pytest.mark.parametrize("page", slow_but(SAYS, "README.md", *(page for page in SAYS if "/metrics/" in page)))
def test_snippets_run_and_show_what_the_page_says(page, run):
    assert SAYS[page](run(page))

# SPDX-License-Identifier: Apache-2.0
"""Folders like those that monitors leave, made without training."""

import json
import math

import numpy as np
import torch
from matplotlib.figure import Figure

from genmonitor import PixelPartition
from genmonitor.evaluation.findings import Area, Finding
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.evaluation.results import ShownImages, Table
from genmonitor.evaluation.values import RUN_VALUES, ValueSpec
from genmonitor.report import RunFolder

LABELS = torch.tensor([[1, 1, 2, 2], [1, 1, 2, 2], [1, 1, 0, 0]])
PARTITION = PixelPartition(LABELS)
SPECS = RegionValues(PARTITION.regions()).specs
VALUES = [spec for spec in (*SPECS, *RUN_VALUES) if spec.key not in ("violations", "mmd")]
BASELINE = {"cluster_1": [0.95, 0.97, 0.99], "cluster_2": [0.96, 0.97, 0.98], "image": [0.98, 0.99, 0.995]}
COMPARED = {
    "monitor": "compare",
    "heading": "samples/ compared with real.npy",
    "real_images": "real.npy",
    "generated_images": "samples/",
}


def record(number, **values):
    """Return the values of an evaluation: cluster 2 gets better with time, cluster 1 stays."""
    one, two = 0.9, 1 - 0.5 / number
    losses = {"share_1": math.log(one), "share_2": math.log(two), "share_constant": 0.0}
    total = sum(losses.values())
    return {
        "epoch": number - 1,
        "step": 10 * number - 1,
        "image": one * two,
        "product": one * two,
        "cluster_1": one,
        "cluster_2": two,
        "constant": 1.0,
        **{name: value / total for name, value in losses.items()},
        "violations": 0.0,
        "mmd": 0.1 / number,
        "baseline_image": 0.99,
        "sampling_seconds": 0.5,
        "metric_seconds": 0.25,
        "images_seen": 1000 * number,
        **values,
    }


def found(text="cluster_2 differs.", fine=False):
    """Return what is found of the regions: cluster 2 differs from real images."""
    verdict = Finding(text, Area("cluster_2", region="cluster_2"), "", "error_ratio_2", fine)
    areas = [Area(name, region=name) for name in ("cluster_2", "cluster_1", "constant")]
    states = [Finding(f"{area}: ...", area, f"verdict on {area}", area.name) for area in areas]
    return [finding.to_dict() for finding in (verdict, *states)]


def write_evaluation(folder, number, prefix="cms", **manifest):
    """Write the manifest of an evaluation."""
    given = {
        "monitor": "PixelClusterMonitor",
        "title": "Regions of the image",
        "message": f"largest contributor at epoch {number - 1}: cluster_2",
        "findings": found(f"largest contributor at epoch {number - 1}: cluster_2"),
        "evaluation": record(number),
        "partition": "cms_partition.npz",
        "baseline": BASELINE,
    }
    RunFolder(folder).write_manifest(prefix, number, given | manifest)


def write_picture(path, shade=0.5):
    """Write a small PNG file of one shade."""
    Figure(figsize=(0.4, 0.3), dpi=100, facecolor=str(shade)).savefig(path)


def write_strip(folder, name, shades, number=None, nearest=False, captions=(), prefix="cms"):
    """Write images of 3x4 pixels to show one by one, each of one shade; evaluation None is of the whole run."""
    tiles = np.array(shades, dtype=float)[:, None, None, None] * np.ones((1, *LABELS.shape, 3))
    distances = list(np.arange(len(shades)) / 2) if nearest else []
    shown = ShownImages(tiles, captions, 1 - tiles if nearest else None, distances)
    when = (0, None) if number is None else (10 * number - 1, number - 1)
    RunFolder(folder).write_images(prefix, name, shown, *when)


def write_notes(folder, notes, prefix="cms"):
    """Write notes about the whole run, number None, and about evaluations."""
    said = [{"epoch": n and n - 1, "step": n and 10 * n - 1, "text": text} for n, text in notes]
    RunFolder(folder).write_notes(prefix, said)


def make_run(run, evaluations=3, pictures=None):
    """Fill <run>/genmonitor as PixelClusterMonitor would; return that folder."""
    folder = run / "genmonitor"
    folder.mkdir(parents=True)
    for number in range(1, evaluations + 1):
        write_evaluation(folder, number)
    for number in range(1, (evaluations if pictures is None else pictures) + 1):
        path = folder / f"cms_samples_epoch_{number - 1:04d}_step_{10 * number - 1}.png"
        write_picture(path, number / (evaluations + 1))
    write_picture(folder / "cms_cka.png")
    RunFolder(folder).write_values("cms", VALUES)
    PARTITION.save(folder / "cms_partition.npz")
    return folder


def add_diversity(folder, prompts, evaluations=2):
    """Add what DiversityMonitor would leave beside, and a table of the prompts."""
    for number in range(1, evaluations + 1):
        values = {"vendi": 5.0 + number, "rke": 4.0, "scendi": 3.0, "scendi_prompt": 2.0, "prompt_share": 0.4}
        values |= {"epoch": number - 1, "step": 10 * number - 1, "sampling_seconds": 1.0, "metric_seconds": 1.0}
        manifest = {
            "monitor": "DiversityMonitor",
            "title": "Variety of the samples",
            "evaluation": values,
            "prompts": "diversity_prompts.json",
        }
        RunFolder(folder).write_manifest("diversity", number, manifest)
    modes = [
        ValueSpec("vendi", "effective number of modes", chart="Modes of 100 images"),
        ValueSpec("rke", chart="Modes of 100 images"),
    ]
    RunFolder(folder).write_values("diversity", [*modes, *RUN_VALUES])
    (folder / "diversity_prompts.json").write_text(json.dumps({"prompts": prompts}))
    RunFolder(folder).write_table("diversity", "table", Table(["prompt"], [[prompt] for prompt in prompts]), 0)

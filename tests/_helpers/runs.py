# SPDX-License-Identifier: Apache-2.0
"""Folders like those that monitors leave, made without training."""

import json
import math

import torch
from matplotlib.figure import Figure

from genmonitor import PixelPartition
from genmonitor.callbacks import diversity_report, report
from genmonitor.callbacks.manifest import write_about

LABELS = torch.tensor([[1, 1, 2, 2], [1, 1, 2, 2], [1, 1, 0, 0]])
PARTITION = PixelPartition(LABELS)


def check(number, **values):
    """Return the values of a check: cluster 2 gets better with time, cluster 1 stays."""
    one, two = 0.9, 1 - 0.5 / number
    blame = {"share_1": math.log(one), "share_2": math.log(two), "share_constant": 0.0}
    total = sum(blame.values())
    return {
        "epoch": number - 1,
        "step": 10 * number - 1,
        "image": one * two,
        "product": one * two,
        "cluster_1": one,
        "cluster_2": two,
        "constant": 1.0,
        **{name: value / total for name, value in blame.items()},
        "violations": 0.0,
        "mmd": 0.1 / number,
        "yardstick_image": 0.99,
        "sampling_seconds": 0.5,
        "metric_seconds": 0.25,
        "images_seen": 1000 * number,
        **values,
    }


def write_check(folder, number, prefix="cms", **manifest):
    """Write the manifest of a check."""
    given = {"monitor": "PixelClusterMonitor", "check": check(number), "partition": "partition.npz"}
    bands = {"cluster_1": [0.95, 0.97, 0.99], "cluster_2": [0.96, 0.97, 0.98], "image": [0.98, 0.99, 0.995]}
    content = given | {"yardstick": bands} | manifest
    (folder / f"{prefix}_check_{number:05d}.json").write_text(json.dumps(content))


def write_picture(path, shade=0.5):
    """Write a small PNG file of one shade."""
    Figure(figsize=(0.4, 0.3), dpi=100, facecolor=str(shade)).savefig(path)


def write_notes(folder, notes, prefix="cms"):
    """Write what was said of the whole run, number None, and of checks."""
    said = [{"epoch": n and n - 1, "step": n and 10 * n - 1, "text": text} for n, text in notes]
    (folder / f"{prefix}_notes.json").write_text(json.dumps(said))


def make_run(run, checks=3, pictures=None):
    """Fill <run>/genmonitor as PixelClusterMonitor would; return that folder."""
    folder = run / "genmonitor"
    folder.mkdir(parents=True)
    for number in range(1, checks + 1):
        write_check(folder, number)
    for number in range(1, (checks if pictures is None else pictures) + 1):
        write_picture(folder / f"cms_samples_epoch_{number - 1:04d}_step_{10 * number - 1}.png", number / (checks + 1))
    write_picture(folder / "cms_cka.png")
    write_about(folder / "cms_about.json", report.charts(list(PARTITION.regions())), report.ABOUT)
    PARTITION.save(folder / "partition.npz")
    return folder


def add_diversity(folder, prompts, checks=2):
    """Add what DiversityMonitor would leave beside."""
    for number in range(1, checks + 1):
        values = {"vendi": 5.0 + number, "rke": 4.0, "scendi": 3.0, "scendi_prompt": 2.0, "prompt_share": 0.4}
        values |= {"epoch": number - 1, "step": 10 * number - 1, "sampling_seconds": 1.0, "metric_seconds": 1.0}
        manifest = {"monitor": "DiversityMonitor", "check": values, "prompts": "prompts.json"}
        (folder / f"diversity_check_{number:05d}.json").write_text(json.dumps(manifest))
    write_about(folder / "diversity_about.json", diversity_report.charts(100, calibrated=False), diversity_report.ABOUT)
    (folder / "prompts.json").write_text(json.dumps(prompts))

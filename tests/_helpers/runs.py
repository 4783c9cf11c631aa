# SPDX-License-Identifier: Apache-2.0
"""Folders like those that monitors leave, made without training."""

import json
import math

import numpy as np
import torch
from matplotlib.figure import Figure

from genmonitor import PixelPartition
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.evaluation.results import ShownImages
from genmonitor.findings.finding import Area, Finding
from genmonitor.findings.values import RUN_VALUES, ValueSpec
from genmonitor.report import RunFolder
from genmonitor.report.run import MonitorRun

LABELS = torch.tensor([[1, 1, 2, 2], [1, 1, 2, 2], [1, 1, 0, 0]])
PARTITION = PixelPartition(LABELS)
SPECS = RegionValues(PARTITION.regions()).specs
VALUES = [spec for spec in (*SPECS, *RUN_VALUES) if spec.key not in ("dependent_regions", "mmd")]
BASELINE = {"cluster_1": [0.95, 0.97, 0.99], "cluster_2": [0.96, 0.97, 0.98], "image": [0.98, 0.99, 0.995]}
COMPARED = {
    "monitor": "compare",
    "heading": "samples/ compared with real.npy",
    "real_images": "real.npy",
    "generated_images": "samples/",
}


def manifests(folder, prefix="cms"):
    """Return all that holds for each evaluation of a run, given its genmonitor folder; the values are in "values"."""
    run = MonitorRun.read(folder / f"{prefix}_run.json")
    return [{**run.fixed, **evaluation} for evaluation in run.evaluations]


def table_rows(folder, prefix, name):
    """Return the rows of a table of a run as dictionaries."""
    table = MonitorRun.read(folder / f"{prefix}_run.json").tables[name]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


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
        "dependent_regions": 0.0,
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


def changed(folder, of="cms", **parts):
    """Write the file of a run again with other parts."""
    path = folder / f"{of}_run.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    known = {"declared": [], "notes": [], "tables": {}, "findings": [], "evaluations": [], "prefix": of}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known | content | parts))
    return path


def write_evaluation(folder, number, prefix="cms", wrong=("cluster_2",), **fixed):
    """Add an evaluation to the file of a run, which is written where there is none."""
    given = {
        "monitor": "PixelClusterMonitor",
        "title": "Regions of the image",
        "best_key": "error_ratio_image",
        "findings": found(f"largest contributor at epoch {number - 1}: cluster_2"),
        "partition": "cms_partition.npz",
        "baseline": BASELINE,
    }
    message = fixed.pop("message", f"largest contributor at epoch {number - 1}: cluster_2")
    values, headlines = fixed.pop("evaluation", record(number)), fixed.pop("headlines", [])
    path = changed(folder, prefix, **given | fixed)
    of_all = json.loads(path.read_text())["evaluations"]
    one = {
        "values": values,
        "message": message,
        "wrong": list(wrong),
        "global_step": values.get("step"),
        "headlines": headlines,
    }
    return changed(folder, prefix, evaluations=[*of_all[: number - 1], one])


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
    """Write notes about the whole run, number None, and alerts about cluster 2 at evaluations."""
    said = [
        {"epoch": n and n - 1, "step": n and 10 * n - 1, "text": text, "alert": n and "cluster_2"} for n, text in notes
    ]
    changed(folder, prefix, notes=said)


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
    changed(folder, declared=[spec.to_dict() for spec in VALUES])
    PARTITION.save(folder / "cms_partition.npz")
    return folder


def add_diversity(folder, prompts, evaluations=2):
    """Add what DiversityMonitor would leave beside, and a table of the prompts."""
    for number in range(1, evaluations + 1):
        values = {
            "vendi": 5.0 + number,
            "rke": 4.0,
            "scendi": 3.0,
            "scendi_prompt": 2.0,
            "prompt_share": 0.4,
            "one_prompt_share": 0.3,
        }
        values |= {"epoch": number - 1, "step": 10 * number - 1, "sampling_seconds": 1.0, "metric_seconds": 1.0}
        fixed = {"monitor": "DiversityMonitor", "title": "Variety of the samples", "findings": [], "partition": None}
        write_evaluation(folder, number, "diversity", evaluation=values, message="", baseline={}, **fixed)
    modes = [
        ValueSpec("vendi", "effective number of modes", chart="Modes of 100 images"),
        ValueSpec("rke", chart="Modes of 100 images"),
    ]
    table = {"columns": ["prompt"], "rows": [[prompt] for prompt in prompts]}
    declared = [spec.to_dict() for spec in (*modes, *RUN_VALUES)]
    changed(folder, "diversity", declared=declared, tables={"table": table})

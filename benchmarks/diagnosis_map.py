# SPDX-License-Identifier: Apache-2.0
"""Where `diagnosis.py` sees faults planted in areas that are no clusters: the map beside clusters and pixels."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from detection_images import Source
from detection_methods import FAULTS, permutation_test
from diagnosis_faults import KINDS, planted, random_area
from diagnosis_images import SETS, generator_of, image_set
from diagnosis_peers import benjamini_hochberg, holm, pixel_p_values, worst_cluster
from torch import Tensor

from genmonitor import GaussianKernel, PixelPartition, diagnose
from genmonitor.evaluation import RegionSettings
from genmonitor.evaluation.regions.clustering import find_clusters
from genmonitor.findings.finding import LEVEL
from genmonitor.functional import discrepancy_map, significant_areas, two_sample_test

N = 500
METHODS = ("map", "clusters", "KS, Holm", "KS, Benjamini-Hochberg")
STRENGTHS = {
    "brighter": 0.12,
    "red": 0.12,
    "faded": 0.35,
    "blurred": 1.2,
    "noisy": 0.1,
    "missing in some": 0.2,
    "parts that do not fit": 1.0,
}


@dataclass(frozen=True)
class Place:
    """What a method points at: pixels [h, w], and the one of them that it shows first."""

    inside: np.ndarray
    peak: tuple[int, ...] | None


@functools.cache
def clusters_of(name: str) -> PixelPartition:
    """Return the clusters found in some images of a set."""
    some = image_set(name).images[:500]
    kernel = GaussianKernel().resolved(some.flatten(1))
    return find_clusters(some, kernel, RegionSettings(n_clusters=5, patch_size=1)).partition


def pointed_at(fake: Tensor, real: Tensor, partition: PixelPartition) -> dict[str, Place]:
    """Return where each method says that a fault is."""
    found = discrepancy_map(fake, real)
    areas, p = significant_areas(found), pixel_p_values(fake, real)
    nowhere = np.zeros(p.shape, dtype=bool)
    return {
        "map": Place(areas[0].numpy() if areas else nowhere, peak_of(found["map"].numpy())),
        "clusters": Place(worst_cluster(fake, real, partition), None),
        "KS, Holm": Place(holm(p), peak_of(-p)),
        "KS, Benjamini-Hochberg": Place(benjamini_hochberg(p), peak_of(-p)),
    }


def peak_of(values: np.ndarray) -> tuple[int, ...]:
    """Return where the largest value is."""
    return tuple(int(i) for i in np.unravel_index(values.argmax(), values.shape))


def overlap(found: np.ndarray, true: np.ndarray) -> float:
    """Return the intersection over the union."""
    return float((found & true).sum() / max(1, (found | true).sum()))


def map_row(name: str, runs: int) -> list[str]:
    """Return how often a fault in an area is found there: by the test of that area, and by each method."""
    fault, size = KINDS[name], STRENGTHS[name]
    known, inside_of, overlaps = [], {m: [] for m in METHODS}, {m: [] for m in METHODS}
    for of_set in sets_for(fault.color):
        generator = generator_of("map", name, of_set)
        for run in range(runs):
            fake, real = image_set(of_set).draw(N, generator)
            true = random_area(*fake.shape[2:], generator)
            fake = planted(fault, fake, size, true, run)
            tested = two_sample_test(fake, real, partition=PixelPartition(2 - true.long()))
            known.append(float(tested["cluster_1"]) <= LEVEL)
            for method, place in pointed_at(fake, real, clusters_of(of_set)).items():
                overlaps[method].append(overlap(place.inside, true.numpy()))
                if place.peak is not None:
                    inside_of[method].append(bool(true[place.peak]))
    cells = [f"{np.mean(known):.2f}"]
    for method in METHODS:
        peaks = f"{np.mean(inside_of[method]):.2f}, " if inside_of[method] else ""
        cells.append(f"{peaks}{np.median(overlaps[method]):.2f}")
    return [f"{name} {size:g}", str(len(known)), *cells]


def sets_for(color: bool) -> list[str]:
    """Return the names of the sets in which a fault can be planted."""
    return [name for name in SETS if not color or image_set(name).images.shape[1] == 3]


def level_row(of_set: str, count: int) -> list[str]:
    """Return how often the map, each method and the test see something in real images."""
    generator, wrong = generator_of("level", of_set), dict.fromkeys((*METHODS, "test"), 0)
    for _ in range(count):
        fake, real = image_set(of_set).draw(N, generator)
        for method, place in pointed_at(fake, real, clusters_of(of_set)).items():
            wrong[method] += bool(place.inside.any())
        wrong["test"] += float(two_sample_test(fake, real)) <= LEVEL
    return [of_set, str(count), *(f"{times / count:.3f}" for times in wrong.values())]


def region_row(source: Source, fault: str, size: float, runs: int) -> list[str]:
    """Return how often the test names the right one of the regions of `detection.py`."""
    generator, right = torch.Generator().manual_seed(2), []
    for run in range(runs):
        fake, real = source.draw(generator)
        label = 1 + run % source.partition.num_clusters
        inside = source.partition.pixel_labels() == label
        p = permutation_test(FAULTS[fault][0](fake, inside, size), real, source.partition)
        worst = min((name for name in p if name != "image"), key=lambda name: p[name])
        right.append(worst == f"cluster_{label}" and p[worst] <= LEVEL + 1e-5)
    return [f"{fault} {size:g}", str(runs), f"{np.mean(right):.2f}"]


def seconds_rows() -> Iterator[list[str]]:
    """Yield the seconds of test, map and diagnosis of 500 v 500 images of 32×32×3."""
    fake, real = image_set("faces").draw(N, torch.Generator().manual_seed(0))
    fake = planted(KINDS["blurred"], fake, 0.8, torch.ones(32, 32, dtype=torch.bool), 0)
    for call in (two_sample_test, discrepancy_map, diagnose):
        taken = []
        for _ in range(3):
            start = time.perf_counter()
            call(fake, real)
            taken.append(time.perf_counter() - start)
        yield [call.__name__, f"{np.median(taken):.2f}"]

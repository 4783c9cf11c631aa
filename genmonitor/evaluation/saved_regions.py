# SPDX-License-Identifier: Apache-2.0
"""Regions as files: written by one run, taken over by the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genmonitor._io import write_json
from genmonitor.evaluation.cluster_agreement import Stability
from genmonitor.linalg.clustering import LINKAGES, Linkage
from genmonitor.partition import PixelPartition

if TYPE_CHECKING:
    from genmonitor.evaluation.regions import RegionFit


@dataclass(frozen=True)
class SavedRegions:
    """Regions that an earlier run found, and in which file."""

    path: Path
    partition: PixelPartition
    linkage: Linkage
    stability: Stability | None


def save_regions(regions: RegionFit, settings: Mapping[str, Any], path: Path) -> None:
    """Write a partition, and beside it how it was found if it was.

    Args:
        regions: what to write.
        settings: what the regions depend on, as plain Python.
        path: the .npz file; what is beside it is called the same and ends in .json.
    """
    regions.partition.save(path)
    if regions.linkage is not None:
        how = {"linkage": regions.linkage, "stability": regions.stability_by_name()}
        write_json(path.with_suffix(".json"), {"settings": dict(settings), **how})


def saved_regions(path: Path, settings: Mapping[str, Any]) -> SavedRegions | None:
    """Read what `save_regions` wrote, None where there is none, it is damaged, or was found with other settings."""
    try:
        how = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        # as JSON keeps them
        if how["settings"] != json.loads(json.dumps(settings)) or how["linkage"] not in LINKAGES:
            return None
        stability = Stability.from_names({name: float(value) for name, value in how["stability"].items()})
        return SavedRegions(path, PixelPartition.load(path), how["linkage"], stability)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def load_partition(path: str | Path) -> PixelPartition:
    """Read the partition of an earlier run.

    Args:
        path: an .npz file that `PixelPartition.save` wrote, or the folder of a run that holds one.

    Raises:
        FileNotFoundError, ValueError: if there is none, several, or it is another kind of file.
    """
    path = Path(path)
    if path.is_dir():
        found = sorted({*path.glob("*partition.npz"), *path.glob("genmonitor/*partition.npz")})
        if len(found) != 1:
            names = ", ".join(map(str, found)) or "none"
            raise ValueError(f"Expected `partition` to be a folder with one partition.npz, but {path} has {names}.")
        (path,) = found
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected `partition` to be a PixelPartition, or the path of one that was saved, but there is none at {path}."
        )
    return PixelPartition.load(path)

# SPDX-License-Identifier: Apache-2.0
"""Regions as files: written by one run, taken over by the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genmonitor._io import write_json
from genmonitor.evaluation.regions.clustering import Stability
from genmonitor.linalg.clustering import LINKAGES, Linkage
from genmonitor.partition import PixelPartition

if TYPE_CHECKING:
    from genmonitor.evaluation.regions.finder import Regions


SKETCH = 64
"""Fingerprints of images that are kept: the smallest ones, from which the overlap of two sets can be told."""
SAME_DATA = 0.3
"""Overlap from which on two sets are splits of the same data: two halves of it have a third in common."""


@dataclass(frozen=True)
class SavedRegions:
    """Regions that an earlier run found.

    Attributes:
        path: of their file.
        settings: that they depend on, as JSON keeps them.
        partition: the regions.
        linkage: by which they were found.
        stability: how well halves of the images agreed on them.
        sketch: the smallest fingerprints of the images.

    References:
        Broder, "On the resemblance and containment of documents", 1997.
    """

    path: Path
    settings: Mapping[str, Any]
    partition: PixelPartition
    linkage: Linkage
    stability: Stability | None
    sketch: tuple[str, ...]

    def fits(self, sketch: tuple[str, ...], size: tuple[int, ...], settings: Mapping[str, Any]) -> bool:
        """Say whether images of a size, with this sketch, are a split of the same data, and the settings the same."""
        smallest = sorted({*self.sketch, *sketch})[:SKETCH]
        common = set(self.sketch) & set(sketch)
        overlap = sum(one in common for one in smallest) / max(1, len(smallest))
        same = self.settings == json.loads(json.dumps(settings))
        return same and overlap >= SAME_DATA and self.partition.image_size == size


def save_regions(regions: Regions, settings: Mapping[str, Any], path: Path) -> None:
    """Write a partition, and beside it how it was found if it was.

    Args:
        regions: what to write.
        settings: what the regions depend on, as plain Python.
        path: the .npz file; what is beside it is called the same and ends in .json.
    """
    regions.partition.save(path)
    if regions.linkage is not None:
        how = {"linkage": regions.linkage, "stability": regions.stability_by_name(), "images": list(regions.sketch)}
        write_json(path.with_suffix(".json"), {"settings": dict(settings), **how})


def saved_regions(path: Path) -> SavedRegions | None:
    """Read what `save_regions` wrote, None where there is none, or it is damaged."""
    try:
        how = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if how["linkage"] not in LINKAGES:
            return None
        stability = Stability.from_names({name: float(value) for name, value in how["stability"].items()})
        partition, sketch = PixelPartition.load(path), tuple(map(str, how["images"]))
        return SavedRegions(path, dict(how["settings"]), partition, how["linkage"], stability, sketch)
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
            f"Expected `partition` to be a PixelPartition, or the path of a saved one, but there is none at {path}."
        )
    return PixelPartition.load(path)

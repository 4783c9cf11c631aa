# SPDX-License-Identifier: Apache-2.0
"""Values of an evaluation of regions: their keys, by measure and region, and their declarations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from genmonitor.evaluation.results import MOMENT
from genmonitor.findings.values import RUN_VALUES, declared
from genmonitor.functional.discrepancy import VIEWS
from genmonitor.partition import region_key

IMAGE, CONSTANT = "image", "constant"
P_CLASS = "p_class"

P, P_FINDING = "p", "p_finding"
_OF_REGIONS = declared("regions")
_CMS = _OF_REGIONS.pop("cms")
_OF_IMAGES = declared("images")
_BASELINE = _OF_IMAGES.pop("baseline")


def _is_detail(measure: str, region: str) -> bool:
    """Return True unless the value is a main one of a region or of the image."""
    if region == IMAGE:
        return measure not in ("error_ratio", *VIEWS)
    return measure != "error_ratio" or region == CONSTANT


class RegionValues:
    """Keys of the values of some regions, and their declarations.

    The key of a measure of a region is "share_1" of "cluster_1", "share_constant" of "constant" and "p_image" of the
    image; the CMS of a region has the region's name alone.

    Args:
        regions: Names of the regions, without the image.
        baselines: Keys of the values that have a baseline.

    Attributes:
        error_ratio, p, vs_best, share: Keys by region, including the image except for the share.
        distance: Keys by view, then by region.
        baseline: Keys by the key of the value whose baseline it is.
        specs: Declarations of all values.

    Example:
        >>> values = RegionValues(["cluster_1", "constant"])
        >>> values.p, values.share["cluster_1"]
        ({'image': 'p_image', 'cluster_1': 'p_1', 'constant': 'p_constant'}, 'share_1')
    """

    def __init__(self, regions: Iterable[str], baselines: Collection[str] = ()) -> None:
        names = list(regions)
        everywhere = [IMAGE, *names]
        keys = {measure: {name: region_key(measure, name) for name in everywhere} for measure in _OF_REGIONS}
        del keys["share"][IMAGE]
        self.error_ratio, self.p, self.share = keys["error_ratio"], keys["p"], keys["share"]
        self.vs_best = keys["vs_best"]
        self.distance = {view: keys[view] for view in VIEWS}
        self.baseline = {key: region_key("baseline", key) for key in baselines}
        specs = [replace(_CMS, key=name, region=name, detail=name == CONSTANT) for name in names]
        specs += _OF_IMAGES.values()
        for measure, spec in _OF_REGIONS.items():
            for name, key in keys[measure].items():
                specs.append(replace(spec, key=key, region=name, label=spec.title, detail=_is_detail(measure, name)))
        specs += [replace(_BASELINE, key=key, baseline_of=of) for of, key in self.baseline.items()]
        self.specs = tuple(specs)

    def p_of_all(self, values: Mapping[str, float], searched: bool) -> float:
        """Return the smallest p-value of all tests of an evaluation, adjusted by Holm.

        Args:
            values: Values of the evaluation.
            searched: True if there was a diagnosis.

        Example:
            >>> values = {"p_image": 0.2, "p_1": 0.01, "p_2": 0.6, "p_finding": 0.03}
            >>> RegionValues(["cluster_1", "cluster_2"]).p_of_all(values, searched=True)
            0.03
        """
        found = [values[self.p[IMAGE]], min(values[key] for name, key in self.p.items() if name != IMAGE)]
        found += [values[P_FINDING]] if searched else []
        found += [values[P_CLASS]] if P_CLASS in values else []
        return min(1.0, len(found) * min(found))


def check_distinct_keys(regions: Sequence[str]) -> None:
    """Refuse names of regions that are the keys of other values."""
    keys = [*MOMENT, *(spec.key for spec in (*RUN_VALUES, *RegionValues([*regions, "cluster_1"]).specs))]
    for name in regions:
        keys.remove(name)
    if taken := [name for name in regions if name in keys or re.sub(r"_\d+$", "_1", name) in keys]:
        raise ValueError(
            f"Expected `region_names` that differ from names of values, but got {taken[0]!r}. Choose another name."
        )

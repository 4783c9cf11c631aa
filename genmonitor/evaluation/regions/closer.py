# SPDX-License-Identifier: Apache-2.0
"""The closer of two generated sets to real images, by region: sentence and table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genmonitor._formatting import format_p, significant
from genmonitor.evaluation.regions.values import IMAGE, P, RegionValues
from genmonitor.findings.finding import CLAIM, Area, Finding, differs, tested
from genmonitor.findings.tables import Table

Differences = Mapping[str, Mapping[str, float]]
"""The fields of a `RelativeSimilarity` as floats, for the image and each region."""


def which_is_closer(differences: Differences, names: Sequence[str]) -> Finding:
    """Return the finding of the generated set that is closer to the real images, and the regions.

    Args:
        differences: Tests by region, whose difference is positive if the first set is closer.
        names: Names of the two sets.

    Example:
        >>> same = {"difference": 0.0, "standard_error": 0.03, "p_value_adjusted": 0.8}
        >>> closer = {"difference": 0.1, "standard_error": 0.03, "p_value_adjusted": 0.003}
        >>> print(which_is_closer({"image": same, "cluster_1": same, "cluster_2": closer}, ["new", "old"]))
        new is closer to the real images than old in cluster_2 (p = 0.003); no evidence of a difference in the other.
    """
    image = differences[IMAGE]
    regions = {name: test for name, test in differences.items() if name != IMAGE}
    surest = sorted(regions, key=lambda name: -sureness(regions[name]))
    winners = [x for x in (closer_set(image), *(closer_set(regions[name]) for name in surest)) if x is not None]
    if not winners:
        smallest = min(regions.values(), key=lambda test: test["p_value_adjusted"])
        none = f"No evidence that {names[0]} or {names[1]} is closer to the real images in any region"
        return _finding(f"{none} (smallest {_p(smallest)}).", IMAGE, smallest)
    winner, loser = winners[0], 1 - winners[0]
    where = {side: [f"{x} ({_p(regions[x])})" for x in surest if closer_set(regions[x]) == side] for side in (0, 1)}
    of_image = "" if closer_set(image) is None else f" ({_p(image)}){',' if where[winner] else ''}"
    text = f"{names[winner]} is closer to the real images than {names[loser]}{of_image}"
    if where[winner]:
        text += f" in {', '.join(where[winner])}"
    if where[loser]:
        text += f"; {names[loser]} is closer in {', '.join(where[loser])}"
    rest = len(regions) - len(where[0]) - len(where[1])
    if rest:
        text += f"; no evidence of a difference in the other{'s' if rest > 1 else ''}"
    first = next((name for name in surest if closer_set(regions[name]) is not None), IMAGE)
    return _finding(f"{text}.", first, differences[first])


def closer_set(test: Mapping[str, float]) -> int | None:
    """Return the set that is closer by more than chance, 0 or 1; None if neither is."""
    if not differs(test["p_value_adjusted"]):
        return None
    return 0 if test["difference"] > 0 else 1


def sureness(test: Mapping[str, float]) -> float:
    """Return the difference of two sets in standard errors, which orders regions with p-values near 0."""
    return abs(test["difference"]) / test["standard_error"] if test["standard_error"] > 0 else 0.0


def _finding(text: str, region: str, test: Mapping[str, float]) -> Finding:
    return Finding(text, Area(region, region=region), "", RegionValues([region]).p[region], p=test["p_value_adjusted"])


def _p(test: Mapping[str, float]) -> str:
    return format_p(test["p_value_adjusted"])


def closer_table(
    differences: Differences, values: Sequence[Mapping[str, float]], names: Sequence[str], sizes: Mapping[str, int]
) -> Table:
    """Return a table with rows for the image and, the most significant first, each region.

    Args:
        differences: Tests by region, whose difference is positive if the first set is closer.
        values: Values of each set.
        names: Names of the two sets.
        sizes: Number of sites of the image and of each region.
    """
    against_real = [f"{name} against real" for name in names]
    rows, key = [], RegionValues(sizes).p
    for region in sorted(differences, key=lambda name: (name != IMAGE, -sureness(differences[name]))):
        test, side = differences[region], closer_set(differences[region])
        against = [tested(of[key[region]], of.get(P, 0.0) <= CLAIM and differs(of[key[region]])) for of in values]
        # float32 tells no smaller differences from 0
        by = [significant(round(test["difference"], 7) + 0.0, 3), significant(test["standard_error"])]
        by.append(_p(test).removeprefix("p = ").removeprefix("p "))
        rows.append([region, sizes[region], *against, *by, "neither" if side is None else names[side]])
    difference = f"squared maximum mean discrepancy of {names[1]} less that of {names[0]}"
    notes = {"difference of MMD²": f"{difference}, above 0 where {names[0]} is closer to the real images"}
    notes |= {"±": "its standard error", "p": "of the difference, one level for all regions"}
    columns = ["region", "sites", *against_real, "difference of MMD²", "±", "p", "closer"]
    return Table(columns, rows, ["sites", "±", "difference of MMD²", *against_real], notes)

# SPDX-License-Identifier: Apache-2.0
"""Frequency bands of a diagnosis: the energy of coarse and fine detail compared with real images."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from torch import Tensor

from genmonitor._formatting import capitalized, format_p
from genmonitor.findings.finding import SELDOM, Area, Finding
from genmonitor.findings.values import declared
from genmonitor.functional.hypothesis_tests.band_energy_test import DIRECTIONS, BandEnergy, band_energy_test

BANDS = tuple(
    replace(spec, key=f"{key}_{px}", label=f"{spec.label} {px} px")
    for px in (2**i for i in range(1, 11))
    for key, spec in declared("bands").items()
)
"""Declarations of the values; images of 32 pixels have bands from 2, 4, 8 and 16 pixels."""


def bands_of(fake: Tensor, real: Tensor, seed: int) -> BandEnergy | None:
    """Compare bands of images [N, C, H, W], at most 1200 of each side, evenly spread; None if they are too small."""
    # smaller images have no bands
    if min(real.shape[2:]) < 4:
        return None
    return band_energy_test(*(x[:: -(-len(x) // 1200)] for x in (fake, real)), seed=seed)


def band_values(found: BandEnergy) -> dict[str, float]:
    """Return the values by key."""
    values: dict[str, float] = {}
    for px, energy, p in zip(found.wavelengths, found.energy.tolist(), found.p_value.tolist(), strict=True):
        values |= {f"energy_{px}": energy, f"p_energy_{px}": p}
    return values


def band_finding(found: BandEnergy) -> list[Finding]:
    """Return the finding of the bands that differ, the largest difference first; None without evidence.

    Example:
        >>> import torch
        >>> p = torch.tensor([0.005, 0.7, 0.6])
        >>> directed = torch.ones(3, 3), p[:, None].repeat(1, 3)
        >>> print(band_finding(BandEnergy((2, 4, 8), torch.tensor([0.4, 1.0, 1.0]), p, *directed))[0])
        Details of 2-4 px have 40 % of the energy of real images (p = 0.005); no evidence of a difference in others.
    """
    least = found.wavelengths
    sizes = [*(f"{low}-{high} px" for low, high in pairwise(least)), f"{least[-1]} px and more" * (len(least) > 1)]
    wrong = []
    for px, size, *of_band in zip(least, sizes, *found[1:], strict=True):
        energy, p, directed, p_directed = (x.tolist() for x in of_band)
        one = [i for i, value in enumerate(p_directed) if value <= SELDOM]
        if len(one) == 1:
            wrong.append((directed[one[0]], p_directed[one[0]], f"{DIRECTIONS[one[0]]} of {size or 'all sizes'}", px))
        elif one or p <= SELDOM:
            wrong.append((energy, min(p, *p_directed), f"details of {size or 'all sizes'}", px))
    if not wrong:
        return []
    wrong.sort(key=lambda x: -abs(math.log(x[0])))
    p, rest = max(x[1] for x in wrong), len(wrong) < len(found.wavelengths)
    first = f"{wrong[0][2]} have {_ratio(wrong[0][0], ' of')} the energy of real images"
    others = [f"{name.removeprefix('details ')} {_ratio(energy)}" for energy, _, name, _ in wrong[1:3]]
    said = capitalized(", ".join([first, *others]))
    text = f"{said} ({format_p(p)}){'; no evidence of a difference in others' if rest else ''}."
    return [Finding(text, Area("details"), "", f"energy_{wrong[0][3]}", fine=False, p=p)]


def _ratio(energy: float, of: str = "") -> str:
    if energy < 2:
        return f"{100 * energy:.0f} %{of}"
    if energy >= 1000:  # real images without details
        return "more than 1000 times"
    return f"{energy:.0f} times" if energy >= 10 else f"{energy:.2g} times"

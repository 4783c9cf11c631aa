# SPDX-License-Identifier: Apache-2.0
"""Realism and rarity of each generated sample, by the nearest neighbors of real ones."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_vectors
from genmonitor.functional.neighbors import check_neighbors, distance_blocks, neighbor_radii
from genmonitor.linalg.distances import rounding


def realism_and_rarity(fake: Tensor, real: Tensor, *, k: int = 3) -> tuple[Tensor, Tensor]:
    """Realism and rarity of each generated sample; a real sample's ball reaches to its k-th nearest real neighbor.

    Realism is the radius of a ball over the sample's distance to its center, the largest over the balls that are no
    larger than the median one: below 1, the sample is in none of them. Rarity is the radius of the smallest ball
    that the sample is in: rare samples are where real ones are far apart. Balls are open, to within the rounding of
    float64, as those of `precision_recall_density_coverage`. Values at different M or k must not be compared.

    Args:
        fake: features [N, D].
        real: features [M, D], M above k.
        k: number of neighbors.

    Returns:
        Realism, float64 [N], infinite for a sample that equals a real one; rarity, float64 [N] in the unit of the
        features, NaN for a sample that is in no ball: it is not rare but unrealistic.

    Raises:
        TypeError: if a side is not a tensor of real numbers.
        ValueError: if dimensions differ, values are not finite, or there are k real samples or fewer.

    References:
        Kynkäänniemi et al., "Improved Precision and Recall Metric for Assessing Generative Models", arXiv 1904.06991,
            Eq. 3, for realism.
        Han et al., "Rarity Score: A New Metric to Evaluate the Uncommonness of Synthesized Images", ICLR 2023,
            arXiv 2206.08549.

    Example:
        >>> real = torch.tensor([[0.0], [1.0], [2.0], [3.0], [10.0]])
        >>> realism, rarity = realism_and_rarity(torch.tensor([[0.5], [9.0], [30.0]]), real, k=1)
        >>> [round(x, 2) for x in realism.tolist()], rarity.tolist()
        ([2.0, 0.17, 0.04], [1.0, 7.0, nan])
    """
    real = check_vectors("real", real)
    fake = check_vectors("fake", fake, real.shape[1])
    check_neighbors(k, real=real)
    radii = neighbor_radii(real, k)
    usual = radii.where(radii <= radii.median(), 0)
    margin = rounding(fake.shape[1])
    realism, rarity = [], []
    for _, distances in distance_blocks(fake, real, margin):
        realism.append(
            (usual / distances).nan_to_num(torch.inf, posinf=torch.inf).amax(1)
        )  # 0 / 0: equal to a real one
        rarity.append(radii.where(distances < radii * (1 - margin), torch.inf).amin(1))
    smallest = torch.cat(rarity)
    return torch.cat(realism).sqrt(), smallest.where(smallest.isfinite(), torch.nan).sqrt()

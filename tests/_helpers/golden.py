# SPDX-License-Identifier: Apache-2.0
"""Numbers computed once, from the formulas, with scikit-learn's digits; every implementation has to meet them."""

import functools

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from genmonitor import PixelPartition


@functools.cache
def digits() -> Tensor:
    """All digits as images (1797, 1, 8, 8) in [-1, 1], float64."""
    return torch.from_numpy(load_digits().images)[:, None] / 8 - 1


GAMMA = 0.026845637583892617
"""Median heuristic of the images 0..999."""

CONSTANT = [0, 32, 39]
PAIRS = [(20, 21), (20, 28), (10, 53), (36, 37), (2, 61)]
CKA = [0.018528794, 0.410936792, 0.021755069, 0.001311554, 0.004527503]
CKA_BATCHES_OF_100 = [0.028918329, 0.422892312, 0.048385059, 0.029646679, 0.062541925]

SIZES_5 = [3, 29, 10, 9, 7, 6]
SIZES_3 = [3, 46, 9, 6]
ROWS = ["03332555", "13311455", "13111445", "11111441", "01111440", "11111221", "11111222", "13332222"]
LABELS_5 = torch.tensor([[int(digit) for digit in row] for row in ROWS])

FAKE, REAL = slice(1000, 1300), slice(1300, 1600)
CMS = {
    "image": 0.981355100,
    "product": 0.984853991,
    "constant": 1.0,
    "cluster_1": 0.994079527,
    "cluster_2": 0.996724041,
    "cluster_3": 0.997218098,
    "cluster_4": 0.996814169,
    "cluster_5": 0.999934222,
}
CMS_BLOCKS_OF_150 = 0.971062888
MMD_UNBIASED, MMD_BIASED = 0.010349981, 0.014455983


def partition() -> PixelPartition:
    return PixelPartition(LABELS_5)

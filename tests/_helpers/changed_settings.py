# SPDX-License-Identifier: Apache-2.0
"""A value other than the default of every setting of an evaluation of regions, for digits of 8×8 pixels."""

from dataclasses import fields

from genmonitor import LaplacianKernel, PixelPartition
from genmonitor.evaluation import RegionSettings

CHANGED = {
    "n_clusters": 4,
    "partition": PixelPartition.grid((8, 8), 2, 2),
    "n_cluster_images": 150,
    "n_samples": 40,
    "patch_size": 2,
    "kernel": LaplacianKernel(0.5),
    "block_size": 20,
    "linkage": "ward",
    "batch_estimator": 50,
    "region_names": {"cluster_1": "eyes"},
}
"""What could be any number or word; of the others a switch is turned, and a number made one larger."""
CHANGED |= {
    x.name: not x.default if isinstance(x.default, bool) else x.default + 1
    for x in fields(RegionSettings)
    if x.name not in CHANGED and isinstance(x.default, int)
}

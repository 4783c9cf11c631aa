# SPDX-License-Identifier: Apache-2.0
"""A value other than the default of every setting of an evaluation of regions, for digits of 8×8 pixels."""

from genmonitor import LaplacianKernel, PixelPartition

CHANGED = {
    "n_clusters": 4,
    "partition": PixelPartition.grid((8, 8), 2, 2),
    "n_cluster_images": 150,
    "n_samples": 40,
    "patch_size": 2,
    "kernel": LaplacianKernel(0.5),
    "block_size": 20,
    "linkage": "ward",
    "own_gammas": True,
    "batch_estimator": 50,
    "region_names": {"cluster_1": "eyes"},
    "diagnose_every": 2,
    "aligned": False,
    "seed": 3,
}

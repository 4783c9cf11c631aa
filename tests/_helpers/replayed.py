# SPDX-License-Identifier: Apache-2.0
"""Data, a module and a monitor of runs that are replayed."""

from _helpers.modules import Linear, digits, loader
from lightning import LightningDataModule

from genmonitor.callbacks import PixelClusterMonitor


class Digits(LightningDataModule):
    """The digits, shifted by a constant."""

    def __init__(self, shift=0.0):
        super().__init__()
        self.save_hyperparameters()
        self.images = digits(0, 500) + shift

    def train_dataloader(self):
        return loader(self.images[:300], shuffle=True)

    def val_dataloader(self):
        return loader(self.images[300:])


class Unsaved(Linear):
    """Its checkpoints do not say how it was made."""

    def __init__(self, lr):
        super().__init__(lr)


class Quiet(PixelClusterMonitor):
    """Without its figures."""

    def first_figures(self):
        return {}

    def figures(self, samples):
        return {}


class Another(Quiet):
    """One that stands beside the other in a Trainer."""

    prefix = "another"
    state_key = "another"


for _kind in (Quiet, Another):  # as manifests name the class
    _kind.__name__ = "PixelClusterMonitor"


def quiet(**settings):
    return Quiet(**({"n_clusters": 3, "n_samples": 60, "n_cluster_images": 200, "on_error": "raise"} | settings))

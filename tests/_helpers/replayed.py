# SPDX-License-Identifier: Apache-2.0
"""Data, a module and a monitor of runs that are replayed."""

from _helpers.modules import Linear, digits, loader, without_figures
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


def quiet(**settings):
    """Return a small monitor without figures, of the class that its manifests name."""
    defaults = {"n_clusters": 3, "n_samples": 60, "n_cluster_images": 200, "on_error": "raise"}
    return without_figures(PixelClusterMonitor(**(defaults | settings)))

# SPDX-License-Identifier: Apache-2.0
"""What the matrix knows of a module: how it is made, what its batches look like, what a monitor must be told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from _helpers.modules import digits, load_digits
from lightning import LightningDataModule, LightningModule
from torch.utils.data import DataLoader, Dataset

TRAINING, VALIDATION, BATCH = range(140), range(140, 200), 35


def pair(image, label):
    return image, label


@dataclass(frozen=True)
class Shape:
    """A module as some project has it."""

    make: Callable[[], LightningModule]
    watch: dict[str, Any] = field(default_factory=dict)
    """What any monitor is told about it; empty where it needs nothing."""
    clusters: dict[str, Any] = field(default_factory=dict)
    """What PixelClusterMonitor alone is told."""
    prompts: Sequence[Any] | None = None
    """Given where it is conditional, for the two monitors of conditional generators."""
    prompted: dict[str, Any] = field(default_factory=dict)
    """What these two are told besides."""
    item: Callable[[torch.Tensor, int], Any] = pair
    collate: Callable[[list[Any]], Any] | None = None
    manual: bool = False
    """Whether it optimizes by hand: Lightning then refuses what it would do itself."""
    own_data: bool = False
    """Whether it brings loaders of its own."""
    refused: str | None = None
    """What a monitor that is told nothing answers, naming the remedy; None where it evaluates."""


class Items(Dataset):
    """Digits in [-1, 1] with their classes, each as a module expects its items."""

    def __init__(self, shape, indices):
        images, classes = digits(0, 200), load_digits().target
        self.items = [shape.item(images[i], int(classes[i])) for i in indices]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def loaders(shape):
    """Return training and validation loaders."""
    options = {} if shape.collate is None else {"collate_fn": shape.collate}
    train = DataLoader(Items(shape, TRAINING), BATCH, shuffle=True, **options)
    return train, DataLoader(Items(shape, VALIDATION), BATCH, **options)


class Data(LightningDataModule):
    """The same as a data module."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def setup(self, stage):
        self.train, self.val = loaders(self.shape)

    def train_dataloader(self):
        return self.train

    def val_dataloader(self):
        return self.val

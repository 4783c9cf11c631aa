# SPDX-License-Identifier: Apache-2.0
"""Batches of many structures, and samples and images of many kinds."""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import torch
from _helpers.modules import digits
from _helpers.zoo.shape import TRAINING, VALIDATION, Shape
from lightning import LightningModule
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Means(LightningModule):
    """Learns the mean image from whatever its batches are; how they hold images is a method."""

    channels = 1

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 64 * self.channels), nn.Tanh())

    def images(self, batch):
        return batch[0]

    def sample(self, n):
        return self.net(torch.randn(n, 4, device=self.device)).view(n, self.channels, 8, 8)

    def loss(self, batch):
        images = self.images(batch)
        made = self.net(torch.randn(len(images), 4, device=self.device)).view_as(images)
        return (made.mean(0) - images.mean(0)).square().mean()

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("loss", loss, batch_size=7)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch), batch_size=7)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Nested(Means):
    """Takes dictionaries in dictionaries, and returns a dictionary from its step."""

    def images(self, batch):
        return batch["inputs"]["pixels"]

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return {"loss": loss, "kept": [loss.detach()], "batch": batch["meta"]}


def nested(image, label):
    return {"inputs": {"pixels": image, "mask": torch.ones(8, 8)}, "meta": {"label": label, "name": str(label)}}


def pixels_of(batch):
    return batch["inputs"]["pixels"]


Record = namedtuple("Record", ("label", "picture"))


class Named(Means):
    """Takes namedtuples, the label before the image."""

    def images(self, batch):
        return batch.picture


def record(image, label):
    return Record(label, image)


@dataclass
class Batch:
    """A batch with names."""

    images: torch.Tensor
    labels: torch.Tensor


class Dataclass(Means):
    """Takes dataclasses, which its own collate function makes."""

    def images(self, batch):
        return batch.images


def to_batch(items):
    images, labels = zip(*items, strict=True)
    return Batch(torch.stack(images), torch.tensor(labels))


def images_of(batch):
    return batch.images


class Alone(Means):
    """Takes images without anything beside them."""

    def images(self, batch):
        return batch


def alone(image, label):
    return image


class Colors(Means):
    """Makes color images in [0, 1]."""

    channels = 3

    def sample(self, n):
        return (super().sample(n) + 1) / 2


def tinted(image, label):
    light = (image + 1) / 2
    return torch.cat([light, light * (label % 3) / 2, light * (1 - label / 10)]), label


class Gray(Means):
    """Its data have no channel, and its samples have none either."""

    def images(self, batch):
        return batch[0][:, None]

    def sample(self, n):
        return super().sample(n)[:, 0]


def without_channel(image, label):
    return image[0], label


def with_channel(module, n):
    return module.sample(n)[:, None]


class Pictures(Means):
    """Its `sample` returns PIL images."""

    def sample(self, n):
        return [Image.fromarray(x) for x in ((super().sample(n)[:, 0].float() + 1) * 127.5).byte().cpu().numpy()]


def from_pictures(module, n):
    return torch.stack([torch.from_numpy(np.array(x, dtype=np.float32)) / 127.5 - 1 for x in module.sample(n)])[:, None]


class BringsItsData(Means):
    """Has loaders of its own."""

    def train_dataloader(self):
        return DataLoader(TensorDataset(digits(0, 200)[TRAINING.start : TRAINING.stop]), 35, shuffle=True)

    def val_dataloader(self):
        return [DataLoader(TensorDataset(digits(0, 200)[VALIDATION.start : VALIDATION.stop]), 35)]


SHAPES = {
    "nested batches": Shape(Nested, {"image_key": pixels_of}, item=nested, refused="`image_key=`"),
    "namedtuples": Shape(Named, item=record),
    "dataclasses": Shape(Dataclass, {"image_key": images_of}, collate=to_batch, refused="`image_key=`"),
    "images alone": Shape(Alone, item=alone),
    "RGB in [0, 1]": Shape(Colors, item=tinted),
    "gray without a channel": Shape(
        Gray, {"sample_fn": with_channel}, item=without_channel, refused=r"missing dimension, e\.g\. x\[:, None\]"
    ),
    "PIL images": Shape(Pictures, {"sample_fn": from_pictures}, refused="`sample_fn="),
    "loaders of the module": Shape(BringsItsData, own_data=True),
}

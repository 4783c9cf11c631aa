# SPDX-License-Identifier: Apache-2.0
"""What tutorials and Lightning's pages on their own features do inside a module."""

import random

import torch
from _helpers.zoo.shape import Shape
from lightning import LightningModule
from torch import nn
from torch.nn import functional as F
from torchmetrics import MeanSquaredError, MetricCollection


class Plain(LightningModule):
    """Learns the mean image; others change one thing about it."""

    def __init__(self):
        super().__init__()
        self.net = self.make_net()

    def make_net(self):
        return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 64), nn.Tanh())

    def generate(self, n):
        return self.net(torch.randn(n, 4, device=self.device)).view(n, 1, 8, 8)

    def sample(self, n):
        return self.generate(n)

    def loss(self, images):
        return F.mse_loss(self.generate(len(images)).mean(0), images.mean(0))

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch[0])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class PartlyFrozen(Plain):
    """A backbone that never trains and stays in eval mode, against which outputs are compared."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        self.backbone.eval()

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def loss(self, images):
        return F.mse_loss(self.backbone(self.generate(len(images))).mean(0), self.backbone(images).mean(0))

    def configure_optimizers(self):
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=1e-2)


class DropoutAlways(Plain):
    """Samples with dropout on, by switching itself to training mode and not back."""

    def make_net(self):
        return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 64), nn.Tanh())

    def sample(self, n):
        self.train()
        return self.generate(n)


class Metrics(Plain):
    """Holds metrics and logs them as objects."""

    def __init__(self):
        super().__init__()
        self.train_error = MeanSquaredError()
        self.val_errors = MetricCollection({"mse": MeanSquaredError()}, prefix="val_")

    def training_step(self, batch, batch_idx):
        images = batch[0]
        self.train_error(self.generate(len(images)).detach().float().contiguous(), images.float().contiguous())
        self.log("loss_error", self.train_error, on_step=False, on_epoch=True)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        self.val_errors.update(self.generate(len(batch[0])).float().contiguous(), batch[0].float().contiguous())

    def on_validation_epoch_end(self):
        self.log_dict(self.val_errors.compute())
        self.val_errors.reset()


class Skipping(Plain):
    """Skips batches by returning None, and draws with Python's random."""

    def training_step(self, batch, batch_idx):
        return None if batch_idx % 3 == 2 else super().training_step(batch, batch_idx)

    def generate(self, n):
        flip = 1 if random.random() < 0.5 else -1
        return super().generate(n) * flip


class Counting(Plain):
    """`sample` counts calls, lengthens lists, sets an attribute that was not there and fills a buffer that was None."""

    def __init__(self):
        super().__init__()
        self.calls, self.sizes, self.options = 0, [], {"last": None}
        self.register_buffer("latest", None)

    def sample(self, n):
        self.calls += 1
        self.sizes.append(n)
        self.options["last"] = n
        self.first_time = False
        self.latest = self.generate(n)
        return self.latest

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        unseen = getattr(self, "first_time", True) and self.latest is None
        return loss * (1 if unseen else 2) + 0.1 * self.calls


class TwoOptimizers(Plain):
    """Toggles two optimizers over parts of one network, and steps a scheduler by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        for index, optimizer in enumerate(self.optimizers()):
            with optimizer.toggle_model(sync_grad=True):
                loss = self.loss(batch[0])
                self.manual_backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            self.log(f"loss_{index}", loss)
        self.lr_schedulers().step()

    def configure_optimizers(self):
        first = torch.optim.Adam(self.net[0].parameters(), lr=1e-3)
        second = torch.optim.SGD(self.net[3].parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(first, 2, gamma=0.5)
        return {"optimizer": first, "lr_scheduler": schedule}, {"optimizer": second}


class Shared(Plain):
    """Ties the weights of two layers, and registers a hook on one."""

    def make_net(self):
        code, image = nn.Linear(64, 4), nn.Linear(4, 64)
        image.weight = nn.Parameter(code.weight.T.detach().clone())
        tied = nn.Sequential(image, nn.Tanh(), code, nn.Tanh(), image, nn.Tanh())
        tied[2].register_forward_hook(lambda part, inputs, output: output * 2)
        return tied


SHAPES = {
    "frozen part": Shape(PartlyFrozen),
    "dropout in samples": Shape(DropoutAlways),
    "metrics as attributes": Shape(Metrics),
    "skipped batches": Shape(Skipping),
    "counters in sample": Shape(Counting),
    "two optimizers": Shape(TwoOptimizers, manual=True),
    "tied weights and a hook": Shape(Shared),
}

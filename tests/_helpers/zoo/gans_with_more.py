# SPDX-License-Identifier: Apache-2.0
"""GANs that take classes, that keep what they drew, that average themselves."""

import copy
from collections import deque

import torch
from _helpers.zoo.gans import GAN, small_critic, small_generator
from _helpers.zoo.shape import Shape
from torch.nn import functional as F


class ConditionalGAN(GAN):
    """Takes a class beside the noise; monitors of prompts ask it through a function."""

    def __init__(self):
        super().__init__(latent_dim=4)
        self.generator, self.discriminator = small_generator(4 + 10), small_critic(64 + 10)

    def forward(self, z, labels):
        codes = F.one_hot(labels, 10).type_as(z)
        return self.generator(torch.cat([z, codes], 1)).view(-1, 1, 8, 8)

    def training_step(self, batch):
        images, labels = batch
        codes = F.one_hot(labels, 10).type_as(images)
        optimizer_g, optimizer_d = self.optimizers()
        fake = self(self.noise(images), labels)
        scores = self.discriminator(torch.cat([fake.flatten(1), codes], 1))
        self.learn(optimizer_g, self.adversarial(scores, True), "loss_g")
        both = [torch.cat([x.detach().flatten(1), codes], 1) for x in (images, fake)]
        losses = [self.adversarial(self.discriminator(x), real) for x, real in zip(both, (True, False), strict=True)]
        self.learn(optimizer_d, sum(losses), "loss_d")

    def on_validation_epoch_end(self):
        pass


def of_classes(module, labels):
    return module(torch.randn(len(labels), 4, device=module.device), labels)


class Remembering(GAN):
    """Keeps what it drew, counts how often, and trains on what it keeps."""

    def __init__(self):
        super().__init__()
        self.replay, self.drawn, self.log_of_draws = deque(maxlen=3), 0, {"sizes": []}

    def sample(self, n):
        images = self(torch.randn(n, 4, device=self.device))
        self.drawn += n
        self.replay.append(images.detach())
        return images

    def training_step(self, batch):
        images = batch[0]
        optimizer_g, optimizer_d = self.optimizers()
        self.learn(optimizer_g, self.adversarial(self.discriminator(self.sample(len(images))), True), "loss_g")
        past = torch.cat(list(self.replay)).to(images.dtype)
        loss = self.adversarial(self.discriminator(past), False) * (1 + self.drawn / 1000)
        self.learn(optimizer_d, loss + self.adversarial(self.discriminator(images), True), "loss_d")


class AveragedGAN(GAN):
    """Samples from a slow copy of its generator."""

    def __init__(self):
        super().__init__()
        self.slow = copy.deepcopy(self.generator).requires_grad_(False)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        for slow, fast in zip(self.slow.parameters(), self.generator.parameters(), strict=True):
            slow.lerp_(fast.detach(), 0.2)

    def sample(self, n):
        return self.slow(torch.randn(n, 4, device=self.device)).view(n, 1, 8, 8)


SHAPES = {
    "conditional GAN": Shape(
        ConditionalGAN,
        {"sample_fn": of_classes},
        {"prompts": range(10)},
        prompts=range(10),
        manual=True,
        refused="`sample_fn=",
    ),
    "GAN with a replay buffer": Shape(Remembering, manual=True),
    "GAN with an average": Shape(AveragedGAN, manual=True),
}

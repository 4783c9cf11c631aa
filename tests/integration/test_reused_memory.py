# SPDX-License-Identifier: Apache-2.0
"""Whatever a user's function returns is copied before the next call, which may write into the same memory.

So a compiled model does that replays a CUDA graph.
"""

import pytest
import torch
from torch.utils.data import DataLoader

from genmonitor.encoders.frozen import FrozenEncoder, SiteEncoder
from genmonitor.images.image_set import ImageSet
from genmonitor.images.model import SampledModel
from genmonitor.images.sampler import Sampler

N, BATCH = 12, 4
IMAGES = torch.rand(N, 1, 2, 2, generator=torch.Generator().manual_seed(0))


class Network(torch.nn.Module):
    """Writes what it returns into the same memory in each call."""

    def __init__(self):
        super().__init__()
        self.buffer, self.flat = torch.zeros(BATCH, 1, 2, 2), torch.zeros(BATCH, 4)

    def forward(self, images):
        return self.buffer[: len(images)].copy_(images)

    def features(self, images):
        return self.flat[: len(images)].copy_(images.flatten(1))

    def sample(self, n):
        return self.buffer[:n].copy_(torch.rand(n, 1, 2, 2))

    def sample_prompts(self, prompts):
        return self.sample(len(prompts))


class Anew(Network):
    """Returns new memory in each call."""

    def forward(self, images):
        return images.clone()

    def features(self, images):
        return images.flatten(1).clone()

    def sample(self, n):
        return torch.rand(n, 1, 2, 2)


class Items:
    """A dataset that reads each item into memory of its own, or into the same."""

    def __init__(self, anew, make):
        self.anew, self.make, self.buffer = anew, make, make(IMAGES[0])

    def __len__(self):
        return N

    def __getitem__(self, index):
        if self.anew:
            return self.make(IMAGES[index])
        self.buffer[:] = self.make(IMAGES[index])
        return {"image": self.buffer, "name": "x"}


def drawn(network, prompts=None):
    model = SampledModel(network, torch.device("cpu"))
    return Sampler(N, prompts, batch_size=BATCH).draw(model, range(N))


def read(network, make, around=lambda items: items):
    return ImageSet(around(Items(isinstance(network, Anew), make))).read([3, 0, 7])


PLACES = {
    "sampler": drawn,
    "encoder": lambda network: FrozenEncoder("encoder", network.features, BATCH)(IMAGES),
    "site encoder": lambda network: SiteEncoder(network, BATCH)(IMAGES),
    "dataset of tensors": lambda network: read(network, torch.clone),
    "dataset of arrays": lambda network: read(network, lambda image: image.numpy().copy()),
    "loader": lambda network: read(network, torch.clone, lambda items: DataLoader(items, 1)),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_returned_in_the_same_memory_is_as_what_is_returned_anew(place):
    assert torch.equal(PLACES[place](Network()), PLACES[place](Anew()))

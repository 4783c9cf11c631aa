# SPDX-License-Identifier: Apache-2.0
"""Monitors on modules that were written without them in mind."""

import copy

import pytest
import torch
from _helpers.autoencoders import tiny_vae
from _helpers.modules import LIGHTNING_SAYS, Kept, Linear, digits, drawn, fit, loader, measured, plain
from lightning import LightningModule
from torch import nn
from torch.nn.functional import binary_cross_entropy

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:Plain.{1,4}(there is no validation data|the baseline|only)"),
]


class PlainGAN(LightningModule):
    """A GAN as in Lightning's examples: `forward(z)`, an example input, images logged from a fixed z, no `sample`."""

    def __init__(self, latent_dim=16):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator = nn.Sequential(
            nn.Linear(latent_dim, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2), nn.Linear(32, 64)
        )
        self.discriminator = nn.Sequential(nn.Flatten(), nn.Linear(64, 1), nn.Sigmoid())
        self.validation_z = torch.randn(8, latent_dim)
        self.example_input_array = torch.zeros(2, latent_dim)

    def forward(self, z):
        return self.generator(z).tanh().view(-1, 1, 8, 8)

    def training_step(self, batch):
        images = batch[0]
        optimizer_g, optimizer_d = self.optimizers()
        z = torch.randn(len(images), self.hparams.latent_dim).type_as(images)
        self.toggle_optimizer(optimizer_g)
        loss = binary_cross_entropy(self.discriminator(self(z)), torch.ones(len(images), 1))
        self.manual_backward(loss)
        optimizer_g.step()
        optimizer_g.zero_grad()
        self.untoggle_optimizer(optimizer_g)
        self.toggle_optimizer(optimizer_d)
        real = binary_cross_entropy(self.discriminator(images), torch.ones(len(images), 1))
        fake = binary_cross_entropy(self.discriminator(self(z).detach()), torch.zeros(len(images), 1))
        self.manual_backward((real + fake) / 2)
        optimizer_d.step()
        optimizer_d.zero_grad()
        self.untoggle_optimizer(optimizer_d)

    def configure_optimizers(self):
        return [torch.optim.Adam(x.parameters(), 1e-3) for x in (self.generator, self.discriminator)], []

    def on_validation_epoch_end(self):
        self(self.validation_z.type_as(self.generator[0].weight))

    def validation_step(self, batch):
        pass


def from_forward(module, n):
    return module(torch.randn(n, module.hparams.latent_dim, device=module.device))


def weights(module):
    return [x.clone() for x in module.state_dict().values()]


def test_gan_of_lightnings_example_needs_only_a_sample_fn(tmp_path):
    trained = []
    for monitors in ([], [plain(sample_fn=from_forward)]):
        torch.manual_seed(0)
        _, module = fit(tmp_path, *monitors, module=PlainGAN(), val=loader(digits(300, 400)))
        trained.append(weights(module))
    assert all(torch.equal(a, b) for a, b in zip(*trained, strict=True))
    first, last = monitors[0].history
    assert 0 < first["image"] != last["image"]


class OwnEMA(Linear):
    """Keeps a moving average of its network inside, samples from it, and lets only the network learn."""

    def __init__(self):
        super().__init__(lr=5e-2)
        self.average = copy.deepcopy(self.net).requires_grad_(False)

    def on_train_batch_end(self, *args):
        for average, now in zip(self.average.parameters(), self.net.parameters(), strict=True):
            average.lerp_(now.detach(), 0.1)

    def sample_average(self, n):
        return torch.tanh(self.average(torch.randn(n, 4, device=self.device))).view(n, 1, 8, 8)

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), self.lr)


def test_module_with_an_average_is_evaluated_as_it_samples(tmp_path):
    ways = {"raw": None, "average": lambda module, n: module.sample_average(n)}
    found = {}
    for name, way in ways.items():
        torch.manual_seed(0)
        monitor = plain(sample_fn=way)
        runner, module = fit(tmp_path / name, monitor, module=OwnEMA(), val=loader(digits(300, 400)))
        found[name] = monitor.history[-1]["image"]
        samples = drawn(monitor, runner, module.eval())
        network = module.average if way else module.net
        assert torch.equal(samples, drawn(monitor, runner, Posterior(network)))
    assert found["raw"] != found["average"]


class Posterior(nn.Module):
    """Another module with the same network, to sample from."""

    device = torch.device("cpu")

    def __init__(self, network):
        super().__init__()
        self.net = network

    def sample(self, n):
        return Linear.sample(self, n)

    def sample_average(self, n):
        return Linear.sample(self, n)


class Latents(Linear):
    """Generates latents [n, 2, 4, 4] of 8×8 images; the autoencoder that knows images is frozen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 32)
        self.vae = tiny_vae(latent_channels=2)

    def sample(self, n):
        return self.net(torch.randn(n, 4, device=self.device)).view(n, 2, 4, 4)

    def training_step(self, batch, index):
        latents = self.vae.encode(batch[0].expand(-1, 3, -1, -1)).latent_dist.mean
        return (self.sample(len(latents)).mean(0) - latents.mean(0)).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), 1e-2)


def decoded(module, n):
    return module.vae.decode(module.sample(n)).sample.mean(1, keepdim=True).clamp(-1, 1)


@pytest.mark.filterwarnings("ignore:Found .* module.s. in eval mode at the start of training")
def test_latent_generator_is_evaluated_on_decoded_samples(tmp_path):
    monitor = plain(sample_fn=decoded)
    _, module = fit(tmp_path, monitor, module=Latents(), val=loader(digits(300, 400)))
    assert monitor.partition.image_size == (8, 8)
    assert len(monitor.history) == 2
    assert not module.vae.training
    with pytest.raises(ValueError, match=r"\[1, 8, 8\] like the real ones, but got \[2, 4, 4\].*`sample_fn`"):
        fit(tmp_path, plain(), module=Latents(), val=loader(digits(300, 400)))


class Compiled(Linear):
    """Its network is compiled; a graph per shape and mode is what compiling costs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.graphs = Kept()
        self.net = torch.compile(nn.Linear(4, 64), backend=self.count)

    def count(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward


@pytest.mark.slow
def test_compiled_module_is_evaluated_and_compiled_no_more(tmp_path):
    torch._dynamo.reset()
    histories, graphs = [], []
    for kind in (Linear, Compiled):
        torch.manual_seed(0)
        module = kind()
        if kind is Linear:
            torch.manual_seed(0)
            module.net = nn.Linear(4, 64)
        monitor = plain()
        for epochs in (2, 5):
            torch.manual_seed(1)
            fit(tmp_path, monitor, module=module, val=loader(digits(300, 400)), max_epochs=epochs)
            graphs.append(len(getattr(module, "graphs", [])))
        histories.append([record["image"] for record in measured(monitor)])
    assert histories[0] == pytest.approx(histories[1], rel=1e-5)
    assert 0 < graphs[2] == graphs[3] <= 6


class Lazy(Linear):
    """Takes its sizes from the first batch."""

    def __init__(self, part):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 64), part)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-2)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature", "ignore:.*an evaluation changed the training")
@pytest.mark.filterwarnings("ignore:A layer with UninitializedParameter", "ignore:.*uninitialized parameters")
@pytest.mark.filterwarnings("ignore:.*lazy layers took their initial weights")
@pytest.mark.parametrize("fresh", [nn.LazyBatchNorm1d, lambda: nn.LazyLinear(64)], ids=["LazyBatchNorm", "LazyLinear"])
def test_lazy_module_that_trains_alone_trains_with_a_monitor(tmp_path, fresh):
    outcomes = []
    for monitors in ([], [plain()]):
        part = fresh()
        torch.manual_seed(0)
        _, module = fit(tmp_path, *monitors, module=Lazy(part), val=loader(digits(300, 400)))
        outcomes.append([x.clone() for x in module.state_dict().values()])
    assert len(monitors[0].history) == 2
    assert any("Lazy layers took their initial weights" in note["text"] for note in monitors[0].publisher.notes.items)
    assert [x.shape for x in outcomes[0]] == [x.shape for x in outcomes[1]]
    if fresh is nn.LazyBatchNorm1d:  # its first values are no random numbers
        assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))

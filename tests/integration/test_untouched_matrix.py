# SPDX-License-Identifier: Apache-2.0
"""Kinds of generators, monitors, things that go wrong and precisions in every combination: training keeps its bits."""

import itertools
import random
import warnings

import numpy as np
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Deep, digits, fit, plain
from _helpers.prompted import disagreeing
from _helpers.prompted import plain as plain_diversity
from _helpers.traces import Record, same
from dcgan import DCGAN
from diffusers import DDPMScheduler, UNet2DModel
from lightning import LightningModule
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader

pytestmark = [*LIGHTNING_SAYS, pytest.mark.slow]
N = 12


class Diffusion(LightningModule):
    """A DDPM of four steps over a small U-Net with dropout."""

    def __init__(self):
        super().__init__()
        self.net = UNet2DModel(
            sample_size=8,
            in_channels=1,
            out_channels=1,
            layers_per_block=1,
            block_out_channels=(8,),
            down_block_types=("DownBlock2D",),
            up_block_types=("UpBlock2D",),
            norm_num_groups=4,
            dropout=0.1,
            add_attention=False,
        )
        self.schedule = DDPMScheduler(num_train_timesteps=4)

    def sample(self, n):
        images = torch.randn(n, 1, 8, 8)
        for step in self.schedule.timesteps:
            images = self.schedule.step(self.net(images, step).sample, step, images).prev_sample
        return images.clamp(-1, 1)

    def training_step(self, images, index):
        noise = torch.randn_like(images)
        steps = torch.randint(0, 4, (len(images),))
        guess = self.net(self.schedule.add_noise(images, noise, steps), steps).sample
        loss = nn.functional.mse_loss(guess, noise)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)


def validated(kind):
    """Give a module a validation loop, as `fit` would otherwise not run one."""
    return type(kind.__name__, (kind,), {"validation_step": lambda self, batch, index: None})


KINDS = {
    "DCGAN": lambda: validated(DCGAN)(latent_dim=8, generator_features=4, discriminator_features=4),
    "DDPM": lambda: validated(Diffusion)(),
    "dropout and BatchNorm": Deep,
}
ENDS = ("succeeds", "sampler raises", "metric raises", "interrupted")


class Ends:
    """Samples of a module without prompts, until training has begun and an evaluation is to end otherwise."""

    def __init__(self, how):
        self.how = how

    def __call__(self, module, asked):
        if module.trainer.global_step and self.how == "sampler raises":
            torch.rand(3)
            raise RuntimeError("no samples today")
        return module.sample(asked if isinstance(asked, int) else len(asked))


class Goes(Callback):
    """Stands before the monitors and, once training has begun, lets what they measure end as it should."""

    def __init__(self, monitors, how):
        self.monitors, self.how = monitors, how

    def on_train_start(self, trainer, pl_module):
        error = {"metric raises": ArithmeticError, "interrupted": KeyboardInterrupt}.get(self.how)
        for monitor in self.monitors if error else ():

            def ends(*args, error=error):
                torch.rand(3)
                raise error("did not converge")

            monitor.evaluator.update = ends


class Interrupts(Callback):
    """What a person does, at the moment of the first evaluation and without any."""

    def on_validation_epoch_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            raise KeyboardInterrupt

    def on_train_epoch_end(self, trainer, pl_module):
        raise KeyboardInterrupt


def make(monitors, how):
    """Return fresh monitors, for what they are called."""
    settings = {"n_samples": N, "sample_fn": Ends(how), "on_error": "warn", "real_images": digits(0, 60)}
    made = {
        "clusters": lambda: plain(n_clusters=2, n_cluster_images=30, **settings),
        "diversity": lambda: plain_diversity(range(3), **settings),
        "disagreement": lambda: disagreeing(range(3), reference="previous", **settings),
    }
    return [made[name]() for name in made if monitors in (name, "all")]


def left_behind(folder, kind, validate, precision, *callbacks):
    """Train two epochs of two batches; return all that a run leaves."""
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    record, module = Record(), KINDS[kind]()
    train = DataLoader(digits(0, 60), 30, shuffle=True)
    val = DataLoader(digits(60, 80), 20) if validate else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stopped = False
        trainer_of = {}

        class Keeps(Callback):
            def setup(self, trainer, pl_module, stage):
                trainer_of["it"] = trainer

        try:
            fit(folder, Keeps(), *callbacks, record, module=module, train=train, val=val, precision=precision)
        except (KeyboardInterrupt, SystemExit):
            stopped = True
    numbers = torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()  # noqa: NPY002
    return {
        "weights and buffers": module.state_dict(),
        "gradients": [p.grad for p in module.parameters()],
        "optimizers": [optimizer.state_dict() for optimizer in trainer_of["it"].optimizers],
        "losses, batches, modes": record.seen,
        "random numbers": numbers,
        "steps and end": (trainer_of["it"].global_step, stopped),
    }


EXPECTED = {}


def expected(folder, kind, validate, precision, interrupted):
    key = (kind, validate, precision, interrupted)
    if key not in EXPECTED:
        EXPECTED[key] = left_behind(folder, kind, validate, precision, *[Interrupts()] * interrupted)
    return EXPECTED[key]


ALONE = ("clusters", "diversity", "disagreement")
CASES = [*itertools.product(KINDS, [True, False], ["32-true", "bf16-mixed"])]


IN_CI = CASES[1::5]
"""Each module once: with the validation and the precision that the one before it lacks."""


@pytest.mark.parametrize(
    ("kind", "validate", "precision", "turn"),
    [
        pytest.param(
            *case,
            number // 2,
            id=f"{case[0]}, {'validated' if case[1] else 'not validated'}, {case[2]}",
            marks=() if case in IN_CI else pytest.mark.nightly,
        )
        for number, case in enumerate(CASES)
    ],
)
def test_training_keeps_its_bits(tmp_path, kind, validate, precision, turn, record_property):
    """Of all monitors together in each way to end, and of each alone in one of them, in turn."""
    tried = [(how, which) for i, how in enumerate(ENDS) for which in ("all", ALONE[(i + turn) % len(ALONE)])]
    for how, monitors in tried:
        watching = make(monitors, how)
        found = left_behind(tmp_path, kind, validate, precision, Goes(watching, how), *watching)
        wanted = expected(tmp_path, kind, validate, precision, how == "interrupted")
        differ = [part for part in wanted if not same(found[part], wanted[part])]
        assert differ == [], f"{how}, {monitors}"
        assert {len(monitor.history) for monitor in watching} == ({2} if how == "succeeds" else {0})
    record_property("untouched: runs compared bit by bit", len(tried))
    assert not same(
        expected(tmp_path, kind, validate, precision, False)["weights and buffers"], KINDS[kind]().state_dict()
    )

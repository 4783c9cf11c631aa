# SPDX-License-Identifier: Apache-2.0
"""Run by test_told_to_stop.py: a training whose monitor waits for a minute at one place, and says so.

At its end it says how many seconds it computed after that, which do not depend on what else the machine does.

python told_to_stop.py FOLDER PLACE
"""

import atexit
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "examples")]

import torch
from _helpers.modules import Linear, MeanGap, digits, fit, loader
from torch.utils.data import Dataset

from genmonitor import PixelPartition
from genmonitor.callbacks import PixelClusterMonitor

folder, place = Path(sys.argv[1]), sys.argv[2]


def wait_here(name, begun=True):
    """Take a minute in one call, as a large decomposition does, or many small steps of a sampler."""
    if name == place and begun:
        atexit.register(lambda before: print(time.process_time() - before), time.process_time())
        print("waiting", flush=True)
        time.sleep(60)


class Slow(Dataset):
    """Digits, the reading of which takes a minute."""

    def __len__(self):
        return 300

    def __getitem__(self, index):
        wait_here("set-up")
        return (digits(index, index + 1)[0],)


class Generator(Linear):
    """Draws for a minute after its first epoch."""

    def sample(self, n):
        wait_here("sampling", self.current_epoch == 1 and self.trainer.validating)
        return super().sample(n)


class Gap(MeanGap):
    """Measures for a minute after the first epoch."""

    def compute(self):
        wait_here("measuring", module.current_epoch == 1)
        return super().compute()


module = Generator()
halves = PixelPartition.grid((8, 8), rows=1, columns=2)
monitor = PixelClusterMonitor(partition=halves, n_samples=60, extra_metrics={"gap": Gap()})
train = loader(digits(0, 300)) if place != "set-up" else torch.utils.data.DataLoader(Slow(), 100)
fit(folder, monitor, module=module, train=train, val=loader(digits(300, 400)), max_epochs=3)

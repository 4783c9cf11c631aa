# SPDX-License-Identifier: Apache-2.0
"""Run by test_namespaces.py: a fit with every logger of one namespace of Lightning where the other is not installed.

python only_one_lightning.py lightning|pytorch_lightning FOLDER
"""

import importlib
import importlib.metadata
import json
import sys
import warnings
from pathlib import Path

KEPT, FOLDER = sys.argv[1], Path(sys.argv[2])
HIDDEN = {"lightning": "pytorch_lightning", "pytorch_lightning": "lightning"}[KEPT]


class Hide:
    """A finder that finds nothing of the other namespace."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def version(name, _original=importlib.metadata.version):
    if name.replace("-", "_") == HIDDEN:
        raise importlib.metadata.PackageNotFoundError(name)
    return _original(name)


sys.meta_path.insert(0, Hide())
importlib.metadata.version = version
warnings.simplefilter("ignore")

import torch

from genmonitor.callbacks import DiversityMonitor, PixelClusterMonitor

if KEPT == "lightning":
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
else:
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
    from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger


class Generator(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 64)

    def sample(self, n):
        return torch.tanh(self.net(torch.randn(n, 4))).view(n, 1, 8, 8)

    def sample_prompts(self, labels):
        return self.sample(len(labels)) * (1 + labels.view(-1, 1, 1, 1)) / 5

    def training_step(self, batch, index):
        return self.net.weight.square().sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


images = torch.tanh(torch.randn(300, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
clusters = PixelClusterMonitor(3, n_samples=40, n_cluster_images=100, on_error="raise")
diversity = DiversityMonitor(range(5), 40, on_error="raise")
best = ModelCheckpoint(FOLDER / "best", monitor="cms/image", mode="max")
trainer = pl.Trainer(
    max_epochs=2,
    accelerator="cpu",
    devices=1,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=[TensorBoardLogger(FOLDER), CSVLogger(FOLDER)],
    callbacks=[clusters, diversity, EarlyStopping("cms/product", mode="max"), best],
)
trainer.fit(Generator(), torch.utils.data.DataLoader(images, 100))
assert not any(name.split(".")[0] == HIDDEN for name in sys.modules)
print(json.dumps({"checks": [len(clusters.history), len(diversity.history)], "best": float(best.best_model_score)}))

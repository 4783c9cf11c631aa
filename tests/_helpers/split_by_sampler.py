# SPDX-License-Identifier: Apache-2.0
"""Run by test_split_by_sampler.py, once in every process: a fit on one dataset whose parts samplers choose."""

import json
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "examples")]

from _helpers.modules import Linear, digits, fit, measured, plain
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset


def outcomes(folder, processes):
    """Return which real images each process held, and what it measured, of a model that does not learn."""
    data, order = TensorDataset(digits(0, 600)), torch.randperm(600, generator=torch.Generator().manual_seed(0))
    train, val = (DataLoader(data, 50, sampler=SubsetRandomSampler(part.tolist())) for part in order.split([400, 200]))
    torch.manual_seed(0)
    monitor, module = plain(n_samples=101, sample_batch_size=30), Linear(lr=0.0)
    strategy = {"strategy": "ddp", "devices": processes} if processes > 1 else {}
    fit(folder, monitor, module=module, train=train, val=val, **strategy)
    fitted = monitor.evaluator.fitted
    return {
        "images": fitted.real_origin["indices"],
        "held": len(fitted.real),
        "clusters": monitor.partition.labels.tolist(),
        "history": measured(monitor),
    }


def main(folder, processes):
    warnings.filterwarnings("ignore", message=".*does not have many workers|.*treespec")
    out = outcomes(folder, processes)
    (folder / f"rank_{torch.distributed.get_rank()}.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

# SPDX-License-Identifier: Apache-2.0
"""Run by test_disagreement_runs.py, once in every process: fits with DisagreementMonitor, their outcome into a file."""

import json
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "examples")]

from _helpers.modules import fit, measured
from _helpers.prompted import Changed, disagreeing, evaluations, labelled


def outcomes(folder, processes, n):
    """Return what each kind of run measured, and which prompts and pictures it shows."""
    out = {}
    for reference in ("data", "start", "previous"):
        monitor = disagreeing([0, 1, 2, 0][: min(n, 4)], n_samples=n, reference=reference, sample_batch_size=16)
        kept = evaluations(monitor)
        strategy = {"strategy": "ddp", "devices": processes} if processes > 1 else {}
        train, val = labelled(0, 150), labelled(600, 900)
        fit(folder, monitor, module=Changed(prompt=1, epoch=1), train=train, val=val, max_epochs=3, **strategy)
        evaluation = kept[-1]
        shown = [side.shown.sum((1, 2, 3)).tolist() for side in (evaluation.current, evaluation.reference)]
        changed = [list(pair) for pair in evaluation.found.changed]
        gamma = monitor.kernel.gamma
        out[reference] = {"history": measured(monitor), "gamma": gamma, "shown": shown, "changed": changed}
    return out


def main(folder, processes, n):
    warnings.filterwarnings("ignore", message=".*does not have many workers|.*treespec")
    out = outcomes(folder, processes, n)
    (folder / f"rank_{torch.distributed.get_rank()}.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))

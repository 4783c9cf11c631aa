# SPDX-License-Identifier: Apache-2.0
"""What test_disagreement_runs.py runs in every process: fits with DisagreementMonitor, their outcomes by name."""

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

# SPDX-License-Identifier: Apache-2.0
"""What metrics/test_promptsplit.py and test_w1kp.py run in each of two processes."""

from typing import Any

import torch
from _helpers.joint_spectra import random_sides

from genmonitor import PromptSplit, W1KPScore
from genmonitor.functional import calibrate

FORMS: dict[str, dict[str, Any]] = {"exact": {}, "streaming": {"num_features": 40}}
FEATURES, PROMPTS = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 4


def feed(metric: PromptSplit, batch: int, rows: slice = slice(None), references: slice = slice(None)) -> PromptSplit:
    """Give a metric some rows of either side in batches, the reference side first."""
    x, t, y, u = random_sides()
    for outputs, prompts, reference in ((y[references], u[references], True), (x[rows], t[rows], False)):
        for start in range(0, max(1, len(outputs)), batch):
            some = slice(start, start + batch)
            metric.update(outputs[some], prompts[some], reference=reference)
    return metric


def of_both_sides(rank: int) -> dict[str, Any]:
    """Shares that are uneven, and sides that one process has nothing of."""
    shares = {
        "uneven": [(slice(0, 9), slice(0, 12)), (slice(9, None), slice(12, None))],
        "one side each": [(slice(0, 0), slice(None)), (slice(None), slice(0, 0))],
    }
    out = {}
    for name, share in shares.items():
        for form, arguments in FORMS.items():
            metric = feed(PromptSplit(**arguments), 7, *share[rank])
            out[name, form] = metric.compute()
            modes = metric.modes()
            out[name, form, "modes"] = (modes.eigenvalues, modes.scores.shape)
            out[name, form, "gammas"] = (float(metric.output_gamma), float(metric.prompt_gamma))
    metric = W1KPScore(calibrate(FEATURES), k=3)
    rows = slice(0, 11) if rank == 0 else slice(11, None)
    metric.update(FEATURES[rows], PROMPTS[rows])
    out["w1kp"] = metric.compute()
    out["w1kp rows"] = [(row.prompt, row.outputs, row.w1kp) for row in metric.per_prompt()]
    return out


def refused(rank: int) -> str:
    """Rank zero cannot take a width from samples that are all alike: both have to learn of it."""
    x, t, _, _ = random_sides()
    try:
        PromptSplit(num_features=5).update(x if rank else x[:1].expand(30, 5), t, reference=True)
    except ValueError as error:
        return str(error)
    return ""


def everything(rank: int) -> dict[Any, Any]:
    return of_both_sides(rank) | {"refused": refused(rank)}

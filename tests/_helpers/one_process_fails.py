# SPDX-License-Identifier: Apache-2.0
"""What test_several_processes.py runs in both processes: the second fails in each part of an evaluation in turn."""

import torch
from _helpers.modules import MeanGap, fit, measured, plain
from _helpers.prompted import Prompted, disagreeing, labelled
from _helpers.prompted import plain as diversity

from genmonitor.evaluation import disagreement, modes
from genmonitor.evaluation import diversity as of_diversity
from genmonitor.evaluation.regions import metrics as region_metrics
from genmonitor.functional import calibrate
from genmonitor.metrics import prdc, scendi

PARTS = {
    "cms": [(region_metrics, "cms_from_means"), (MeanGap, "compute")],
    "diversity": [
        (modes, "scendi_from_covariances"),
        (prdc, "precision_recall_density_coverage"),
        (of_diversity, "w1kp_score"),
        (scendi, "scendi_modes"),
        (scendi.ScendiScore, "mode_scores"),
        (modes, "ModeEnds"),
    ],
    "disagreement": [(modes, "avg_pool2d"), (disagreement, "prompt_split")],
}
"""What each monitor calls once it has its samples, in this order."""
EPOCHS = [1, 2, 4, 5, 7, 8]
"""When they fail: three evaluations in a row would switch a monitor off."""


def histories(folder, processes):
    """Return what each monitor measured."""
    module = Prompted()

    def breaks(owner, name, epoch):
        work = getattr(owner, name)

        def broken(*args, **kwargs):
            if module.current_epoch == epoch and module.global_rank == 1:
                raise RuntimeError(f"{name} fails")
            return work(*args, **kwargs)

        setattr(owner, name, broken)

    for parts in PARTS.values():
        for (owner, name), epoch in zip(parts, EPOCHS, strict=False):
            breaks(owner, name, epoch)
    modes.LARGEST_SIDE = 4  # so that pictures are made smaller
    settings = {"on_error": "warn", "n_samples": 61}
    calibration = calibrate(torch.rand(50, 64, generator=torch.Generator().manual_seed(0)))
    monitors = (
        plain(**settings, extra_metrics={"gap": MeanGap(reset_real_features=False)}),
        diversity(**settings, calibration=calibration),
        disagreeing(**settings | {"n_samples": 60}),
    )
    train, val = labelled(0, 600), labelled(600, 1200)
    fit(folder, *monitors, module=module, train=train, val=val, max_epochs=10, strategy="ddp", devices=processes)
    return {monitor.prefix: measured(monitor) for monitor in monitors}

# SPDX-License-Identifier: Apache-2.0
"""What test_diversity_runs.py runs in every process: fits with DiversityMonitor, each one's outcome by its name."""

from _helpers.modules import digits, fit, loader, measured
from _helpers.prompted import Prompted, evaluations, plain

from genmonitor import GaussianKernel


def one_cannot_encode(module):
    """Raise on the last process alone, in the second epoch."""

    def encode(images):
        if module.trainer.current_epoch == 1 and module.global_rank == module.trainer.world_size - 1:
            raise RuntimeError("no features today")
        return images.flatten(1)

    return encode


def outcomes(folder, processes, n):
    """Return what each kind of run measured, and which samples it shows for each mode."""
    out = {}
    gaussian = GaussianKernel() if n > 5 else GaussianKernel(0.02)  # so few are not compared with real images
    for name, settings in {"cosine": {}, "gaussian": {"kernel": gaussian, "num_features": 20}}.items():
        module = Prompted()
        prompts = [0, 0, 0, 1, 1, 1, 2, 2, 3][: min(n, 9)]
        encoder = one_cannot_encode(module) if name == "cosine" else None
        monitor = plain(prompts, n_samples=n, on_error="warn", sample_batch_size=16, output_encoder=encoder, **settings)
        kept = evaluations(monitor)
        strategy = {"strategy": "ddp", "devices": processes} if processes > 1 else {}
        train, val = loader(digits(0, 150), 50), loader(digits(600, 900), 100)
        fit(folder, monitor, module=module, train=train, val=val, max_epochs=3, **strategy)
        ends = kept[-1].ends
        shown = {"indices": ends.indices.tolist(), "sums": ends.images.sum((2, 3, 4)).tolist()}
        out[name] = {"history": measured(monitor), "gamma": monitor.kernel.gamma, **shown}
    return out

# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor: how varied a conditional generator is, and how much of that its prompts explain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from genmonitor import diversity_figures
from genmonitor.callbacks import diversity_report as report
from genmonitor.callbacks import loggers
from genmonitor.callbacks.encoders import Encoder, Frozen, OneHot, pixels
from genmonitor.callbacks.modes import DiversityMetric, ModeEnds, mode_ends
from genmonitor.callbacks.monitor import PROBE, GenerativeMonitor, tell, warn
from genmonitor.callbacks.prompts import Prompts
from genmonitor.callbacks.real_side import Comparison, RealSide, find_real_side
from genmonitor.kernels import CosineKernel, Kernel

SCORES = ("vendi", "rke", "scendi", "scendi_prompt", "prompt_share")
AGAINST_REAL = ("precision", "recall", "density", "coverage")
OF_REAL = ("real_vendi", "real_rke")
MAX_FEATURES = 3072
"""With more features than these, a check would spend minutes on eigenvalues."""
MODES, ENDS = 5, 5
"""Modes that are drawn, and samples at either end of each."""


class DiversityMonitor(GenerativeMonitor):
    """Logs, at every check, how varied the images are and how much of that their prompts explain.

    The keys: `diversity/vendi` and `diversity/rke`, how many modes the images have, rare ones counting less in RKE;
    `diversity/scendi`, the variety that the model adds by itself, and `diversity/scendi_prompt`, that of what the
    prompts explain, both at least 1; `diversity/prompt_share` in [0, 1], the share of the variety that the prompts
    explain. With real images also `diversity/precision`, `/recall`, `/density`, `/coverage` (5 nearest neighbours) and,
    constant over the run, `/real_vendi` and `/real_rke`, what so many real images get. And
    `diversity/sampling_seconds`, `/metric_seconds`, `/images_seen`.

    The Vendi score and Scendi grow with `n_samples`, RKE hardly does: compare runs with the same one only.

    Args:
        prompts: strings, or class labels as integers. Sample i has prompt i modulo their number, at every check.
        n_samples: images generated at each check; None for 1000, or for one per prompt where there are more.
        output_encoder: a callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
        prompt_encoder: from a list of n strings, or labels int64 [n], to features [n, e]; None for one-hot labels.
            `genmonitor.callbacks.clip_encoders` makes both. Modules are frozen and kept out of the trained module.
        kernel: of outputs, None for the cosine. A Gaussian needs `num_features`; its width comes from real images.
        prompt_kernel: of prompts, None for the cosine.
        num_features: random Fourier features of each Gaussian kernel.
        rcond: see `ScendiScore`.
        settings: those of `GenerativeMonitor`, except that without `real_images` those of the Trainer are used only if
            they are images of the generated ones' shape.

    Source:
        Friedman and Dieng 2023; Jalali, Li and Farnia 2023; Ospanov, Jalali and Farnia 2025.

    Example:
        >>> DiversityMonitor(range(10), n_samples=500).prompts.of([9, 10, 11])
        tensor([9, 0, 1])
    """

    prompts: Prompts
    prefix = "diversity"
    figures_to_keep = ("modes",)

    def __init__(
        self,
        prompts: Sequence[str] | Sequence[int] | Tensor,
        n_samples: int | None = None,
        *,
        output_encoder: Encoder | None = None,
        prompt_encoder: Encoder | None = None,
        kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        num_features: int | None = None,
        rcond: float | None = None,
        **settings: Any,
    ) -> None:
        self.prompts = Prompts(prompts)
        super().__init__(max(1000, len(self.prompts)) if n_samples is None else n_samples, **settings)
        if self.n_samples < len(self.prompts):
            raise ValueError(
                f"Expected `n_samples` to be at least the number of prompts, {len(self.prompts)}, but got {n_samples}. "
                "Give fewer prompts or more samples."
            )
        if prompt_encoder is None and not self.prompts.are_labels:
            raise ValueError(
                "Expected a `prompt_encoder` for prompts that are strings, but got None. Give any callable from a list "
                "of strings to features [n, e], for example the second of `genmonitor.callbacks.clip_encoders(...)`."
            )
        self.output_encoder = Frozen("output_encoder", output_encoder or pixels)
        self.prompt_encoder = Frozen("prompt_encoder", prompt_encoder or OneHot(self.prompts.values))
        self.kernel, self.prompt_kernel = kernel or CosineKernel(), prompt_kernel or CosineKernel()
        self.num_features, self.rcond = num_features, rcond
        if not self._new_metric().streams:
            raise ValueError(
                f"Expected `num_features` for {self.kernel} and {self.prompt_kernel}, but got None. "
                "Give for example num_features=500, or use the cosine kernel."
            )
        self._given = {"kernel": repr(self.kernel), "prompt_kernel": repr(self.prompt_kernel)}
        self._value_range: tuple[float, float] | None = None
        self._comparison: Comparison | None = None

    def prepare(self, trainer: Any, pl_module: Any) -> None:
        """Encode the prompts and the real images, and fix the kernels' widths."""
        for encoder in (self.output_encoder, self.prompt_encoder):
            encoder.prepare(pl_module)
        probe = self.draw(trainer, pl_module, range(min(PROBE, self.n_samples)))
        self._no_features = self._encode(probe)[:0]
        prompts = self.prompts.of(range(len(self.prompts)), probe.device)
        rows = self.prompt_encoder(prompts, self.sample_batch_size).to(probe.device)
        self._indices = torch.tensor(self.share(trainer), dtype=torch.long, device=probe.device)
        self._prompt_features = rows[self._indices % len(rows)]
        real, notes = find_real_side(trainer, self.real_images, self.image_key, self.n_samples, self.seed, probe)
        for note in notes:
            warn(f"{type(self).__name__}: {note}.")
        self._value_range = None if real is None else real.value_range(probe)
        self.prompt_kernel = self.prompt_kernel.resolved(rows.unique(dim=0))
        self.kernel = self._resolved(trainer, real, probe.device)
        self._metric = self._new_metric().to(probe.device)
        self._check_size()
        if real is not None:
            share = self.share(trainer, len(real))
            images = real.read(share) if len(share) else probe[:0].cpu()
            self._comparison = Comparison(self._encode(images.to(probe.device)), self.kernel, self.num_features)

    def collect(self, samples: Tensor) -> bool:
        """Encode this process's samples, each once, and add them to every metric."""
        self._features = self._encode(samples)
        self._metric.reset()
        self._metric.update(self._features, self._prompt_features)
        if self._comparison is not None:
            self._comparison.update(self._features)
        return True

    def measure(self, trainer: Any, samples: Tensor) -> dict[str, float]:
        """Return the scores, and find the samples that show the model's own modes."""
        values = {name: float(value) for name, value in self._metric.compute().items()}
        if self._comparison is not None:
            values |= self._comparison.compute()
        modes = self._metric.modes(min(MODES, len(self._metric.parts[0])))
        scores = self._metric.mode_scores(self._features, self._prompt_features, modes)
        self._ends: ModeEnds = mode_ends(scores, samples, self._indices, ENDS)
        return values

    def names(self) -> list[str]:
        """Name the values of a check, once prepared."""
        return [*SCORES, *(() if self._comparison is None else (*AGAINST_REAL, *OF_REAL))]

    def figures(self, samples: Tensor) -> dict[str, Figure]:
        """Draw the curves, the spectrum, and the samples at both ends of the model's own modes."""
        last, n = self.history[-1], self.n_samples
        curves = {name: [c[name] for c in self.history] for name in (*SCORES, *AGAINST_REAL) if name in last}
        real = {name.removeprefix("real_"): last[name] for name in OF_REAL if name in last}
        outputs, explained = self._metric.parts
        total, prompted, own = (torch.linalg.eigvalsh(x).flip(0) for x in (outputs, explained, outputs - explained))
        shares = (own / own.sum().clamp_min(1e-12)).tolist()
        texts = [[self.prompts.text(i) for i in row] for row in self._ends.indices.tolist()]
        value_range = self._value_range or (float(samples.min()), float(samples.max()))
        return {
            "curves": diversity_figures.diversity_curves([c["epoch"] for c in self.history], curves, real, n),
            "spectrum": diversity_figures.spectrum(total, prompted, own, n),
            "modes": diversity_figures.mode_samples(shares, self._ends.images, texts, value_range),
        }

    def after_check(self, trainer: Any) -> None:
        """Say a line about the check."""
        tell(report.line(self.history[-1], self.n_samples))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Prepare, before the first training step, lay out the loggers' charts and write down the prompts."""
        super().on_train_start(trainer, pl_module)
        if trainer.is_global_zero:
            titles = report.charts(self.n_samples)
            charts = {title: [f"{self.prefix}/{name}" for name in names] for title, names in titles.items()}
            loggers.log_layout(trainer.loggers, self.prefix, charts)
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "prompts.json").write_text(json.dumps(self.prompts.values))

    def summary(self) -> str:
        """Return a table of the last check."""
        return report.table(self.history, self.n_samples)

    def facts(self) -> dict[str, Any]:
        """Return what is needed to measure the same again."""
        encoders = {encoder.name: encoder.described() for encoder in (self.output_encoder, self.prompt_encoder)}
        kernels = {"kernel": repr(self.kernel), "prompt_kernel": repr(self.prompt_kernel)}
        numbers = {"num_features": self.num_features, "rcond": self.rcond}
        return {"prompts": "prompts.json", **encoders, **kernels, **numbers}

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python and tensors only."""
        gammas = {"gamma": self.kernel.gamma, "prompt_gamma": self.prompt_kernel.gamma}
        return super().state_dict() | {"settings": self._settings(), **gammas}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state; what is fixed for a run stays fixed when it is resumed."""
        super().load_state_dict(state_dict)
        other = [name for name, value in self._settings().items() if value != state_dict["settings"].get(name)]
        if other:
            warn(
                f"{type(self).__name__} was resumed with another {', '.join(other)}, so its curves start anew: values "
                "before and after cannot be compared."
            )
            self.history = []
            return
        self.kernel = replace(self.kernel, gamma=state_dict["gamma"])
        self.prompt_kernel = replace(self.prompt_kernel, gamma=state_dict["prompt_gamma"])

    def _settings(self) -> dict[str, Any]:
        names = ("n_samples", "num_features", "rcond", "seed")
        return {name: getattr(self, name) for name in names} | self._given | {"prompts": list(self.prompts.values)}

    def _new_metric(self) -> DiversityMetric:
        return DiversityMetric(self.kernel, self.prompt_kernel, self.num_features, self.rcond)

    def _encode(self, images: Tensor) -> Tensor:
        """Return features of images on their device, [0, d] of none."""
        if not len(images):
            return self._no_features
        return self.output_encoder(images, self.sample_batch_size).to(images.device)

    def _resolved(self, trainer: Any, real: RealSide | None, device: torch.device) -> Kernel:
        """Return the kernel of outputs with its width fixed for the run."""
        if self.kernel.gamma is not None or not self.kernel.takes_width:
            return self.kernel
        if real is None:
            raise ValueError(
                "Expected a `kernel` with its gamma, since there are no real images to take it from and those of an "
                "untrained generator say little. Give GaussianKernel(gamma=...), or `real_images=`."
            )
        return self.on_rank_zero(trainer, lambda: real.resolved(self.kernel, lambda x: self._encode(x.to(device))))

    def _check_size(self) -> None:
        """Refuse features whose covariance would take minutes to decompose."""
        sides = (("output", self.kernel, self._no_features), ("prompt", self.prompt_kernel, self._prompt_features))
        for name, kernel, features in sides:
            size = 2 * (self.num_features or 0) if kernel.takes_width else features.shape[1]
            if size > MAX_FEATURES:
                raise ValueError(
                    f"Expected at most {MAX_FEATURES} features of each {name}, but got {size}, which would take minutes"
                    f" at each check. Give `{name}_encoder=` one with fewer, such as CLIP or, for pixels, an average "
                    "over patches; or a GaussianKernel with `num_features`."
                )

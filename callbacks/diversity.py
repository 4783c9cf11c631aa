# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor: how varied a conditional generator is, and how much of that its prompts explain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from genmonitor.callbacks import diversity_report as report
from genmonitor.callbacks.encoders import Encoder
from genmonitor.callbacks.framework import tell
from genmonitor.callbacks.in_step import in_step
from genmonitor.callbacks.modes import DiversityMetric, ModeEnds, Scored
from genmonitor.callbacks.prompted import PromptedMonitor
from genmonitor.callbacks.prompts import Prompts
from genmonitor.callbacks.real_side import Comparison, RealSide, check_neighbors, random_real_side
from genmonitor.callbacks.variability import Variability
from genmonitor.functional import W1KPCalibration
from genmonitor.kernels import CosineKernel, Kernel
from genmonitor.plotting import diversity as diversity_figures

SCORES = ("vendi", "rke", "scendi", "scendi_prompt", "prompt_share")
AGAINST_REAL = ("precision", "recall", "density", "coverage")
OF_REAL = ("real_vendi", "real_rke")
MAX_FEATURES = 3072
"""With more features than these, a check would spend minutes on eigenvalues."""
CALIBRATION_FILE = "w1kp_calibration.pt"
MODES, ENDS = 5, 5
"""Modes that are drawn, and samples at either end of each."""


class DiversityMonitor(PromptedMonitor):
    """Logs, at every check, how varied the images are and how much of that their prompts explain.

    The keys: `diversity/vendi` and `diversity/rke`, how many modes the images have, rare ones counting less in RKE;
    `diversity/scendi`, the variety that the model adds by itself, and `diversity/scendi_prompt`, that of what the
    prompts explain, both at least 1; `diversity/prompt_share` in [0, 1], the share of the variety that the prompts
    explain. With a calibration `diversity/w1kp` in [0, 1], how alike the images of one prompt are, averaged over the
    prompts: high is similar, low is varied. With real images also `diversity/precision`, `/recall`, `/density`,
    `/coverage` (5 nearest neighbors) and, constant over the run, `/real_vendi` and `/real_rke`, what so many real
    images get. And `diversity/sampling_seconds`, `/metric_seconds`, `/images_seen`.

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
        calibration: of the output encoder's features, from `genmonitor.functional.calibrate` or `W1KPCalibration.load`;
            with it W1KP is measured and the least varied prompts are shown.
        settings: those of `GenerativeMonitor`, except that without `real_images` those of the Trainer are used only if
            they are images of the generated ones' shape.

    Source:
        Friedman and Dieng 2023; Jalali, Li and Farnia 2023; Ospanov, Jalali and Farnia 2025.

    Example:
        >>> DiversityMonitor(range(10), n_samples=500).prompts.of([9, 10, 11])
        tensor([9, 0, 1])
    """

    prefix = "diversity"
    figures_to_keep = ("modes", "least_varied")
    about = report.ABOUT

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
        calibration: W1KPCalibration | None = None,
        **settings: Any,
    ) -> None:
        known = Prompts(prompts)
        n = max(1000, len(known) * (1 if calibration is None else 2)) if n_samples is None else n_samples
        kernel, prompt_kernel = kernel or CosineKernel(), prompt_kernel or CosineKernel()
        super().__init__(known, n, output_encoder, prompt_encoder, kernel, prompt_kernel, num_features, **settings)
        self.rcond = rcond
        if not self._new_metric().streams:
            raise ValueError(
                f"Expected `num_features` for {self.kernel} and {self.prompt_kernel}, but got None. "
                "Give for example num_features=500, or use the cosine kernel."
            )
        self.calibration = calibration
        self._variability = None if calibration is None else Variability(calibration, self.prompts, self.n_samples)
        self._comparison: Comparison | None = None

    def find_real(self, trainer: Any, probe: Tensor) -> tuple[RealSide | None, list[str]]:
        """Choose real images; those of the Trainer only where they would do."""
        shape = tuple(probe.shape[1:])
        try:
            real, notes = random_real_side(trainer, self.real_images, self.image_key, self.n_samples, self.seed, shape)
            check_neighbors(len(real), self.n_samples)
        except ValueError as error:
            if self.real_images is not None:
                raise
            return None, [f"precision, recall, density and coverage are not measured. {error}".removesuffix(".")]
        return real, notes

    def charts(self) -> dict[str, list[str]]:
        """Return which values share a chart, by its title."""
        return report.charts(self.n_samples, self.calibration is not None)

    def prepare(self, trainer: Any, pl_module: Any) -> None:
        """Prepare what conditional monitors share, and encode the real images."""
        super().prepare(trainer, pl_module)
        self._metric = self._new_metric().to(self._indices.device)
        self._check_size()
        if self.calibration is not None:
            self.calibration.check("features of the output encoder", self._no_features)
        if self._real is not None:
            features = self.encode(self.read_share(trainer, self._real))
            self._comparison = Comparison(features, self.kernel, self.num_features)

    def collect(self, samples: Tensor) -> None:
        """Encode this process's samples, each once, and add them to every metric."""
        self._features = self.encode(samples)
        self._metric.reset()
        self._metric.update(self._features, self.prompt_features(self._indices))
        if self._comparison is not None:
            self._comparison.update(self._features)

    def measure(self, trainer: Any, samples: Tensor) -> dict[str, float]:
        """Return the scores, and find the samples that show the model's own modes."""
        values = {name: float(value) for name, value in in_step(trainer, self._metric.compute).items()}
        if self._comparison is not None:
            values |= in_step(trainer, self._comparison.compute)
        variability = self._variability
        if variability is not None:
            values |= in_step(trainer, lambda: variability.measure(self._features, self._indices))
            in_step(trainer, lambda: variability.keep_images(samples, self._indices))
        near_ends = in_step(trainer, lambda: self._scored(samples).near_ends(ENDS))
        self._ends: ModeEnds = near_ends.gathered().ends(ENDS)
        return values

    def _scored(self, samples: Tensor) -> Scored:
        modes = self._metric.modes(min(MODES, len(self._metric.parts[0])))
        scores = self._metric.mode_scores(self._features, self.prompt_features(self._indices), modes)
        return Scored(scores, samples, self._indices)

    def names(self) -> list[str]:
        """Name the values of a check, once prepared."""
        return [
            *SCORES,
            *(() if self.calibration is None else ("w1kp",)),
            *(() if self._comparison is None else (*AGAINST_REAL, *OF_REAL)),
        ]

    def figures(self, samples: Tensor) -> dict[str, Figure]:
        """Draw the curves, the spectrum, and the samples at both ends of the model's own modes."""
        last, n = self.history[-1], self.n_samples
        shown = (*SCORES, "w1kp", *AGAINST_REAL)
        curves = {name: [check[name] for check in self.history] for name in shown if name in last}
        real = {name.removeprefix("real_"): last[name] for name in OF_REAL if name in last}
        outputs, explained = self._metric.parts
        total, prompted, own = (torch.linalg.eigvalsh(x).flip(0) for x in (outputs, explained, outputs - explained))
        shares = (own / own.sum().clamp_min(1e-12)).tolist()
        texts = [[self.prompts.text(i) for i in row] for row in self._ends.indices.tolist()]
        value_range = self._value_range or (float(samples.min()), float(samples.max()))
        of_prompts = {} if self._variability is None else {"least_varied": self._variability.figure(value_range)}
        return of_prompts | {
            "curves": diversity_figures.diversity_curves([c["epoch"] for c in self.history], curves, real, n),
            "spectrum": diversity_figures.spectrum(total, prompted, own, n),
            "modes": diversity_figures.mode_samples(shares, self._ends.images, texts, value_range),
        }

    def after_check(self, trainer: Any) -> None:
        """Say a line about the check."""
        tell(report.line(self.history[-1], self.n_samples))

    def summary(self) -> str:
        """Return a table of the last check."""
        return report.table(self.history, self.n_samples, [] if self._variability is None else self._variability.least)

    def write_once(self) -> None:
        """Write down the prompts and the calibration."""
        super().write_once()
        if self.calibration is not None:
            self.calibration.save(self._folder / CALIBRATION_FILE)

    def facts(self) -> dict[str, Any]:
        """Return what is needed to measure the same again."""
        calibration = None if self.calibration is None else CALIBRATION_FILE
        return super().facts() | {"rcond": self.rcond, "calibration": calibration}

    def _settings(self) -> dict[str, Any]:
        f = self.calibration
        calibration = None if f is None else [f.dim, f.distances.tolist(), f.heights.tolist()]
        return super()._settings() | {"rcond": self.rcond, "calibration": calibration}

    def _new_metric(self) -> DiversityMetric:
        return DiversityMetric(self.kernel, self.prompt_kernel, self.num_features, self.rcond)

    def _check_size(self) -> None:
        """Refuse features whose covariance would take minutes to decompose."""
        sides = (("output", self.kernel, self._no_features), ("prompt", self.prompt_kernel, self._prompt_rows))
        for name, kernel, features in sides:
            size = 2 * (self.num_features or 0) if kernel.takes_width else features.shape[1]
            if size > MAX_FEATURES:
                raise ValueError(
                    f"Expected at most {MAX_FEATURES} features of each {name}, but got {size}, which would take minutes"
                    f" at each check. Give `{name}_encoder=` one with fewer, such as CLIP or, for pixels, an average "
                    "over patches; or a GaussianKernel with `num_features`."
                )

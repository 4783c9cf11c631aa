# SPDX-License-Identifier: Apache-2.0
"""DisagreementMonitor: for which prompts a conditional generator differs from the data or from what it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from genmonitor._validation import check_one_of
from genmonitor.callbacks import disagreement_report as report
from genmonitor.callbacks import loggers
from genmonitor.callbacks.disagreement_modes import Disagreement, Side, disagreement, smaller
from genmonitor.callbacks.disagreement_pictures import Pictures
from genmonitor.callbacks.encoders import Encoder
from genmonitor.callbacks.framework import tell
from genmonitor.callbacks.in_step import on_rank_zero
from genmonitor.callbacks.prompted import PromptedMonitor
from genmonitor.callbacks.prompts import Prompts
from genmonitor.callbacks.real_pairs import PromptKey, choose_by_prompt
from genmonitor.callbacks.real_side import RealSide, compared_images, random_real_side
from genmonitor.functional.promptsplit import PromptSplitModes, check_arguments, prompt_split
from genmonitor.kernels import CosineKernel, GaussianKernel, Kernel
from genmonitor.plotting.disagreement import disagreement_curves

APART = GaussianKernel.from_sigma(0.25)
"""Of one-hot labels: two classes have a similarity of exp(-16)."""
KEPT = 3
"""Samples of each prompt and side that can be shown."""


class DisagreementMonitor(PromptedMonitor):
    """Logs, at every check, how far the model's outputs differ from a reference's, and for which prompts.

    The reference is the real images of the same prompts ("data"), the model as it was at the start of training
    ("start") or at the previous check ("previous", the first check being compared with the start). The last two have
    the seeds of the current samples: what differs is the model alone, and a model that has not moved gives 0. Against
    "data" also a perfect generator is above 0, since its samples are others.

    The keys: `disagreement/top_1`, … the largest positive eigenvalues of PromptSplit, modes of outputs and prompts that
    the model has and the reference lacks; `disagreement/bottom_1`, … the lowest negative ones, what the reference has
    and the model lacks; 0 where there are fewer. At most 1 in size together, so that a prompt whose outputs all changed
    has at most its share of the samples. `disagreement/total`, Σ λ log(S / λ) over all positive ones, S their sum, also
    grows with the number of modes. And `disagreement/sampling_seconds`, `/metric_seconds`, `/images_seen`.

    A table names the prompts that differ most, with samples of both sides: a `wandb.Table`, a text and a figure in
    TensorBoard, a figure and a JSON file in the run's folder.

    Args:
        prompts: strings, or class labels as integers. Sample i has prompt i modulo their number, at every check.
        n_samples: images generated at each check, a multiple of the number of prompts, so that every prompt counts
            alike; None for the first one from 1000 on.
        reference: "data", "start" or "previous".
        num_modes: how many modes of either sign are logged.
        output_encoder: a callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
        prompt_encoder: from a list of n strings, or labels int64 [n], to features [n, e]; None for one-hot labels.
            `genmonitor.callbacks.clip_encoders` makes both. Modules are frozen and kept out of the trained module.
        kernel: of outputs, None for a Gaussian. Its width comes from real images where it has none.
        prompt_kernel: of prompts. None for the cosine where `kernel` is one, else for a Gaussian, which takes its width
            from the prompts or, without a `prompt_encoder`, keeps classes apart.
        num_features: random features in place of exact kernels, see `PromptSplit`: for more than some 10,000 samples.
        prompt_key: for "data", where the prompts of real images are in a batch of `real_images` or, without them, of
            the Trainer's data: None for the labels of (image, label), or "label" or "caption" and the like of a
            dictionary; else a key, an index or a callable.
        settings: those of `DiversityMonitor`.

    Source:
        Lotfian et al. 2026, Eq. 2-4, Proposition 1.

    Example:
        >>> DisagreementMonitor(range(30), reference="previous").n_samples
        1020
    """

    prefix = "disagreement"
    figures_to_keep = ("modes", "prompts")
    about = report.ABOUT

    def __init__(
        self,
        prompts: Sequence[str] | Sequence[int] | Tensor,
        n_samples: int | None = None,
        *,
        reference: str = "data",
        num_modes: int = 5,
        output_encoder: Encoder | None = None,
        prompt_encoder: Encoder | None = None,
        kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        num_features: int | None = None,
        prompt_key: PromptKey = None,
        **settings: Any,
    ) -> None:
        known = Prompts(prompts)
        n = -(-1000 // len(known)) * len(known) if n_samples is None else n_samples
        self.reference = check_one_of("reference", reference, ("data", "start", "previous"))
        for name, given in (("kernel", kernel), ("prompt_kernel", prompt_kernel)):
            if given is not None and not isinstance(given, Kernel):
                raise ValueError(f"Expected `{name}` to be a kernel such as GaussianKernel(), but got {given!r}.")
        kernel = kernel or GaussianKernel()
        of_prompts = APART if prompt_encoder is None else GaussianKernel()
        prompt_kernel = prompt_kernel or (CosineKernel() if isinstance(kernel, CosineKernel) else of_prompts)
        check_arguments(kernel, prompt_kernel, 1.0, num_modes, num_features)
        super().__init__(known, n, output_encoder, prompt_encoder, kernel, prompt_kernel, num_features, **settings)
        if self.n_samples % len(known):
            less, more = self.n_samples // len(known) * len(known), -(-self.n_samples // len(known)) * len(known)
            raise ValueError(
                f"Expected `n_samples` to be a multiple of the number of prompts, {len(known)}, but got {n_samples}: "
                f"a prompt with more samples than another would count for more. Give {less} or {more}."
            )
        self.num_modes = num_modes
        self.prompt_key = prompt_key
        self._reference: Side | None = None
        self._changed: list[tuple[Any, float]] = []

    def find_real(self, trainer: Any, probe: Tensor) -> tuple[RealSide | None, list[str]]:
        """Choose real images of the prompts, or for another reference any, where a kernel takes its width from them."""
        shape = tuple(probe.shape[1:])
        if self.reference == "data":
            return self._real_images_of_prompts(trainer, shape)
        if self.kernel.gamma is not None or not self.kernel.takes_width:
            return None, []
        try:
            real, _ = random_real_side(trainer, self.real_images, self.image_key, self.n_samples, self.seed, shape)
        except ValueError as error:
            if self.real_images is not None:
                raise
            return None, [f"there are no real images to take the kernel's width from. {error}".removesuffix(".")]
        return real, []

    def charts(self) -> dict[str, list[str]]:
        """Return which values share a chart, by its title."""
        return report.charts(self.num_modes, self.reference)

    def prepare(self, trainer: Any, pl_module: Any) -> None:
        """Prepare what conditional monitors share, and encode the reference unless a checkpoint held it."""
        super().prepare(trainer, pl_module)
        if self.reference == "data" and self._real is not None:
            images, share = self.read_share(trainer, self._real), self.share(trainer, len(self._real))
            self._reference = self._side(images, torch.tensor(share, dtype=torch.long)).gathered()
        elif self._reference is None:
            samples = self.draw(trainer, pl_module, self.share(trainer))
            self._reference = self._side(samples, self._indices).gathered()
        saved, encoded = self._reference.features.shape[1], self._no_features.shape[1]
        if saved != encoded:
            raise ValueError(
                f"Expected `output_encoder` to return {saved} values like the features of the reference in the "
                f"checkpoint, but got {encoded}. Resume with the encoder that the run began with."
            )

    def collect(self, samples: Tensor) -> None:
        """Encode this process's samples."""
        self._share = self._side(samples, self._indices)

    def measure(self, trainer: Any, samples: Tensor) -> dict[str, float]:
        """Return the eigenvalues and their total, and find the prompts that they are about."""
        assert self._reference is not None
        self._current = self._share.gathered()
        sides = (self._current.features, self._reference.features.to(self._current.features))
        prompts = [self.prompt_features(torch.arange(len(side), device=side.device)) for side in sides]

        def split(num_modes: int) -> PromptSplitModes:
            return prompt_split(
                sides[0],
                prompts[0],
                sides[1],
                prompts[1],
                output_kernel=self.kernel,
                prompt_kernel=self.prompt_kernel,
                num_modes=num_modes,
                num_features=self.num_features,
                seed=self.seed,
            )

        names = [self.prompts.names(len(side)) for side in sides]
        self._found: Disagreement = disagreement(split, self.num_modes, *names)
        self._changed = self._found.changed
        return report.values(self._found, self.num_modes)

    def figures(self, samples: Tensor) -> dict[str, Figure]:
        """Draw the curves, the prompts of the modes and the prompts that differ most."""
        pictures, signs = self._pictures(), report.names(self.num_modes).values()
        curves = [[[check[name] for check in self.history] for name in names] for names in (["total"], *signs)]
        epochs = [check["epoch"] for check in self.history]
        return {
            "curves": disagreement_curves(epochs, curves[0][0], curves[1], curves[2], pictures.against),
            "modes": pictures.modes(),
            "prompts": pictures.changed(),
        }

    def after_check(self, trainer: Any) -> None:
        """Say a line about the check, and send the loggers the table of prompts."""
        check, step = self.history[-1], int(self.history[-1]["step"])
        tell(report.line(check, self._changed, self.reference))
        columns, rows = self._pictures().table()
        path = self._folder / f"{self.prefix}_prompts_epoch_{int(check['epoch']):04d}_step_{step}.json"
        loggers.log_table(trainer.loggers, f"{self.prefix}/prompts_table", columns, rows, step, path)

    def summary(self) -> str:
        """Return a table of the last check and of the prompts that differed most."""
        return report.table(self.history, self._changed, self.num_modes, self.reference)

    def facts(self) -> dict[str, Any]:
        """Return what is needed to measure the same again."""
        compared = 0 if self._reference is None else len(self._reference.features)
        return super().facts() | {"reference": self.reference, "reference_samples": compared}

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python and tensors only."""
        state = super().state_dict() | {"changed": [list(pair) for pair in self._changed], "range": None}
        if self._value_range is not None:
            state["range"] = list(self._value_range)
        if self._reference is not None and self.reference != "data":
            state["features"] = self._reference.features.cpu()
            state["shown"] = self._reference.shown.half()
        return state

    def resume(self, state_dict: dict[str, Any]) -> None:
        """Take over the reference and the prompts that differed most."""
        self._changed = [(prompt, share) for prompt, share in state_dict["changed"]]
        if state_dict["range"] is not None:
            self._value_range = (state_dict["range"][0], state_dict["range"][1])
        if "features" in state_dict:
            self._reference = Side(state_dict["features"], state_dict["shown"].float())

    def _check(self, trainer: Any, pl_module: Any) -> None:
        known = len(self.history)
        super()._check(trainer, pl_module)
        if self.reference == "previous" and len(self.history) > known:  # it went well on every process
            self._reference = self._current

    def _settings(self) -> dict[str, Any]:
        encoders = {encoder.name: encoder.described() for encoder in (self.output_encoder, self.prompt_encoder)}
        return super()._settings() | {"reference": self.reference, "num_modes": self.num_modes} | encoders

    def _real_images_of_prompts(self, trainer: Any, shape: tuple[int, ...]) -> tuple[RealSide, list[str]]:
        source, notes = compared_images(trainer, self.real_images, self.image_key)

        def choose() -> list[int]:
            def progress(loader: Any) -> Any:
                return self.progress(trainer, loader, "prompts of real images")

            return choose_by_prompt(source, self.prompt_key, self.prompts, self.n_samples, self.seed, progress)

        chosen = on_rank_zero(trainer, choose)
        if len(chosen) < self.n_samples:
            notes.append(
                f"only {len(chosen)} real images, as many of each prompt, are there to compare {self.n_samples} "
                "generated ones with"
            )
        return RealSide(source, chosen, shape), notes

    def _side(self, images: Tensor, positions: Tensor) -> Side:
        """Return this process's share of a side."""
        some = images[positions.to(images.device) < KEPT * len(self.prompts)]
        return Side(self.encode(images), smaller(some))

    def _pictures(self) -> Pictures:
        assert self._reference is not None
        sides = (self._current, self._reference)
        lows, highs = ([float(f(side.shown)) for side in sides] for f in (torch.min, torch.max))
        value_range = self._value_range or (min(lows), max(highs))
        against = report.AGAINST[self.reference]
        return Pictures(self._found, *sides, self.prompts, value_range, against)

# SPDX-License-Identifier: Apache-2.0
"""DisagreementMonitor: for which prompts a conditional generator differs from the data or from what it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.integration.weights import Weights
from genmonitor.callbacks.schedule import Schedule
from genmonitor.encoders.frozen import Encoder
from genmonitor.evaluation.data.images import ImageKey
from genmonitor.evaluation.data.real_subset import PromptKey
from genmonitor.evaluation.disagreement import DisagreementEvaluator, Reference
from genmonitor.evaluation.sampling.sampler import PromptedSampleFn, Sampler
from genmonitor.kernels import Kernel
from genmonitor.monitoring.failures import OnError


class DisagreementMonitor(GenerativeMonitor):
    """Logs, each epoch, how far the model's outputs differ from a reference's, and for which prompts.

    The reference is the real images of the same prompts ("data"), the model as it was at the start of training
    ("start") or at the previous evaluation ("previous", the first being compared with the start). The last two have the
    seeds of the current samples: what differs is the model alone, and a model that has not moved gives 0. Against
    "data" real images would be above 0 too, since they are others.

    The keys: `disagreement/top_1`, … the largest positive eigenvalues of PromptSplit, modes of outputs and prompts that
    the model has and the reference lacks; `disagreement/bottom_1`, … the lowest negative ones, what the reference has
    and the model lacks; 0 where there are fewer. At most 1 in size together, so that a prompt whose outputs all changed
    has at most its part of the samples. `disagreement/total`, Σ λ log(S / λ) over all positive ones, S their sum, also
    grows with the number of modes; where the samples are too many for an exact value (see `prompt_split`) there is its
    standard error too, `disagreement/total_error`. And `disagreement/sampling_seconds`, `/metric_seconds`,
    `/images_seen`.

    An alert names the prompts that moved away from the data: at two evaluations in a row the samples of a prompt are
    farther from the real images of the same prompt than at its best evaluation before, with at least twice the squared
    MMD of their features, and that is no chance. A generator that does not change raises at most one such alert in 1000
    evaluations, for all prompts together, even if each evaluation has samples of its own. A prompt that gives the
    images of another one is found at the second evaluation, from some 50 samples of each prompt on. Prompts with fewer
    than 8 samples or real images are left out; where all have fewer, the alert is about all samples together. Against
    "start" and "previous" there are none: a model that learns moves away from what it was.

    A table names the prompts that differ most, with samples of both sides and, against "data", the squared MMD that
    alerts are about: a `wandb.Table`, a text and a figure in TensorBoard, a figure and a JSON file in the run's folder.

    Args:
        prompts: strings, or class labels as integers. Sample i has prompt i modulo their number, at every evaluation.
        n_samples: images generated at each evaluation, a multiple of the number of prompts, so that every prompt counts
            alike; None for the first one from 1000 on.
        reference: "data", "start" or "previous".
        num_modes: how many modes of either sign are logged.
        output_encoder: a callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
            `genmonitor.encoders.image_encoder` makes published ones.
        prompt_encoder: from a list of n strings, or labels int64 [n], to features [n, e]; or the name of a published
            one on this machine, such as "clip" or "minilm", see `text_encoder`; None for one-hot labels. Modules are
            frozen and kept out of the trained module.
        kernel: of outputs, None for a Gaussian. Its width comes from real images where it has none.
        prompt_kernel: of prompts. None for the cosine where `kernel` is one, else for a Gaussian, which takes its width
            from the prompts or, without a `prompt_encoder`, keeps classes apart.
        num_features: random features in place of exact kernels, see `PromptSplit`: for more than some 10,000 samples.
        prompt_key: for "data", where the prompts of real images are in a batch of `real_images` or, without them, of
            the Trainer's data: None for the labels of (image, label), or "label" or "caption" and the like of a
            dictionary; else a key, an index or a callable.
        every_n_epochs: evaluate in every n-th epoch, at the end of validation if there is any, else at the end of the
            epoch.
        every_n_train_steps: evaluate after the first training batch and then after every n-th instead.
        sample_fn: `sample_fn(pl_module, prompts)` returns an image for each prompt [n, C, H, W]; prompts are a list of
            strings, or labels as int64 [n] on the module's device. None calls `pl_module.sample_prompts(prompts)`.
        sample_batch_size: images per call of it, and samples per call of an encoder.
        real_images: a Dataset, DataLoader or tensor; None for those of the Trainer: validation data
            if there are any, else training data.
        image_key: where the images are in a batch: None to look for them, else a key, an index or a callable.
        seed: of the samples and of the choice of real images.
        weights: which weights to evaluate where Lightning's WeightAveraging runs: "auto" for the averaged ones where
            there are any, "raw" or "averaged".
        evaluate_on: the device of metrics and encoders, such as "cpu" where training leaves no memory, or "cuda:1";
            samples are moved there. None for the device that trains, or the CPU where that is MPS, which has no
            float64.
        on_alert: called on rank zero with the text of each alert.
        on_error: "warn" skips an evaluation that fails, and switches the monitor off after 3 in a row; "raise" lets it
            stop the run. A wrong configuration always raises, before the first training step.
        verbose: print a line per evaluation, and at the end a table and where the report is. Warnings and alerts are
            given in any case.
        prefix: what log keys and files begin with; two monitors of a Trainer need different ones.

    References:
        PromptSplit: Revealing Prompt-Level Disagreement in Generative Models (arXiv 2602.04009).

    Example:
        >>> DisagreementMonitor(range(30), reference="previous").sampler.n_samples
        1020
    """

    evaluator: DisagreementEvaluator

    def __init__(
        self,
        prompts: Sequence[str] | Sequence[int] | Tensor,
        n_samples: int | None = None,
        *,
        reference: Reference = "data",
        num_modes: int = 5,
        output_encoder: Encoder | None = None,
        prompt_encoder: Encoder | str | None = None,
        kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        num_features: int | None = None,
        prompt_key: PromptKey = None,
        every_n_epochs: int = 1,
        every_n_train_steps: int | None = None,
        sample_fn: PromptedSampleFn | None = None,
        sample_batch_size: int = 100,
        real_images: Any = None,
        image_key: ImageKey = None,
        seed: int = 0,
        weights: Weights = "auto",
        evaluate_on: str | torch.device | None = None,
        on_alert: Callable[[str], Any] | None = None,
        on_error: OnError = "warn",
        verbose: bool = True,
        prefix: str = "disagreement",
    ) -> None:
        evaluator = DisagreementEvaluator(
            prompts,
            n_samples,
            reference=reference,
            num_modes=num_modes,
            output_encoder=output_encoder,
            prompt_encoder=prompt_encoder,
            kernel=kernel,
            prompt_kernel=prompt_kernel,
            num_features=num_features,
            prompt_key=prompt_key,
            seed=seed,
            batch_size=sample_batch_size,
            prefix=prefix,
        )
        sampler = Sampler(evaluator.n_samples, evaluator.prompts, sample_fn, sample_batch_size, seed)
        super().__init__(
            evaluator,
            sampler,
            Schedule(every_n_epochs, every_n_train_steps),
            real_images=real_images,
            image_key=image_key,
            weights=weights,
            evaluate_on=evaluate_on,
            on_alert=on_alert,
            on_error=on_error,
            verbose=verbose,
        )

    @property
    def kernel(self) -> Kernel:
        """The kernel of outputs, with its gamma once it is known."""
        return self.evaluator.kernel

    @property
    def prompt_kernel(self) -> Kernel:
        """The kernel of prompts, with its gamma once it is known."""
        return self.evaluator.prompt_kernel

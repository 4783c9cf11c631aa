# SPDX-License-Identifier: Apache-2.0
"""DisagreementMonitor: for which prompts a conditional generator differs from the data or from what it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from torch import Tensor

from genmonitor.callbacks.base import MonitorOptions, PromptedMonitor
from genmonitor.encoders.frozen import Encoder
from genmonitor.evaluation.disagreement import DisagreementEvaluator
from genmonitor.evaluation.settings import DisagreementSettings, Reference
from genmonitor.images.by_prompt import PromptKey
from genmonitor.kernels import Kernel


class DisagreementMonitor(PromptedMonitor):
    """Logs, each epoch, how far the model's outputs differ from a reference's, and for which prompts.

    The reference is the real images of the same prompts ("data") or the model as it was, at the start of training
    ("start") or at the previous evaluation ("previous"). The first evaluation is compared with the start. Those models
    have the seeds of the current samples: the model alone differs, and one that has not moved gives 0. Against
    "data" real images would be above 0 too, since they are others: about at the baseline.

    The keys: `disagreement/top_1`, … the largest positive eigenvalues of PromptSplit, modes of outputs and prompts that
    the model has and the reference lacks; `disagreement/bottom_1`, … the lowest negative ones, what the reference has
    and the model lacks; 0 where there are fewer. At most 1 in size together, so that a prompt whose outputs all changed
    has at most its part of the samples. `disagreement/total`, Σ λ log(S / λ) over all positive ones, S their sum, also
    grows with the number of modes; of many samples it is that of 2048 (see `prompt_split`).
    `disagreement/baseline_total` is what the same samples get with their sides drawn at random within each prompt, as
    two sets of one model do. `disagreement/p` is the p-value of that: above 0.05 there is no evidence of a difference.
    And `disagreement/sampling_seconds`, `/metric_seconds`, `/images_seen`.

    An alert names the prompts that moved away from the data. At two evaluations in a row their samples are farther from
    the real images of the same prompt than at the best evaluation before, by more than chance. The squared MMD of their
    features is at least twice as large. A generator that does not change raises at most one such alert in 1000
    evaluations, for all prompts together, even if each evaluation has samples of its own. A prompt that gives the
    images of another one is found at the second evaluation, from some 50 samples of each prompt on. Prompts with fewer
    than 8 samples or real images are left out; where all have fewer, the alert is about all samples together. Against
    "start" and "previous" there are none: a model that learns moves away from what it was.

    A table names the prompts that differ by more than chance, at one level for all of them, the most first. It has
    samples of both sides and, against "data", the squared MMD that alerts are about. It is a `wandb.Table`, a text and
    a figure in TensorBoard, and a figure and a part of the run's file in its folder.

    Args:
        prompts: Strings, or class labels as integers. Sample i has prompt i modulo their number, at every evaluation.
        n_samples: Images generated at each evaluation, a multiple of the number of prompts, so that every prompt counts
            alike; None for the first one from 1000 on.
        reference: "data", "start" or "previous".
        num_modes: How many modes of either sign are logged.
        output_encoder: A callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
            `genmonitor.encoders.image_encoder` makes published ones.
        prompt_encoder: From a list of n strings, or labels int64 [n], to features [n, e]. Or the name of a published
            one on this machine, such as "clip" or "minilm", see `text_encoder`; None for one-hot labels. Modules are
            frozen and kept out of the trained module.
        kernel: Of outputs, None for a Gaussian. Its gamma comes from real images where it has none.
        prompt_kernel: Of prompts. None for the cosine where `kernel` is one, else for a Gaussian, which takes its gamma
            from the prompts or, without a `prompt_encoder`, keeps classes apart.
        num_features: Random features in place of exact kernels, see `PromptSplit`: for more than some 10,000 samples.
        eta: Weight of the reference, 1 for as much as the model.
        prompt_key: For "data", where the prompts of real images are in a batch of `real_images` or, without them, of
            the Trainer's data: None for the labels of (image, label), or "label" or "caption" and the like of a
            dictionary; else a key, an index or a callable.
        seed: Of the samples and of the choice of real images.
        prefix: What log keys and files begin with; two monitors of a Trainer need different ones.
        **options: Those that all monitors share, by keyword: see `MonitorOptions`. Of the Trainer's `real_images` it
            takes validation data if there are any, else training data.

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
        reference: Reference = DisagreementSettings.reference,
        num_modes: int = DisagreementSettings.num_modes,
        kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        num_features: int | None = None,
        eta: float = DisagreementSettings.eta,
        seed: int = DisagreementSettings.seed,
        output_encoder: Encoder | None = None,
        prompt_encoder: Encoder | str | None = None,
        prompt_key: PromptKey = None,
        prefix: str = "disagreement",
        **options: Unpack[MonitorOptions],
    ) -> None:
        settings = DisagreementSettings.of(
            prompts,
            n_samples,
            reference,
            num_modes=num_modes,
            kernel=kernel,
            prompt_kernel=prompt_kernel,
            num_features=num_features,
            eta=eta,
            seed=seed,
        )
        super().__init__(
            settings,
            DisagreementEvaluator,
            options,
            output_encoder=output_encoder,
            prompt_encoder=prompt_encoder,
            prompt_key=prompt_key,
            prefix=prefix,
        )

# SPDX-License-Identifier: Apache-2.0
"""DisagreementMonitor: finds the prompts for which a conditional generator differs from the data or its past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from torch import Tensor

from genmonitor.callbacks.options import MonitorOptions
from genmonitor.callbacks.prompted import PromptedMonitor
from genmonitor.encoders.frozen import Encoder
from genmonitor.evaluation.disagreement import DisagreementEvaluator
from genmonitor.evaluation.settings import DisagreementSettings, Reference
from genmonitor.images.prompts import PromptKey
from genmonitor.kernels import Kernel


class DisagreementMonitor(PromptedMonitor):
    """Logs, each epoch, the disagreement of the model's outputs with a reference, and the prompts it comes from.

    The reference is the real images of the same prompts ("data"), the model at the start of training ("start") or the
    model at the previous evaluation ("previous"). The first evaluation is compared with the start. Past models draw
    with the seeds of the current samples, so a model that has not changed gives 0. Against "data" even other real
    images give values above 0, about those of the baseline.

    `disagreement/top_1`, … are the largest positive eigenvalues of PromptSplit: modes of outputs and prompts that the
    model has and the reference lacks. `disagreement/bottom_1`, … are the lowest negative ones: modes that the reference
    has and the model lacks. Missing ones are 0. Their sizes add up to at most 1, so a prompt whose outputs all changed
    contributes at most its part of the samples.

    `disagreement/total` is Σ λ log(S / λ) over all positive eigenvalues with sum S. It also grows with the number of
    modes, and uses at most 2048 samples (see `prompt_split`). `disagreement/baseline_total` is the total of the same
    samples with their sides drawn at random within each prompt. `disagreement/p` is the p-value against such random
    sides: above 0.05 there is no evidence of a difference. `disagreement/sampling_seconds`, `/metric_seconds` and
    `/images_seen` measure the cost.

    An alert names the prompts that moved away from the data. At two evaluations in a row their samples are farther from
    the real images of the same prompt than at the best evaluation before, by more than chance. The squared MMD of their
    features is at least twice as large. A generator that does not change raises at most one such alert in 1000
    evaluations, for all prompts together, even if each evaluation has new samples. A prompt that gives the images of
    another prompt is found at the second evaluation, with about 50 samples of each prompt or more. Prompts with fewer
    than 8 samples or real images are left out. If all have fewer, the alert is about all samples together. Against
    "start" and "previous" there are no alerts, since a model that learns moves away from its past.

    A table lists the prompts that differ by more than chance, at one level for all of them, the largest difference
    first. It shows samples of both sides and, against "data", the squared MMD on which alerts are based. Loggers get it
    as a `wandb.Table` or as a text and a figure in TensorBoard, and the report has it too.

    Args:
        prompts: Strings, or class labels as integers. Sample i has prompt i modulo their number, at every evaluation.
        n_samples: Number of images generated at each evaluation, a multiple of the number of prompts, so that every
            prompt counts alike; None for the smallest such multiple from 1000 on.
        reference: "data", "start" or "previous".
        num_modes: Number of modes of either sign to log.
        output_encoder: Callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
            `genmonitor.encoders.image_encoder` makes published ones.
        prompt_encoder: Callable or Module from a list of n strings, or labels int64 [n], to features [n, e]. Or the
            name of a published one on this machine, such as "clip" or "siglip", see `text_encoder`; None for one-hot
            labels. Modules are frozen and kept out of the trained module.
        kernel: Kernel of outputs; None for a Gaussian. A gamma that is not given comes from real images.
        prompt_kernel: Kernel of prompts; None for the cosine if `kernel` is one, else for a Gaussian. Its gamma comes
            from the prompts or, without a `prompt_encoder`, is large enough to keep classes apart.
        num_features: Number of random features in place of exact kernels, for more than about 10,000 samples, see
            `PromptSplit`.
        eta: Weight of the reference; 1 weighs both sides alike.
        prompt_key: Position of the prompts in a batch of real images, for "data": a key, an index or a callable. None
            for the labels of (image, label), or a dictionary's "label", "caption" and the like.
        seed: Seed of the samples and of the choice of real images.
        prefix: Prefix of log keys and files; two monitors of a Trainer need different ones.
        **options: Those that all monitors share, by keyword: see `MonitorOptions`. By default the real images are the
            Trainer's validation data, else its training data.

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

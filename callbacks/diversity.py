# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor: measures the variety of a generator and the part of it that its prompts explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from torch import Tensor
from torchmetrics import Metric, MetricCollection

from genmonitor.callbacks.options import MonitorOptions
from genmonitor.callbacks.prompted import PromptedMonitor
from genmonitor.encoders.frozen import Encoder
from genmonitor.evaluation.diversity import DiversityEvaluator
from genmonitor.evaluation.settings import DiversitySettings
from genmonitor.functional import W1KPCalibration
from genmonitor.kernels import Kernel


class DiversityMonitor(PromptedMonitor):
    """Logs, each epoch, the variety of the images and, for a conditional generator, the part that prompts explain.

    `diversity/vendi` and `diversity/rke` are the number of modes of the images; rare modes count less in RKE. With
    prompts, `diversity/scendi` is the variety that the model adds by itself and `diversity/scendi_prompt` the variety
    that the prompts explain, both at least 1. `diversity/prompt_share` in [0, 1] is the explained part, and
    `diversity/one_prompt_share` the part that one prompt for all images would explain. With at most 2000 samples,
    `diversity/conditional_vendi` counts the modes among the images of one prompt, and `diversity/information_vendi` is
    the factor by which prompts multiply them. Both are at least 1. With a calibration, `diversity/w1kp` in [0, 1] is
    the similarity of the images of one prompt, averaged over the prompts.

    If the encoders are the two sides of one CLIP or SigLIP, `diversity/clip_score` in [-100, 100] is the similarity of
    images to their prompts. `/clip_score_shuffled` is the same with the prompts of other images, and `/real_clip_score`
    that of real images with their captions, if any. Findings name prompts that the model may ignore, and the report has
    a table of all prompts.

    With real images there are `diversity/precision`, `/recall`, `/density` and `/coverage` (5 nearest neighbors) too.
    `/real_vendi` and `/real_rke`, constant over the run, are the scores of `n_samples` real images.
    `/sampling_seconds`, `/metric_seconds` and `/images_seen` measure the cost.

    The Vendi score and Scendi grow with `n_samples`, RKE hardly does. Compare only runs with the same `n_samples`.

    An alert names the prompts that lost their variety. At two evaluations in a row their samples have far less spread
    than at the best evaluation before, by more than chance. Spread is one minus the mean kernel of two samples of the
    prompt. Since spread falls for all prompts as a model learns, an alert needs a prompt to keep at most a quarter of
    what a typical prompt keeps. Where a typical prompt keeps at most a tenth, the limit is a quarter of the best
    spread.

    A generator that does not change raises at most one such alert in 1000 evaluations, for all prompts together, even
    if each evaluation has new samples. A prompt whose samples have all become the same is found at the second
    evaluation, with about 16 samples of each prompt or more. Prompts with fewer than 8 samples are left out. If all
    have fewer, or there are no prompts, the alert is about all samples together.

    A model that begins with noise loses spread as it learns: a best spread above that of all real images is replaced by
    theirs. Without real images, such a start may raise an alert.

    Args:
        prompts: Strings, or class labels as integers. Sample i has prompt i modulo their number, at every evaluation.
            None for a generator without prompts; the modes that are drawn are then those of kernel PCA.
        n_samples: Number of images generated at each evaluation; None for 1000, or one per prompt if there are more
            prompts.
        output_encoder: Callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
            `genmonitor.encoders.image_encoder` makes published ones.
        prompt_encoder: Callable or Module from a list of n strings, or labels int64 [n], to features [n, e]. Or the
            name of a published one on this machine, such as "clip" or "siglip", see `text_encoder`; None for one-hot
            labels. Modules are frozen and kept out of the trained module. Your own encoders declare a common space of
            images and prompts by an attribute `space` of equal value.
        kernel: Kernel of outputs; None for the cosine. A Gaussian needs `num_features`; its gamma comes from real
            images.
        prompt_kernel: Kernel of prompts; None for the cosine.
        num_features: Number of random Fourier features of each Gaussian kernel.
        rcond: Cutoff of prompt eigenvalues, see `ScendiScore`.
        calibration: Calibration of the output encoder's features, from `genmonitor.functional.calibrate` or
            `W1KPCalibration.load`, with which W1KP is measured.
        extra_metrics: MetricCollection, or dictionary of metrics, that take features by `update(features)`,
            `update(features, real=...)` or, for outputs and prompts, `update(outputs, prompts)`. An example is
            `{"vendi_2": VendiScore(order=2), "novel": PromptSplit(num_modes=5)}`, where the latter is KEN against real
            images. Each image is encoded once for all of them.
        seed: Seed of the samples and of the choice of real images.
        prefix: Prefix of log keys and files; two monitors of a Trainer need different ones.
        **options: Those that all monitors share, by keyword: see `MonitorOptions`. By default the real images are the
            Trainer's validation data, else its training data, if they have the shape of the generated images.

    References:
        The Vendi Score: A Diversity Evaluation Metric for Machine Learning (arXiv 2210.02410).
        Scendi Score: Prompt-Aware Diversity Evaluation via Schur Complement of CLIP Embeddings (arXiv 2412.18645).
        Conditional Vendi Score: Prompt-Aware Diversity Evaluation for Generative AI Models and LLMs (arXiv 2411.02817).

    Example:
        >>> DiversityMonitor(range(10), n_samples=500).sampler.prompts.of([9, 10, 11])
        tensor([9, 0, 1])
    """

    evaluator: DiversityEvaluator

    def __init__(
        self,
        prompts: Sequence[str] | Sequence[int] | Tensor | None = None,
        n_samples: int | None = None,
        *,
        kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        num_features: int | None = None,
        rcond: float | None = None,
        calibration: W1KPCalibration | None = None,
        seed: int = DiversitySettings.seed,
        output_encoder: Encoder | None = None,
        prompt_encoder: Encoder | str | None = None,
        extra_metrics: MetricCollection | Mapping[str, Metric] | None = None,
        prefix: str = "diversity",
        **options: Unpack[MonitorOptions],
    ) -> None:
        settings = DiversitySettings.of(
            prompts,
            n_samples,
            kernel=kernel,
            prompt_kernel=prompt_kernel,
            num_features=num_features,
            rcond=rcond,
            calibration=calibration,
            seed=seed,
        )
        super().__init__(
            settings,
            DiversityEvaluator,
            options,
            output_encoder=output_encoder,
            prompt_encoder=prompt_encoder,
            extra_metrics=extra_metrics,
            prefix=prefix,
        )

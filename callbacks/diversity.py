# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor: how varied a generator is, and how much of that its prompts explain where it has any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from torch import Tensor
from torchmetrics import Metric, MetricCollection

from genmonitor.callbacks.base import MonitorOptions, PromptedMonitor
from genmonitor.encoders.frozen import Encoder
from genmonitor.evaluation.diversity import DiversityEvaluator
from genmonitor.evaluation.settings import DiversitySettings
from genmonitor.functional import W1KPCalibration
from genmonitor.kernels import Kernel


class DiversityMonitor(PromptedMonitor):
    """Logs, each epoch, how varied the images are and, of a conditional generator, how much its prompts explain.

    The keys: `diversity/vendi` and `diversity/rke`, how many modes the images have, rare ones counting less in RKE.
    With prompts `diversity/scendi`, the variety that the model adds by itself, and `diversity/scendi_prompt`, that of
    what the prompts explain, both at least 1. `diversity/prompt_share` in [0, 1] is the part of the variety that the
    prompts explain. Up to 2000 samples `diversity/conditional_vendi` counts the modes among the images of one prompt;
    `diversity/information_vendi` says by what factor prompts multiply these. Both are at least 1. With a calibration
    `diversity/w1kp` in [0, 1], how alike the images of one prompt are, averaged over the prompts: high is similar, low
    is varied.

    If the encoders are the two sides of one CLIP or SigLIP, `diversity/clip_score` in [-100, 100] says how close images
    are to their prompts. Beside it is `/clip_score_shuffled`, the same with the prompts of others, and
    `/real_clip_score`, that of real images with their captions if they have any. Prompts that may be ignored are named,
    and the report has a table of all.

    With real images also `diversity/precision`, `/recall`, `/density`, `/coverage`
    (5 nearest neighbors) and, constant over the run, `/real_vendi` and `/real_rke`, what so many real images get.
    And `diversity/sampling_seconds`, `/metric_seconds`, `/images_seen`.

    The Vendi score and Scendi grow with `n_samples`, RKE hardly does: compare runs with the same one only.

    An alert names the prompts that lost their variety. Their samples are far less spread than at the best evaluation
    before, at two evaluations in a row, and that is no chance. Spread is one minus the mean kernel of two samples of
    the prompt. What is left of it must be a quarter, or less, of what a typical prompt has left, since all fall as a
    model learns what its prompts mean. Where a typical one has at most a tenth left, it is a quarter of the best. A
    generator that does not change raises at most one such alert in 1000 evaluations, for all prompts together, even if
    each evaluation has samples of its own. A prompt whose samples have all become one is found at the second
    evaluation, from some 16 samples of each prompt on. Prompts with fewer than 8 samples are left out; where all have
    fewer, or there are no prompts, the alert is about all samples together. A model that begins with noise loses spread
    as it learns: a best beyond the spread of all real images counts as theirs. Without real images, such a start may
    raise an alert.

    Args:
        prompts: Strings, or class labels as integers. Sample i has prompt i modulo their number, at every evaluation.
            None for a generator without prompts: the modes drawn are then those of kernel PCA.
        n_samples: Images generated at each evaluation; None for 1000, or for one per prompt where there are more.
        output_encoder: A callable or Module from images [n, C, H, W] to features [n, d]; None for the pixels.
            `genmonitor.encoders.image_encoder` makes published ones.
        prompt_encoder: From a list of n strings, or labels int64 [n], to features [n, e]. Or the name of a published
            one on this machine, such as "clip" or "minilm", see `text_encoder`; None for one-hot labels. Modules are
            frozen and kept out of the trained module. Encoders of your own whose features of images and prompts can be
            compared say so by an attribute `space` of the same value.
        kernel: Of outputs, None for the cosine. A Gaussian needs `num_features`; its gamma comes from real images.
        prompt_kernel: Of prompts, None for the cosine.
        num_features: Random Fourier features of each Gaussian kernel.
        rcond: See `ScendiScore`.
        calibration: Of the output encoder's features, from `genmonitor.functional.calibrate` or `W1KPCalibration.load`;
            with it W1KP is measured.
        extra_metrics: A MetricCollection, or a dictionary of metrics, that take features by `update(features)`,
            `update(features, real=...)` or, of outputs and prompts, `update(outputs, prompts)`: such as
            `{"vendi_2": VendiScore(order=2), "novel": PromptSplit(num_modes=5)}`, the latter being KEN against real
            images. They are given the features that the encoders make, each image's once.
        seed: Of the samples and of the choice of real images.
        prefix: What log keys and files begin with; two monitors of a Trainer need different ones.
        **options: Those that all monitors share, by keyword: see `MonitorOptions`. It takes the Trainer's `real_images`
            where they are images of the generated ones' shape: validation data if there are any, else training data.

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

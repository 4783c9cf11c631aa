# SPDX-License-Identifier: Apache-2.0
"""Prompt fidelity: similarity of images to their prompts and to other prompts, and the prompts that are ignored."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from genmonitor._validation import check_features, check_integers, check_same_length
from genmonitor.functional.permutation import MIN_SAMPLES


class PromptFidelity(NamedTuple):
    """Result of `prompt_fidelity` for P prompts; scores are 100 times a cosine, in [-100, 100].

    Attributes:
        score: Mean over all images with their own prompts, float64 scalar: CLIPScore, but not clipped at 0.
        shuffled: Mean over all images with all prompts but their own, float64 scalar: the score of images that ignore
            their prompts.
        by_prompt: Mean over the images of each prompt, float64 [P].
        of_others: Mean of each prompt over the images of all other prompts, float64 [P].
        p_value: P-value that images of a prompt are no closer to it than images of other prompts (Mann-Whitney,
            one-sided), float64 [P] on the CPU. NaN for a prompt with fewer than 8 images.
    """

    score: Tensor
    shuffled: Tensor
    by_prompt: Tensor
    of_others: Tensor
    p_value: Tensor


def prompt_fidelity(outputs: Tensor, prompts: Tensor, prompt_index: Tensor) -> PromptFidelity:
    """Compare images with their prompts, in a space that both share, such as CLIP's.

    Args:
        outputs: Features of images [N, D].
        prompts: Features of the distinct prompts [P, D], P at least 2; a zero vector has similarity 0.
        prompt_index: Index of the prompt of each image [N], integers in 0..P-1; each prompt has an image.

    Raises:
        TypeError: If features are not a tensor of real numbers, or `prompt_index` is not one of integers.
        ValueError: If dimensions differ, values are not finite, or a prompt has no image.

    References:
        Hessel et al., "CLIPScore: A Reference-free Evaluation Metric for Image Captioning", arXiv 2104.08718.

    Example:
        >>> prompts = torch.eye(3)
        >>> index = torch.arange(30) % 3
        >>> images = prompts[index].where(index[:, None] != 2, torch.tensor([1.0, 1.0, 0.0]))  # the last is ignored
        >>> found = prompt_fidelity(images, prompts, index)
        >>> found.by_prompt.tolist(), (found.p_value > 0.05).tolist()
        ([100.0, 100.0, 0.0], [False, False, True])
    """
    from scipy.stats import mannwhitneyu

    prompts = check_features("prompts", prompts)
    outputs = check_features("outputs", outputs, prompts.shape[1])
    prompt_index = check_integers("prompt_index", prompt_index).to(outputs.device)
    check_same_length("outputs", outputs, "prompt_index", prompt_index)
    count = len(prompts)
    if count < 2 or prompt_index.unique().tolist() != list(range(count)):
        raise ValueError(
            f"Expected `prompt_index` to hold each of 0..{count - 1}, of two prompts or more, but got "
            f"{prompt_index.unique().tolist()[:8]}. Leave out prompts without images."
        )
    x, t = normalize(outputs.double()), 100 * normalize(prompts.double().to(outputs.device))
    images = prompt_index.bincount()
    own = torch.zeros_like(t).index_add_(0, prompt_index, x).mul(t).sum(1)
    others = t @ x.sum(0) - own
    p = torch.full((count,), torch.nan, dtype=torch.float64)
    for i in (images >= MIN_SAMPLES).nonzero()[:, 0].tolist():  # one prompt at a time: all would be [N, P]
        scores, mine = (x @ t[i]).cpu(), (prompt_index == i).cpu()
        p[i] = float(mannwhitneyu(scores[mine], scores[~mine], alternative="greater").pvalue)
    n = len(x)
    means = own.sum() / n, others.sum() / (n * (count - 1))
    return PromptFidelity(*means, own / images, others / (n - images), p)

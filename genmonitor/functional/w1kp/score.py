# SPDX-License-Identifier: Apache-2.0
"""W1KP: the similarity of the outputs of one prompt, on a scale calibrated for their embedding."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor._validation import check_some_prompts
from genmonitor.functional.w1kp.calibration import (
    W1KPCalibration,
    check_calibration,
    check_outputs,
    similarities,
)
from genmonitor.functional.w1kp.subsets import (
    HIGH,
    REUSED,
    closest_pair,
    closest_pairs,
    pair_mean,
    pair_mean_error,
    reusability,
)


@dataclass(frozen=True)
class PromptVariability:
    """Similarity of the outputs of one prompt.

    Attributes:
        prompt: Name of the prompt, or its index if there are no names.
        outputs: Number of outputs.
        w1kp: Mean similarity of all pairs, in [0, 1].
        level: "none", "low", "medium" or "high" similarity.
        reusability: Number of outputs that the prompt is good for, from 1 to 50, where 50 means 50 or more. See
            `prompt_reusability`, which has no limit.
        closest_pair: Rows of the two most similar outputs in the given features.
        closest: Similarity of the closest pair.
        w1kp_k: Expected similarity of the closest pair among k outputs; None without k, or with fewer outputs than k.
        w1kp_k_error: Standard error of `w1kp_k`.
        w1kp_error: Standard error of `w1kp` over draws of the outputs; None for fewer than three outputs.
    """

    prompt: str | int
    outputs: int
    w1kp: float
    level: str
    reusability: int
    closest_pair: tuple[int, int]
    closest: float
    w1kp_k: float | None = None
    w1kp_k_error: float | None = None
    w1kp_error: float | None = None


def w1kp_score(
    features: Tensor,
    prompt_index: Tensor | None = None,
    *,
    calibration: W1KPCalibration | None = None,
    k: int | None = None,
) -> dict[str, Tensor]:
    """Mean similarity 1 - F(‖f_a - f_b‖²) of the outputs of each prompt, averaged over the prompts.

    F is the distribution of such distances in a calibration set. Every pair of outputs of a prompt counts once, so the
    estimate is unbiased for any number of outputs.

    Args:
        features: Embedded outputs [N, D].
        prompt_index: Index of the prompt of each output, integers [N]; None for a single prompt.
        calibration: Calibration F, from `calibrate` or `W1KPCalibration.load`.
        k: Number of outputs, at least 2, to report the expected similarity of the closest pair among them too.

    Returns:
        `w1kp` in [0, 1], high for similar outputs and low for diverse ones. `prompts` is the number of prompts with a
        score, `skipped` the number with a single output and no score. With k, `w1kp_k` is the mean over the prompts
        with at least k outputs, `w1kp_k_error` its standard error from drawing subsets, and `skipped_k` the number of
        prompts with fewer outputs.

    Raises:
        TypeError: If an input is not a tensor of numbers of the right kind.
        ValueError: If there is no calibration or it is of another embedding, values are not finite, lengths differ, k
            is below 2, or no prompt has enough outputs.

    References:
        Tang et al., "Words Worth a Thousand Pictures: Measuring and Understanding Perceptual Variability in
            Text-to-Image Generation", arXiv 2406.08482, Eq. 1.

    Example:
        >>> calibration = W1KPCalibration.of(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0]), dim=1)
        >>> w1kp_score(torch.tensor([[0.0], [1.0], [2.0]]), calibration=calibration)["w1kp"]
        tensor(0.5000, dtype=torch.float64)
    """
    calibration = check_calibration(calibration, k)
    x, index = check_outputs(features, prompt_index, calibration)
    by_prompt = similarities(x, index, calibration)
    scored = [similarity for similarity in by_prompt.values() if len(similarity) > 1]
    check_some_prompts(len(scored), 2)
    skipped = len(by_prompt) - len(scored)
    out = {"w1kp": torch.stack([pair_mean(similarity) for similarity in scored]).mean()}
    out |= {"prompts": torch.tensor(len(scored), device=x.device), "skipped": torch.tensor(skipped, device=x.device)}
    if k is None:
        return out
    large = [similarity for similarity in scored if len(similarity) >= k]
    check_some_prompts(len(large), k)
    generator = torch.Generator().manual_seed(0)
    values, errors = torch.stack([closest_pairs(some, generator, k)[:, -1] for some in large]).unbind(1)
    skipped_k = torch.tensor(len(by_prompt) - len(large), device=x.device)
    return out | {"w1kp_k": values.mean(), "w1kp_k_error": errors.norm() / len(large), "skipped_k": skipped_k}


def w1kp_by_prompt(
    features: Tensor,
    prompt_index: Tensor,
    *,
    calibration: W1KPCalibration | None = None,
    k: int | None = None,
    names: list[str] | None = None,
) -> list[PromptVariability]:
    """List the similarity of the outputs of each prompt, the least diverse first, without prompts of a single output.

    Args:
        features: Same as in `w1kp_score`.
        prompt_index: Same as in `w1kp_score`.
        calibration: Same as in `w1kp_score`.
        k: Same as in `w1kp_score`.
        names: Names of the prompts, by index.

    Raises:
        TypeError: As `w1kp_score` does.
        ValueError: As `w1kp_score` does, or if a prompt has no name.

    Example:
        >>> calibration = W1KPCalibration.of(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0]), dim=1)
        >>> x, index = torch.tensor([[0.0], [2.0], [1.0], [1.5]]), torch.tensor([0, 0, 1, 1])
        >>> [(row.prompt, row.level) for row in w1kp_by_prompt(x, index, calibration=calibration, names=["cat", "dog"])]
        [('dog', 'high'), ('cat', 'none')]
    """
    calibration = check_calibration(calibration, k)
    x, index = check_outputs(features, prompt_index, calibration)
    if names is not None:
        check_names(index, len(names))
    rows = []
    for prompt, similarity in similarities(x, index, calibration).items():
        n = len(similarity)
        if n < 2:
            continue
        values, errors = closest_pairs(similarity, None, min(n, max(REUSED, k or 2)))
        mean = float(values[0])
        name = prompt if names is None else names[prompt]
        a, b = closest_pair(similarity)
        rows_of_prompt = (index == prompt).nonzero()[:, 0].tolist()
        pair, closest = (rows_of_prompt[a], rows_of_prompt[b]), float(similarity[a, b])
        good_for = reusability(values[: REUSED - 1], HIGH)
        of_k, error_of_k = (None, None) if k is None or k > n else (float(values[k - 2]), float(errors[k - 2]))
        level, error = similarity_level(mean), pair_mean_error(similarity)
        rows.append(PromptVariability(name, n, mean, level, good_for, pair, closest, of_k, error_of_k, error))
    check_some_prompts(len(rows), 2)
    return sorted(rows, key=lambda row: row.w1kp, reverse=True)


def similarity_level(value: float) -> str:
    """Return the level of a similarity: none [0, 0.2), low [0.2, 0.4), medium [0.4, 0.85) or high [0.85, 1].

    Args:
        value: Similarity.

    Raises:
        TypeError: If the value is not a number.

    Example:
        >>> [similarity_level(value) for value in (0.0, 0.2, 0.84, 1.0)]
        ['none', 'low', 'medium', 'high']
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"Expected `value` to be a number, such as float(scores['w1kp']), but got {value!r}.")
    # lower limits of the levels of similarity after the first, fitted to human judgments of DreamSim's distances
    return ("none", "low", "medium", "high")[bisect_right((0.2, 0.4, HIGH), value)]


def check_names(index: Tensor, count: int) -> None:
    """Refuse prompt indices that have no name."""
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < count:
        raise ValueError(
            f"Expected `names` to name every prompt, but got {count} names for prompts "
            f"{int(index.min())} to {int(index.max())}. Give one name for each index from 0 on."
        )

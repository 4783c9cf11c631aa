# SPDX-License-Identifier: Apache-2.0
"""W1KP: similarity of the outputs of one prompt, on a scale calibrated for their embedding and human judgment."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor._validation import check_min_samples, check_some_prompts
from genmonitor.functional.w1kp_calibration import (
    W1KPCalibration,
    check_calibration,
    check_outputs,
    similarities,
)
from genmonitor.linalg import chunking

HIGH = 0.85
"""Similarity from which people call two outputs highly similar."""


def expected_closest_pairs(
    features: Tensor,
    *,
    calibration: W1KPCalibration | None = None,
    k: int | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Expected similarity of the closest pair among 2, 3, …, k outputs of one prompt drawn at random.

    All subset sizes use the same random orders of the outputs, so that the values rise with k. Those for 2, the mean
    over all pairs, and for N are exact.

    Args:
        features: Embedded outputs of one prompt [N, D], N at least 2.
        calibration: Same as in `w1kp_score`.
        k: Size of the largest subset; None for N.
        generator: Generator of the random orders, on the CPU; None for one with seed 0.

    Returns:
        Values [k - 1] and their standard errors [k - 1], float64.

    Raises:
        ValueError: As `w1kp_score` does, or if k exceeds N.

    Example:
        >>> calibration = W1KPCalibration.of(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0]), dim=1)
        >>> expected_closest_pairs(torch.tensor([[0.0], [1.0], [2.0]]), calibration=calibration)[0]
        tensor([0.5000, 0.7500], dtype=torch.float64)
    """
    calibration = check_calibration(calibration, k)
    x, index = check_outputs(features, None, calibration)
    check_min_samples("features", x, k or 2)
    values, errors = closest_pairs(similarities(x, index, calibration)[0], generator, k)
    return values, errors


def prompt_reusability(features: Tensor, *, calibration: W1KPCalibration | None = None, cutoff: float = HIGH) -> int:
    """Count the outputs that a prompt is good for: the largest k with no two highly similar outputs expected.

    Args:
        features: Embedded outputs of the prompt [N, D], N at least 2.
        calibration: Same as in `w1kp_score`.
        cutoff: Lowest W1KP score that counts as high similarity.

    Returns:
        Number k from 1 to N; N means that more outputs are needed to find the limit.

    Raises:
        ValueError: As `w1kp_score` does.

    References:
        Tang et al., "Words Worth a Thousand Pictures: Measuring and Understanding Perceptual Variability in
            Text-to-Image Generation", arXiv 2406.08482 (about 50 for Imagen, 200 and more for SDXL and DALL-E 3).

    Example:
        >>> calibration = W1KPCalibration.of(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0]), dim=1)
        >>> prompt_reusability(torch.tensor([[0.0], [0.1], [1.5], [3.0]]), calibration=calibration)
        3
    """
    values, _ = expected_closest_pairs(features, calibration=calibration)
    return reusability(values, cutoff)


def closest_pairs(similarity: Tensor, generator: torch.Generator | None, k: int | None = None) -> Tensor:
    """Return the expected largest similarity among 2, …, k outputs, and its standard error: [2, k - 1]."""
    n = len(similarity)
    k = k or n
    generator = generator or torch.Generator().manual_seed(0)
    # of 1000 random subsets
    orders = torch.rand(1000, n, dtype=torch.float32, generator=generator).argsort(1)[:, :k].to(similarity.device)
    closest = []
    for some in orders.split(max(1, chunking.MEMORY_BUDGET // (4 * 8 * k * k))):
        # the similarity of each output to the closest one before it in the order
        earlier = similarity[some[:, :, None], some[:, None, :]].tril(-1).amax(2)
        closest.append(earlier.cummax(1).values[:, 1:])
    maxima = torch.cat(closest)
    values, errors = maxima.mean(0), maxima.std(0) / len(maxima) ** 0.5
    values[0], errors[0] = pair_mean(similarity), 0
    if k == n:
        values[-1], errors[-1] = similarity.tril(-1).amax(), 0
    return torch.stack([values, errors])


def closest_pair(similarity: Tensor) -> tuple[int, int]:
    """Return the two most similar outputs from their similarities [n, n]; the first of several such pairs."""
    n = len(similarity)
    rows, columns = torch.triu_indices(n, n, offset=1, device=similarity.device)
    best = similarity[rows, columns].argmax()
    return int(rows[best]), int(columns[best])


def pair_mean(similarity: Tensor) -> Tensor:
    """Return the mean similarity of all pairs of outputs from their similarities [n, n]."""
    n = len(similarity)
    return (similarity.sum() - similarity.trace()) / (n * (n - 1))


def pair_mean_error(similarity: Tensor) -> float | None:
    """Return the jackknife standard error of `pair_mean` over draws of the outputs; None for fewer than three."""
    n, of_each = len(similarity), similarity.sum(1) - similarity.diagonal()
    if n < 3:
        return None
    without = (of_each.sum() - 2 * of_each) / ((n - 1) * (n - 2))
    return float(without.std(correction=0) * (n - 1) ** 0.5)


def reusability(values: Tensor, cutoff: float) -> int:
    """Return the largest k, at least 1, whose value among those for 2, 3, … is below the cut-off."""
    return 1 + int((values < cutoff).sum())


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
    reused = 50  # the largest reusability, since the cost is quadratic in it
    rows = []
    for prompt, similarity in similarities(x, index, calibration).items():
        n = len(similarity)
        if n < 2:
            continue
        values, errors = closest_pairs(similarity, None, min(n, max(reused, k or 2)))
        mean = float(values[0])
        name = prompt if names is None else names[prompt]
        a, b = closest_pair(similarity)
        rows_of_prompt = (index == prompt).nonzero()[:, 0].tolist()
        pair, closest = (rows_of_prompt[a], rows_of_prompt[b]), float(similarity[a, b])
        good_for = reusability(values[: reused - 1], HIGH)
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

# SPDX-License-Identifier: Apache-2.0
"""Prompts of a conditional generator, assigned to samples in turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from genmonitor._validation import check_tensor


class Prompts:
    """Prompts that repeat in order: sample i of the global set has prompt i modulo their number.

    Args:
        prompts: Strings; or class labels as integers, in a list, an array or a 1-D tensor.

    Raises:
        ValueError: If there are none, or they are neither all strings nor all integers.

    Example:
        >>> Prompts(["a cat", "a dog"]).of([1, 2])
        ['a dog', 'a cat']
        >>> Prompts(range(3)).of([2, 3, 4])
        tensor([2, 0, 1])
    """

    def __init__(self, prompts: Sequence[str] | Sequence[int] | Tensor) -> None:
        if isinstance(prompts, Tensor):
            prompts = check_tensor("prompts", prompts)
        given = prompts.tolist() if hasattr(prompts, "tolist") else prompts
        values = [] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
        self.are_labels = all(isinstance(x, int) and not isinstance(x, bool) for x in values)
        if not values or not (self.are_labels or all(isinstance(x, str) for x in values)):
            kinds = f"{type(prompts).__name__} of {', '.join(sorted({type(x).__name__ for x in values})) or 'nothing'}"
            if isinstance(given, str) or not isinstance(given, Iterable):
                kinds = repr(given)
            raise ValueError(
                "Expected `prompts` as a list of strings or of integer class labels, one per sample or fewer that are "
                f"then repeated, but got {kinds}. For 10 classes give list(range(10))."
            )
        self.values: list[Any] = values
        self.distinct: list[Any] = list(dict.fromkeys(values))

    @classmethod
    def from_any(cls, prompts: Sequence[str] | Sequence[int] | Tensor | Prompts) -> Prompts:
        """Convert to Prompts; return Prompts unchanged."""
        return prompts if isinstance(prompts, Prompts) else cls(prompts)

    def __len__(self) -> int:
        return len(self.values)

    def of(self, indices: Iterable[int], device: Any = None) -> Any:
        """Return the prompts of these samples: a list of strings, or labels as int64 [n] on the device."""
        chosen = [self.values[i % len(self.values)] for i in indices]
        return torch.tensor(chosen, device=device) if self.are_labels else chosen

    def numbers(self, indices: Tensor) -> Tensor:
        """Return the indices of these samples' prompts among the distinct ones, int64 [n]."""
        places = {prompt: place for place, prompt in enumerate(self.distinct)}
        table = torch.tensor([places[prompt] for prompt in self.values], device=indices.device)
        return table[indices % len(table)]

    def named(self, indices: Iterable[int]) -> list[Any]:
        """Return the prompt of each of these samples, as given."""
        return [self.values[i % len(self.values)] for i in indices]

    def text(self, index: int) -> str:
        """Return the prompt of a sample in a readable form."""
        return str(self.values[index % len(self.values)])

# SPDX-License-Identifier: Apache-2.0
"""Prompts of a conditional generator, and real images with the same prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from genmonitor._io import Progress, no_progress
from genmonitor._validation import check_tensor
from genmonitor.distributed import Collective
from genmonitor.images.batches import describe_batch, look_up
from genmonitor.images.image_set import READ_BATCH, ImageSet, random_order


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


PromptKey = str | int | Callable[[Any], Any] | None
MAX_READ = 50_000
"""Largest number of items to search for prompts; more would delay the training."""


def find_prompts(batch: Any, key: PromptKey, labels: bool) -> list[Any]:
    """Find the prompts of a batch.

    Args:
        batch: Batch of a loader.
        key: Key, index or callable. For labels, None is the first vector of integers of a tuple, or the entry "label",
            "labels", "class" or "target" of a dictionary. For strings, None is the first list of strings of a tuple, or
            the entry "prompt", "caption" or "text" or their plural.
        labels: True if prompts are class labels.

    Returns:
        One prompt per item, all strings or all integers.

    Raises:
        ValueError: If there are none.

    Example:
        >>> find_prompts((torch.zeros(2, 1, 8, 8), torch.tensor([7, 3])), None, labels=True)
        [7, 3]
    """
    found: Any = None
    if key is not None:
        found = look_up(batch, key, "prompt_key", "prompts")
    elif isinstance(batch, Mapping):
        texts = ("prompt", "prompts", "caption", "captions", "text", "texts")
        names = ("label", "labels", "class", "target") if labels else texts
        found = next((batch[name] for name in names if name in batch), None)
    elif isinstance(batch, Sequence):
        found = next((part for part in batch if _are_prompts(part, labels)), None)
    if not _are_prompts(found, labels):
        kind = "class labels, whole numbers [N]," if labels else "prompts, a list of strings,"
        raise ValueError(
            f"Expected {kind} in a batch of real images, but got {describe_batch(batch if found is None else found)}. "
            "Give `prompt_key=` a key, an index or a callable from the batch to its prompts."
        )
    return found.tolist() if isinstance(found, Tensor) else list(found)


def prompts_of(images: ImageSet, indices: Sequence[int], labels: bool) -> list[Any]:
    """Read the prompts of some images, if `find_prompts` finds them without a key; [] if there are none."""
    try:
        with images.reading():
            return [x for batch in images.loader(indices) for x in find_prompts(batch, None, labels)]
    except ValueError:
        return []


def choose_by_prompt(
    source: ImageSet,
    prompt_key: PromptKey,
    prompts: Prompts,
    n: int,
    seed: int,
    progress: Progress = no_progress,
) -> list[int]:
    """Choose items at random so that the j-th has prompt j modulo the number of prompts.

    The set is searched in a random order until enough items of each prompt are found.

    Args:
        source: Set of images.
        prompt_key: Position of the prompts in a batch.
        prompts: Prompts to choose, in the order of the generated images.
        n: Number of items, a multiple of the number of prompts. If the set has too few of some prompt, all prompts are
            chosen fewer times.
        seed: Seed of the random order.
        progress: Progress bar for the steps that take long.

    Returns:
        Indices of items.

    Raises:
        ValueError: If there is no image of some prompt.
    """
    order = random_order(len(source), MAX_READ, torch.Generator().manual_seed(seed))[:MAX_READ].tolist()
    times, read = Counter(prompts.values), 0
    found: dict[Any, list[int]] = {prompt: [] for prompt in times}
    wanted = {prompt: count * n // len(prompts) for prompt, count in times.items()}
    with source.reading():
        for batch in progress(source.loader(order), "prompts of real images"):
            labels, items = find_prompts(batch, prompt_key, prompts.are_labels), order[read : read + READ_BATCH]
            if len(labels) != len(items):
                raise ValueError(
                    f"Expected one prompt from each of {len(items)} items of {source.name}, but got {len(labels)}. "
                    "Let `prompt_key=` lead to all prompts of a batch."
                )
            for prompt, item in zip(labels, items, strict=True):
                if len(found.get(prompt, ())) < wanted.get(prompt, 0):
                    found[prompt].append(item)
            read += len(items)
            if all(len(found[prompt]) == count for prompt, count in wanted.items()):
                break
    rounds = min(len(found[prompt]) // count for prompt, count in times.items())
    if not rounds:
        lacking = [prompt for prompt, count in times.items() if len(found[prompt]) < count]
        raise ValueError(
            f"Expected a real image of each prompt, but among {read} items of {source.name} there is none, or too few, "
            f"of {len(lacking)}, such as {lacking[0]!r}. Leave these out of `prompts`, give `real_images=` with some "
            "of each, or compare with another `reference`."
        )
    queues = {prompt: iter(indices) for prompt, indices in found.items()}
    return [next(queues[prompt]) for prompt in prompts.named(range(rounds * len(prompts)))]


def subset_by_prompt(
    real: ImageSet,
    prompt_key: PromptKey,
    prompts: Prompts,
    n: int,
    seed: int,
    shape: tuple[int, ...],
    comm: Collective,
    progress: Progress = no_progress,
) -> tuple[ImageSet, tuple[str, ...]]:
    """Choose real images of the prompts on rank zero; return them, and notes for the user.

    Args:
        real: Images to choose from.
        prompt_key: Position of the prompts in a batch.
        prompts: Prompts to choose.
        n: Number of images to choose.
        seed: Seed of the choice.
        shape: Shape (C, H, W) of generated images.
        comm: Processes that evaluate together.
        progress: Progress bar for the steps that take long.
    """
    source = real.compared
    with comm.all_ranks_or_none():
        notes = source.notes()  # on every process, which opens the data
    chosen = comm.from_rank_zero(lambda: choose_by_prompt(source, prompt_key, prompts, n, seed, progress))
    with comm.all_ranks_or_none():
        subset = source.subset(chosen, shape)
    if len(chosen) < n:
        notes += (
            f"only {len(chosen)} real images, equally many of each prompt, available for comparison with {n} generated "
            "ones",
        )
    return subset, notes + subset.reading_notes()


def _are_prompts(value: Any, labels: bool) -> bool:
    if labels:
        integers = isinstance(value, Tensor) and value.ndim == 1 and not value.is_floating_point()
        return integers or (isinstance(value, list) and all(type(x) is int for x in value))
    return isinstance(value, (list, tuple)) and all(isinstance(x, str) for x in value)

# SPDX-License-Identifier: Apache-2.0
"""Checks of inputs, with one wording of their errors.

An error names the argument, what was expected, what came instead, and what to do. Other modules check only what is
specific to them, such as the estimators that take a partition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sized
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor

_T = TypeVar("_T")
NUMBERS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
NUMBERS |= {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
"""Dtypes of real numbers for which torch has all operations: not float8, nor uint16."""


class NotFiniteError(ValueError):
    """NaN or infinities in values: a finding about their source, not a wrong call."""


def check_tensor(name: str, value: object) -> Tensor:
    """Return a dense real-valued tensor as a plain Tensor instead of a subclass."""
    if not isinstance(value, Tensor):
        raise TypeError(f"Expected `{name}` to be a torch.Tensor, but got {type(value).__name__}. Convert it first.")
    value = value.trigger_wait() if hasattr(value, "trigger_wait") else value  # of a collective that may still run
    if hasattr(value, "__tensor_flatten__"):  # by which torch knows a tensor that wraps others
        raise TypeError(
            f"Expected `{name}` to hold its values itself, but got {type(value).__name__}, which wraps other tensors."
            " Give a plain tensor, such as x.full_tensor() for a DTensor."
        )
    value = plain(value)
    if value.dtype not in NUMBERS:
        raise TypeError(f"Expected `{name}` to hold real numbers, but got dtype {value.dtype}. Use x.float().")
    if value.layout != torch.strided:
        raise TypeError(f"Expected `{name}` to be a dense tensor, but got layout {value.layout}. Use x.to_dense().")
    if value.is_meta:
        raise TypeError(f"Expected `{name}` to hold values, but got a tensor on the device meta. Make it on the CPU.")
    return value


def plain(value: Tensor) -> Tensor:
    """Return a plain Tensor for a subclass such as MONAI's MetaTensor, whose methods may take other arguments."""
    with torch._C.DisableTorchFunctionSubclass():
        return value if type(value) is Tensor else value.as_subclass(Tensor)


def check_finite(name: str, value: Tensor) -> None:
    """Refuse NaN and infinities, with their count."""
    if bool(torch.isfinite(value.sum())):  # then every value is, and this is a hundred times as fast as a check of each
        return
    bad = int((~torch.isfinite(value)).sum())
    if bad:
        raise NotFiniteError(
            f"Expected `{name}` to be finite, but {bad} of its {value.numel()} values are NaN or infinite. "
            "Find out where they come from: a metric of the rest would describe another distribution."
        )


def check_images(name: str, value: object, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return images [N, C, H, W] as float32 or float64; integers are read as 0..255 and scaled to [0, 1]."""
    x = check_tensor(name, value)
    if x.ndim != 4:
        raise ValueError(
            f"Expected `{name}` of shape [N, C, H, W], but got {list(x.shape)}. "
            "Add the missing dimension, e.g. x[:, None] for gray images."
        )
    if min(x.shape[1:3]) > 4 and x.shape[3] in (1, 3, 4):
        raise ValueError(
            f"Expected `{name}` of shape [N, C, H, W], but got {list(x.shape)}, which looks like [N, H, W, C]. "
            "Use x.permute(0, 3, 1, 2)."
        )
    if 0 in x.shape[1:]:
        raise ValueError(f"Expected `{name}` with at least one pixel, but got shape {list(x.shape)}.")
    if shape is not None and tuple(x.shape[1:]) != tuple(shape):
        raise ValueError(
            f"Expected `{name}` of shape [N, {', '.join(map(str, shape))}] like the images before, "
            f"but got {list(x.shape)}. Resize or convert the images so that all agree."
        )
    if not x.is_floating_point():
        if x.numel() and (int(x.min()) < 0 or int(x.max()) > 255):
            raise ValueError(
                f"Expected integer `{name}` within 0..255, but got {int(x.min())}..{int(x.max())}. "
                "Scale them to floating point yourself."
            )
        x = x.to(torch.float32).div_(255)
    check_finite(name, x)
    return _promoted(x)


def check_features(name: str, value: object, dim: int | None = None) -> Tensor:
    """Return features [N, D] as float32 or float64."""
    x = check_tensor(name, value)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"Expected `{name}` of shape [N, D], but got {list(x.shape)}. Use x.flatten(1).")
    if dim is not None and x.shape[1] != dim:
        raise ValueError(
            f"Expected `{name}` with {dim} features per sample like those before, but got {list(x.shape)}. "
            "Use one encoder throughout."
        )
    check_finite(name, x)
    return _promoted(x)


def check_samples(name: str, value: object, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return images [N, C, H, W] or features [N, D], checked against the `shape` of a sample if given."""
    value = check_tensor(name, value)
    ndim = value.ndim
    if shape is not None and ndim != len(shape) + 1:
        raise ValueError(
            f"Expected `{name}` of shape [N, {', '.join(map(str, shape))}] like the samples before, "
            f"but got {list(value.shape)}."
        )
    if ndim == 4:
        return check_images(name, value, shape)
    if ndim == 2:
        return check_features(name, value, shape[0] if shape else None)
    raise ValueError(f"Expected `{name}` as images [N, C, H, W] or features [N, D], but got {list(value.shape)}.")


def check_vectors(name: str, value: object, dim: int | None = None) -> Tensor:
    """Return features [N, D], or images [N, C, H, W] as vectors of their pixels, as float32 or float64."""
    value = check_tensor(name, value)
    return check_features(name, check_images(name, value).flatten(1) if value.ndim == 4 else value, dim)


def check_pairs(
    output_name: str, outputs: object, prompt_name: str, prompts: object, dims: tuple[int, int] | None = None
) -> tuple[Tensor, Tensor]:
    """Return outputs [N, D] and their prompts [N, E] as float32 or float64; row i of one belongs to row i of the other.

    Args:
        output_name: Name of the outputs in errors.
        outputs: Features [N, D], or images [N, C, H, W].
        prompt_name: Name of the prompts in errors.
        prompts: Features of the prompts [N, E].
        dims: D and E of the pairs seen before; None for the first.
    """
    x = check_vectors(output_name, outputs, dims and dims[0])
    t = check_features(prompt_name, prompts, dims and dims[1])
    check_same_length(output_name, x, prompt_name, t)
    return x, t


def check_integers(name: str, value: object) -> Tensor:
    """Return a vector of integers [N], int64."""
    x = check_tensor(name, value)
    if x.ndim != 1 or x.is_floating_point():
        raise TypeError(f"Expected `{name}` as whole numbers [N], but got {x.dtype} of shape {list(x.shape)}.")
    return x.long()


def check_monotonic(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> Tensor:
    """Return a non-decreasing vector [K] of finite numbers within a range, K at least 2, as float64."""
    x = check_tensor(name, value)
    if x.ndim != 1 or len(x) < 2:
        raise ValueError(f"Expected `{name}` of shape [K] with K >= 2, but got {list(x.shape)}.")
    check_finite(name, x)
    x = x.double()
    if bool((x.diff() < 0).any()) or x[0] < low or x[-1] > high:
        raise ValueError(
            f"Expected `{name}` to rise from {low:g} or more to {high:g} or less, but it goes from {float(x[0]):g} to "
            f"{float(x[-1]):g} and falls {int((x.diff() < 0).sum())} times."
        )
    return x


def check_min_samples(name: str, value: Tensor, minimum: int = 2) -> None:
    """Refuse fewer samples than an estimate needs."""
    if len(value) < minimum:
        raise ValueError(f"Expected `{name}` to hold at least {minimum} samples, but got {len(value)}. Add more.")


def check_same_length(name_x: str, x: Sized, name_y: str, y: Sized) -> None:
    """Refuse two sets of different lengths."""
    if len(x) != len(y):
        raise ValueError(
            f"Expected `{name_x}` and `{name_y}` to hold equally many samples, row i of one for row i of the other,"
            f" but got {len(x)} and {len(y)}."
        )


def check_no_zero_rows(name: str, value: Tensor) -> None:
    """Refuse zero vectors, for which the cosine kernel is undefined."""
    if bool((torch.linalg.vector_norm(value.detach(), dim=1) > 0).all()):  # in one pass; that of tiny values may be 0
        return
    zeros = int((value == 0).all(1).sum())
    if zeros:
        raise ValueError(
            f"Expected `{name}` without zero vectors for the cosine kernel, but {zeros} of {len(value)} rows are zero. "
            "Leave them out or use a GaussianKernel."
        )


def check_normalized(name: str, value: object, diagonal: bool) -> Tensor:
    """Return a symmetric matrix whose diagonal is 1 throughout (a Gram matrix) or sums to 1 (a covariance)."""
    x = check_tensor(name, value)
    if x.ndim != 2 or x.shape[0] != x.shape[1] or 0 in x.shape:
        raise ValueError(f"Expected `{name}` to be a square matrix, but got shape {list(x.shape)}.")
    check_finite(name, x)
    x = _promoted(x)
    values = x.detach()
    if float((values - values.T).abs().max()) > 1e-4 * float(values.abs().max()):
        raise ValueError(f"Expected `{name}` to be symmetric, but it differs from its transpose.")
    found = values.diagonal() if diagonal else values.trace()
    worst = float((found - 1).abs().max())
    if worst > 1e-3:
        wanted, remedy = ("1 on its diagonal", "K_ij / sqrt(K_ii K_jj)") if diagonal else ("trace 1", "C / trace(C)")
        raise ValueError(f"Expected `{name}` with {wanted}, but it is off by {worst:.3g}. Normalize it: {remedy}.")
    return x


def check_positive_norms(squared_norms: Tensor) -> None:
    """Refuse squared norms of mean embeddings that leave a cosine undefined."""
    if not bool((squared_norms > 0).all()):
        raise ValueError(
            "Expected mean embeddings with positive squared norms, but got "
            f"{float(squared_norms.min()):.3g}. Use `unbiased=False`, more samples, or a smaller `gamma`."
        )


def _promoted(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def check_at_least(name: str, value: object, minimum: int) -> int:
    """Return an integer of at least `minimum` that torch's int64 holds."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value < 2**63:
        limit = "< 2**63" if isinstance(value, int) and value > minimum else f">= {minimum}"
        raise ValueError(f"Expected `{name}` to be a whole number {limit}, but got {value!r}.")
    return value


def check_at_most(name: str, value: int, maximum: int, memory: str) -> None:
    """Refuse a number whose work would exceed a memory limit."""
    if value > maximum:
        raise ValueError(f"Expected `{name}` to be at most {maximum} to stay within {memory}, but got {value}.")


def check_positive(name: str, value: object) -> float:
    """Return a positive finite number."""
    return _number_within(name, value, "a positive finite number", math.inf)


def check_order(name: str, value: object) -> float:
    """Return the order of an entropy: positive, infinity allowed."""
    if isinstance(value, float) and value == math.inf:
        return value
    meaning = " 1 is Shannon's entropy, 2 that of RKE."
    return _number_within(name, value, "a positive number or math.inf", math.inf, meaning)


def check_relative_cutoff(name: str, value: object) -> float:
    """Return a number between 0 and 1, both excluded."""
    meaning = " It is relative to the largest eigenvalue; None takes the default."
    return _number_within(name, value, "a number between 0 and 1", 1, meaning)


def _number_within(name: str, value: object, expected: str, limit: float, meaning: str = "") -> float:
    """Return a number between 0 and a limit, both excluded."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < limit:
        raise ValueError(f"Expected `{name}` to be {expected}, but got {value!r}.{meaning}")
    return float(value)


def check_bool(name: str, value: object) -> bool:
    """Return True or False; refuse words such as "no", which would count as True."""
    if not isinstance(value, bool):
        raise TypeError(f"Expected `{name}` to be True or False, but got {value!r}.")
    return value


def check_one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words."""
    if value not in allowed:
        raise ValueError(f"Expected `{name}` to be one of {', '.join(map(repr, allowed))}, but got {value!r}.")
    return str(value)


def check_prefix(name: str, value: object) -> str:
    """Return a word that is valid as prefix of log keys and file names."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*", value):
        raise ValueError(
            f"Expected `{name}` of letters and digits with single '_' or '-' between them, since log keys and file "
            f"names begin with it, but got {value!r}."
        )
    return value


def check_fields(thing: _T) -> _T:
    """Return a dataclass after checking the types of its texts, flags and numbers, which may come from a file.

    Example:
        >>> from genmonitor.findings.finding import Area
        >>> check_fields(Area(["left"]))
        Traceback (most recent call last):
        ...
        TypeError: Expected `name` of Area to be str, but got ['left'].
    """
    kind: Any = type(thing)  # mypy takes no class for hashable
    for name, allowed in _plain_fields(kind).items():
        value = getattr(thing, name)
        if not isinstance(value, (*allowed, int) if float in allowed else allowed):
            expected = " or ".join(x.__name__ for x in allowed)
            raise TypeError(f"Expected `{name}` of {kind.__name__} to be {expected}, but got {value!r:.60}.")
    return thing


@cache  # slow to read, and asked for each finding of a run
def _plain_fields(kind: type) -> dict[str, tuple[type, ...]]:
    """Return the allowed types of the fields of a dataclass that are texts, flags or numbers."""
    allowed = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(kind).items()}
    plain = {str, bool, float, type(None)}
    return {
        name: types
        for name, types in allowed.items()
        if not plain.isdisjoint(types) and all(isinstance(x, type) for x in types)
    }


def check_callable(name: str, value: object, what: str) -> None:
    """Refuse an argument that is neither None nor callable."""
    if value is not None and not callable(value):
        raise TypeError(f"Expected `{name}` to be a callable {what}, or None, but got {value!r}.")


def check_height_and_width(name: str, value: object) -> None:
    """Refuse an argument that is not a pair of positive integers."""
    sides = list(value) if isinstance(value, (tuple, list)) else []
    if len(sides) != 2 or any(isinstance(x, bool) or not isinstance(x, int) or x < 1 for x in sides):
        raise ValueError(f"Expected `{name}` as (height, width), whole numbers >= 1, but got {value!r}.")


def check_count(name: str, count: int, call: str) -> None:
    """Refuse to compute from fewer than 2 samples, with instructions to add some."""
    if count < 2:
        raise ValueError(f"Expected at least 2 {name} before `compute`, but got {count}. Call `{call}`.")


def check_some_prompts(count: int, outputs: int) -> None:
    """Refuse to average over zero prompts."""
    if count == 0:
        raise ValueError(f"Expected a prompt with at least {outputs} outputs, but got none. Draw more outputs.")


def check_whole_blocks(name: str, count: int, block_size: int | None) -> None:
    """Refuse samples that do not fill whole blocks, since a short block has a different bias."""
    if block_size is not None and count % block_size:
        raise ValueError(
            f"Expected the number of {name} samples to be a multiple of `block_size`={block_size}, but got {count}. "
            f"Use {count - count % block_size} samples or another block size."
        )

# SPDX-License-Identifier: Apache-2.0
"""Every check of an input and the wording of its error, in one place so that the wording cannot drift.

An error says what was expected of which argument, what came, and what to do.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def tensor(name: str, value: object) -> Tensor:
    """Refuse what is not a real-valued tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"Expected `{name}` to be a torch.Tensor, but got {type(value).__name__}. Convert it first.")
    if value.is_complex() or value.dtype == torch.bool:
        raise TypeError(f"Expected `{name}` to hold real numbers, but got dtype {value.dtype}.")
    return value


def finite(name: str, value: Tensor) -> None:
    """Refuse NaN and infinities, with their count."""
    bad = int((~torch.isfinite(value)).sum())
    if bad:
        raise ValueError(
            f"Expected `{name}` to be finite, but {bad} of its {value.numel()} values are NaN or infinite. "
            "Find out where they come from: a metric over the rest would be of another distribution."
        )


def images(name: str, value: object, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return images [N, C, H, W] as float32 or float64; integers are read as 0..255 and scaled to [0, 1]."""
    x = tensor(name, value)
    if x.ndim != 4:
        raise ValueError(
            f"Expected `{name}` of shape [N, C, H, W], but got {list(x.shape)}. "
            "Add the missing dimension, e.g. x[:, None] for grey images."
        )
    if x.shape[1] > 4 and x.shape[3] in (1, 3, 4):
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
        x = x.to(torch.float32) / 255
    finite(name, x)
    return _promoted(x)


def features(name: str, value: object, dim: int | None = None) -> Tensor:
    """Return features [N, D] as float32 or float64."""
    x = tensor(name, value)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"Expected `{name}` of shape [N, D], but got {list(x.shape)}. Use x.flatten(1).")
    if dim is not None and x.shape[1] != dim:
        raise ValueError(
            f"Expected `{name}` with {dim} features per sample like those before, but got {list(x.shape)}. "
            "Use one encoder throughout."
        )
    finite(name, x)
    return _promoted(x)


def samples(name: str, value: object, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return images [N, C, H, W] or features [N, D]; with `shape`, of the shape per sample given."""
    ndim = tensor(name, value).ndim
    if shape is not None and ndim != len(shape) + 1:
        raise ValueError(
            f"Expected `{name}` of shape [N, {', '.join(map(str, shape))}] like the samples before, "
            f"but got {list(value.shape)}."  # type: ignore[attr-defined]
        )
    if ndim == 4:
        return images(name, value, shape)
    if ndim == 2:
        return features(name, value, shape[0] if shape else None)
    raise ValueError(
        f"Expected `{name}` as images [N, C, H, W] or features [N, D], but got {list(value.shape)}."  # type: ignore[attr-defined]
    )


def at_least(name: str, value: object, minimum: int) -> int:
    """Return a whole number no smaller than `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"Expected `{name}` to be a whole number >= {minimum}, but got {value!r}.")
    return value


def positive(name: str, value: object) -> float:
    """Return a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"Expected `{name}` to be a positive finite number, but got {value!r}.")
    return float(value)


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words."""
    if value not in allowed:
        raise ValueError(f"Expected `{name}` to be one of {', '.join(map(repr, allowed))}, but got {value!r}.")
    return str(value)


def enough(name: str, value: Tensor, minimum: int = 2) -> None:
    """Refuse fewer samples than an estimate needs."""
    if len(value) < minimum:
        raise ValueError(
            f"Expected `{name}` to hold at least {minimum} samples, but got {len(value)}. Add more before computing."
        )


def whole_blocks(name: str, count: int, block_size: int | None) -> None:
    """Refuse samples that do not fill whole blocks: a short block has another bias than the others."""
    if block_size is not None and count % block_size:
        raise ValueError(
            f"Expected the number of {name} samples to be a multiple of `block_size`={block_size}, but got {count}. "
            f"Use {count - count % block_size} samples or another block size."
        )


def _promoted(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def paired(name_x: str, x: Tensor, name_y: str, y: Tensor) -> None:
    """Refuse two sets whose rows cannot belong together."""
    if len(x) != len(y):
        raise ValueError(
            f"Expected `{name_x}` and `{name_y}` to hold as many samples, row i of one belonging to row i of the other,"
            f" but got {len(x)} and {len(y)}."
        )

# SPDX-License-Identifier: Apache-2.0
"""Reading arrays from files .npy, .npz, .pt and .safetensors; nothing is ever unpickled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NAMES = ("images", "image", "pixel_values", "embeddings", "features", "arr_0")
"""Which of several arrays in a file is taken where none is named."""
SUFFIXES = (".npy", ".npz", ".pt", ".safetensors")


def split_key(where: str) -> tuple[Path, str | None]:
    """Return a path, and the name of the array in it where one stands behind a colon, as in "data.npz:train_images"."""
    if not Path(where).exists() and ":" in where:
        name, _, key = where.rpartition(":")
        return Path(name), key
    return Path(where), None


def read_array(
    path: Path, key: str | None = None, names: Sequence[str] = NAMES, integers: type[np.integer[Any]] = np.uint8
) -> Tensor:
    """Read an array of real numbers.

    Args:
        path: a file .npy, .npz, .pt or .safetensors.
        key: of several arrays in a file the one to take; None for the only one, or the first there is of `names`.
        names: what the array may be called.
        integers: what unsigned ones of 16 bits or more become, with which torch hardly computes.

    Raises:
        ValueError: if the file cannot be read safely, does not say which array is meant, or holds no real numbers.
    """
    try:
        if path.suffix == ".pt":
            content = torch.load(path, map_location="cpu", weights_only=True)
        elif path.suffix == ".safetensors":
            content = _safetensors(path)
        else:
            content = np.load(path, allow_pickle=False)
        arrays = dict(content) if hasattr(content, "keys") else {}  # what is in a .npz is read here
    except Exception as error:
        raise ValueError(f"{path} is no .npy, .npz, .pt or .safetensors file of plain numbers: {error}") from error
    if isinstance(content, (Tensor, np.ndarray)):
        return _real_numbers(path, content, integers)
    chosen: Any = arrays.get(key) if key else next((arrays[name] for name in names if name in arrays), None)
    if chosen is None and key is None and len(arrays) == 1:
        (chosen,) = arrays.values()
    if not isinstance(chosen, (Tensor, np.ndarray)):
        names = ", ".join(map(str, arrays)) or "nothing"
        example = f"{path}:{next(iter(arrays), 'NAME')}"
        raise ValueError(f"Which of {names} in {path} is meant? Say it as in {example}.")
    return _real_numbers(path, chosen, integers)


def _real_numbers(path: Path, values: Tensor | NDArray[Any], integers: type[np.integer[Any]]) -> Tensor:
    """Return an array as a tensor of a type that can be computed with; refuse what are no real numbers."""
    if isinstance(values, Tensor):
        plain = values.layout == torch.strided and not values.is_quantized
        kind = "c" if values.is_complex() else "b" if values.dtype == torch.bool else "f" if plain else "?"
        unsigned = values.dtype in (torch.uint16, torch.uint32, torch.uint64)
        dtype = str(values.dtype) if plain else f"{values.dtype}, {values.layout}"
    else:
        kind, unsigned, dtype = values.dtype.kind, values.dtype.kind == "u", str(values.dtype)
    if kind not in "fiu":
        raise ValueError(
            f"Expected real numbers, but {path} holds {dtype}. Convert them to floating point or to uint8 in 0..255."
        )
    if isinstance(values, Tensor) and not unsigned:
        return values.detach()
    array = np.asarray(values)
    if unsigned and array.dtype != np.uint8:
        if array.size and array.max() > (most := np.iinfo(integers).max):
            raise ValueError(
                f"Expected integers within 0..{most}, but {path} holds {array.dtype} up to {array.max()}. Scale them "
                "to floating point yourself."
            )
        array = array.astype(integers)
    if kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return torch.from_numpy(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise ValueError("it needs safetensors. Run: pip install safetensors") from error
    return load_file(path)

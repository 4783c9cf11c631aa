# SPDX-License-Identifier: Apache-2.0
"""Models of the Hugging Face hub on this machine: short names, files and value ranges of images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

IMAGE_MODELS = {
    "dinov2": "facebook/dinov2-base",
    "clip": "openai/clip-vit-base-patch32",
    "siglip": "google/siglip-base-patch16-224",
    "siglip2": "google/siglip2-base-patch16-224",
}
"""Short names that `image_encoder` takes."""
TEXT_MODELS = {name: IMAGE_MODELS[name] for name in ("clip", "siglip", "siglip2")}
"""Short names that `text_encoder` takes."""


def load_local(where: str | Path, load: Callable[[Path], Any]) -> Any:
    """Return the result of `load` for the folder of a model.

    Args:
        where: Folder, or the model's name on the Hugging Face hub, whose local cache is used.
        load: Function of the folder. Given a name, transformers would ask the hub for a better format of old weights,
            even if only local files are allowed.

    Raises:
        FileNotFoundError: If a file is missing, with instructions to get it.
    """
    try:
        return load(local_folder(where))
    except (OSError, ValueError) as error:  # the latter where a folder holds something else
        get = "Give the folder of a saved model." if Path(where).is_dir() else f"Run: hf download {where!s}"
        raise FileNotFoundError(
            f"Expected `name` to be a model on this machine, but {where!s} holds none, or not all of it. Nothing is "
            f"downloaded during a run. {get}"
        ) from error


def local_folder(where: str | Path) -> Path:
    """Return the folder of a model's files; raise OSError if the hub's cache has none of them."""
    if Path(where).is_dir():
        return Path(where)
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(str(where), "config.json")
    if not isinstance(found, str):
        raise FileNotFoundError(f"{where} is not in the cache.")
    return Path(found).parent


def check_range(value_range: tuple[float, float]) -> tuple[float, float]:
    """Return a value range as floats; raise ValueError unless it is (low, high) with low < high."""
    if not (isinstance(value_range, (tuple, list)) and len(value_range) == 2 and value_range[0] < value_range[1]):
        raise ValueError(f"Expected `value_range` as (low, high) with low < high, but got {value_range!r}.")
    return float(value_range[0]), float(value_range[1])


def import_transformers() -> Any:
    """Return the package transformers, or raise ModuleNotFoundError with instructions to install it."""
    try:
        import transformers
    except ImportError as error:
        raise ModuleNotFoundError(
            'A pretrained encoder needs transformers, which is not installed. Run: pip install "genmonitor[clip]"'
        ) from error
    return transformers

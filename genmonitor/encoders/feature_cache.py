# SPDX-License-Identifier: Apache-2.0
"""Features of images and texts, kept on disk for the next run."""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from genmonitor._io import atomic_write


class FeatureCache:
    """Keeps what an encoder gives for images or texts in a folder, by a hash of both; nothing is unpickled.

    Args:
        folder: made where it is missing; "~" is the user's home. Delete it whenever you like.
        encoder: told from others by what it is printed as and by its weights.

    Raises:
        TypeError: if the encoder is no Module: what a function computes cannot be told from outside.

    Example:
        >>> import tempfile
        >>> cache = FeatureCache(tempfile.mkdtemp(), encoder := nn.Flatten())
        >>> images = torch.rand(2, 1, 2, 2)
        >>> torch.equal(cache.get(images, encoder), cache.get(images, lambda images: 1 / 0))  # not called again
        True
    """

    def __init__(self, folder: str | Path, encoder: nn.Module) -> None:
        if not isinstance(encoder, nn.Module):
            raise TypeError(
                f"Expected `encoder` to be a Module with a `cache`, but got {type(encoder).__name__}, whose features "
                "could not be told from those of another. Wrap it in a Module, or leave out `cache`."
            )
        self.folder = Path(folder).expanduser()
        self._encoder = _fingerprint(f"{type(encoder).__module__} {encoder!r}", encoder.state_dict())

    def get(self, batch: Tensor | Sequence[str], encode: Callable[[Any], Tensor]) -> Tensor:
        """Return the features [n, d] of images [n, C, H, W] or of n texts, computed where the folder lacks them."""
        content = {"images": batch} if isinstance(batch, Tensor) else {}
        texts = "" if isinstance(batch, Tensor) else json.dumps(list(batch))
        path = self.folder / f"{_fingerprint(f'{self._encoder} {texts}', content)}.npy"
        try:
            kept = torch.from_numpy(np.load(path, allow_pickle=False))
            if kept.ndim == 2 and len(kept) == len(batch):
                return kept.to(batch.device) if isinstance(batch, Tensor) else kept
        except (OSError, ValueError, EOFError):  # none, or a damaged one
            pass
        features = encode(batch)
        self._keep(path, features)
        return features

    def _keep(self, path: Path, features: Tensor) -> None:
        file = io.BytesIO()
        np.save(file, features.detach().float().cpu().numpy())
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write(path, file.getvalue())
        except OSError as error:
            warnings.warn(f"Features are not kept for the next run: {error}", stacklevel=2)


def _fingerprint(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of a text and of tensors by name."""
    out = hashlib.sha256(text.encode())
    for name, value in tensors.items():
        out.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        out.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return out.hexdigest()

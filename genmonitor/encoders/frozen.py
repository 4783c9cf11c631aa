# SPDX-License-Identifier: Apache-2.0
"""Encoders of images and prompts: any callable from a batch to features [n, d], frozen and apart from the generator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from genmonitor._validation import check_callable, check_features
from genmonitor.training_state.isolation import preserve_training_state

Encoder = nn.Module | Callable[[Any], Tensor]
_HINT = ' A published one needs the images\' range: genmonitor.encoders.image_encoder("dinov2", value_range=(-1, 1)).'


def check_not_shared(name: str, encoder: nn.Module, generator: nn.Module) -> None:
    """Refuse an encoder that shares parameters with the generator: freezing one would stop the other's training."""
    trained = {id(parameter) for parameter in generator.parameters()}
    if any(id(parameter) in trained for parameter in encoder.parameters()):
        raise ValueError(
            f"Expected `{name}` to be apart from the trained module, but they share parameters: freezing one would "
            "stop the other's training, and curves would move with it. Give copy.deepcopy(encoder)."
        )


def check_not_meta(name: str, encoder: nn.Module) -> None:
    """Refuse an encoder that has no weights yet."""
    if any(parameter.is_meta for parameter in encoder.parameters()):
        raise ValueError(
            f"Expected `{name}` with weights, but those of {type(encoder).__qualname__} are on the meta device, which "
            "holds none. Load its weights first."
        )


class SiteEncoder:
    """From images to the maps [n, c, h, w] whose sites are clustered: the images themselves without an encoder.

    A Module may be a part of the trained one: it is not frozen, and its state is restored after each use.

    Args:
        encoder: from images [n, C, H, W] to maps, or None.
        batch_size: images per call.
    """

    def __init__(self, encoder: nn.Module | Callable[[Tensor], Tensor] | None, batch_size: int) -> None:
        check_callable("site_encoder", encoder, "from images to maps [n, c, h, w]")
        self.encoder, self.batch_size = encoder, batch_size

    def to(self, device: torch.device) -> None:
        """Move a Module to a device; raise ValueError if it has no weights yet."""
        if isinstance(self.encoder, nn.Module):
            check_not_meta("site_encoder", self.encoder)
            self.encoder.to(device)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the maps of images."""
        if self.encoder is None or not len(images):
            return images
        isolated = isinstance(self.encoder, nn.Module)
        with preserve_training_state(self.encoder) if isolated else nullcontext():  # type: ignore[arg-type]
            return torch.cat([self.encoder(batch).float() for batch in images.split(self.batch_size)])


class FrozenEncoder:
    """An encoder that runs in eval mode, without gradients, batch by batch.

    Args:
        name: the argument that it came by, for errors.
        encoder: any callable from a batch to features [n, d]; `freeze` switches a Module to eval mode for good.
        batch_size: samples per call.

    Raises:
        TypeError: if it cannot be called.
    """

    def __init__(self, name: str, encoder: Encoder, batch_size: int) -> None:
        if not callable(encoder):
            raise TypeError(
                f"Expected `{name}` to be a callable or Module from a batch to features [n, d], "
                f"but got {type(encoder).__name__}.{_HINT if isinstance(encoder, str) else ''}"
            )
        self.name = name
        self.encoder = encoder
        self.batch_size = batch_size

    def freeze(self, device: torch.device) -> None:
        """Freeze a Module and move it to a device.

        Raises:
            ValueError: if it has no weights yet.
        """
        if isinstance(self.encoder, nn.Module):
            check_not_meta(self.name, self.encoder)
            self.encoder.eval().requires_grad_(False).to(device)

    def description(self) -> str:
        """Return the encoder's name, for the manifest."""
        return getattr(self.encoder, "__qualname__", type(self.encoder).__qualname__)

    @torch.no_grad()
    def __call__(self, batch: Any) -> Tensor:
        """Encode n images [n, C, H, W] or prompts, a list or [n], to finite features [n, d]; n at least 1.

        Raises:
            TypeError, ValueError: if what comes back is not of this shape.
        """
        parts = []
        for start in range(0, len(batch), self.batch_size):
            part = batch[start : start + self.batch_size]
            features = check_features(f"what {self.name} returns", self.encoder(part))
            if len(features) != len(part):
                raise ValueError(
                    f"Expected `{self.name}` to return one row per sample, but got {len(features)} for {len(part)}."
                )
            parts.append(features)
        return torch.cat(parts)

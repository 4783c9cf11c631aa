# SPDX-License-Identifier: Apache-2.0
"""Encoders in evaluations: frozen, in batches, cached on disk; and encoders without pretrained weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from genmonitor._validation import check_callable, check_features
from genmonitor.training_state.isolation import preserve_training_state

Encoder = nn.Module | Callable[[Any], Tensor]


def check_not_shared(name: str, encoder: nn.Module, generator: nn.Module) -> None:
    """Refuse an encoder that shares parameters with the generator, since freezing would stop its training."""
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
    """Encoder of the maps [n, c, h, w] whose sites are clustered; by default the identity.

    A Module may be part of the trained one, so it is not frozen, and its state is restored after each use.

    Args:
        encoder: Callable or Module from images [n, C, H, W] to maps, or None.
        batch_size: Number of images per call.
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
            batches = images.split(self.batch_size)
            return torch.cat([self.encoder(batch.clone()).float().clone() for batch in batches])


class FrozenEncoder:
    """An encoder that runs in eval mode, without gradients, batch by batch.

    Args:
        name: Name of the argument, for errors.
        encoder: Callable from a batch to features [n, d]; `freeze` leaves a Module in eval mode.
        batch_size: Number of samples per call.

    Raises:
        TypeError: If it is not callable.
    """

    def __init__(self, name: str, encoder: Encoder, batch_size: int) -> None:
        if not callable(encoder):
            hint = ' Make a published one by genmonitor.encoders.image_encoder("dinov2", value_range=(-1, 1)).'
            raise TypeError(
                f"Expected `{name}` to be a callable or Module from a batch to features [n, d], "
                f"but got {type(encoder).__name__}.{hint if isinstance(encoder, str) else ''}"
            )
        self.name, self.encoder, self.batch_size = name, encoder, batch_size

    def freeze(self, device: torch.device) -> None:
        """Freeze a Module and move it to a device.

        Raises:
            ValueError: If it has no weights yet.
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
            TypeError, ValueError: If the encoder returns anything else.
        """
        parts = []
        for start in range(0, len(batch), self.batch_size):
            part = batch[start : start + self.batch_size]
            part = part.clone() if isinstance(part, Tensor) else part  # an encoder may work in place
            features = check_features(f"what {self.name} returns", self.encoder(part))
            if len(features) != len(part):
                raise ValueError(
                    f"Expected `{self.name}` to return one row per sample, but got {len(features)} for {len(part)}."
                )
            parts.append(features.clone())  # a compiled one writes the next features into the same memory
        return torch.cat(parts)


def pixels(images: Tensor) -> Tensor:
    """Flatten images to their pixel values [n, c·h·w].

    Example:
        >>> pixels(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 64])
    """
    return images.flatten(1)


class OneHot:
    """Class labels [n] as rows of the identity [n, number of classes].

    Args:
        labels: All labels that occur, in any order; repeated ones count once.

    Example:
        >>> OneHot([3, 7, 3])(torch.tensor([7, 3]))
        tensor([[0., 1.],
                [1., 0.]])
    """

    def __init__(self, labels: Iterable[int]) -> None:
        self.classes = torch.tensor(sorted(set(labels)))

    def __call__(self, labels: Tensor) -> Tensor:
        """Encode labels [n]."""
        return (labels[:, None] == self.classes.to(labels.device)).float()

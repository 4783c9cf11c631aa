# SPDX-License-Identifier: Apache-2.0
"""Items that were taken from a stream."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset


class StreamedItems(Dataset[Any]):
    """Items taken from a stream, in its order.

    Args:
        items: as a dataset gives them.
    """

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def note(self, name: str) -> str:
        """Return what the user should know of them."""
        return f"{name} can only be streamed, so its first {len(self)} images serve as real images for the run"

    def __getitem__(self, index: int) -> Any:
        return self.items[index]

# SPDX-License-Identifier: Apache-2.0
"""What monitors use of Lightning, from whichever of its two packages is installed."""

try:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.utilities import rank_zero_info as tell
    from lightning.pytorch.utilities import rank_zero_warn as warn
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment]
    from pytorch_lightning.utilities import rank_zero_info as tell
    from pytorch_lightning.utilities import rank_zero_warn as warn

__all__ = ["Callback", "tell", "warn"]

# SPDX-License-Identifier: Apache-2.0
"""Telling real and generated images in different value ranges apart from a generator that is merely bad."""

from __future__ import annotations

from torch import Tensor


def check_value_range(real: Tensor, fake: Tensor) -> None:
    """Refuse generated images whose values are plainly scaled otherwise than the real ones'.

    Args:
        real: images [N, C, H, W].
        fake: images [M, C, H, W], perhaps of an untrained generator.

    Raises:
        ValueError: if one side is in [0, 255] and the other near [-1, 1]; if real images are in [0, 16] and generated
            ones in [0, 1]; if real images are in [0, 1] and generated ones often negative, as behind a tanh; if real
            images are in [-1, 1] and generated ones vary without ever being negative; or if real images reach no more
            than 1/255, as integers 0 and 1 do when they are read as 0..255.

    Example:
        >>> import torch
        >>> real = torch.linspace(0, 1, 64).view(1, 1, 8, 8)
        >>> check_value_range(real, 2 * real - 1)
        Traceback (most recent call last):
        ValueError: Expected real and generated images in one value range, but real images are in [0, 1] and ...
    """
    low, high = float(real.min()), float(real.max())
    fake_low, fake_high = float(fake.min()), float(fake.max())
    size, fake_size = max(abs(low), abs(high)), max(abs(fake_low), abs(fake_high))
    negative = float((fake < -0.05 * size).float().mean())
    problem = None
    if (size > 20 and fake_size <= 2) or (fake_size > 20 and size <= 2):
        problem = f"real images reach {size:.4g} and generated ones {fake_size:.4g}"
    elif low >= 0 and 0 < high <= 1.001 / 255:
        problem = "real images reach no more than 1/255: integers are read as 0..255"
    elif low >= 0 and fake_low >= 0 and size > 8 and 0.25 < fake_size <= 1.001:
        problem = f"real images reach {size:.4g} and generated ones {fake_size:.4g}"
    elif low >= 0 and negative > 0.05:
        problem = f"real images are in [{low:.3g}, {high:.3g}] and {negative:.2f} of the generated values are negative"
    elif low < -0.25 * size and fake_low >= 0 and fake_high > 0.25 * size and fake_high - fake_low > 0.01 * size:
        problem = f"real images are in [{low:.3g}, {high:.3g}] and no generated value is negative"
    if problem:
        raise ValueError(
            f"Expected real and generated images in one value range, but {problem}. Scale one of them: in `sample_fn` "
            "(clamp there what the model leaves unbounded), in the dataset's transform, or by a callable `image_key`."
        )

# SPDX-License-Identifier: Apache-2.0
"""Telling real and generated images in different value ranges apart from a generator that is merely bad."""

from __future__ import annotations

from torch import Tensor

REMEDY = (
    "Scale one of them: in `sample_fn` (clamp there what the model leaves unbounded), in the dataset's transform, or "
    "by a callable `image_key`."
)


def check_value_range(real: Tensor, fake: Tensor, resumed: bool = False) -> tuple[str, ...]:
    """Refuse value ranges that no training can bring together; return what to say of others that differ.

    A generator that was just initialized may give values of any sign and size, so these are a note at most.

    Args:
        real: images [N, C, H, W].
        fake: images [M, C, H, W], perhaps of an untrained generator.
        resumed: of a run that goes on, which was configured well, so that nothing is refused.

    Returns:
        A sentence if real images are in [0, 1] and generated ones often negative, as behind a tanh; if real images are
        in [-1, 1] and generated ones vary without ever being negative; if one side is much larger than the other; or
        if real images leave [-1, 1] and generated ones do not, as behind a tanh.

    Raises:
        ValueError: if real images are in 0..255 and generated ones near [0, 1] or [-1, 1], or if real images reach no
            more than 1/255, as integers 0 and 1 do when they are read as 0..255.

    Example:
        >>> import torch
        >>> real = torch.linspace(0, 1, 64).view(1, 1, 8, 8)
        >>> check_value_range(255 * real, real)
        Traceback (most recent call last):
        ValueError: Expected real and generated images in one value range, but real images reach 255 and ...
        >>> check_value_range(real, 2 * real - 1)[0]
        "real images are in [0, 1], but 0.47 of the generated values are negative. If training does not mend that, ..."
    """
    low, high = float(real.min()), float(real.max())
    fake_low, fake_high = float(fake.min()), float(fake.max())
    size, fake_size = max(abs(low), abs(high)), max(abs(fake_low), abs(fake_high))
    problem = None
    if size > 20 and fake_size <= 2:
        problem = f"real images reach {size:.4g} and generated ones {fake_size:.4g}"
    elif low >= 0 and 0 < high <= 1.001 / 255:
        problem = "real images reach no more than 1/255: integers are read as 0..255"
    if problem and resumed:
        return (f"{problem}: the generator has left the value range",)
    if problem:
        raise ValueError(f"Expected real and generated images in one value range, but {problem}. {REMEDY}")
    doubt = range_doubt(real, fake)
    return (f"{doubt}. If training does not mend that, the value ranges differ. {REMEDY}",) if doubt else ()


def range_doubt(real: Tensor, fake: Tensor) -> str | None:
    """Say why generated images seem to be scaled otherwise than real ones, None where they do not."""
    low, high = float(real.min()), float(real.max())
    fake_low, fake_high = float(fake.min()), float(fake.max())
    size, fake_size = max(abs(low), abs(high)), max(abs(fake_low), abs(fake_high))
    negative = float((fake < -0.05 * size).float().mean())
    varies = fake_high - fake_low > 0.01 * size
    if fake_size > 20 and size <= 2:
        return f"real images reach {size:.4g}, but generated ones {fake_size:.4g}"
    if low >= 0 and fake_low >= 0 and size > 8 and 0.25 < fake_size <= 1.001:
        return f"real images reach {size:.4g}, but generated ones {fake_size:.4g}"
    if low >= 0 and negative > 0.05:
        return f"real images are in [{low:.3g}, {high:.3g}], but {negative:.2f} of the generated values are negative"
    if low < -0.25 * size and fake_low >= 0 and fake_high > 0.25 * size and varies:
        return f"real images are in [{low:.3g}, {high:.3g}], but no generated value is negative"
    outside = float((real.abs() > 1.05).float().mean())
    if outside > 0.01 and 0.5 < fake_size <= 1.001 and fake_low < -0.25:
        return f"real images are in [{low:.3g}, {high:.3g}], but generated ones stay within [-1, 1], as behind a tanh"
    return None

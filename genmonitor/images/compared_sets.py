# SPDX-License-Identifier: Apache-2.0
"""Checks that real and generated images can be compared, by shape, value range and number."""

from __future__ import annotations

from collections.abc import Mapping, Sized

import torch
from torch import Tensor

from genmonitor._io import Progress, no_progress
from genmonitor._validation import check_at_least, check_bool, check_same_length
from genmonitor.distributed import Collective, SingleProcess
from genmonitor.functional.cka import check_patches
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.images.image_set import ImageSet
from genmonitor.linalg.chunking import rows_in_cache

MIN_REAL, MIN_FAKE = 5, 2
LAST_BITS = 1e-9
"""Largest difference of signatures of identical images, as a part of the range of values."""


def check_set(name: str, images: ImageSet, real: ImageSet, patch_size: int) -> None:
    """Check on some generated images that they can be compared with real ones.

    Args:
        name: Name of the argument.
        images: Generated images.
        real: Real images.
        patch_size: Side of a site.
    """
    if images.shape != real.shape:
        raise ValueError(
            f"Expected `{name}` to hold generated images of shape {list(real.shape)} like the real ones, but got "
            f"{list(images.shape)}. Resize or convert one of them."
        )
    if len(real) < MIN_REAL or len(images) < MIN_FAKE:
        raise ValueError(
            f"Expected at least {MIN_REAL} real and {MIN_FAKE} generated images, but got {len(real)} and "
            f"{len(images)} in `{name}`. Give more."
        )
    some = images.some()
    doubt = range_doubt(real.some(), some)
    if doubt:  # training does not change it
        raise ValueError(f"Expected `{name}` in the value range of the real images, but {doubt}. Scale one of them.")
    check_at_least("patch_size", patch_size, 1)
    check_patches(name, some, patch_size)


def check_paired(paired: bool, sets: Mapping[str, Sized]) -> None:
    """Refuse to pair a single set, or sets of different lengths."""
    check_bool("paired", paired)
    if paired and len(sets) == 1:
        raise ValueError("Expected `other` with `paired`, but got one set of generated images. Leave `paired` out.")
    if paired:
        check_same_length("fake", sets["fake"], "other", sets["other"])


def sample_size(n_real: int, n_fake: int, n_samples: int, two_sets: bool) -> tuple[int, list[str]]:
    """Return the number of images compared on each side, and notes about it.

    A draw of the baseline takes the same number from the other real images, so there must be about a fifth more of
    these. If every draw took all of them, the band would have no width.
    """
    wanted = min(check_at_least("n_samples", n_samples, 2), n_fake)
    n = max(MIN_FAKE, min(wanted, n_real * 5 // 11))
    if two_sets and n < MIN_SAMPLES:
        raise ValueError(
            f"Expected at least {MIN_SAMPLES} images on each side to tell which of two sets is closer, but got "
            f"{n_fake} generated and {n_real} real ones, of which {n} can be compared. Give more."
        )
    if n == wanted:
        return n, []
    return n, [
        f"only {n} of {n_fake} generated images are compared, since some of the {n_real} real ones are needed for the "
        f"baseline; with {-(-wanted * 11 // 5)} real images, {wanted} could be compared"
    ]


def check_left(n_real: int, n: int, n_clusters: int | None) -> None:
    """Refuse a set of real images that leaves too few to find regions once n are compared with generated ones."""
    least = max(10, 2 * (n_clusters or 1))
    if n_real - n < least:
        raise ValueError(
            f"Expected enough images in `real` that {least} are left to find the regions in, but got {n_real}, of "
            f"which {n} are compared with generated ones. Give more, or your own `partition`."
        )


def check_value_range(real: Tensor, fake: Tensor, resumed: bool = False) -> tuple[str, ...]:
    """Refuse value ranges that no training can match; return notes about other differences.

    An untrained generator may give values of any sign and size, which is worth at most a note.

    Args:
        real: Images [N, C, H, W].
        fake: Images [M, C, H, W], possibly of an untrained generator.
        resumed: True for a resumed run, whose configuration was checked before, so that nothing is refused.

    Returns:
        A sentence if real images are in [0, 1] and generated ones often negative, as behind a tanh. Or if real images
        are in [-1, 1] and generated ones vary without ever being negative. Or if one side is much larger than the
        other, or real images leave [-1, 1] and generated ones do not.

    Raises:
        ValueError: If real images are in 0..255 and generated ones near [0, 1] or [-1, 1]. Also if real images do not
            exceed 1/255, like integers 0 and 1 that are read as 0..255.

    Example:
        >>> import torch
        >>> real = torch.linspace(0, 1, 64).view(1, 1, 8, 8)
        >>> check_value_range(255 * real, real)
        Traceback (most recent call last):
        ValueError: Expected real and generated images in one value range, but real images reach 255 and ...
        >>> check_value_range(real, 2 * real - 1)[0]
        "real images are in [0, 1], but 0.47 of the generated values are negative. If training does not fix this, ..."
    """
    remedy = (
        "Scale one of them: in `sample_fn` (clamp unbounded output there), in the dataset's transform, or "
        "by a callable `image_key`."
    )
    (low, high, size), (_, _, fake_size) = _range(real), _range(fake)
    problem = None
    if size > 20 and fake_size <= 2:
        problem = f"real images reach {size:.4g} and generated ones {fake_size:.4g}"
    elif low >= 0 and 0 < high <= 1.001 / 255:
        problem = "real images reach no more than 1/255: integers are read as 0..255"
    if problem and resumed:
        return (f"{problem}: the generator's values are out of range",)
    if problem:
        raise ValueError(f"Expected real and generated images in one value range, but {problem}. {remedy}")
    doubt = range_doubt(real, fake)
    return (f"{doubt}. If training does not fix this, the value ranges differ. {remedy}",) if doubt else ()


class RangeNotes:
    """Notes on the value range at each evaluation, until one has been reported.

    Attributes:
        items: Notes of the last evaluation.
        said: True if one was reported before.
    """

    def __init__(self) -> None:
        self.items: tuple[str, ...] = ()
        self.said = False

    def look(self, real: Tensor, fake: Tensor) -> None:
        """Compare the value ranges of real and generated images of an evaluation, unless one of the sets is empty."""
        known = self.said or not len(real) or not len(fake)
        self.items = () if known else check_value_range(real, fake, resumed=True)

    def commit(self) -> None:
        """Record that the notes have been reported."""
        self.said = self.said or bool(self.items)


def range_doubt(real: Tensor, fake: Tensor, depth: float = 0.05) -> str | None:
    """Explain why generated images seem to be scaled differently than real ones; None if they do not.

    Args:
        real: Images [N, C, H, W].
        fake: Images [M, C, H, W].
        depth: Part of the largest real value from which a generated value counts as negative.
    """
    (low, high, size), (fake_low, fake_high, fake_size) = _range(real), _range(fake)
    smaller = min(low, fake_low) >= 0 and size > 8 and 0.25 < fake_size <= 1.001
    masks = [x for x, of in (("real", real), ("generated", fake)) if _are_levels_0_and_1(of)]
    if len(masks) == 1:
        return f"{masks[0]} images hold 0 and 1/255 alone, like integers 0 and 1 that are read as 0..255"
    if smaller or (fake_size > 20 and size <= 2):
        return f"real images reach {size:.4g} and generated ones {fake_size:.4g}"
    negative = float((fake < -depth * size).float().mean())
    varies = fake_high - fake_low > 0.01 * size
    if low >= 0 and negative > 0.05:
        return f"real images are in [{low:.3g}, {high:.3g}], but {negative:.2f} of the generated values are negative"
    if low < -0.25 * size and fake_low >= 0 and fake_high > 0.25 * size and varies:
        return f"real images are in [{low:.3g}, {high:.3g}], but no generated value is negative"
    outside = float((real.abs() > 1.05).float().mean())
    if outside > 0.01 and 0.5 < fake_size <= 1.001 and fake_low < -0.25:
        return f"real images are in [{low:.3g}, {high:.3g}], but generated ones stay within [-1, 1], as behind a tanh"
    return None


def _are_levels_0_and_1(images: Tensor) -> bool:
    """Return True if images hold the two lowest levels of 8 bits and nothing else, both of them."""
    levels = 255 * images
    return bool((((levels - 1).abs() < 1e-3) | (levels == 0)).all()) and float(levels.max() - levels.min()) > 0.5


def _range(images: Tensor) -> tuple[float, float, float]:
    """Return the lowest, the highest and the largest absolute value."""
    low, high = float(images.min()), float(images.max())
    return low, high, max(abs(low), abs(high))


def overlap_notes(
    sets: Mapping[str, ImageSet],
    real: ImageSet,
    train: Tensor | None = None,
    comm: Collective | None = None,
    progress: Progress = no_progress,
    *,
    refuse_shared: bool = False,
) -> list[str]:
    """Return notes on images that are in two sets; refuse real ones that are training images.

    Every image is read once, by one of the processes.

    Args:
        sets: Generated images, by the name of their argument.
        real: Real images.
        train: Training images that generated ones may copy.
        comm: Processes that share the images; None for this process alone.
        progress: Progress bar over the batches.
        refuse_shared: True to refuse generated sets of which half or more are real images.

    Raises:
        ValueError: If half or more of the real images are training images, or of a generated set with `refuse_shared`
            real images. Also if an image cannot be read, has another shape, or has values that are not finite.

    Example:
        >>> import torch
        >>> real = torch.arange(12.0).reshape(3, 1, 2, 2)
        >>> overlap_notes({"fake": ImageSet(torch.cat([real[1:], -real]))}, ImageSet(real))
        ['2 of 5 images of `fake` are among those of `real`']
    """
    comm = comm or SingleProcess()
    known = _signatures(real, comm, progress)
    pairs = [(name, _signatures(images, comm, progress), "real", known) for name, images in sets.items()]
    notes = [note for name, own, *_ in pairs for note in repeat_notes(f"images of `{name}`", own)]
    if train is not None:
        pairs.append(("real", known, "train", signatures_of(train)))
    for name, own, other, others in pairs:
        shared, among = count_among(own, others), f"are among those of `{other}`"
        if 2 * shared >= len(own) and (refuse_shared or other == "train"):
            raise ValueError(
                f"Expected `{name}` and `{other}` to hold different images, but {shared} of {len(own)} images of "
                f"`{name}` {among}: no test can tell anything then. Give others, or leave one out."
            )
        notes += [f"{shared} of {len(own)} images of `{name}` {among}"] if shared else []
    return notes


def repeat_notes(what: str, signatures: Tensor) -> list[str]:
    """Return a note if images are identical to others of their set, since copies are no draws of their own."""
    step = LAST_BITS * _span(signatures) or 1.0
    repeated = len(signatures) - len((signatures / step).round().unique(dim=0))
    alike = f"{repeated} of {len(signatures)} {what} are identical to others of them"
    once = "tests count each image once, unless generated images repeat as often or it has a single color"
    return [f"{alike}: {once if 'real' in what else 'if they were copied, p-values are too small'}"] if repeated else []


def shared_notes(compared: Tensor, others: Tensor) -> list[str]:
    """Return a note if real images to compare with are among the other real ones, as after a second split of a folder.

    Args:
        compared: Result of `signatures_of` for them.
        others: The same for the others.

    Example:
        >>> import torch
        >>> images = signatures_of(torch.arange(24.0).reshape(3, 2, 2, 2))
        >>> shared_notes(images[:2], images[1:])[0].partition(":")[0]
        '1 of 2 real images that are compared are identical to others, of the training or the baseline'
    """
    shared = count_among(compared, others)
    alike = f"{shared} of {len(compared)} real images that are compared are identical to others, of the training or the"
    advice = "baseline: if it is the same data, copies of training images look as good as new ones. Give others"
    return [f"{alike} {advice}"] if shared else []


def signatures_of(images: Tensor) -> Tensor:
    """Return numbers of each image [n, ...] by which it is recognized, also rounded to 8 bits: float64 [n, 18].

    They are sums of differences of random pixels, at 16 sets of places, and the lowest and the highest value. Rounding
    changes each by about as much as one value.
    """
    flat = images.detach().flatten(1).float().cpu()
    order = torch.randperm(flat.shape[1], generator=torch.Generator().manual_seed(0))
    one, other = order[: 2 * (len(order) // 2)].view(2, -1)
    out = []
    for some in map(torch.Tensor.double, flat.split(rows_in_cache(flat))):
        differences = (some[:, one] - some[:, other]).tensor_split(16, dim=1)
        sums = [part.sum(1) / max(1, 2 * part.shape[1]) ** 0.5 for part in differences]
        out.append(torch.stack([*sums, some.amin(1), some.amax(1)], 1))
    return torch.cat(out)


def count_among(own: Tensor, others: Tensor) -> int:
    """Return how many images are among others, by the signatures of both; also if one side is rounded to 8 bits."""
    if not len(own) or not len(others):
        return 0
    few = bool((own[:, :-2] == 0).all(0).any())  # values, so that different images may be near each other
    # four standard deviations of the rounding, or that of the last bits
    both = torch.cat([own, others])
    near = LAST_BITS * _span(both) if few else 1.25 * _level(both)
    others = others[others[:, 0].argsort()]
    first, place = others[:, 0].contiguous(), own[:, 0]
    start, end = torch.searchsorted(first, place - near), torch.searchsorted(first, place + near, right=True)
    ranges = zip(own, start.tolist(), end.tolist(), strict=True)
    return sum(bool(((others[a:b] - mine).abs() <= near).all(1).any()) for mine, a, b in ranges)


def _level(signatures: Tensor) -> float:
    """Return the distance of two levels of 8 bits in images with these signatures."""
    low, high = float(signatures[:, -2].min()), float(signatures[:, -1].max())
    if max(-low, high) <= 1.001:
        return (1 if low >= 0 else 2) / 255
    return 1.0 if low >= 0 and high > 8 else (high - low) / 255


def _span(signatures: Tensor) -> float:
    return float(signatures[:, -1].max() - signatures[:, -2].min())


def _signatures(images: ImageSet, comm: Collective, progress: Progress) -> Tensor:
    """Return the signatures of the images of all processes."""
    out: list[Tensor] = []
    with comm.all_ranks_or_none(), images.reading():
        for some in images.batches(comm.rank_indices(len(images)), progress=progress):
            out.append(signatures_of(some))
    own = torch.cat(out) if out else torch.empty(0, 18, dtype=torch.float64)
    return torch.cat(comm.gather(own))  # as objects, since a group may send tensors of GPUs alone

# SPDX-License-Identifier: Apache-2.0
"""Sets of images that are compared outside of any training: whether they go together, and how many of each are used."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from torch import Tensor

from genmonitor._validation import check_at_least, check_bool, check_images, check_same_length
from genmonitor._validation.arguments import check_patches
from genmonitor.evaluation.data.value_range import range_doubt
from genmonitor.functional.two_sample_test import MIN_SAMPLES

MIN_REAL, MIN_FAKE = 5, 2


def checked_set(name: str, images: Tensor, real: Tensor, patch_size: int) -> Tensor:
    """Return generated images that can be compared with real ones, or refuse them.

    Args:
        name: of the argument that they came by.
        images: [M, C, H, W].
        real: checked, [N, C, H, W].
        patch_size: side of a site.
    """
    images = check_images(name, images)
    if images.shape[1:] != real.shape[1:]:
        raise ValueError(
            f"Expected `{name}` to hold generated images of shape {list(real.shape[1:])} like the real ones, but got "
            f"{list(images.shape[1:])}. Resize or convert one of them."
        )
    if len(real) < MIN_REAL or len(images) < MIN_FAKE:
        raise ValueError(
            f"Expected at least {MIN_REAL} real and {MIN_FAKE} generated images, but got {len(real)} and "
            f"{len(images)} in `{name}`. Give more."
        )
    if doubt := range_doubt(real, images):  # which no training will mend any more
        raise ValueError(f"Expected `{name}` in the value range of the real images, but {doubt}. Scale one of them.")
    check_at_least("patch_size", patch_size, 1)
    check_patches(name, images, patch_size)
    return images


def check_paired(paired: bool, sets: dict[str, Tensor]) -> None:
    """Refuse to pair what cannot be pairs."""
    check_bool("paired", paired)
    if paired and len(sets) == 1:
        raise ValueError("Expected `other` with `paired`, but got one set of generated images. Leave `paired` out.")
    if paired:
        check_same_length("fake", sets["fake"], "other", sets["other"])


def sample_size(n_real: int, n_fake: int, n_samples: int, two_sets: bool) -> tuple[int, list[str]]:
    """Return how many images of each side are compared, and what to say of it.

    A draw of the baseline takes as many of the other real images. It needs a fifth more of them to draw from: all of
    them each time would give a band without width.
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
        f"only {n} of {n_fake} generated images are looked at, since of {n_real} real ones the others find the baseline"
        f"; {-(-wanted * 11 // 5)} real images would do for {wanted}"
    ]


def check_left(n_real: int, n: int, n_clusters: int | None) -> None:
    """Refuse too few real images to find regions in, once n of them are compared with generated ones."""
    least = max(10, 2 * (n_clusters or 1))
    if n_real - n < least:
        raise ValueError(
            f"Expected enough images in `real` that {least} are left to find the regions in, but got {n_real}, of "
            f"which {n} are compared with generated ones. Give more, or your own `partition`."
        )


def copy_notes(sets: dict[str, Tensor], real: Tensor) -> list[str]:
    """Return a note on each generated set that holds images which are among the real ones, to the last bit.

    Args:
        sets: generated images [M, C, H, W], by the name of their argument.
        real: [N, C, H, W].

    Example:
        >>> real = torch.arange(12.0).reshape(3, 1, 2, 2)
        >>> copy_notes({"fake": torch.cat([real[1:], -real])}, real)
        ['2 of 5 generated images are among the real ones']
    """
    known, notes = set(_hashes(real)), []
    for name, images in sets.items():
        found = sum(image in known for image in _hashes(images))
        if found:
            of = "" if len(sets) == 1 else f" of `{name}`"
            notes.append(f"{found} of {len(images)} generated images{of} are among the real ones")
    return notes


def _hashes(images: Tensor) -> Iterator[bytes]:
    """Yield a hash of each image, the same in every dtype and for 0 and -0."""
    for some in images.split(256):
        for image in (some.detach().float().cpu().flatten(1) + 0.0).numpy():
            yield blake2b(image.tobytes(), digest_size=16).digest()

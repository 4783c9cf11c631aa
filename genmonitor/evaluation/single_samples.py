# SPDX-License-Identifier: Apache-2.0
"""Single samples of a diagnosis: copies of real images, samples unlike every real image, and real images unlike any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor._formatting import format_p
from genmonitor._place_names import describe_place
from genmonitor.findings.finding import Area, FaultKind, Finding
from genmonitor.findings.words import advice, percent, with_strength
from genmonitor.functional.data_copying_test import DataCopying, data_copying_test
from genmonitor.functional.diagnosis.explain import SURE
from genmonitor.functional.diagnosis.kinds.variety import Copies, Modes
from genmonitor.functional.odd_samples_test import (
    OddSamples,
    Uncovered,
    odd_samples_test,
    uncovered_test,
)
from genmonitor.functional.permutation import MIN_SAMPLES, RARE, own_draws

FAR = 2.0
"""Multiple of the score of the strangest held-out image from which a sample is strange; by chance in at most 1 of 100
(benchmarks/classes_and_copies.md).
"""
NAMED, SHOWN = 3, 16
"""Numbers of samples in a sentence, and in a figure."""
COPIED = "copied"


@dataclass(frozen=True, eq=False)
class SingleSamples:
    """Result for single samples.

    Attributes:
        copying: Test for generated images that are near copies of real ones.
        strange: Test for generated images unlike every real one, relative to `held_out` real ones.
        uncovered: Test for real images unlike every generated one; None for fewer than 16 real images.
        copies: Pairs of numbers of a generated image and the real one that it copies, nearest first; empty if there are
            no more than by chance.
        numbers: Numbers of the generated images in findings.
        shown: Images [n, C, H, W] by their caption.
        originals: Training images nearest to the first samples that count as copies [n, C, H, W].
        among: Kind of images that the copied ones are of: "real", or "training" where these were given.
        searched: Number of images that were searched for copied ones.
    """

    copying: DataCopying
    strange: OddSamples
    uncovered: Uncovered | None
    copies: tuple[tuple[int, int], ...]
    numbers: Sequence[int]
    shown: dict[str, Tensor]
    originals: Tensor
    among: str = "real"
    searched: int = 0

    @classmethod
    def of(
        cls,
        fake: Tensor,
        real: Tensor,
        train: Tensor | None,
        train_indices: Sequence[int] | None,
        fake_indices: Sequence[int],
        aligned: bool,
    ) -> SingleSamples | None:
        """Examine each sample; None if there are too few.

        Args:
            fake: Generated images [N, C, H, W].
            real: Real images [M, C, H, W].
            train: Images that may be copied; None for a random half of the real ones, with the others held out.
            train_indices: Numbers of the training images; None for 0, 1, …
            fake_indices: Numbers of the generated images.
            aligned: Same as in `genmonitor.diagnose`.
        """
        # a held-out image that repeats a searched one would be as near as a copy
        searched = real[:0] if train is None else train.to(real.device)
        own = own_draws(fake, real, searched).nonzero()[:, 0]
        first, second = (own[half.to(own.device)] for half in halves_of(len(own)))
        among, held_out = (real[first], real[second]) if train is None else (searched, real[own])
        if min(map(len, (fake, among, held_out))) < MIN_SAMPLES:
            return None
        copying = data_copying_test(fake, held_out, among)
        strange = odd_samples_test(fake, _some(held_out), _some(among), aligned=aligned)
        to_cover, uncovered = _some(real[first]), None
        if len(own) >= 2 * MIN_SAMPLES:
            uncovered = uncovered_test(_some(fake), _some(real[second]), to_cover)
        numbers = first.tolist() if train is None else train_indices or range(len(among))
        pairs = zip(copying.copied.tolist(), copying.nearest[copying.copied].tolist(), strict=True)
        copied = float(copying.p_value) <= RARE
        copies = tuple((fake_indices[i], numbers[j]) for i, j in pairs) if copied else ()
        shown = {"the strangest samples": fake[strange.odd[:SHOWN].to(fake.device)].cpu()}
        if uncovered is not None:
            most = uncovered.uncovered[:SHOWN].to(real.device)
            shown["real images least like any sample"] = to_cover[most].cpu()
        found = {name: x for name, x in shown.items() if len(x)}
        whose = "real" if train is None or train_indices else "training"
        originals = among[copying.nearest[copying.copied[:SHOWN]].to(among.device)].cpu()
        return cls(copying, strange, uncovered, copies, fake_indices, found, originals, whose, len(among))

    def values(self) -> dict[str, float]:
        """Return the shares that have curves."""
        found = {COPIED: float(self.copying.share), "strange_samples": float(self.strange.share)}
        return found | ({} if self.uncovered is None else {"uncovered_images": float(self.uncovered.share)})

    def memorized(self, mask: Tensor) -> list[Finding]:
        """Return the finding of near copies of real images, with the nearest, if they are more than chance."""
        if not self.copies:
            return []
        unit = f"of the images are near copies of the {self.searched} {self.among} images searched"
        kind = FaultKind(Copies.name, float(self.copying.share), unit, 0.0)
        samples = tuple(self.copying.copied.tolist())
        such_as = ", ".join(map(str, [*dict.fromkeys(real for _, real in self.copies)][:NAMED]))
        copied = f" Copied {self.among} images: {such_as}."
        return [of_copies(kind, float(self.copying.p_value), samples, mask, copied, COPIED)]

    def without_samples(self) -> list[Finding]:
        """Return the finding of real images unlike any sample, if they are more than chance."""
        if self.uncovered is None or float(self.uncovered.p_value) > SURE:
            return []
        p = float(self.uncovered.p_value)
        text = f"{percent(float(self.uncovered.share))} of the real images are unlike any sample ({format_p(p)})."
        return [Finding(text, Area("real images"), "", "uncovered_images", fine=False, p=p)]

    def strangest(self, explained: bool = False) -> list[Finding]:
        """Return the finding of the strangest samples and their places; a detail if chance explains it.

        Args:
            explained: True if a known fault makes many samples strange; then only a few extreme ones count.
        """
        p, windows, named = float(self.strange.p_value), self.strange.windows, []
        for i in self.strange.odd[:NAMED].tolist():
            window = windows[self.strange.window[i]]
            place = "" if bool(window.all()) else f" ({describe_place(window)})"
            named.append(f"{self.numbers[i]}{place}")
        if not named:
            return []
        many, far = p <= SURE, int((self.strange.scores < FAR * self.strange.lowest).sum())
        few = 0 < far <= max(NAMED, len(self.strange.scores) // 100)
        if few:
            what = f"the first{f' {far} are' if far > 1 else ' is'} far stranger than any real image"
        elif many or far:
            share = percent(len(self.strange.odd) / len(self.strange.scores))
            what = f"{share} are stranger than 99 % of real images ({format_p(p)})"
        else:
            what = f"as many as chance brings ({format_p(p)})"
        text, samples = f"Strangest samples: {', '.join(named)}; {what}.", tuple(self.strange.odd[:SHOWN].tolist())
        area, fine, detail = Area("single samples"), False if many else None, not (few if explained else many or far)
        return [Finding(text, area, "", "strange_samples", fine=fine, p=p, samples=samples, detail=detail)]


def of_copies(
    kind: FaultKind, p: float, samples: tuple[int, ...], mask: Tensor, such_as: str = "", measure: str | None = None
) -> Finding:
    """Return the finding of images that copy each other, as after a mode collapse, or real ones."""
    sentence = f"Whole image: {with_strength(kind)} ({format_p(p)}).{such_as}"
    cause, remedy = advice(Copies.name if measure == COPIED else Modes.name, kind.share)
    area = Area("whole image", mask=mask)
    if measure != COPIED:  # that of missing modes asks for real images, which twins do not name
        remedy = "are the twins copies of training images? Then stop earlier; if not, samples have collapsed to a few"
    return Finding(
        sentence,
        area,
        Copies.name,
        measure,
        fine=False,
        p=p,
        kinds=(kind,),
        samples=samples,
        cause=cause,
        remedy=remedy,
    )


def halves_of(count: int) -> tuple[Tensor, Tensor]:
    """Return the indices of two random halves of images, always the same ones.

    Every second image would be of half the classes where classes alternate, as the prompts of samples do.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return order[: (count + 1) // 2].sort().values, order[(count + 1) // 2 :].sort().values


def _some(images: Tensor) -> Tensor:
    """Return at most 500 images at random, since their distances are most of the work."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    return images[order[:500].sort().values.to(images.device)]

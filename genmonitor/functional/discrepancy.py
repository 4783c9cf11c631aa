# SPDX-License-Identifier: Apache-2.0
"""Engine of all Gaussian comparisons: sums of kernels over pairs of samples, for groups of values, in one pass.

A group is the image or a region of it, in a view: plain pixels (structure) or whitened ones (texture). Its distances
are computed once, then its kernels of all gammas, and then all sums of the kernels. The sums are of the kernel minus
one. A constant cancels in every discrepancy, and for a wide kernel float32 resolves the small difference from one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.pair_sums import (
    PairSums,
    Spans,
    Strip,
    gaussians_of,
    row_spans,
    sum_of_squares,
    with_diagonal,
)
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.base import check_unit_diagonal
from genmonitor.kernels.views import SampleView, Structure, Texture
from genmonitor.linalg import chunking
from genmonitor.linalg.distances import centered, squared_norms
from genmonitor.linalg.precision import full_precision
from genmonitor.linalg.whitening import Whitening
from genmonitor.partition import PixelPartition

View = Literal["structure", "texture"]
VIEWS: tuple[View, ...] = get_args(View)
MULTIPLIERS = (0.5, 2.0, 8.0, 32.0)
"""Gammas of the Gaussians, in units of the inverse mean squared distance; each is four times the one before."""


@dataclass(frozen=True, eq=False)
class GroupKernels:
    """Fixed parts of a comparison: the groups of a view, and the kernels of each.

    Attributes:
        names: Names of the G groups, "image" first.
        view: Parts of samples, one for each group, or for each but the image, whose distances are then their sum.
        unit: Gamma of each group, float64 [G] on the CPU; 0 for a group without a kernel.
        multipliers: Multiples of the unit, one for each of K kernels, in rising order.
        kernel: Kernel that defines the distances; its own gamma counts only if it does not factorize.
        mixture: Weight of each kernel in their mixture [G, K]; None if no mixture is needed.
        spread: Root mean square of each centered kernel of two real samples [G, K], see `balanced`.
        deviation: Root mean square of the centered mixture [G].
        gamma: Gamma of one more Gaussian for all groups, outside the mixture; None for none.
    """

    names: tuple[str, ...]
    view: SampleView
    unit: Tensor
    multipliers: tuple[float, ...]
    kernel: Kernel
    mixture: Tensor | None = None
    spread: Tensor | None = None
    deviation: Tensor | None = None
    gamma: float | None = None

    @classmethod
    def gaussian(
        cls,
        reference: Sequence[Tensor],
        partition: PixelPartition | None,
        view: SampleView | None = None,
        multipliers: Sequence[float] = MULTIPLIERS,
    ) -> GroupKernels:
        """Choose gammas of each group by the mean squared distance of its reference samples.

        A group with a constant reference takes those of the image.

        Args:
            reference: Samples [N, ...] of one or more sets, taken together.
            partition: Regions of images.
            view: View to compare; None for plain values.
            multipliers: Gammas in units of the inverse mean squared distance of a group.
        """
        view = view or Structure.of(reference[0], partition)
        names = group_names(partition)
        scales = group_scales(reference, view, len(names))
        if not bool(scales.isfinite().all()):
            raise ValueError(
                "Expected `real` samples whose squared distances fit in float64, but their mean is infinite. Scale the "
                "samples."
            )
        known = torch.where(scales > 0, scales, scales[0]).cpu()
        unit = torch.where(known > 0, 1 / known, 0)
        return cls(names, view, unit, tuple(sorted(multipliers)), GaussianKernel())

    @classmethod
    def single(cls, kernel: Kernel, x: Tensor, partition: PixelPartition | None, mixture: bool = False) -> GroupKernels:
        """Compare plain values by one kernel, whose gamma is set and shared by all groups."""
        view, names = Structure.of(x, partition), group_names(partition)
        if not kernel.factorizes and partition:
            view = Structure([*Structure.of(x, None).columns, *view.columns])
        gamma = kernel.resolved_gamma if kernel.takes_gamma else 1.0
        unit = torch.full((len(names),), gamma, dtype=torch.float64)
        return cls(names, view, unit, (1.0,), kernel, mixture=torch.ones(len(names), 1) if mixture else None)

    @property
    def gammas(self) -> Tensor:
        """Gamma of each kernel of each group [G, K]."""
        return self.unit[:, None] * torch.tensor(self.multipliers, dtype=torch.float64)

    def balanced(self, real: Tensor, largest: float = math.inf) -> GroupKernels:
        """Weight each kernel by the inverse standard deviation of its MMD between real samples [M, ...].

        At least 1000 of them are used if available, evenly spread. If nothing varies, all kernels count alike. Those of
        a multiplier above `largest` have no weight.
        """
        # 1000 samples or more are enough to estimate how a discrepancy varies by chance
        some = real[:: max(1, len(real) // 1000)]
        spread, deviation = torch.zeros_like(self.gammas), torch.zeros_like(self.unit)
        wide = torch.tensor(self.multipliers) <= largest
        mixture = (wide / wide.sum()).to(spread).expand_as(spread).clone()
        with torch.no_grad(), full_precision():
            for group, _, _, values in replace(self, gamma=None)._strips(some, some, [(0, len(some))], same=True):
                grams = torch.stack([_centered_pairs(gram).cpu() for gram, _ in values])
                spread[group] = _root_mean_square(grams)
                counts = torch.where((spread[group] > 0) & wide, 1 / spread[group], 0)
                if counts.any():
                    mixture[group] = counts / counts.sum()
                deviation[group] = _root_mean_square(torch.einsum("k,kij->ij", mixture[group], grams))
        return replace(self, mixture=mixture, spread=spread, deviation=deviation)

    def sums(self, x: Tensor, y: Tensor | None = None, sizes: tuple[int | None, int | None] = (None, None)) -> PairSums:
        """Sum over pairs of samples of x and y, or of two different ones of x in both orders.

        Args:
            x: Samples [N, ...], float32 or float64.
            y: Samples [M, ...] of the same dtype; None for x itself.
            sizes: Numbers of samples in a block of rows and of columns; None for all.
        """
        same, y = y is None, x if y is None else y
        n, m, rows = len(x), len(y), sizes[0] or len(x)
        size = rows if same else sizes[1] or m
        zeros = torch.zeros((), dtype=torch.float64, device=x.device)
        groups, kernels = len(self.names), len(self.multipliers) + (self.gamma is not None)
        blocks = zeros.repeat(groups, kernels, -(-n // rows), -(-m // size))
        out = PairSums(blocks, zeros.repeat(groups, n), zeros.repeat(groups, m), zeros.repeat(groups))
        with full_precision():
            for strip in self._strips(x, y, row_spans(n, m, rows, same, x.device.type), same):
                partial, mixed, constant = self._summed(strip, min(rows, strip.stop - strip.start))
                if mixed is not None:
                    self._add(out, strip, partial, mixed, constant, same)
                if same:
                    partial[..., : strip.stop - strip.start] /= 2
                padding = (strip.start if same else 0, blocks.shape[-1] * size - m)
                summed = F.pad(partial, padding).unflatten(-1, (-1, size)).sum(-1)
                block = strip.start // rows
                blocks[strip.group, :, block : block + partial.shape[1]] += summed
        if same:
            out = out._replace(blocks=blocks + blocks.mT, columns=out.rows)
        if self.gamma is None:
            return out
        return out._replace(blocks=out.blocks[:, :-1], own=out.blocks[:, -1].sum((-2, -1)))

    def of_sets(self, x: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """Sum the mixture minus one over the pairs of two sets of samples, for each two of S sets, in one pass.

        Args:
            x: Samples [N, ...], float32 or float64.
            sets: Indices of the samples of each set; a sample that occurs twice in a set counts twice.

        Returns:
            Sums [G, S, S], float64; the diagonal holds those within a set, where pairs of a sample with itself are 0.
        """
        counts = torch.stack([torch.bincount(some, minlength=len(x)) for some in sets]).double().to(x.device)
        out = torch.zeros(len(self.names), len(sets), len(sets), dtype=torch.float64, device=x.device)
        spans = row_spans(len(x), len(x), 1, True, x.device.type)
        with full_precision():
            of = replace(self, gamma=None)
            for strip in of._strips(x, x, spans, same=True):
                rows = strip.stop - strip.start
                _, mixed, constant = of._summed(strip, rows)
                assert mixed is not None  # of weighted kernels
                some, every = counts[:, strip.start : strip.stop], counts[:, strip.start :]
                sums = (some.to(mixed) @ mixed).double() - constant * some.sum(1, keepdim=True)
                beyond = sums[:, rows:] @ every[:, rows:].T
                out[strip.group] += sums[:, :rows] @ every[:, :rows].T + beyond + beyond.T
        return out

    def _summed(self, strip: Strip, rows: int) -> tuple[Tensor, Tensor | None, float]:
        """Return sums over `rows` rows of each kernel minus one [K, strips, columns], and the mixture of a strip.

        The third result is the sum of the weights if the mixture is of the kernels instead of the kernels minus one.
        """
        weights = [] if self.mixture is None else self.mixture[strip.group].tolist()
        partial: list[Tensor] = []
        mixed, total = None, 0.0
        for gram, constant in strip.values:
            partial.append(gram.reshape(-1, rows, gram.shape[1]).sum(1).double() - constant * rows)
            if weights:
                weight = weights.pop(0)
                mixed = gram * weight if mixed is None else mixed.add_(gram, alpha=weight)
                total += weight * constant
        return torch.stack(partial), mixed, total

    def _add(self, out: PairSums, strip: Strip, partial: Tensor, mixed: Tensor, constant: float, same: bool) -> None:
        """Add a strip of the mixture; a symmetric one counts in both orders, and holds pairs of its own rows twice."""
        assert self.mixture is not None  # or there were nothing to add
        group, own = strip.group, strip.stop - strip.start if same else 0
        first = strip.stop if same else 0
        weights = self.mixture[group].to(partial)
        out.rows[group, strip.start : strip.stop] += mixed.sum(1).double() - constant * mixed.shape[1]
        by_column = weights @ partial[: len(weights)].sum(1)
        (out.rows if same else out.columns)[group, first:] += by_column[own:]
        within, beyond = (sum_of_squares(part, constant) for part in (mixed[:, :own], mixed[:, own:]))
        out.squares[group] += within + (1 + same) * beyond

    def _strips(self, x: Tensor, y: Tensor, spans: Spans, same: bool) -> Iterator[Strip]:
        """Yield strips of rows; if `y` is `x`, their columns begin with the first of these rows.

        Groups without a kernel are left out.
        """
        if not self.kernel.factorizes:
            for group in range(len(self.view)):
                left, right = self.kernel.prepared(self.view.values(group, x), self.view.values(group, y))
                for a, b in spans:
                    gram = self.kernel.gram(left[a:b], right[a if same else 0 :])
                    if same:
                        check_unit_diagonal(self.kernel, gram.diagonal())
                    yield Strip(group, a, b, [(with_diagonal(gram, 1) if same else gram, 1.0)])
            return
        for group, a, b, distances in self._distances(x, y, spans, same):
            unit = float(self.unit[group])
            if unit or self.gamma:
                distances = with_diagonal(distances, 0) if same else distances
                gammas = [unit * multiplier for multiplier in self.multipliers]
                some = distances.detach()[:: -(-(b - a) // 16), :: -(-distances.shape[1] // 16)]
                yield Strip(group, a, b, gaussians_of(distances, gammas, self.gamma, float(some.median())))

    def _distances(self, x: Tensor, y: Tensor, spans: Spans, same: bool) -> Iterator[tuple[int, int, int, Tensor]]:
        """Yield a group, a first and a last row, and the distances of these rows."""
        adds_up = len(self.names) > len(self.view)
        # the sums over parts that are held at a time; the values are those of one part
        held = max(1, chunking.MEMORY_BUDGET // (6 * 8 * len(y) * max(b - a for a, b in spans)))
        for some in (spans[i : i + held] for i in range(0, len(spans), held)):
            whole: list[Tensor | float] = [0.0] * len(some)
            for part in range(len(self.view)):
                kernel, left, right = self._near(part, part + adds_up, x, y)
                for index, (a, b) in enumerate(some):
                    distances = kernel.distances(left[a:b], right[a if same else 0 :])
                    if adds_up:
                        whole[index] = whole[index] + distances
                    yield part + adds_up, a, b, distances
            for (a, b), total in zip(some, whole, strict=True):
                if isinstance(total, Tensor):
                    yield 0, a, b, total

    def _near(self, part: int, group: int, x: Tensor, y: Tensor) -> tuple[Kernel, Tensor, Tensor]:
        """Return the kernel that measures distances of a part, and the values of both sides for it.

        float32 holds the exponents of the second kernel to within a millionth, those of 32 to a sixteenth of that.
        """
        gamma = max(float(self.unit[group]) * self.multipliers[:2][-1], self.gamma or 0.0)
        kernel = replace(self.kernel, gamma=gamma or 1.0)
        left = self.view.values(part, x)
        right = left if y is x else self.view.values(part, y)
        if _all_equal((left, right)):  # distances are exactly zero, which a mean rounds
            left, right = torch.zeros_like(left), torch.zeros_like(right)
        return kernel, *kernel.prepared(left, right)


def view_kernels(
    reference: Sequence[Tensor], partition: PixelPartition | None, multipliers: Sequence[float] = MULTIPLIERS
) -> dict[View, GroupKernels]:
    """Make both views of images, or the structure of features, from reference samples.

    Args:
        reference: Images [N, C, H, W] or features [N, D] of one or more sets, taken together.
        partition: Regions of images.
        multipliers: Gammas in units of the inverse mean squared distance of a group.
    """
    structure = GroupKernels.gaussian(reference, partition, multipliers=multipliers)
    out: dict[View, GroupKernels] = {"structure": structure}
    if reference[0].ndim == 4:
        texture = Texture.of(Whitening.of(*reference), partition)
        out["texture"] = GroupKernels.gaussian(reference, partition, texture, multipliers)
    return out


def views_state(views: Mapping[View, GroupKernels]) -> dict[str, dict[str, Tensor]]:
    """Return balanced views as tensors on the CPU, for `views_of_state`."""
    out = {}
    for name, kernels in views.items():
        tensors = {key: getattr(kernels, key) for key in ("unit", "mixture", "spread", "deviation")}
        if isinstance(kernels.view, Texture):
            tensors |= kernels.view.whitening._asdict()
        out[str(name)] = {key: tensor.cpu() for key, tensor in tensors.items()}
    return out


def views_of_state(
    state: Mapping[str, Mapping[str, Tensor]], like: Tensor, partition: PixelPartition | None
) -> dict[View, GroupKernels]:
    """Make views from the result of `views_state`, for samples with the shape, dtype and device of `like`."""
    out: dict[View, GroupKernels] = {}
    for name in (view for view in VIEWS if view in state):
        saved = dict(state[name])
        view: SampleView = Structure.of(like, partition)
        if name == "texture":
            view = Texture.of(Whitening(*(saved.pop(key).to(like) for key in Whitening._fields)), partition)
        of = GroupKernels(group_names(partition), view, saved["unit"], MULTIPLIERS, GaussianKernel())
        out[name] = replace(of, mixture=saved["mixture"], spread=saved["spread"], deviation=saved["deviation"])
    return out


def group_names(partition: PixelPartition | None) -> tuple[str, ...]:
    """Return the names of the groups, "image" first."""
    return ("image", *(partition.regions() if partition else ()))


def group_scales(reference: Sequence[Tensor], view: SampleView, groups: int) -> Tensor:
    """Return the mean squared distance of two different reference samples in each group: float64 [groups].

    It is twice the sum of the variances, so no pairs are needed.

    Example:
        >>> halves = Structure([torch.tensor([0]), torch.tensor([1])])
        >>> group_scales([torch.tensor([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]])], halves, groups=3)
        tensor([8., 8., 0.], dtype=torch.float64)
    """
    parts = [_scale([view.values(part, x) for x in reference]) for part in range(len(view))]
    if groups > len(parts):
        parts.insert(0, sum(parts))
    return torch.tensor(parts, dtype=torch.float64, device=reference[0].device)


def _scale(sides: Sequence[Tensor]) -> float:
    """Return twice the sum of the variances of some values, exactly 0 if nothing varies."""
    near = torch.cat([*sides]) - sides[0][0]
    near = centered(near, near)[0]
    return float(2 * squared_norms(near).double().sum() / (len(near) - 1)) if near.any() else 0.0


def _centered_pairs(gram: Tensor) -> Tensor:
    """Return a Gram matrix [N, N] in float64, centered, with zeros on its diagonal."""
    gram = gram.double()
    return (gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()).fill_diagonal_(0)


def _root_mean_square(grams: Tensor) -> Tensor:
    """Return the root mean square over pairs of different samples [...] of matrices [..., N, N] with zero diagonal."""
    n = grams.shape[-1]
    return (grams.square().sum((-2, -1)) / (n * (n - 1))).sqrt()


def _all_equal(sides: Sequence[Tensor]) -> bool:
    """Return True if all samples of all sides are the same."""
    first = sides[-1][0]
    return all(bool((side[:2] == first).all()) and bool((side == first).all()) for side in sides)

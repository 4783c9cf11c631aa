# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
import torch
from _helpers import references as ref

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel, PixelPartition
from genmonitor.functional import discrepancy, pair_sums
from genmonitor.functional.discrepancy import MULTIPLIERS, GroupKernels, view_kernels
from genmonitor.kernels.views import Structure, Texture
from genmonitor.linalg import chunking
from genmonitor.linalg.whitening import Whitening

LABELS = np.array([[1, 1, 2, 2], [1, 0, 0, 2], [3, 3, 1, 2]])
PARTITION = PixelPartition(torch.from_numpy(LABELS))
MIXTURE = torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 5)


def images(n: int, seed: int = 0, channels: int = 2) -> torch.Tensor:
    return torch.randn(n, channels, 3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parts(x: np.ndarray) -> list[np.ndarray]:
    """The values of the image and of each region."""
    return [ref.flat(x), *(ref.region(x, LABELS, label) for label in (1, 2, 3, 0))]


def view_parts(view: str, reference: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    if view == "structure":
        return parts(x)
    whole = ref.flat(ref.whitened(reference, x - reference.mean(0)))
    regions = []
    for label in (1, 2, 3, 0):
        seen = ref.whitened(reference, np.where(label == LABELS, x - reference.mean(0), 0))
        regions.append(ref.region(seen, LABELS, label))
    return [whole, *regions]


def summed(gram: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Sums over blocks, by loops; the last block of a side may be smaller."""
    cut = [
        gram[i : i + rows, j : j + columns].sum()
        for i in range(0, len(gram), rows)
        for j in range(0, len(gram[0]), columns)
    ]
    return np.array(cut).reshape(-(-len(gram) // rows), -1)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("block", [1, 7, 3000])
def test_a_gpu_gets_few_strips_and_a_processor_those_that_its_cache_holds(block, same):
    strips = {device: pair_sums.row_spans(3000, 3000, block, same, device) for device in ("cpu", "cuda")}
    for spans in strips.values():
        assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
        assert spans[-1][1] == 3000
    assert len(strips["cuda"]) <= 5 < len(strips["cpu"])


@pytest.mark.parametrize(
    ("view", "sizes", "budget"),
    [
        ("structure", (None, None), chunking.MEMORY_BUDGET),
        ("structure", (1, 1), 20_000),
        ("structure", (3, 4), 1),
        ("structure", (17, 5), 20_000),
        ("texture", (None, None), 1),
        ("texture", (1, 1), chunking.MEMORY_BUDGET),
        ("texture", (3, 4), 20_000),
        ("texture", (17, 5), 1),
    ],
)
def test_sums_are_those_of_loops(view, sizes, budget, monkeypatch):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    monkeypatch.setattr(pair_sums, "STRIP", 2000)
    x, y, reference = images(20), images(13, 1), images(30, 2)
    kernels = discrepancy.replace(view_kernels([reference], PARTITION)[view], mixture=MIXTURE)
    across, within = kernels.sums(x, y, sizes), kernels.sums(x, sizes=sizes)
    seen = [view_parts(view, reference.numpy(), z.numpy()) for z in (x, y, reference)]
    for group, (a, b, c) in enumerate(zip(*seen, strict=True)):
        scale = 2 * c.var(0, ddof=1).sum()
        assert float(kernels.unit[group]) == pytest.approx(1 / scale)
        for sums, other, columns in ((across, b, sizes[1]), (within, a, sizes[0])):
            grams = [ref.gram(a, other, m / scale) - 1 for m in MULTIPLIERS]
            for k, gram in enumerate(grams):
                expected = summed(gram, sizes[0] or len(a), columns or len(other))
                np.testing.assert_allclose(sums.blocks[group, k].numpy(), expected, atol=1e-9)
                assert float(sums.totals[group, k]) == pytest.approx(gram.sum())
            mixed = sum(w * gram for w, gram in zip(MIXTURE[group].tolist(), grams, strict=True))
            np.testing.assert_allclose(sums.rows[group].numpy(), mixed.sum(1), rtol=1e-6)
            np.testing.assert_allclose(sums.columns[group].numpy(), mixed.sum(0), rtol=1e-6)
            assert float(sums.squares[group]) == pytest.approx((mixed**2).sum(), rel=1e-6)


@pytest.mark.parametrize("kernel", [GaussianKernel(0.2), LaplacianKernel(0.1), CosineKernel()])
def test_one_kernel_for_all_groups(kernel):
    partition = None if isinstance(kernel, CosineKernel) else PARTITION
    x, y = images(20), images(13, 1)
    found = GroupKernels.single(kernel, x, partition, mixture=True)
    for a, b, sums in ((x, y, found.sums(x, y)), (x, x, found.sums(x))):
        sides = [parts(side.numpy()) if partition else [ref.flat(side.numpy())] for side in (a, b)]
        for group, (u, v) in enumerate(zip(*sides, strict=True)):
            gram = kernel(torch.from_numpy(u.copy()), torch.from_numpy(v.copy())).numpy() - 1
            np.testing.assert_allclose(sums.rows[group].numpy(), gram.sum(1), atol=1e-9)
            assert float(sums.totals[group, 0]) == pytest.approx(gram.sum())


def wide(view):
    """The same view of float64 images."""
    return (
        view if isinstance(view, Structure) else Texture(Whitening(*(x.double() for x in view.whitening)), view.inside)
    )


def test_float32_keeps_six_digits():
    x, y = images(200).float(), images(150, 1).float()
    for kernels in view_kernels([images(300, 2).float()], PARTITION).values():
        kernels = discrepancy.replace(kernels, mixture=MIXTURE)
        found = kernels.sums(x, y)
        exact = discrepancy.replace(kernels, view=wide(kernels.view)).sums(x.double(), y.double())
        for a, b in zip(found, exact, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=0)


def test_a_batch_split_or_an_order_of_the_samples_changes_nothing_but_the_last_digits():
    x, y = images(40), images(30, 1)
    (kernels,) = view_kernels([images(50, 2).flatten(1)], None).values()
    kernels = discrepancy.replace(kernels, mixture=MIXTURE[:1])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    found, turned = kernels.sums(x, y), kernels.sums(x[order], y)
    torch.testing.assert_close(turned.rows, found.rows[:, order])
    torch.testing.assert_close(turned.totals, found.totals)


def test_balanced_kernels_count_the_inverse_of_what_they_vary_by():
    real = images(60)
    kernels = GroupKernels.gaussian([real], PARTITION).balanced(real)
    center = np.eye(60) - 1 / 60
    for group, x in enumerate(parts(real.numpy())):
        grams = [center @ ref.gram(x, x, g) @ center for g in kernels.gammas[group].tolist()]
        spreads = [np.sqrt((k[~np.eye(60, dtype=bool)] ** 2).mean()) for k in grams]
        np.testing.assert_allclose(kernels.spread[group].numpy(), spreads)
        weights = 1 / np.array(spreads) / (1 / np.array(spreads)).sum()
        np.testing.assert_allclose(kernels.mixture[group].numpy(), weights)
        mixed = sum(w * k for w, k in zip(weights, grams, strict=True))
        assert float(kernels.deviation[group]) == pytest.approx(np.sqrt((mixed[~np.eye(60, dtype=bool)] ** 2).mean()))


def test_kernels_narrower_than_asked_have_no_weight():
    kernels = GroupKernels.gaussian([images(60)], PARTITION)
    both, wide = kernels.balanced(images(60)), kernels.balanced(images(60), largest=2.0)
    assert torch.equal(both.spread, wide.spread)
    np.testing.assert_allclose(wide.mixture[:, :2], both.mixture[:, :2] / both.mixture[:, :2].sum(1, keepdim=True))
    assert not wide.mixture[:, 2:].any()
    drawn = [torch.arange(20), torch.arange(20, 60)]
    alone = replace(wide, multipliers=wide.multipliers[:2], mixture=wide.mixture[:, :2])
    np.testing.assert_allclose(wide.of_sets(images(60), drawn), alone.of_sets(images(60), drawn))


def test_a_group_that_is_constant_in_the_reference_takes_the_gamma_of_the_image():
    reference = images(30)
    reference[..., torch.from_numpy(LABELS == 2)] = 0.1
    for kernels in view_kernels([reference], PARTITION).values():
        assert kernels.unit[2] == kernels.unit[0] > 0
        alike = kernels.sums(reference).blocks
        assert not alike[2].any()
        assert alike[[0, 1, 3, 4]].all()


def test_means_carry_the_gradient():
    x, y = images(6).requires_grad_(), images(7, 1)
    kernels = GroupKernels.single(GaussianKernel(0.2), y, PARTITION)
    torch.autograd.gradcheck(lambda z: kernels.sums(z, y).totals + kernels.sums(z).totals, x)

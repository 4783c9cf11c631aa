# SPDX-License-Identifier: Apache-2.0
from math import comb

import numpy as np
import pytest
import torch
from torch.nn.functional import avg_pool2d

from genmonitor._place_names import describe_place
from genmonitor.functional import odd_samples_test, uncovered_test
from genmonitor.linalg import chunking
from genmonitor.linalg.whitening import Whitening


def images(n: int, side: int = 12, channels: int = 1, seed: int = 0) -> torch.Tensor:
    """Smooth images, float64 in about [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return avg_pool2d(torch.rand(n, channels, side + 4, side + 4, generator=generator, dtype=torch.float64), 5, 1)


def reference(fake: torch.Tensor, held_out: torch.Tensor, real: torch.Tensor) -> tuple[np.ndarray, float, set[int]]:
    """Window by window and pair by pair."""
    side, whitening, scores = fake.shape[-1], Whitening.of(real), []
    both = torch.cat([fake, held_out])
    edges = [side * i // 4 if side % 4 == 0 else -(-side * i // 4) for i in range(5)]
    windows = [(edges[a], edges[a + 2], edges[b], edges[b + 2]) for a in range(3) for b in range(3)]
    for view in (lambda x: x, whitening):
        for top, bottom, left, right in [*windows, (0, side, 0, side)]:
            x, y = (view(some)[:, :, top:bottom, left:right].flatten(1).numpy() for some in (both, real))
            span = float(view(real).max() - view(real).min())
            least = x.shape[1] * (span / 255) ** 2 / 6
            radii = [sorted(np.sum((a - b) ** 2) + least for b in y)[3] for a in y]
            realism = [max(r / (np.sum((a - b) ** 2) + least) for b, r in zip(y, radii, strict=True)) for a in x]
            logs = np.log(realism) / 2
            scores.append((logs - np.median(logs)) / (np.quantile(logs, 0.5) - np.quantile(logs, 0.05)))
    score = np.min(scores, 0)
    n, m = len(fake), len(held_out)
    limit = sorted(score[n:])[m // 100]
    odd = {i for i in range(n) if score[i] < limit}
    size = len(odd) + m // 100
    p = sum(comb(n, k) * comb(m, size - k) for k in range(len(odd), size + 1)) / comb(n + m, size)
    return score[:n], p, odd


@pytest.mark.parametrize("cache", [2**22, 2**12])
@pytest.mark.parametrize("side", [8, 10])
def test_twin(monkeypatch, cache, side):
    monkeypatch.setattr(chunking, "CACHE", cache)
    fake, held_out, real = images(21, side, 2, 1), images(21, side, 2, 2), images(20, side, 2)
    fake[3] = 1 - fake[3]
    fake[5, :, :2, :2] += 0.5
    score, p, odd = reference(fake, held_out, real)
    found = odd_samples_test(fake, held_out, real)
    np.testing.assert_allclose(found.scores, score, rtol=1e-6)
    assert float(found.p_value) == pytest.approx(p)
    assert set(found.odd.tolist()) == odd


def test_odd_samples_are_named_with_their_place():
    fake, held_out, real = images(200, seed=1), images(200, seed=2), images(200)
    fake[7, :, :4, :4] = 2.0
    fake[11, :, 8:, 8:] = -1.0
    fake[13] += 0.3 * torch.rand(12, 12, generator=torch.Generator().manual_seed(0))
    found = odd_samples_test(fake, held_out, real)
    assert set(found.odd[:3].tolist()) == {7, 11, 13}
    places = {i: describe_place(found.windows[found.window[i]]) for i in (7, 11)}
    assert places == {7: "upper left", 11: "lower right"}


def test_many_odd_ones_are_more_than_chance():
    fake, held_out, real = images(200, seed=1), images(200, seed=2), images(200)
    fake[:15, :, :, :6] = fake[15:30, :, :, :6].flip(2)
    fake[:15] += 0.3 * torch.rand(fake[:15].shape, generator=torch.Generator().manual_seed(0))
    found = odd_samples_test(fake, held_out, real)
    assert float(found.p_value) < 1e-3
    assert float(found.share) == pytest.approx(0.075, abs=0.03)


@pytest.mark.nightly
@pytest.mark.slow
def test_level():
    """p <= 0.05 in no more than 5 % of 300 null runs, three standard errors allowed."""
    sets = (images(90, 4, seed=run) for run in range(300))
    p = [float(odd_samples_test(x[:30], x[30:60], x[60:]).p_value) for x in sets]
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 3 * 0.0126


def test_what_never_varies_in_real_images_and_does_in_one_sample_is_odd():
    fake, held_out, real = images(50, seed=1), images(50, seed=2), images(50)
    for x in (fake, held_out, real):
        x[:, :, :, 6:] = 0
    fake[4, :, 2, 9] = 0.5
    found = odd_samples_test(fake, held_out, real)
    assert found.odd[0] == 4
    fake[4, :, 2, 9] = 1e-3  # less than 8 bits tell apart
    assert 4 not in odd_samples_test(fake, held_out, real).odd.tolist()


def test_equal_samples_everywhere_are_not_odd():
    same = torch.ones(20, 1, 8, 8)
    found = odd_samples_test(same, same, same)
    assert (float(found.p_value), float(found.share), len(found.odd)) == (1, 0, 0)


@pytest.mark.parametrize("aligned", [True, False])
def test_features_and_images_that_are_not_aligned_have_no_windows(aligned):
    generator = torch.Generator().manual_seed(0)
    fake, held_out, real = (torch.randn(100, 5, generator=generator) for _ in range(3))
    fake[9] = 20
    found = odd_samples_test(fake, held_out, real, aligned=aligned)
    assert found.odd[0] == 9
    assert found.windows.shape == (1, 1, 1)
    of_images = odd_samples_test(images(20), images(20, seed=1), images(20, seed=2), aligned=False)
    assert of_images.windows.all()


def test_samples_with_faint_noise_are_odd_by_their_texture_alone():
    fake, held_out, real = (images(200, 16, seed=seed).expand(-1, 3, -1, -1).clone() for seed in range(3))
    fake[:10] += 0.02 * torch.randn(fake[:10].shape, generator=torch.Generator().manual_seed(0))
    in_pixels = odd_samples_test(fake.flatten(1), held_out.flatten(1), real.flatten(1))
    assert len(set(in_pixels.odd.tolist()) & set(range(10))) <= 2
    assert set(range(10)) <= set(odd_samples_test(fake, held_out, real).odd.tolist())


@pytest.mark.parametrize("short", ["fake", "held_out", "real"])
def test_fewer_than_8_samples_are_refused(short):
    sides = {name: images(7 if name == short else 20) for name in ("fake", "held_out", "real")}
    with pytest.raises(ValueError, match=f"Expected `{short}` to hold at least 8 samples, but got 7"):
        odd_samples_test(**sides)


def test_what_is_uncovered_is_in_no_ball_that_a_sample_reaches():
    fake, held_out, real = images(30, 8, seed=1), images(30, 8, seed=2), images(40, 8)
    fake = fake.mean(0) + 0.3 * (fake - fake.mean(0))
    whitening, uncovered = Whitening.of(real), [set(), set()]
    for view in (lambda x: x, whitening):
        x, *sides = (view(some).flatten(1).numpy() for some in (real, fake, held_out))
        for i, a in enumerate(x):
            radius = sorted(np.sum((a - b) ** 2) for b in x)[5]
            for found, side in zip(uncovered, sides, strict=True):
                if min(np.sum((a - b) ** 2) for b in side) > radius:
                    found.add(i)
    found = uncovered_test(fake, held_out, real)
    assert set(found.uncovered.tolist()) == uncovered[0]
    parts = [len(side) / 40 for side in uncovered]
    assert float(found.share) == pytest.approx((parts[0] - parts[1]) / (1 - parts[1]))


def test_noise_covers_nothing():
    real, held_out = images(150), images(150, seed=1)
    noise = torch.randn(150, 1, 12, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for size in (0.3, 1.1, 3.0):
        found = uncovered_test(real.mean(0) + size * noise, held_out, real)
        assert float(found.share) > 0.98
        assert float(found.p_value) == pytest.approx(0.001)


def test_as_much_is_covered_by_chance_as_the_level_says():
    small = [
        float(uncovered_test(*(images(40, 8, seed=3 * i + j) for j in range(3)), seed=i).p_value) <= 0.05
        for i in range(100)
    ]
    assert sum(small) <= 11  # of 100 at 0.05 more are one in 200

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dctn
from torch.nn.functional import avg_pool2d

from genmonitor.functional import band_energy_test
from genmonitor.linalg import chunking


def images(n: int, side: int = 16, channels: int = 1, seed: int = 0) -> torch.Tensor:
    """Smooth images with some noise, float64 in about [0, 1]."""
    draw = torch.rand(n, channels, side + 4, side + 4, generator=torch.Generator().manual_seed(seed)).double()
    return avg_pool2d(draw, 5, 1) + 0.05 * draw[..., 2:-2, 2:-2]


def reference(fake: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Ratio of the geometric mean energies of each band and direction, coefficient by coefficient [B, 4]."""
    height, width = real.shape[2:]
    count = max(1, round(np.log2(min(height, width))) - 1)
    step = (real.max() - real.min()) / 255
    logs = []
    for side in (fake, real):
        energy = np.zeros((len(side), count, 4))
        spectra = np.abs(dctn(side, axes=(2, 3), norm="ortho")) ** 2
        for u in range(height):
            for v in range(width):
                if u == v == 0:
                    continue
                down, across = u / (2 * height), v / (2 * width)
                wavelength = 1 / np.hypot(down, across)
                band = int(np.clip(np.floor(np.log2(wavelength / 2)), 0, count - 1))
                direction = 1 if across > 2 * down else 2 if down > 2 * across else 3
                for part in (0, direction):
                    energy[:, band, part] += spectra[:, :, u, v].sum(1) + side.shape[1] * step**2 / 12
        logs.append(np.log(energy).mean(0))
    return np.exp(logs[0] - logs[1])


@pytest.mark.parametrize("budget", [2**29, 2**14])
@pytest.mark.parametrize(("size", "channels"), [((16, 16), 1), ((12, 20), 3), ((4, 5), 2)])
def test_energies_are_those_of_the_cosine_transform(monkeypatch, budget, size, channels):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    fake, real = (images(20, 20, channels, seed)[:, :, : size[0], : size[1]] ** (1 + seed) for seed in (0, 1))
    found = band_energy_test(fake, real)
    expected = reference(fake.numpy(), real.numpy())
    np.testing.assert_allclose(found.energy, expected[:, 0], rtol=1e-10)
    np.testing.assert_allclose(found.directed_energy, expected[:, 1:], rtol=1e-10)


def test_a_band_is_found_and_no_other():
    """Waves of 6 pixels added to real images that have none."""
    fake, real = images(100, 32), images(100, 32, seed=1)
    fake += 0.05 * torch.sin(2 * torch.pi / 6 * torch.arange(32))
    found = band_energy_test(fake, real)
    assert found.wavelengths == (2, 4, 8, 16)
    assert (found.p_value <= 0.05).tolist() == [False, True, False, False]
    assert found.energy[1] > 2
    assert (found.directed_p_value[1] <= 0.05).tolist() == [True, False, False]  # vertical lines


def test_directions_turn_with_the_image():
    fake, real = images(40), images(40, seed=1)
    fake += 0.05 * torch.sin(torch.arange(16.0))
    found, turned = band_energy_test(fake, real), band_energy_test(fake.mT, real.mT)
    torch.testing.assert_close(turned.directed_energy[:, [1, 0, 2]], found.directed_energy)


@pytest.mark.slow  # 400 tests
def test_level():
    """Any band or direction at p <= 0.05 in no more than 5 % of 400 null runs, three standard errors allowed."""
    smallest = []
    for run in range(400):
        found = band_energy_test(images(20, 8, seed=2 * run), images(30, 8, seed=2 * run + 1))
        smallest.append(float(min(found.p_value.min(), found.directed_p_value.min())))
    assert np.mean(np.array(smallest) <= 0.05) <= 0.05 + 3 * 0.011


def test_rounding_to_8_bits_and_what_is_smaller_makes_no_difference():
    real = images(100, 16).clamp(0, 1)
    flat = avg_pool2d(real, 16).expand(-1, -1, 16, 16)  # one color each
    rounded = (255 * (flat + 1e-4 * torch.rand(real.shape, generator=torch.Generator().manual_seed(0)))).round() / 255
    found = band_energy_test(flat.clone(), rounded)
    assert float((found.energy - 1).abs().max()) < 1
    assert float(band_energy_test(real, real.flip(0)).p_value.min()) == 1


def test_images_of_one_color_throughout_have_no_bands():
    same = torch.full((20, 1, 8, 8), 0.3)
    found = band_energy_test(same, same)
    assert found.p_value.tolist() == [1.0, 1.0]
    assert found.energy.tolist() == [1.0, 1.0]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**16), st.floats(0.01, 100), st.floats(-10, 10))
def test_scale_and_brightness_make_no_difference(seed, scale, shift):
    fake, real = images(12, 8, seed=seed), images(10, 8, seed=seed + 1)
    found, other = band_energy_test(fake, real), band_energy_test(scale * fake + shift, scale * real + shift)
    torch.testing.assert_close(other.energy, found.energy, rtol=1e-6, atol=0)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="Expected `height and width` to be a whole number >= 2, but got 1"):
        band_energy_test(torch.rand(10, 1, 1, 8), torch.rand(10, 1, 1, 8))
    with pytest.raises(ValueError, match="Expected `real`"):
        band_energy_test(torch.rand(10, 8), torch.rand(10, 8))
    with pytest.raises(ValueError, match="at least 8 samples, but got 7"):
        band_energy_test(torch.rand(7, 1, 8, 8), torch.rand(10, 1, 8, 8))

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch.nn.functional import avg_pool2d

from genmonitor import diagnose
from genmonitor.evaluation.bands import BANDS, band_finding, band_values, bands_of
from genmonitor.functional import BandEnergy


def found(energy, p, directed=None, p_directed=None):
    """Return what a test of three bands might find, the same in all directions unless these are given."""
    energy, p = torch.tensor(energy), torch.tensor(p)
    directed = energy[:, None].repeat(1, 3) if directed is None else torch.tensor(directed)
    p_directed = p[:, None].repeat(1, 3) if p_directed is None else torch.tensor(p_directed)
    return BandEnergy((2, 4, 8), energy, p, directed, p_directed)


def said(*given, **more):
    return [str(x) for x in band_finding(found(*given, **more))]


def test_the_band_that_differs_most_is_said_first_and_others_are_spoken_of():
    assert said([0.8, 0.2, 1.0], [0.005, 0.01, 0.5]) == [
        "Details of 4-8 px have 20 % of the energy of real images, of 2-4 px 80 % (p = 0.01); no evidence of a "
        "difference in others."
    ]
    assert said([1.2, 3.0, 0.9], [0.005, 0.005, 0.005]) == [
        "Details of 4-8 px have 3 times the energy of real images, of 2-4 px 120 %, of 8 px and more 90 % (p = 0.005)."
    ]


@pytest.mark.parametrize("energy", [1000.0, 1e300, float("inf")])
def test_a_ratio_to_nothing_is_no_row_of_digits(energy):
    [text] = said([energy, 1.0, 1.0], [0.005, 0.9, 0.9])
    assert text.startswith("Details of 2-4 px have more than 1000 times the energy of real images (p = 0.005)")


def test_what_chance_brings_in_one_of_twenty_comparisons_is_not_said():
    assert said([0.9, 1.0, 1.0], [0.03, 0.9, 0.9]) == []


def test_one_direction_that_differs_is_named():
    p_directed = [[0.005, 0.9, 0.9], [0.9] * 3, [0.9] * 3]
    directed = [[4.0, 1.0, 1.0], [1.0] * 3, [1.0] * 3]
    [text] = said([2.0, 1.0, 1.0], [0.005, 0.9, 0.9], directed=directed, p_directed=p_directed)
    assert text.startswith("Vertical lines of 2-4 px have 4 times the energy of real images (p = 0.005)")
    [text] = said([1.1, 1.0, 1.0], [0.2, 0.9, 0.9], directed=directed, p_directed=p_directed)
    assert text.startswith("Vertical lines of 2-4 px have 4 times")


def test_the_one_band_of_small_images_is_of_all_sizes():
    [finding] = band_finding(
        BandEnergy((2,), *torch.tensor([[0.5], [0.01]]), *torch.tensor([[[0.5] * 3], [[0.01] * 3]]))
    )
    assert str(finding) == "Details of all sizes have 50 % of the energy of real images (p = 0.01)."


def test_nothing_is_said_without_evidence():
    assert said([0.5, 1.0, 1.0], [0.06, 0.5, 0.5]) == []


def test_values_are_declared_and_the_finding_goes_by_one():
    of = found([0.8, 0.2, 1.0], [0.005, 0.01, 0.5])
    values = band_values(of)
    assert values["energy_4"] == pytest.approx(0.2)
    assert values.keys() <= {spec.key for spec in BANDS}
    assert band_finding(of)[0].measure == "energy_4"


def test_images_of_three_pixels_have_no_bands():
    assert bands_of(torch.rand(20, 1, 3, 9), torch.rand(20, 1, 3, 9), seed=0) is None


@pytest.mark.parametrize("aligned", [True, False])
def test_a_diagnosis_says_what_detail_is_missing(aligned):
    images = torch.rand(400, 1, 24, 24, generator=torch.Generator().manual_seed(0))
    images = 3 * avg_pool2d(images, 3, 1, 1) + 0.3 * images
    fake = avg_pool2d(images[:200], 3, 1, 1, count_include_pad=False)
    diagnosis = diagnose(fake=fake, real=images[200:], aligned=aligned, fault_models=[])
    texts = [str(x) for x in diagnosis.findings if x.measure == "energy_2"]
    assert texts
    assert texts[0].startswith("Details of 2-4 px have ")
    assert diagnosis.of_image()["energy_2"] < 0.3
    assert diagnosis.bands.p_value[0] == 0.001


def test_what_a_named_fault_explains_is_a_detail():
    images = 3 * avg_pool2d(torch.rand(400, 1, 24, 24, generator=torch.Generator().manual_seed(0)), 3, 1, 1)
    noise = 0.5 * torch.randn(200, 1, 24, 24, generator=torch.Generator().manual_seed(1))
    diagnosis = diagnose(fake=images[:200] + noise, real=images[200:])
    assert "noise" in str(diagnosis)
    assert "energy" not in str(diagnosis)
    assert "strange" not in str(diagnosis).lower()
    assert {x.measure for x in diagnosis.findings if x.detail} >= {"energy_2", "strange"}

# SPDX-License-Identifier: Apache-2.0
import html
import json
import re

import pytest
import torch
from _helpers.evaluations import ScriptedCollective, halves
from _helpers.meta_tensor import MetaTensor

import genmonitor
from genmonitor import PixelPartition, compare
from genmonitor.evaluation import RegionSettings
from genmonitor.evaluation.regions.metrics import RealRegions
from genmonitor.evaluation.regions.values import RegionValues
from genmonitor.findings.finding import headlines
from genmonitor.functional import two_sample_test
from genmonitor.functional.relative_similarity import relative_similarity_from_influences

SIDES = PixelPartition.grid((4, 6), 1, 2)
REAL, DARK, LIGHT = halves(300, 1), halves(120, 2, dark=0.6), halves(120, 3)


@pytest.fixture(scope="module")
def one():
    """The dark right half against real images."""
    return compare(real=REAL, fake=DARK, settings=RegionSettings(partition=SIDES))


@pytest.fixture(scope="module")
def two():
    """The dark right half and images that are as good as real ones."""
    return compare(real=REAL, fake=DARK, other=LIGHT, settings=RegionSettings(partition=SIDES))


def drawn(n, of):
    return torch.randperm(of, generator=torch.Generator().manual_seed(0))[:n]


def test_regions_are_found_in_images_of_a_subclass_of_tensor():
    found, expected = (
        compare(real=cls(REAL), fake=cls(DARK), settings=RegionSettings(n_clusters=2))
        for cls in (MetaTensor, torch.as_tensor)
    )
    assert found.to_dict() == expected.to_dict()


def test_the_finding_names_the_dark_half(one):
    first, *others = map(str, headlines(one.findings))
    assert first == one.finding
    assert re.fullmatch(
        r"Right half, 3×4 px: contrast − [34]\d %; explains \d+ % of what is wrong there \(p = 0.001\)\.", first
    )
    assert any(said.startswith("cluster_2 (right half) differs from real images: error ratio ") for said in others)
    assert str(one).startswith("\n".join([first, *others, f"{one.split}.\n"]))
    assert one.split == "300 real images: 180 for the baseline, 120 compared with 120 generated ones"


def test_p_values_are_those_of_the_test_on_images_that_found_nothing(one):
    found = two_sample_test(DARK, REAL[drawn(120, 300)], partition=SIDES)
    assert {name: one.values[RegionValues(SIDES.regions()).p[name]] for name in found} == pytest.approx(
        {name: float(p) for name, p in found.items()}, abs=0.02
    )


def test_real_images_differ_nowhere():
    found = compare(real=REAL, fake=LIGHT, settings=RegionSettings(partition=SIDES))
    assert found.finding.startswith("No evidence of a difference from real images in any region (p = ")
    assert "differs (" not in str(found)


def test_regions_are_found_where_none_are_given():
    found = compare(real=REAL, fake=DARK, settings=RegionSettings(n_clusters=2))
    assert found.partition.num_clusters == 2
    assert "180 for the regions and the baseline" in found.split


def test_differences_are_those_of_the_function(two):
    real, *sets = REAL[drawn(120, 300)], DARK[drawn(120, 120)], LIGHT[drawn(120, 120)]
    compared = RealRegions(two.evaluator.fitted.metrics.fixed, real)
    sides = [compared.measure(images).influence for images in sets]
    found = relative_similarity_from_influences(*sides, alternative="different")
    for name, test in found.items():
        expected = {field: float(value) for field, value in test._asdict().items()}
        assert two.differences[name] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_the_finding_of_two_sets_says_which_is_closer_and_where(two):
    closer = r"other is closer to the real images than fake \(p [<=] 0\.000\d+\), in cluster_2 \(p < 0\.0001\)"
    said = two.finding
    assert re.fullmatch(rf"{closer}; no evidence of a difference in the other\.", said)
    of_each = [f"{name}: {found.findings[0]}" for name, found in zip(two.names, two.evaluations, strict=True)]
    assert str(two).startswith("\n".join([said, *of_each, f"{two.split}.\n"]))
    assert "right half" in of_each[0].lower()  # what is wrong with it, and where
    assert two.split.endswith("120 compared with 120 generated ones of each set")
    assert [row[0] for row in two.table.rows] == ["image", "cluster_2", "cluster_1"]


def test_a_set_is_no_closer_than_itself():
    found = compare(real=REAL, fake=LIGHT, other=LIGHT, settings=RegionSettings(partition=SIDES))
    assert found.finding.startswith("No evidence that fake or other is closer to the real images in any region")


def test_pairs_tell_smaller_differences():
    darker = LIGHT * 0.97
    alone, paired = (
        compare(real=REAL, fake=LIGHT, other=darker, settings=RegionSettings(partition=SIDES), paired=paired)
        for paired in (False, True)
    )
    errors = [found.differences["cluster_1"]["standard_error"] for found in (alone, paired)]
    assert errors[1] < errors[0]


def test_sets_may_be_of_different_sizes():
    assert compare(real=REAL, fake=LIGHT, other=DARK[:50], settings=RegionSettings(partition=SIDES)).n_samples == 50


def test_figure_shows_every_set_and_names_what_differs_most(one, two):
    for found, names in ((one, ["real", "fake"]), (two, ["real", "fake", "other"])):
        figure = found.figure()
        assert [ax.get_title(loc="left") for ax in figure.axes] == names
    assert one.figure().texts[0].get_text().startswith("cluster_2 (right half) differs from real images: error ratio ")
    assert two.figure().texts[0].get_text().startswith("other is closer to the real images than fake (p ")


def test_diagnosis_is_drawn_of_one_set_alone(one, two):
    drawn = one.diagnosis_figures()
    title = drawn["diagnosis"].texts[0].get_text().removesuffix("…").split()  # of three lines at most
    assert title == one.finding.split()[: len(title)]
    assert len(title) > 8
    assert drawn["single_samples"].texts[0].get_text().startswith("Strangest samples: ")
    assert two.diagnosis_figures() == {}


def test_images_that_are_not_aligned_have_no_place():
    found = compare(real=REAL, fake=0.6 * LIGHT, settings=RegionSettings(partition=SIDES, aligned=False))
    assert found.finding.startswith("Anywhere: ")
    assert "diagnosis" in found.diagnosis_figures()


def test_dictionary_is_plain_and_complete(one, two):
    for found in (one, two):
        assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    assert one.to_dict()["real_images"] == {"given": 300, "compared": 120, "for_regions": 180}
    assert "differences" not in one.to_dict()
    assert two.to_dict()["differences"] == two.differences
    assert two.to_dict()["other_values"]["p_2"] > 0.05


def test_two_runs_give_the_same(one):
    assert compare(real=REAL, fake=DARK, settings=RegionSettings(partition=SIDES)).to_dict() == one.to_dict()


def test_images_of_eight_bits_are_those_in_zero_to_one():
    real, fake = (((255 * images).round()).to(torch.uint8) for images in (REAL, DARK))
    found = compare(real=real, fake=fake, settings=RegionSettings(partition=SIDES))
    assert found.values == compare(real=real / 255, fake=fake / 255, settings=RegionSettings(partition=SIDES)).values


def test_a_notebook_shows_words_and_picture(one):
    shown = one._repr_html_()
    assert shown.startswith(f"<pre>{html.escape(one.finding)}")
    assert '<img alt="diagnosis" src="data:image/png;base64,' in shown
    assert '<img alt="real and generated images" src="data:image/png;base64,' in shown
    assert repr(one) == f"Comparison({one.finding})"


def test_too_few_images_give_no_verdict():
    found = compare(real=REAL[:40], fake=DARK[:5], settings=RegionSettings(partition=SIDES))
    assert found.finding == "Too few images for a verdict: a test needs 8 on each side."


def test_generated_images_left_out_are_spoken_of():
    found = compare(real=REAL[:110], fake=DARK, settings=RegionSettings(partition=SIDES))
    assert found.n_samples == 50
    assert "Note: Only 50 of 120 generated images are compared, since some of the 110 real ones" in str(found)


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        ((REAL[:18], DARK), {"settings": RegionSettings(8)}, "that 16 are left to find the regions in"),
        ((REAL, DARK), {"settings": {"n_clusters": 2}}, "`settings` to be RegionSettings, but got dict"),
        ((REAL, DARK), {"paired": True}, "Expected `other` with `paired`"),
        ((REAL, DARK, LIGHT[:5]), {}, "at least 8 images on each side"),
        ((REAL, DARK), {"settings": RegionSettings(partition=PixelPartition.grid((4, 4), 1, 2))}, "4×6"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        compare(**dict(zip(("real", "fake", "other"), arguments, strict=False)), **given)


def test_the_callers_random_numbers_stay():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    compare(real=REAL, fake=DARK, settings=RegionSettings(partition=SIDES))
    assert torch.rand(1) == expected


def test_it_is_public():
    assert genmonitor.compare is genmonitor.evaluation.compare


def test_no_band_is_without_width():
    real = REAL.clone()
    real[..., 0] = 0.5
    found = compare(real=real, fake=real[:100] + 0.001, settings=RegionSettings(n_clusters=2))
    assert "constant" in found.values
    assert {"image", "product", "cluster_1", "cluster_2"} <= found.baseline.keys()
    assert "constant" not in found.baseline


def test_names_of_regions_are_those_of_values_words_and_pictures():
    found = compare(
        real=REAL,
        fake=DARK,
        settings=RegionSettings(partition=SIDES, region_names={"cluster_1": "left_eye", "cluster_2": "right_eye"}),
    )
    assert {"left_eye", "p_left_eye", "error_ratio_right_eye", "share_right_eye"} <= found.values.keys()
    assert "right_eye (right half) differs from real images" in str(found)
    assert "cluster_" not in str(found)
    legend = [x.get_text() for x in found.evaluator.presenter().fit_figures()["clusters"].legends[0].get_texts()]
    assert legend[:2] == ["1: left eye (12 px)", "2: right eye (12 px)"]


@pytest.mark.parametrize("name", ["spread", "mmd", "product"])
def test_a_region_cannot_have_the_name_of_a_value(name):
    with pytest.raises(ValueError, match=f"that differ from names of values, but got '{name}'"):
        compare(real=REAL, fake=DARK, settings=RegionSettings(partition=SIDES, region_names={"cluster_1": name}))


@pytest.fixture(scope="module")
def noise():
    """Images that no two of which are near each other: 300 of training, 400 real ones and 200 generated ones."""
    return torch.rand(900, 1, 4, 6, generator=torch.Generator().manual_seed(0)).split([300, 400, 200])


def test_copied_training_images_are_named(noise):
    train, real, fake = noise
    copying = fake.clone()
    copying[50:75] = train[100:125] + 0.001
    found = compare(real=real, fake=copying, settings=RegionSettings(partition=SIDES), train=train)
    said = rf"1[23] % of the images are near copies of the {len(train)} training images searched \(p < 0.0001\)\."
    assert re.match(f"Whole image: {said}", found.finding)
    assert len({(50 + i, 100 + i) for i in range(25)} & set(found.copies)) >= 20  # 180 of 200 images are compared
    assert found.values["copied"] == pytest.approx(25 / 180, abs=0.03)
    assert "copied" in [spec.key for spec in found.specs]
    assert found.to_dict()["copies"] == [list(pair) for pair in found.copies]
    pictures = found.evaluations[0].diagnosed.diagnosis.examples
    shown = [pictures[name] for name in ("generated, those that show it most", "the real images that they copy")]
    torch.testing.assert_close(shown[0], shown[1] + 0.001)
    assert compare(real=real, fake=fake, settings=RegionSettings(partition=SIDES), train=train).copies == ()


def test_copied_real_images_that_are_not_compared_with_are_named_too(noise):
    _, real, fake = noise
    given = fake.clone()
    given[:40] = real[300:340] + 0.001
    found = compare(real=real, fake=given, settings=RegionSettings(partition=SIDES))
    assert len(found.copies) > 10
    assert all(image == 300 + sample for sample, image in found.copies if sample < 40)


@pytest.mark.parametrize("rank", [0, 1])
def test_training_images_of_another_shape_are_refused_by_all_processes(noise, rank):
    """Though the first one alone looks for copies: the others would wait for it."""
    with pytest.raises(ValueError, match="`train`"):
        compare(
            real=REAL,
            fake=LIGHT,
            settings=RegionSettings(partition=SIDES),
            train=noise[0][..., :4],
            comm=ScriptedCollective(rank),
        )

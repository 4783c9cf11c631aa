# SPDX-License-Identifier: Apache-2.0
import re
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import avg_pool2d

from genmonitor import compare, diagnose
from genmonitor.evaluation import RegionSettings
from genmonitor.evaluation.single_samples import SingleSamples
from genmonitor.functional.diagnosis.kinds import KINDS


def images(n, seed=0, side=16):
    draw = torch.rand(n, 1, side + 4, side + 4, generator=torch.Generator().manual_seed(seed))
    return avg_pool2d(draw, 5, 1)


@pytest.fixture
def sets():
    """Generated images, of which two are odd, and real ones."""
    fake, real = images(200), images(500, 1)
    fake[17, :, :5, :5] = 1.0
    fake[150] = 1 - fake[150] + 0.3 * torch.rand(16, 16, generator=torch.Generator().manual_seed(2))
    return fake, real


def looked_at(fake, real, train=None, **options):
    given = {"train_indices": None, "fake_indices": range(1000, 1000 + len(fake)), "aligned": True} | options
    return SingleSamples.of(fake, real, train, **given)


def test_odd_samples_are_named_by_their_numbers_with_the_place(sets):
    found = looked_at(*sets)
    [finding] = found.strangest()
    assert finding.text.startswith("Strangest samples: ")
    assert "1017 (upper left)" in finding.text
    assert " 1150" in finding.text
    assert {17, 150} == set(finding.samples[:2])
    assert torch.equal(found.shown["the strangest samples"][:2], sets[0][list(finding.samples[:2])])
    assert finding.fine is None  # chance brings two among 200 too, but they are named
    assert finding.text.endswith("; the first 2 are far stranger than any real image.")
    assert not finding.detail


@pytest.mark.parametrize(("times", "far"), [(1.9, False), (2.1, True)])
def test_a_sample_is_far_stranger_from_twice_the_score_of_the_strangest_real_image_on(sets, times, far):
    found = looked_at(*sets)
    scores = torch.full_like(found.strange.scores, float(found.strange.lowest) / 2)
    scores[17] = times * found.strange.lowest
    strange = found.strange._replace(scores=scores, odd=torch.tensor([17]))
    [finding] = replace(found, strange=strange).strangest()
    assert ("the first is far stranger" in finding.text) == far


def test_many_odd_samples_are_a_finding(sets):
    fake, real = sets
    fake[:40] += 0.3 * torch.rand(fake[:40].shape, generator=torch.Generator().manual_seed(0))
    [finding] = looked_at(fake, real).strangest()
    assert finding.fine is False
    assert "% are stranger than 99 % of real images (p < 0.0001)" in finding.text
    assert looked_at(fake, real).values()["strange_samples"] == pytest.approx(0.2, abs=0.03)


def test_real_images_that_no_sample_is_like_are_counted_and_shown(sets):
    fake, real = sets
    real[:100] = 1 - real[:100]
    real[:100] += 0.5
    found = looked_at(fake, real)
    [first] = found.without_samples()
    assert re.fullmatch(r"(1[4-9]|2[0-3]) % of the real images are unlike any sample \(p = 0.001\)\.", first.text)
    assert found.values()["uncovered_images"] == pytest.approx(0.18, abs=0.05)
    shown = found.shown["real images least like any sample"]
    assert sum(any(torch.equal(x, y) for y in real[:100]) for x in shown) >= 14  # of 16


def test_copies_are_named_by_the_numbers_of_both_sides(sets):
    fake, real = sets
    train = images(300, 5)
    fake[20:40] = train[50:70] + 1e-3
    found = looked_at(fake, real, train, train_indices=range(5000, 5300))
    assert {(1020 + i, 5050 + i) for i in range(20)} <= set(found.copies)
    [finding] = found.memorized(torch.ones(16, 16).bool())
    assert finding.measure == "copied"
    assert "near copies of the 300 real images searched" in finding.text
    assert "memorization" in finding.cause
    assert "collapse" not in finding.cause
    assert finding.remedy == KINDS["copies"].remedy
    assert set(range(20, 40)) <= set(finding.samples)
    assert all(number in range(5050, 5070) for number in map(int, finding.text.split("images: ")[-1][:-1].split(", ")))


def test_nothing_is_said_of_real_images_in_place_of_generated_ones():
    draw = images(800, 3)
    found = looked_at(draw[:300], draw[300:])
    assert found.copies == ()
    assert found.without_samples() == []
    assert all(x.fine is None and x.detail and "as many as chance brings" in x.text for x in found.strangest())


def test_too_few_images_are_not_looked_at():
    assert looked_at(images(7), images(100)) is None
    assert looked_at(images(20), images(14)) is None  # 7 to be like
    assert looked_at(images(20), images(15), images(100)).uncovered is None


def test_findings_of_a_diagnosis_have_the_numbers_that_were_given(sets):
    fake, real = sets
    diagnosis = diagnose(fake=fake, real=real, fault_models=[], fake_indices=range(1000, 1200))
    assert str(diagnosis.findings[-1]).startswith("Strangest samples: 1")
    assert {1017, 1150} == set(diagnosis.findings[-1].samples[:2])


def test_compare_names_odd_images_by_their_place_in_the_set_though_it_takes_them_in_another_order(sets):
    found = compare(real=sets[1], fake=sets[0], settings=RegionSettings(n_clusters=2))
    finding = next(x for x in found.findings if x.measure == "strange_samples")
    assert {17, 150} == set(finding.samples[:2])
    assert "17 (upper left)" in str(found)


@pytest.mark.parametrize("side", ["fake", "real"])
def test_classes_in_turn_are_neither_copied_nor_left_out(side):
    """As the prompts of samples are, and the images of a loader that balances classes."""
    patterns = torch.rand(6, 1, 16, 16, generator=torch.Generator().manual_seed(9))
    sets = {name: images(1200, seed) + patterns.repeat(200, 1, 1, 1) for seed, name in enumerate(("fake", "real"))}
    other = "real" if side == "fake" else "fake"
    sets[other] = sets[other][torch.randperm(1200, generator=torch.Generator().manual_seed(0))]
    found = looked_at(**sets)
    assert found.copies == ()
    assert found.without_samples() == []
    assert max(float(x.share) for x in (found.copying, found.strange, found.uncovered)) < 0.03


@pytest.mark.parametrize("given", [False, True], ids=["halves", "training images given"])
@pytest.mark.parametrize("repeats", [1, 3])
def test_held_out_images_that_repeat_searched_ones_prove_nothing(given, repeats):
    """A copy is as near to the searched images as can be, so all samples would look odd beside it."""
    real = images(300 // repeats, 1).repeat(repeats, 1, 1, 1)[torch.randperm(300, generator=torch.Generator())]
    found = looked_at(images(200), real, torch.cat([real[:60], images(100, 3)]) if given else None)
    assert min(float(x.p_value) for x in (found.copying, found.strange, found.uncovered)) > 0.01


def test_copied_images_have_their_numbers_where_real_images_repeat():
    real, fake = images(200, 1).repeat(2, 1, 1, 1), images(200)
    fake[:60] = real[:60] + 1e-3
    found = looked_at(fake, real)
    assert found.copies
    right = [(real[j] - fake[i - 1000]).abs().max() < 2e-3 for i, j in found.copies]
    assert sum(right) > 0.7 * len(right)  # a few are near by chance
    for image, (_, j) in zip(found.originals, found.copies, strict=False):
        assert torch.equal(image, real[j])

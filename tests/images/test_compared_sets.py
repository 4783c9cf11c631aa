# SPDX-License-Identifier: Apache-2.0
import re

import pytest
import torch

from genmonitor.images.compared_sets import (
    check_left,
    check_paired,
    check_set,
    check_value_range,
    overlap_notes,
    sample_size,
    shared_notes,
    signatures_of,
)
from genmonitor.images.image_set import ImageSet

REAL = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def notes_of(real, train=None, refuse_shared=False, **sets):
    given = {name: ImageSet(images) for name, images in sets.items()}
    return overlap_notes(given, ImageSet(real), train, refuse_shared=refuse_shared)


def test_all_generated_images_are_compared_where_real_ones_suffice():
    assert sample_size(900, 400, 1200, two_sets=False) == (400, [])
    assert sample_size(10_000, 4000, 1200, two_sets=True) == (1200, [])


@pytest.mark.parametrize("n_real", [5, 6, 11, 40, 301, 900])
def test_draws_of_the_baseline_differ(n_real):
    n, notes = sample_size(n_real, 10_000, 10_000, two_sets=False)
    assert n_real - n >= 1.1 * n  # the others: below that they would be drawn with replacement
    assert notes[0].startswith(f"only {n} of 10000 generated images are compared, since some of the {n_real} real ones")


def test_the_number_that_the_note_asks_for_suffices():
    _, (note,) = sample_size(300, 777, 777, two_sets=False)
    asked = int(note.split("; with ")[1].split()[0])
    assert sample_size(asked, 777, 777, two_sets=False) == (777, [])


def test_two_sets_need_enough_for_a_test():
    with pytest.raises(ValueError, match=r"at least 8 images on each side .* got 7 generated and 100 real ones"):
        sample_size(100, 7, 1200, two_sets=True)


def test_regions_need_some_real_images():
    check_left(20, 9, None)
    with pytest.raises(ValueError, match="that 14 are left to find the regions in, but got 20, of which 9 are"):
        check_left(20, 9, 7)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(20, 1, 4, 6), r"`other` to hold generated images of shape \[1, 4, 4\] like the real ones"),
        (torch.rand(1, 1, 4, 4), "at least 5 real and 2 generated images, but got 20 and 1 in `other`"),
        (255 * torch.rand(20, 1, 4, 4), "`other` in the value range of the real images, but real images reach"),
        (torch.full((20, 1, 4, 4), torch.nan), "`other` to be finite"),
    ],
)
def test_sets_that_do_not_go_together_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        check_set("other", ImageSet(images, name="`other`"), ImageSet(REAL), patch_size=1)


def test_patches_have_to_tile():
    with pytest.raises(ValueError, match="`patch_size` to divide the size 4×4 of `fake`, but got 3"):
        check_set("fake", ImageSet(REAL), ImageSet(REAL), patch_size=3)


def test_only_sets_of_one_size_are_pairs():
    check_paired(True, {"fake": REAL, "other": REAL})
    check_paired(False, {"fake": REAL, "other": REAL[:5]})
    with pytest.raises(ValueError, match="`fake` and `other` to hold equally many samples"):
        check_paired(True, {"fake": REAL, "other": REAL[:5]})
    with pytest.raises(ValueError, match="Expected `other` with `paired`"):
        check_paired(True, {"fake": REAL})
    with pytest.raises(TypeError, match="paired"):
        check_paired(1, {"fake": REAL})


def between(low, high, n=20):
    x = torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(n))
    return low + (high - low) * x


REFUSED = {
    "[0, 1] against 0..255": (between(0, 255), between(0, 1), "real images reach 25.* and generated ones (0.99|1)"),
    "[-1, 1] against 0..255": (between(0, 255), between(-1, 1), "real images reach 25"),
    "integers 0 and 1 read as 0..255": (between(0, 1).round() / 255, between(0, 1), "reach no more than 1/255"),
}
NOTED = {
    "[-1, 1] against [0, 1]": (between(0, 1), between(-1, 1), "0.4[0-9] of the generated values are negative"),
    "[0, 1] against [-1, 1]": (between(-1, 1), between(0, 1), "no generated value is negative"),
    "0..255 against [0, 1]": (between(0, 1), between(0, 255), "generated ones 25"),
    "0..255 against [-1, 1]": (between(-1, 1), between(0, 255), "generated ones 25"),
    "[0, 1] against 0..16": (between(0, 16), between(0, 1), "real images reach 1[56].* and generated ones (0.99|1)"),
    "a new sigmoid against [-1, 1]": (between(-1, 1), between(0.45, 0.55), "no generated value is negative"),
    "a tanh against standardized": (between(-0.42, 2.82), between(-0.9, 0.9), "as behind a tanh"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_value_range_refuses_what_no_training_mends(name):
    real, fake, problem = REFUSED[name]
    with pytest.raises(ValueError, match=problem):
        check_value_range(real, fake)


@pytest.mark.parametrize("name", NOTED)
def test_value_range_notes_what_training_may_mend(name):
    real, fake, doubt = NOTED[name]
    (note,) = check_value_range(real, fake)
    assert re.search(doubt, note)


@pytest.mark.parametrize("remedy", ["`sample_fn`", "the dataset's transform", "`image_key`"])
def test_value_range_names_each_remedy(remedy):
    assert remedy in check_value_range(between(0, 1), between(-1, 1))[0]
    with pytest.raises(ValueError, match=remedy):
        check_value_range(between(0, 255), between(-1, 1))


@pytest.mark.parametrize("seed", range(20))
def test_value_range_never_refuses_an_untrained_decoder(seed):
    torch.manual_seed(seed)
    decoder = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 64))
    with torch.no_grad():
        fake = decoder(torch.randn(16, 8)).view(16, 1, 8, 8)
    assert len(check_value_range(between(0, 1), fake)) <= 1


@pytest.mark.parametrize(
    ("real", "fake"),
    [
        (between(-1, 1), between(-1, 1, 9)),
        (between(0, 1), between(0, 1, 9)),
        (between(0, 255), between(0, 255, 9)),
        (between(0, 1), between(-0.04, 1.2)),  # unbounded, near enough
        (between(-1, 1), between(-0.01, 0.01)),  # a new network before its tanh
        (between(-1, 1), torch.zeros(9, 1, 8, 8)),  # an output layer that is still zero
        (between(0, 1), torch.zeros(9, 1, 8, 8)),
        (between(-1, 1), torch.full((9, 1, 8, 8), -1.0)),
        (between(-2.1, 2.6), between(-3, 4)),  # standardized
        (between(0, 255), between(90, 100)),
        (between(0, 16), between(0, 0.1)),  # a new network behind a ReLU
        *((between(-1, 1), torch.full((9, 1, 8, 8), value)) for value in (0.3, 0.5, 1.0)),  # constant, untrained
    ],
)
def test_value_range_lets_a_bad_generator_through(real, fake):
    assert check_value_range(real, fake) == ()


OTHERS = torch.rand(300, 1, 4, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_generated_images_that_are_real_ones_are_counted(dtype):
    others, real = OTHERS.to(dtype), REAL.to(dtype)
    assert notes_of(REAL, fake=others) == []
    copied = torch.cat([others, real[3:5]])
    assert notes_of(REAL, fake=others, other=copied) == ["2 of 302 images of `other` are among those of `real`"]


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"fake": REAL}, "`fake` and `real` to hold different images, but 20 of 20"),
        ({"fake": REAL.double().flip(0)}, "20 of 20 images of `fake` are among those of `real`"),
        ({"fake": torch.cat([REAL, OTHERS[:20]])}, "20 of 40 images of `fake`"),
        ({"fake": OTHERS, "other": REAL}, "20 of 20 images of `other`"),
        ({"fake": OTHERS, "train": REAL}, "20 of 20 images of `real` are among those of `train`"),
        ({"fake": OTHERS, "train": torch.cat([OTHERS, REAL[:10]]).double()}, "10 of 20 images of `real`"),
    ],
)
def test_sets_that_hold_the_same_images_are_refused(sets, says):
    """All p-values are 1 then, and every sample is stranger than a held-out image that was trained on."""
    with pytest.raises(ValueError, match=says):
        notes_of(REAL, refuse_shared=True, **sets)
    if "train" in sets:
        with pytest.raises(ValueError, match=says):
            notes_of(REAL, **sets)
    else:
        assert any("are among those of `real`" in note for note in notes_of(REAL, **sets))


def test_images_that_repeat_are_counted():
    repeated = torch.cat([OTHERS[:100], OTHERS[:3], OTHERS[:1]])
    (note,) = notes_of(REAL, fake=repeated)
    assert note.startswith("4 of 104 images of `fake` are identical to others of them: if they were copied, p-values")


def test_zero_has_no_sign():
    black = torch.zeros(1, 1, 2, 2)
    assert notes_of(black, fake=-black) == ["1 of 1 images of `fake` are among those of `real`"]


PHOTOS = torch.nn.functional.avg_pool2d(torch.rand(60, 3, 20, 20, generator=torch.Generator().manual_seed(2)), 5, 1)
SAVED = {
    "rounded": lambda x: (255 * x).round() / 255,
    "cut": lambda x: (255 * x).floor() / 255,
    "rounded in [-1, 1]": lambda x: (127.5 * x + 127.5).round() / 127.5 - 1,
    "float16": lambda x: x.half().float(),
    "bfloat16": lambda x: x.bfloat16().float(),
    "float64": lambda x: x.double(),
}


@pytest.mark.parametrize("way", SAVED)
@pytest.mark.parametrize("turned", [False, True], ids=["as they are", "the other way round"])
def test_images_are_recognized_after_rounding(way, turned):
    """Float images beside their PNGs."""
    of = (2 * PHOTOS - 1) if "-1" in way else PHOTOS
    images, others = SAVED[way](of[:40]), of[21:]
    images, others = (others, images) if turned else (images, others)
    (note,) = shared_notes(signatures_of(images), signatures_of(others))
    assert note.startswith(f"19 of {len(images)} real images that are compared are identical to others")
    (note,) = notes_of(images, train=torch.cat([others, 1 - PHOTOS]), fake=1 - PHOTOS)
    assert note == f"19 of {len(images)} images of `real` are among those of `train`"


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_small_images_that_differ_are_not_taken_for_the_same(size):
    draw = torch.rand(3000, 1, size, size, generator=torch.Generator().manual_seed(3))
    assert shared_notes(signatures_of(draw[:1000]), signatures_of(draw[1000:])) == []


@pytest.mark.parametrize("many", ["real", "generated"])
def test_masks_of_integers_0_and_1_beside_bytes_are_refused(many):
    """uint8 masks of 0 and 1 are read as 0 and 1/255."""
    sides = {"real": (REAL > 0.5) / 255, "generated": (255 * REAL).round() / 255}
    real, fake = sides.values() if many == "real" else reversed(sides.values())
    said = f"{many} images hold 0 and 1/255 alone, like integers 0 and 1 that are read as 0..255"
    with pytest.raises(ValueError, match=said):
        check_set("fake", ImageSet(fake), ImageSet(real), 1)
    check_set("fake", ImageSet(real), ImageSet(real), 1)

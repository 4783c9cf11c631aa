# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation.data.compared_sets import check_left, check_paired, checked_set, copy_notes, sample_size

REAL = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def test_all_generated_images_are_compared_where_real_ones_suffice():
    assert sample_size(900, 400, 1200, two_sets=False) == (400, [])
    assert sample_size(10_000, 4000, 1200, two_sets=True) == (1200, [])


@pytest.mark.parametrize("n_real", [5, 6, 11, 40, 301, 900])
def test_draws_of_the_baseline_differ(n_real):
    n, notes = sample_size(n_real, 10_000, 10_000, two_sets=False)
    assert n_real - n >= 1.1 * n  # the others: below that they would be drawn with replacement
    assert notes[0].startswith(f"only {n} of 10000 generated images are looked at, since of {n_real} real ones")


def test_the_number_that_the_note_asks_for_suffices():
    _, (note,) = sample_size(300, 777, 777, two_sets=False)
    asked = int(note.split("; ")[1].split()[0])
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
        checked_set("other", images, REAL, patch_size=1)


def test_patches_have_to_tile():
    with pytest.raises(ValueError, match="`patch_size` to divide the size 4×4 of `fake`, but got 3"):
        checked_set("fake", REAL, REAL, patch_size=3)


def test_only_sets_of_one_size_are_pairs():
    check_paired(True, {"fake": REAL, "other": REAL})
    check_paired(False, {"fake": REAL, "other": REAL[:5]})
    with pytest.raises(ValueError, match="`fake` and `other` to hold as many samples"):
        check_paired(True, {"fake": REAL, "other": REAL[:5]})
    with pytest.raises(ValueError, match="Expected `other` with `paired`"):
        check_paired(True, {"fake": REAL})
    with pytest.raises(TypeError, match="paired"):
        check_paired(1, {"fake": REAL})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_generated_images_that_are_real_ones_are_counted(dtype):
    others = torch.rand(300, 1, 4, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert copy_notes({"fake": others}, REAL) == []
    copied = torch.cat([others, REAL[3:5].to(dtype), REAL[3:4].to(dtype)])
    assert copy_notes({"fake": copied}, REAL) == ["3 of 303 generated images are among the real ones"]
    assert copy_notes({"fake": others, "other": REAL.to(dtype)}, REAL) == [
        "20 of 20 generated images of `other` are among the real ones"
    ]


def test_zero_has_no_sign():
    black = torch.zeros(1, 1, 2, 2)
    assert copy_notes({"fake": -black}, black) == ["1 of 1 generated images are among the real ones"]

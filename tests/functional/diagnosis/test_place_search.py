# SPDX-License-Identifier: Apache-2.0
"""Where a fault is: where real images with it are closest to generated ones."""

import pytest
import torch
from torch import Tensor

from genmonitor.functional.diagnosis.distance import pixel_views
from genmonitor.functional.diagnosis.fit import PutFault, Side
from genmonitor.functional.diagnosis.images import Images, side_to_fit
from genmonitor.functional.diagnosis.kinds import FAULT_MODELS
from genmonitor.functional.diagnosis.kinds.tone import Brighter
from genmonitor.functional.diagnosis.place_search import best_placed, best_rectangle, box, located, unlike
from genmonitor.functional.discrepancy_map import grown

BRIGHTER = Brighter((0.1,))
EVERYWHERE = torch.ones(14, 14, dtype=torch.bool)


def waves(n: int, seed: int) -> Tensor:
    """Smooth images [n, 1, 14, 14] whose brightness varies far more than neighboring pixels differ."""
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.linspace(0, 3, 14), torch.linspace(0, 3, 14), indexing="ij")
    a, b, phase, level = torch.rand(4, n, 1, 1, generator=generator)
    return (0.5 + 0.2 * torch.sin(a * x + b * y + 6 * phase) + 0.4 * (level - 0.5))[:, None]


def rectangle(top: int, left: int, height: int, width: int) -> Tensor:
    out = torch.zeros(14, 14, dtype=torch.bool)
    out[top : top + height, left : left + width] = True
    return out


def planted(area: Tensor, seed: int = 0) -> Images:
    """Images of which generated ones are brighter in an area."""
    fake = waves(200, 2 * seed)
    return Images.of(torch.where(area, fake + 0.1, fake), waves(200, 2 * seed + 1), seed)


def side_of(images: Images) -> Side:
    return side_to_fit(images, EVERYWHERE, pixel_views(images.halves[0][1], EVERYWHERE)).first(80)


def overlap(a: Tensor, b: Tensor) -> float:
    return float((a & b).sum()) / float((a | b).sum())


@pytest.mark.parametrize("start", [(2, 4, 6, 6), (5, 6, 5, 4), (3, 3, 8, 9)])
def test_an_area_moves_to_where_the_fault_is(start: tuple[int, int, int, int]) -> None:
    true = rectangle(4, 5, 6, 6)
    _, area = best_placed(side_of(planted(true)), [((PutFault(BRIGHTER, 0.1),), [rectangle(*start)])])
    assert overlap(area, true) > 0.9


def test_a_border_is_found_whole_though_the_map_shows_more_or_parts_of_it() -> None:
    true = ~rectangle(2, 2, 10, 10)
    wider, corners = ~rectangle(4, 4, 6, 6), true & ~rectangle(3, 0, 8, 14)
    side = side_of(planted(true))
    for start in (wider, corners):
        assert torch.equal(best_placed(side, [((PutFault(BRIGHTER, 0.1),), [start])])[1], true)


def test_an_area_never_becomes_all_of_the_image() -> None:
    side = side_of(planted(EVERYWHERE))
    _, area = best_placed(side, [((PutFault(BRIGHTER, 0.1),), [rectangle(1, 0, 13, 14)])])
    assert not bool(area.all())


def test_of_two_faults_the_one_that_comes_closer_says_where() -> None:
    true = rectangle(4, 5, 6, 6)
    darker, brighter = ((PutFault(BRIGHTER, s),) for s in (-0.1, 0.1))
    side = side_of(planted(true))
    left, area = best_placed(side, [(darker, [rectangle(0, 0, 4, 4)]), (brighter, [rectangle(4, 4, 6, 6)])])
    assert torch.equal(area, true)
    assert left < 0.1 * side.left(())


def test_the_best_rectangle_has_the_largest_sum() -> None:
    gain = torch.randn(6, 7, generator=torch.Generator().manual_seed(0))
    sums = {
        (a, b, c, d): float(gain[a:b, c:d].sum())
        for b in range(7)
        for a in range(b)
        for d in range(8)
        for c in range(d)
    }
    a, b, c, d = max(sums, key=lambda x: sums[x])
    expected = torch.zeros(6, 7, dtype=torch.bool)
    expected[a:b, c:d] = True
    assert torch.equal(best_rectangle(gain), expected)


@pytest.mark.parametrize("seed", range(3))
def test_a_fault_is_around_the_edge_that_the_map_shows_of_it(seed: int) -> None:
    """That smooth images are brighter shows where it begins: a step between pixels that no real image has."""
    true = rectangle(4, 4, 6, 6)
    edge = grown(true, 1) & ~grown(true, -2)
    area, models = located(planted(true, seed), edge, (~edge).float(), FAULT_MODELS)
    assert overlap(area, true) > overlap(edge, true)
    assert "brighter" in {x.name for x in models}


def test_what_no_fault_explains_stays_where_it_is() -> None:
    true = rectangle(4, 4, 6, 6)
    images = Images.of(waves(100, 0), waves(100, 1), 0)
    area, models = located(images, true, (~true).float(), [BRIGHTER])
    assert torch.equal(area, true)
    assert models == [BRIGHTER]


def test_two_plain_areas_are_each_found_exactly() -> None:
    """Where real images hardly vary, all but an exact place leaves them as far as they were."""
    one, other = rectangle(0, 0, 3, 3), rectangle(0, 11, 3, 3)
    fake, real = (torch.where(one | other, 0.01 * x, x) for x in (waves(200, 0), waves(200, 1)))
    images = Images.of(torch.where(one | other, fake + 0.3, fake), real, 0)
    for true, beside in ((one, other), (other, one)):
        shown = grown(true, 1)
        p_map = (grown(beside, 1) | ~grown(true, 4)).float()
        assert torch.equal(located(images, shown, p_map, FAULT_MODELS)[0], true)


def test_masks_grow_shrink_and_are_boxed() -> None:
    small, large = rectangle(4, 4, 3, 3), rectangle(3, 3, 5, 5)
    torch.testing.assert_close(grown(small, 1), large)
    torch.testing.assert_close(grown(large, -1), small)
    torch.testing.assert_close(box(rectangle(2, 2, 1, 1) | rectangle(6, 9, 1, 1)), rectangle(2, 2, 5, 8))
    assert len(unlike([small, large, small, rectangle(0, 0, 14, 14)])) == 2

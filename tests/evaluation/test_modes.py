# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.distributed import SingleProcess
from genmonitor.evaluation.modes import (
    LARGEST_SIDE,
    DiversityMetric,
    SampleSet,
    disagreement,
    mode_ends,
    thumbnail,
)
from genmonitor.functional import prompt_split, rke_score, scendi_score, vendi_score
from genmonitor.images.sampler import Samples
from genmonitor.kernels import GaussianKernel

NAMES = ["a", "b", "c"] * 10
PROMPTS = torch.eye(3).repeat(10, 1)
REFERENCE = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))


def split_of(outputs):
    """Return what splits outputs from the reference."""

    def split(num_modes):
        kernels = {"output_kernel": GaussianKernel(0.5), "prompt_kernel": GaussianKernel(8.0)}
        return prompt_split(outputs, PROMPTS, REFERENCE, PROMPTS, num_modes=num_modes, **kernels)

    return split


def moved(prompt, by=5.0):
    """Return the reference with the outputs of a prompt moved."""
    outputs = REFERENCE.clone()
    outputs[NAMES.index(prompt) :: 3] += by
    return outputs


@pytest.fixture(scope="module")
def found():
    split = split_of(moved("b"))
    return disagreement(split, 2, NAMES, NAMES)


def test_disagreement_has_k_modes_of_either_sign(found):
    top, bottom = ([mode.eigenvalue for mode in modes] for modes in (found.top, found.bottom))
    assert len(top) == len(bottom) == 2
    assert top == sorted(top, reverse=True)
    assert bottom == sorted(bottom)
    assert top[1] > 0 > bottom[1]


def test_disagreement_modes_are_about_the_prompt_that_changed(found):
    assert {mode.prompts[0][0] for mode in (*found.top, *found.bottom)} == {"b"}


def test_disagreement_modes_are_shown_by_samples_of_both_sides(found):
    assert {NAMES[row] for row in found.top[0].samples} == {"b"}
    assert {NAMES[row] for row in found.bottom[0].reference_samples} == {"b"}
    assert len(found.top[0].samples) == len(found.top[0].reference_samples) == 5


def test_disagreement_has_a_mode_that_both_sides_share(found):
    assert abs(found.similar.eigenvalue) < found.top[0].eigenvalue
    assert found.similar.prompts[0][0] != "b"


def test_disagreement_ranks_every_prompt(found):
    assert found.changed[0][0] == "b"
    assert {prompt for prompt, _ in found.changed} == {"a", "b", "c"}


def test_disagreement_of_the_same_outputs_is_none():
    split = split_of(REFERENCE)
    found = disagreement(split, 2, NAMES, NAMES)
    assert found.top == found.bottom == []
    assert found.total == pytest.approx(0, abs=1e-6)
    assert all(part == pytest.approx(0, abs=1e-6) for _, part in found.changed)


def test_disagreement_has_the_modes_of_the_weaker_side_too():
    split = split_of(
        torch.cat([REFERENCE[:2], 40 + 20 * torch.randn(28, 4, generator=torch.Generator().manual_seed(1))])
    )
    found = disagreement(split, 1, NAMES, NAMES)
    assert len(found.top) == len(found.bottom) == 1


def test_sample_set_of_one_process_is_everything():
    side = SampleSet(torch.rand(3, 2), torch.arange(3), torch.rand(3, 1, 2, 2), torch.arange(3))
    gathered = side.gathered(SingleProcess())
    assert all(torch.equal(x, y) for x, y in zip(vars(gathered).values(), vars(side).values(), strict=True))


def test_thumbnail_leaves_small_images_as_they_are():
    images = torch.rand(1, 1, LARGEST_SIDE, 8)
    assert thumbnail(images) is images


def test_thumbnail_averages_squares_of_large_ones():
    images = torch.rand(1, 1, 2 * LARGEST_SIDE, 8)
    small = thumbnail(images)
    assert small.shape == (1, 1, LARGEST_SIDE, 4)
    assert float(small[0, 0, 0, 0]) == pytest.approx(float(images[0, 0, :2, :2].mean()))


SCORES = torch.tensor([[0.0, 5.0], [3.0, -1.0], [1.0, 2.0], [-2.0, 2.5], [-5.0, 0.0], [2.0, 7.0]])
IMAGES = torch.arange(6.0).view(6, 1, 1, 1).expand(6, 1, 2, 2)


def ends_of(k, n=6):
    return mode_ends(SCORES[:n], Samples(IMAGES[:n], torch.arange(n) + 100), k, SingleProcess())


def test_mode_ends_are_highest_first_and_lowest_last():
    ends = ends_of(2)
    assert ends.indices.tolist() == [[101, 105, 103, 104], [105, 100, 104, 101]]
    assert torch.equal(ends.images[:, :, 0, 0, 0] + 100, ends.indices)


@pytest.mark.parametrize(("n", "k"), [(6, 3), (3, 1), (1, 0)])
def test_mode_ends_have_no_sample_twice(n, k):
    ends = ends_of(5, n)
    assert ends.images.shape == (2, 2 * k, 1, 2, 2)
    assert all(len(set(row)) == 2 * k for row in ends.indices.tolist())


def test_mode_ends_gather_no_other_samples():
    class Counting(SingleProcess):
        def gather_rows(self, rows):
            gathered.append(rows)
            return rows

    gathered = []
    ends = mode_ends(SCORES, Samples(IMAGES, torch.arange(6) + 100), 1, Counting())
    assert gathered[2].tolist() == [101, 104, 105]  # highest 1 and 5, lowest 4 and 1
    assert ends.indices.tolist() == [[101, 104], [105, 101]]


@pytest.fixture(scope="module")
def of_one_covariance():
    generator = torch.Generator().manual_seed(0)
    prompts = torch.eye(3).repeat(20, 1)
    outputs = torch.randn(60, 5, generator=generator) + prompts @ torch.randn(3, 5, generator=generator)
    metric = DiversityMetric()
    metric.update(outputs, prompts)
    return outputs, prompts, metric.compute(), metric.modes(5)


def test_diversity_metric_has_every_score_of_one_covariance(of_one_covariance):
    outputs, prompts, values, _ = of_one_covariance
    expected = scendi_score(outputs, prompts) | {"vendi": vendi_score(outputs), "rke": rke_score(outputs)}
    expected["one_prompt_share"] = scendi_score(outputs, torch.ones(len(outputs), 1))["prompt_share"]
    assert values.keys() == expected.keys() | {"outputs", "prompts"}
    assert all(values[name] == pytest.approx(float(expected[name]), rel=1e-6) for name in expected)


def test_all_modes_are_what_prompts_do_not_explain(of_one_covariance):
    _, _, values, modes = of_one_covariance
    assert float(values["outputs"].trace()) == pytest.approx(1)
    assert float(modes.eigenvalues.sum()) == pytest.approx(1 - float(values["prompt_share"]), rel=1e-6)

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation.modes import DiversityMetric, Scored
from genmonitor.functional import rke_score, scendi_score, vendi_score

SCORES = torch.tensor([[0.0, 5.0], [3.0, -1.0], [1.0, 2.0], [-2.0, 2.5], [-5.0, 0.0], [2.0, 7.0]])
IMAGES = torch.arange(6.0).view(6, 1, 1, 1).expand(6, 1, 2, 2)


def test_ends_are_the_highest_first_and_the_lowest_last():
    ends = Scored(SCORES, IMAGES, torch.arange(6) + 100).ends(2)
    assert ends.indices.tolist() == [[101, 105, 103, 104], [105, 100, 104, 101]]
    assert torch.equal(ends.images[:, :, 0, 0, 0] + 100, ends.indices)


@pytest.mark.parametrize(("n", "k"), [(6, 3), (3, 1), (1, 0)])
def test_no_sample_stands_at_both_ends(n, k):
    ends = Scored(SCORES[:n], IMAGES[:n], torch.arange(n)).ends(5)
    assert ends.images.shape == (2, 2 * k, 1, 2, 2)
    assert all(len(set(row)) == 2 * k for row in ends.indices.tolist())


def test_one_covariance_gives_every_score_and_its_two_parts():
    torch.manual_seed(0)
    prompts = torch.eye(3).repeat(20, 1)
    outputs = torch.randn(60, 5) + prompts @ torch.randn(3, 5)
    metric = DiversityMetric()
    metric.update(outputs, prompts)
    values = metric.compute()
    expected = scendi_score(outputs, prompts) | {"vendi": vendi_score(outputs), "rke": rke_score(outputs)}
    assert values.keys() == expected.keys()
    assert all(values[name] == pytest.approx(float(expected[name]), rel=1e-6) for name in expected)
    whole, explained = metric.parts
    assert float(whole.trace()) == pytest.approx(1)
    assert float(explained.trace()) == pytest.approx(float(values["prompt_share"]))
    assert float(torch.linalg.eigvalsh(whole - explained).min()) > -1e-9

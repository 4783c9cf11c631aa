# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation.collective import SingleProcess
from genmonitor.evaluation.prompts.diversity_modes import DiversityMetric, ScoredSamples
from genmonitor.functional import rke_score, scendi_score, vendi_score

SCORES = torch.tensor([[0.0, 5.0], [3.0, -1.0], [1.0, 2.0], [-2.0, 2.5], [-5.0, 0.0], [2.0, 7.0]])
IMAGES = torch.arange(6.0).view(6, 1, 1, 1).expand(6, 1, 2, 2)


def scored(n=6):
    return ScoredSamples(SCORES[:n], IMAGES[:n], torch.arange(n) + 100)


def test_scored_samples_ends_are_highest_first_and_lowest_last():
    ends = scored().ends(2)
    assert ends.indices.tolist() == [[101, 105, 103, 104], [105, 100, 104, 101]]
    assert torch.equal(ends.images[:, :, 0, 0, 0] + 100, ends.indices)


@pytest.mark.parametrize(("n", "k"), [(6, 3), (3, 1), (1, 0)])
def test_scored_samples_put_none_at_both_ends(n, k):
    ends = scored(n).ends(5)
    assert ends.images.shape == (2, 2 * k, 1, 2, 2)
    assert all(len(set(row)) == 2 * k for row in ends.indices.tolist())


def test_scored_samples_near_ends_keep_every_end():
    near = scored().near_ends(1)
    assert near.indices.tolist() == [101, 104, 105]  # highest 1 and 5, lowest 4 and 1
    assert near.ends(1).indices.tolist() == scored().ends(1).indices.tolist()


def test_scored_samples_of_one_process_are_all():
    assert torch.equal(scored().gathered(SingleProcess()).scores, SCORES)


@pytest.fixture(scope="module")
def of_one_covariance():
    generator = torch.Generator().manual_seed(0)
    prompts = torch.eye(3).repeat(20, 1)
    outputs = torch.randn(60, 5, generator=generator) + prompts @ torch.randn(3, 5, generator=generator)
    metric = DiversityMetric()
    metric.update(outputs, prompts)
    return outputs, prompts, metric.compute()


def test_diversity_metric_has_every_score_of_one_covariance(of_one_covariance):
    outputs, prompts, values = of_one_covariance
    expected = scendi_score(outputs, prompts) | {"vendi": vendi_score(outputs), "rke": rke_score(outputs)}
    assert values.keys() == expected.keys() | {"outputs", "explained", "prompts"}
    assert all(values[name] == pytest.approx(float(expected[name]), rel=1e-6) for name in expected)


def test_diversity_metric_splits_the_covariance_of_the_outputs(of_one_covariance):
    _, _, values = of_one_covariance
    whole, explained = values["outputs"], values["explained"]
    assert float(whole.trace()) == pytest.approx(1)
    assert float(explained.trace()) == pytest.approx(float(values["prompt_share"]))
    assert float(torch.linalg.eigvalsh(whole - explained).min()) > -1e-9

# SPDX-License-Identifier: Apache-2.0
"""Each setting of an evaluation of regions reaches what is measured, so that none is only declared."""

from dataclasses import fields

import pytest
import torch
from _helpers.changed_settings import CHANGED
from _helpers.evaluations import measured
from _helpers.modules import digits

from genmonitor.evaluation import ImageSet, RegionEvaluator, RegionSettings, Samples, SingleProcess
from genmonitor.evaluation.evaluator import commit_evaluation

pytestmark = pytest.mark.slow


def found(**settings):
    """Return the regions and the values of two evaluations of digits that are too dark."""
    evaluator, history = RegionEvaluator(RegionSettings(**{"n_samples": 120} | settings)), []
    images = 0.7 * digits(800, 800 + evaluator.n_samples)
    evaluator.fit(ImageSet(digits(0, 800)), images[:16], SingleProcess())
    out = [evaluator.manifest(), evaluator.partition.regions()]
    for _ in range(2):
        evaluator.update(Samples(images, torch.arange(len(images))))
        evaluation = evaluator.compute(SingleProcess())
        history.append({"epoch": float(len(history)), **evaluation.values})
        commit_evaluation(evaluator, evaluation, history, SingleProcess())
        out += [measured(evaluation), list(map(str, evaluator.findings(evaluation, history)))]
    return repr(out)


@pytest.fixture(scope="module")
def by_default():
    return found()


@pytest.mark.parametrize("name", [field.name for field in fields(RegionSettings)])
def test_a_setting_changes_what_is_found(name, by_default):
    assert found(**{name: CHANGED[name]}) != by_default

# SPDX-License-Identifier: Apache-2.0
import sys

import digits_calibration
import pytest
import torch
from cutoffs import fit_cutoffs
from data import digits
from digits_calibration import PLANTED, judge_pairs, judge_triplets

from genmonitor.functional import W1KPCalibration, calibrate


def test_script_calibrates_measures_and_draws(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["digits_calibration.py", "--triplets", "200", "--out", str(tmp_path)])
    monkeypatch.setattr("genmonitor.functional.w1kp.SUBSETS", 50)
    digits_calibration.main()
    said = capsys.readouterr().out.splitlines()
    assert len([line for line in said if line[:6].strip().isdigit()]) == 10  # a row for each class
    assert any(line.startswith("planted         0.20    0.40    0.85") for line in said)
    assert any(line.startswith("a class is good for ") for line in said)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"digits.pt", "digits-reusability.png"}
    assert W1KPCalibration.load(tmp_path / "digits.pt").dim == 64


def test_distances_between_digits_agree_with_their_classes():
    train, _ = digits(with_labels=True)
    found = judge_triplets(train.images[:300], train.labels[:300], 400)
    assert found["pixels"].accuracy > 0.8
    assert found["pixels"].low > found["ink in all"].high
    assert found["ink in all"].ceiling == 1


def test_planted_cutoffs_are_found():
    train, _ = digits(with_labels=True)
    features = train.images.flatten(1)
    similarity, levels = judge_pairs(features, train.labels, calibrate(features, train.labels))
    named = torch.bucketize(similarity, torch.tensor(PLANTED), right=True)
    assert 0.1 < float((named != levels).float().mean()) < 0.2  # three in four of those drawn at random
    assert fit_cutoffs(similarity, levels).cutoffs == pytest.approx(PLANTED, abs=0.03)

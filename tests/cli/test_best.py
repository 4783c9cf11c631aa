# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from _helpers.runs import make_run


@pytest.mark.parametrize("step", [{}, {"global_step": None}])
def test_best_names_the_evaluation_of_a_loop(tmp_path, genmonitor, step):
    """Nobody but the loop knows its checkpoints."""
    path = make_run(tmp_path / "run") / "cms_run.json"
    run = json.loads(path.read_text())
    for number, evaluation in enumerate(run["evaluations"]):
        evaluation.pop("global_step", None)
        evaluation.update(step)
        evaluation["values"]["error_ratio_image"] = 9.0 - number
    path.write_text(json.dumps(run))
    status, said, complaint = genmonitor("best", tmp_path / "run")
    assert (status, said) == (2, "")
    assert "Expected the checkpoint of epoch 2 (step 29), which is the one to keep" in complaint
    assert "in a loop of your own save one where `monitor.is_best`" in complaint


def test_best_says_why_a_file_of_the_run_cannot_be_read(tmp_path, genmonitor):
    (make_run(tmp_path / "run") / "cms_run.json").write_text("{half")
    status, said, complaint = genmonitor("best", tmp_path / "run")
    assert (status, said) == (2, "")
    assert "cms_run.json is not: Expecting property name" in complaint
    assert complaint.endswith("put back the file that the run wrote.\n")

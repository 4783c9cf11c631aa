# SPDX-License-Identifier: Apache-2.0
import json

import pytest
import torch
from _helpers.runs import COMPARED, changed, make_run, record, write_evaluation

from genmonitor.findings.finding import Area, FaultKind, Finding
from genmonitor.findings.values import ValueSpec
from genmonitor.findings.words import advice
from genmonitor.functional.diagnosis.kinds import KINDS
from genmonitor.report.answers import answers_of, best_of, closing, find_checkpoint
from genmonitor.report.run import MonitorRun, read_run

CORNER = torch.tensor([[False, False], [False, True]])


def said(kinds=(), mask=CORNER, fine=False, p=0.001, **others):
    area = Area("lower right", mask=mask)
    return Finding("Lower right: x.", area, "too dark", None, fine, p, kinds=tuple(kinds), **others)


def answered(folder, findings=(), ratios=(40.0, 28.0), **values):
    for number, ratio in enumerate(ratios, 1):
        found = [finding.to_dict() for finding in findings]
        of = record(number, error_ratio_image=ratio, **values)
        write_evaluation(folder, number, evaluation=of, headlines=found, findings=found)
    return answers_of(MonitorRun.read(folder / "cms_run.json"))


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path, evaluations=0)


@pytest.mark.parametrize(
    ("ratios", "better", "trend"),
    [
        ([40.0], "First evaluation", "40 × real"),
        ([159.0, 28.0], "Better (was 159), best so far", "159 → 28 × real"),
        ([159.0, 28.0, 31.0], "Near the best (28 at epoch 1)", "159 → 31 × real"),
        ([159.0, 28.0, 67.0], "Worse than best (28 at epoch 1)", "159 → 67 × real"),
    ],
)
def test_better_or_worse(folder, ratios, better, trend):
    last = answered(folder, ratios=ratios)[-1]
    assert (last["better"], last["trend"]) == (better, trend)


def test_where_what_and_what_to_try(folder):
    noise, dark = FaultKind("noisy", 0.1, "of the range", 0.5), FaultKind("darker", 0.2, "of the range", 0.2)
    cause, remedy = advice("noisy")
    last = answered(folder, [said([noise, dark], cause=cause, remedy=remedy)])[-1]
    assert (last["where"], last["share"]) == ("lower right", "70 % explained")
    assert last["what"].startswith("noise 0.1 of the range and ")
    assert last["next"] == KINDS["noisy"].remedy
    assert KINDS["noisy"].source in last["cause"]
    assert (last["sure"], last["p"]) == ("yes", "p = 0.001")
    assert last["outline"] == "M1 1L1 2M2 1L2 2M1 1L2 1M1 2L2 2"
    assert [share for _, share in last["bar"]] == pytest.approx([0.5, 0.2, 0.3])


@pytest.mark.parametrize("name", ["image", "whole image"])
def test_findings_of_the_image_are_everywhere(folder, name):
    changed = Finding("Visibly worse than at its best.", Area(name), "", None, fine=False)
    assert answered(folder, [changed])[-1]["where"] == "whole image"


def test_copies_explain_no_share(folder):
    assert answered(folder, [said([FaultKind("copies", 0.9, "of the images", 0.0)])])[-1]["share"] == ""


@pytest.mark.parametrize("name", [*KINDS, "mine"])
def test_every_kind_has_its_answers(folder, name):
    told = {"cause": "Usual cause: one.", "remedy": "another"}
    last = answered(folder, [said([FaultKind(name, 0.8, "px", 0.9)], **told)])[-1]
    assert last["what"]
    assert bool(last["gallery"]) == (name != "mine")
    assert (last["cause"], last["next"]) == ("Usual cause: one.", "another")


@pytest.mark.parametrize(
    ("ratios", "where"),
    [
        ((4.0, 9.5), "whole image, most in cluster_2 (upper right)"),
        ((9.0, 9.5), "whole image"),
        ((0.2, 0.9), "whole image"),
    ],
)
def test_whole_image_names_the_region_that_is_far_worse(folder, ratios, where):
    values = {"p_1": 0.001, "p_2": 0.001, "error_ratio_1": ratios[0], "error_ratio_2": ratios[1]}
    answered(folder, [said(mask=torch.ones(2, 2, dtype=torch.bool))], **values)
    (run,) = read_run(folder).monitors
    assert answers_of(run)[-1]["where"] == where


def test_a_fault_without_advice_has_the_page_that_tells_how_to_go_on(folder):
    fine, wrong = (answered(folder, [said(fine=fine)])[-1] for fine in (True, False))
    advised = answered(folder, [said(remedy="less")])[-1]
    assert fine["how"] == advised["how"] == ""
    assert wrong["how"].endswith("/docs/how-to/next-step.md")


@pytest.mark.parametrize(
    ("real", "better"),
    [
        ({}, ""),
        ({"real_vendi": 6.0}, "Nearer to that of real images than at first"),
        ({"real_vendi": 4.0}, "Farther from that of real images than at first"),
    ],
)
def test_course_of_a_value_without_an_order(folder, real, better):
    """Variety alone does not say which evaluation is best, but real images have some of it too."""
    changed(folder, declared=[ValueSpec("vendi", label="modes (Vendi)").to_dict()], best_key=None)
    found = [Finding("6 modes.", Area("all images"), "6 modes", "vendi").to_dict()]
    for number, modes in enumerate((5.0, 6.25), 1):
        of = {"epoch": number - 1, "step": number, "vendi": modes} | real
        write_evaluation(folder, number, evaluation=of, headlines=found, findings=found, best_key=None)
    run = MonitorRun.read(folder / "cms_run.json")
    last = answers_of(run)[-1]
    assert (last["better"], last["trend"], last["sure"]) == (better, "modes (Vendi) 5 → 6.25", "not tested")
    assert (last["where"], last["what"], last["height"]) == ("all images", "6 modes", 6.25)
    assert best_of(run, folder) == {"epoch": "no best epoch", "value": "no order by modes alone", "file": ""}
    asked = [line.split()[0] for line in closing(run, folder, alone=False).splitlines()]
    assert asked == ["Regions", "Better?", "Where", "What", "Sure?", "Keep"]


def test_the_size_of_a_difference_is_no_news_of_it(folder):
    differs = Finding("Disagreement: 1.", Area("prompts 'a'"), "differ", "error_ratio_image", False, 0.001)
    assert answered(folder, [differs])[-1]["better"] == "Better (was 40), best so far"


def test_nothing_wrong_and_not_tested(folder):
    for p in (0.4, 0.03):  # the second is small, but not for all tests together
        fine = answered(folder, [said(fine=True, p=p)])[-1]
        assert (fine["what"], fine["sure"], fine["bar"]) == ("no difference beyond chance", "no", [])
    assert answered(folder, [said(p=None)])[-1]["sure"] == "not tested"


def test_evaluation_without_findings_has_its_message(folder):
    assert answered(folder)[-1]["texts"] == ["largest contributor at epoch 1: cluster_2"]


def test_finding_of_an_earlier_diagnosis_says_so(folder):
    assert answered(folder, [said(as_of=4.0)])[-1]["what"] == "too dark (as at epoch 4)"


def test_alerts_that_last_are_said_before_the_progress(folder):
    """The region that is worst comes first, as in the terminal."""
    answered(folder, ratios=(28.0, 67.0, 40.0, 40.0), error_ratio_1=4.0, error_ratio_2=9.5)
    moment = {"text": "Got worse.", "epoch": 1.0, "step": 19}
    path = folder / "cms_run.json"
    run = json.loads(path.read_text())
    again = moment | {"alert": "cluster_2", "since": 0.0}
    run["notes"] = [moment | {"alert": "cluster_2"}, again, moment | {"alert": "cluster_1"}]
    for evaluation in run["evaluations"]:
        evaluation["wrong"] = ["cluster_1", "cluster_2"]
    run["evaluations"][3]["wrong"] = []
    path.write_text(json.dumps(run))
    (found,) = read_run(folder).monitors
    first, worse, better, over = (x["better"] for x in answers_of(found))
    assert "lert" not in first + over
    assert worse == "Alert: cluster_2 worse than best since epoch 0 and 1 more"
    assert better == worse


def test_what_an_alert_says_is_not_said_again_while_it_lasts(folder):
    worse = Finding("cluster_2 got worse since epoch 0: 9 ×.", Area("cluster_2"), "worse than at its best", None, False)
    first = Finding("cluster_2 differs.", Area("cluster_2"), "", None, fine=False, p=0.001)
    answered(folder, [first, worse], ratios=(28.0, 67.0, 40.0))
    note = {"text": "cluster_2 got worse since epoch 0: 7 ×.", "epoch": 1.0, "step": 19, "alert": "cluster_2"}
    run = json.loads((folder / "cms_run.json").read_text())
    run["notes"], run["evaluations"][1]["wrong"] = [note], ["cluster_2"]
    run["evaluations"][2]["wrong"] = []
    (folder / "cms_run.json").write_text(json.dumps(run))
    both, once = [str(first), str(worse)], [str(first)]
    assert [x["texts"] for x in answers_of(MonitorRun.read(folder / "cms_run.json"))] == [both, once, both]


def test_what_got_worse_is_news_and_the_diagnosis_still_says_what_and_where(folder):
    said_news = "Visibly worse than at epoch 0, its best: brightness 0.3, was 0.5; p = 0.001."
    news = Finding(said_news, Area("image"), "", "error_ratio_image", fine=False, p=0.002)
    dark = said([FaultKind("darker", 0.2, "of the range", 0.9)], remedy="less", cause="Usual cause: more.")
    last = answered(folder, [news, dark], ratios=(28.0, 67.0, 40.0))[-1]
    assert last["better"] == "Visibly worse than at epoch 0, its best"
    assert (last["where"], last["share"], last["next"], last["p"]) == (
        "lower right",
        "90 % explained",
        "less",
        "p = 0.001",
    )
    assert last["bar"]
    assert last["texts"] == [said_news, "Lower right: x."]
    assert answered(folder, [news])[-1]["what"] == said_news


def test_evaluation_to_keep_and_its_file(folder):
    answered(folder, ratios=(159.0, 28.0, 67.0))
    run = MonitorRun.read(folder / "cms_run.json")
    assert best_of(run, folder) == {"epoch": "epoch 1", "value": "28 × real", "file": ""}
    (folder.parent / "checkpoints").mkdir()
    for name in ("epoch=0-step=9.ckpt", "best-epoch=1.ckpt", "last.ckpt"):
        torch.save({"global_step": run.best["global_step"]}, folder.parent / "checkpoints" / name)
    assert best_of(run, folder)["file"] == "checkpoints/best-epoch=1.ckpt"
    assert find_checkpoint(folder.parent, 9).name == "epoch=0-step=9.ckpt"
    assert find_checkpoint(folder.parent, 8) is None
    changed(folder, **COMPARED)
    assert best_of(MonitorRun.read(folder / "cms_run.json"), folder) is None


@pytest.mark.parametrize(("step", "file"), [(5, "epoch=0.ckpt"), (10, "epoch=0-v1.ckpt"), (7, None)])
def test_file_to_keep_is_of_the_step_that_was_evaluated(tmp_path, step, file):
    """An epoch may be validated twice, and its checkpoints are called -v1 and so on."""
    for name, saved in {"epoch=0.ckpt": 5, "epoch=0-v1.ckpt": 10}.items():
        torch.save({"global_step": saved}, tmp_path / name)
    assert find_checkpoint(tmp_path, step) == (file and tmp_path / file)

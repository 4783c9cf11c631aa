# SPDX-License-Identifier: Apache-2.0
import argparse
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from _helpers.evaluations import halves
from PIL import Image

from genmonitor.cli.gate import Condition, check_names, condition, failures
from genmonitor.evaluation.regions.values import RegionValues

SPECS = RegionValues(["cluster_1", "cluster_2"]).specs
VALUES = {
    "image": 0.99,
    "p": 0.015,
    "p_image": 0.02,
    "p_1": 0.3,
    "p_2": 0.005,
    "error_ratio_1": 1.2,
    "error_ratio_2": 7.0,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p < 0.01", Condition("p", "<", 0.01)),
        ("error_ratio>=3", Condition("error_ratio", ">=", 3.0)),
        (" image<=1e-3 ", Condition("image", "<=", 0.001)),
        ("vs_best_1 > -2", Condition("vs_best_1", ">", -2.0)),
    ],
)
def test_conditions(text, expected):
    assert condition(text) == expected
    assert condition(str(expected)) == expected


@pytest.mark.parametrize("text", ["p", "p 3", "p = 3", "p == 3", "< 3", "p < q", "p < nan", "p < inf", "a b < 3", ""])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected NAME < NUMBER"):
        condition(text)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("p < 0.01", []),  # of all tests together, whatever single ones have
        ("p <= 0.02", ["p"]),
        ("p_1 < 0.01", []),
        ("p_2 < 0.01", ["p_2"]),
        ("error_ratio > 1", ["error_ratio_2", "error_ratio_1"]),  # the largest first
        ("error_ratio_1 > 3", []),
        ("image < 1", ["image"]),  # the image's CMS, and no other value of the image
    ],
)
def test_a_measure_stands_for_image_and_regions_and_a_key_for_itself(text, keys):
    assert [found["key"] for found in failures([condition(text)], SPECS, VALUES)] == keys


def test_a_reason_has_value_and_condition():
    (found,) = failures([condition("p < 0.02"), condition("p_1 < 0.01")], SPECS, VALUES)
    assert found == {"condition": "p < 0.02", "key": "p", "value": 0.015, "reason": "p = 0.015 (p < 0.02)"}


@pytest.mark.parametrize("values", [{}, {"p_1": float("nan")}])
def test_what_was_not_measured_passes_no_gate(values):
    with pytest.raises(ValueError, match="but p was not"):
        failures([condition("p < 0.01")], SPECS, values)


def test_names_are_checked_before_anything_is_measured():
    check_names(
        [condition("p_12 < 0.1"), condition("share > 0.5"), condition("constant < 0.9")],
        RegionValues(["cluster_1", "constant"]).specs,
    )
    with pytest.raises(ValueError, match=r"but got eror_ratio. Did you mean error_ratio\?"):
        check_names([condition("eror_ratio > 3")], SPECS)


def test_a_gate_fails_compare_with_status_and_reason(files, genmonitor, tmp_path):
    written = tmp_path / "gate.xml"
    arguments = ["compare", *files, "--n-clusters", 2, "--out", tmp_path / "out", "--json", "--junit", written]
    status, said, complaint = genmonitor(*arguments, "--fail-if", "p < 0.01", "--fail-if", "error_ratio > 1e6")
    assert status == 1
    failed = json.loads(said)["failed"]
    assert {of["condition"] for of in failed} == {"p < 0.01"}
    assert f"genmonitor compare: failed: {failed[0]['reason']}" in complaint
    assert (tmp_path / "out" / "genmonitor" / "report.html").is_file()  # to look into
    suite = ElementTree.parse(written).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    reasons = {case.get("name"): [x.get("message") for x in case] for case in suite}
    assert reasons == {"not p < 0.01": [", ".join(x["reason"] for x in failed)], "not error_ratio > 1e+06": []}


def test_a_gate_lets_good_images_pass(files, genmonitor, tmp_path):
    np.save(tmp_path / "good.npy", halves(120, 3).numpy())
    arguments = ["compare", files[0], tmp_path / "good.npy", "--n-clusters", 2, "--out", tmp_path / "out"]
    status, _, told = genmonitor(*arguments, "--fail-if", "p < 0.01")
    stages = ["reading images", "comparing", "writing the page"]
    assert (status, told) == (0, "".join(f"{stage} …\n" for stage in stages))


@pytest.mark.parametrize(("order", "status"), [(["good.npy", "bad"], 0), (["bad", "good.npy"], 1)])
def test_a_gate_fails_a_set_that_is_worse_than_the_other(files, genmonitor, tmp_path, order, status):
    np.save(tmp_path / "good.npy", halves(120, 3).numpy())
    sets = [files[1] if name == "bad" else tmp_path / name for name in order]
    arguments = ["compare", files[0], *sets, "--n-clusters", 2, "--out", tmp_path / "out"]
    found, _, told = genmonitor(*arguments, "--fail-if", "p_worse < 0.01")
    assert found == status
    assert ("p_worse_2 < 0.0001 (p_worse < 0.01)" in told) == bool(status)


@pytest.mark.parametrize("place", ["folder", "missing/gate.xml"])
def test_a_file_that_cannot_be_written_is_refused_at_once(files, genmonitor, tmp_path, place):
    (tmp_path / "folder").mkdir()
    status, _, complaint = genmonitor("compare", *files, "--out", tmp_path / "out", "--junit", tmp_path / place)
    assert status == 2
    assert "Expected --junit to be a file in a folder that exists" in complaint
    assert not (tmp_path / "out").exists()


def test_a_name_that_no_value_has_stops_at_once(files, genmonitor, tmp_path):
    status, _, complaint = genmonitor("compare", *files, "--out", tmp_path / "out", "--fail-if", "spred > 3")
    assert status == 2
    assert "Did you mean spread?" in complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("others", [["copy.npy"], ["fake.npz", "copy.npy"]])
@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_real_images_beside_their_copies_are_no_gate(files, genmonitor, tmp_path, monkeypatch, others, quiet):
    """All p-values are 1 then: a wrong path would pass for ever."""
    monkeypatch.chdir(tmp_path)
    np.save("copy.npy", np.load("real.npy").astype(np.float64))
    arguments = ("compare", "real.npy", *others, "--out", tmp_path / "out", "--fail-if", "p < 0.01", *quiet)
    status, said, complaint = genmonitor(*arguments)
    assert (status, said) == (2, "")
    assert "to hold different images, but 300 of 300" in complaint


def test_a_quiet_gate_says_what_makes_its_values_doubtful(files, genmonitor, tmp_path):
    images = np.load(files[0])
    np.save(tmp_path / "twice.npy", np.concatenate([images[:150], images[:150]]))
    arguments = (tmp_path / "twice.npy", files[1], "--out", tmp_path / "out", "--fail-if", "p < 0.01", "--quiet")
    _, said, complaint = genmonitor("compare", *arguments)
    assert "\n" not in said.rstrip("\n")
    assert "real images that are compared are identical to others of them: tests count each image once" in complaint


def test_a_gate_reads_no_image_more_often_than_a_comparison(classes, genmonitor, tmp_path, monkeypatch):
    read, open_image = [], Image.open
    monkeypatch.setattr(Image, "open", lambda path, **given: read.append(path) or open_image(path, **given))
    command = ("compare", classes / "a", classes / "b", "--n-clusters", "1", "--out", tmp_path / "out")
    counts = []
    for gate in ([], ["--fail-if", "error_ratio > 1e6"]):
        read.clear()
        assert genmonitor(*command, *gate)[0] == 0
        counts.append(len(read))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("text", ["p < 0.001", "p_1 <= 0.0009", "p < -1", "p > 5", "share > 36", "share_2 < -0.1"])
def test_a_condition_that_no_value_meets_is_refused(text):
    with pytest.raises(ValueError, match="Expected a number"):
        check_names([condition(text)], RegionValues(["cluster_1", "constant"]).specs)


@pytest.mark.parametrize("text", ["p < 0.002", "p_image <= 0.001", "p > 0.5", "share >= 0.36", "error_ratio > 3"])
def test_a_condition_that_a_value_may_meet_is_allowed(text):
    check_names([condition(text)], RegionValues(["cluster_1", "constant"]).specs)

# SPDX-License-Identifier: Apache-2.0
"""Each script of benchmarks/ still runs, and what it times is right; what it says of speed is no matter for a test."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TESTS = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    not BENCHMARKS.exists(), reason="needs the repository: benchmarks/ is not beside the tests"
)


def printed(script: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def load(monkeypatch):
    """Return a function that imports a module of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module


def row_of(script: str, *arguments: str) -> dict[str, str]:
    return json.loads(printed(BENCHMARKS / f"{script}.py", *arguments).splitlines()[-1])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("script", "case", "n", "error", "peers"),
    [
        ("cka", "full_batch_28x28x1", "1,000", 1e-6, ["pairwise loop"]),
        ("cms", "image_and_5_clusters", "1200 v 1200", 1e-8, ["plain image-wise", "scikit-learn per cluster"]),
        ("entropy", "Vendi_1000_against_score_dual", "1,000", 1e-4, ["score_dual in float32", "score_dual in float64"]),
        ("promptsplit", "exact_1000", "1,000 + 1,000", 1e-6, ["all eigenpairs", "scipy eigsh", "paper, RTX A5000"]),
        ("two_sample", "PRDC_1000", "1,000 v 1,000", 1e-6, ["prdc"]),
    ],
)
def test_case_is_right_and_stands_beside_its_peers(script, case, n, error, peers):
    row = row_of(script, "--case", case, "--once")
    assert row["n"] == n
    assert float(row["error"]) < error
    assert [column for column in row if column.startswith("× ")] == [f"× {peer}" for peer in peers]


@pytest.mark.slow
@pytest.mark.nightly
def test_steps_of_a_comparison_are_measured(load):
    sizes = load("sizes")
    with pytest.MonkeyPatch.context() as patch:
        for owner, method in sizes.STEPS.values():
            patch.setattr(owner, method, getattr(owner, method))  # what the benchmark puts in its place goes again
        found = sizes.measure(sizes.Case((3, 16, 16), 100, 2))
    assert found.keys() == sizes.STEPS.keys()
    assert all(of["seconds"] > 0 and 0 < of["rate"] < 2 and 0.1 < of["GiB"] < 20 for of in found.values())
    assert sizes.exponent(1.0, 8.0, 2) == "3.0"


@pytest.mark.slow
@pytest.mark.nightly
def test_commands_read_streamed_images_within_their_limit():
    lines = printed(BENCHMARKS / "streaming.py", "--count", "60", "--side", "32").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    assert [row[1] for row in cells] == ["60", "120"]
    assert all(0.1 < float(row[4]) < 4 for row in cells)


@pytest.mark.slow
@pytest.mark.nightly
def test_alerts_name_the_region_by_the_second_evaluation():
    lines = printed(BENCHMARKS / "detection.py", "--tables", "alerts", "--runs", "1").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    found = {row[0]: row[1:] for row in rows}
    assert found["real images, n = 500"] == found["real images, n = 16"] == ["1 × 100", "0.00", "", ""]
    assert found["noise σ 0.2"] == found["blur 1"] == found["contrast − 0.3"] == ["1", "", "2", "1.00"]


@pytest.mark.slow
@pytest.mark.nightly
def test_parts_of_an_evaluation_add_up_to_the_whole():
    row = row_of("overhead", "--case", "DCGAN_digits", "--once")
    parts = [float(row[f"{part} s"]) for part in ("sampling", "measuring", "the rest")]
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(float(row["whole evaluation s"]), abs=0.002)
    of_a_minute = float(row["of an epoch of a minute"].rstrip("%")) / 100
    assert 60 * of_a_minute == pytest.approx(sum(parts[1:]), abs=0.01)


@pytest.mark.slow
@pytest.mark.nightly
def test_state_of_what_streams_does_not_grow_with_the_samples():
    few, many = (row_of("growth", "--point", "0", str(n)) for n in (1000, 10_000))
    assert few["state"] == many["state"] < 1.03 * 64 * 64 * 8 / 2**20  # a covariance of 64 features, in float64


def test_rows_of_reliability_name_tests_that_exist(load):
    rows = [(list(row.files()), row.keyword) for row in load("reliability").ROWS.values()]
    whole = [file for files, keyword in rows for file in files if not keyword]
    assert len(whole) == len(set(whole)) > 15
    for files, keyword in rows:
        code = "".join((TESTS.parent / file).read_text() for file in files)
        assert all(word in code for word in keyword.split(" or "))


@pytest.mark.slow
def test_table_has_a_row_for_each_case(tmp_path):
    """Each case has a row in a process of its own, and the columns are those of all of them."""
    script = tmp_path / "three.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from harness import run\n"
        "def first_of_all(): return {'n': 1, 'seconds': 2.0}\n"
        "def second(): return {'n': 3, 'error': '4e-05'}\n"
        "def minutes_long(): return {'n': 5}\n"
        "run(__file__, [first_of_all, second], 'A title', [minutes_long], 'A legend.')\n"
    )
    text = printed(script, "--long", "--once")
    assert script.with_suffix(".md").read_text().strip() == text.strip()
    assert text.startswith("# A title\n\n`python benchmarks/three.py --long --once` on ")
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    assert header == ["case", "n", "seconds", "peak GiB", "error"]
    assert [row[:3] + row[4:] for row in rows] == [
        ["first of all", "1", "2.0", ""],
        ["second", "3", "", "4e-05"],
        ["minutes long", "5", "", ""],
    ]
    assert all(0 < float(row[3]) < 10 for row in rows)


@pytest.mark.slow
@pytest.mark.nightly
def test_regions_benchmark_compares_two_draws(load):
    regions = load("regions")
    images, truth = regions.planted()
    images = images[:60]
    assert [len(a) for pair in regions.pairs(images, None, 1) for a in pair] == [30, 30]
    assert [len(a) for pair in regions.pairs(images, 50, 1) for a in pair] == [50, 50]
    found = regions.by("average")(images, 4)
    assert regions.agreement(found, found) == 1
    cells = regions.row(images, truth, regions.by("average"), None, 1)
    assert len(cells) == 11
    assert float(cells[-2]) > 0.8


def test_every_table_has_a_script(load):
    assert [name for name in load("all").TABLES if not (BENCHMARKS / f"{name}.py").exists()] == []


@pytest.mark.slow
def test_planted_faults_change_their_area_alone(load):
    faults, images = load("diagnosis_faults"), load("diagnosis_images")
    inside = torch.zeros(32, 32, dtype=torch.bool)
    inside[20:, :9] = True
    x = images.SETS["faces"](250, images.generator_of())[0]
    for name, fault in (faults.KINDS | faults.OTHERS).items():
        changes = []
        for strength in fault.strengths:
            y = faults.planted(fault, x, strength, inside, 0)
            assert (y.shape, y.dtype, bool(y.isfinite().all())) == (x.shape, x.dtype, True), name
            assert torch.equal(y, faults.planted(fault, x, strength, inside, 0)), name
            assert torch.equal(torch.where(inside, x, y), x), name
            changes.append(float((y - x).square().mean()))
        assert changes[0] > 0, name
        assert changes[0] < changes[2] or not fault.local, name

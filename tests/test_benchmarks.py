# SPDX-License-Identifier: Apache-2.0
"""Each script of benchmarks/ still runs, and what it times is right; what it says of speed is no matter for a test."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from genmonitor.findings.finding import Area, Finding
from genmonitor.findings.values import ValueSpec

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
def test_parts_of_an_evaluation_add_up_to_the_whole():
    row = row_of("overhead", "--case", "DCGAN_digits", "--once")
    parts = [float(row[f"{part} s"]) for part in ("sampling", "measuring", "the rest")]
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(float(row["whole evaluation s"]), abs=0.002)
    of_a_minute = float(row["of an epoch of a minute"].rstrip("%")) / 100
    assert 60 * of_a_minute == pytest.approx(sum(parts[1:]), abs=0.01)


@pytest.mark.slow
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


def test_row_of_reliability_whose_file_is_gone_is_refused(load):
    with pytest.raises(FileNotFoundError, match=r"No test file matches tests/\*\*/test_gone.py. Say in"):
        load("reliability").Row(("**/test_gone.py",)).files()


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


def test_rows_of_tables_are_compared_by_their_ratio_to_a_peer(load):
    tables = load("all")
    old = "| case | seconds | × a | × b |\n| --- | --- | --- | --- |\n| one | 1 | 2.00 | 1,500 (extrapolated) |\n"
    new = "| case | seconds | × a | × b |\n| --- | --- | --- | --- |\n| one | 9 | 1.60 | 1,000 (extrapolated) |\n"
    assert list(tables.compared(tables.read(new), tables.read(old))) == [
        "one: 1,000 (extrapolated) × b, but 1,500 × b in the committed table"
    ]
    assert list(tables.compared(tables.read(new.replace("1.60", "0.90")), {})) == ["one: 0.90 × a"]
    assert list(tables.compared(tables.read(old), tables.read(old))) == []


def test_rows_of_several_tables_are_told_apart_by_their_headings(load):
    text = "## A\n\n| m | x |\n| --- | --- |\n| one | 1 |\n\n## B\n\n| m | x |\n| --- | --- |\n| one | 2 |\n"
    rows = load("all").read(text)
    assert (rows["A: one"]["x"], rows["B: one"]["x"]) == ("1", "2")


def test_table_of_another_commit_or_machine_or_of_changed_files_is_made_again(load, monkeypatch):
    tables, table = load("all"), BENCHMARKS / "cms.md"
    processor, commit = re.search(r" threads of (.*?): .*(commit [0-9a-f]+)", table.read_text("utf-8")).groups()
    monkeypatch.setattr(tables, "processor", lambda: processor)
    assert tables.is_of(table, commit)
    assert not tables.is_of(table, f"{commit}+")
    assert not tables.is_of(table, "commit 0000000000")
    monkeypatch.setattr(tables, "processor", lambda: "another")
    assert not tables.is_of(table, commit)


def test_ratio_of_runs_in_turns_is_their_median_and_range(load):
    harness = load("harness")
    ours, theirs = harness.Times([1.0, 2.0, 4.0]), harness.Times([3.0, 4.0, 4.0])
    assert (float(ours), float(theirs)) == (2, 4)
    assert harness._ratio(theirs, ours) == "2.00 (1.00–3.00)"
    assert harness._ratio(30.0, ours) == "15"
    assert load("all").ratio_in("2.00 (1.00–3.00)") == 2
    works = [lambda: None, lambda: None]
    assert [len(times.runs) for times in harness.side_by_side(*works, repeats=2)] == [2, 2]


def test_a_second_machine_has_columns_of_its_own(load, monkeypatch):
    harness = load("harness")

    def page_of(machine, ratio, page, case="one"):
        monkeypatch.setattr(harness, "processor", lambda: machine)
        made = f"`python benchmarks/x.py` on 2 threads of {machine}: torch; commit {ratio}."
        heads, rows = harness.beside(page, made, [{"case": case, "seconds": "1", "× peer": ratio, "error": "0"}])
        columns = list(dict.fromkeys(column for row in rows for column in row))
        cells = [columns, ["---"] * len(columns), *([row.get(column, "") for column in columns] for row in rows)]
        return "\n\n".join(heads) + "\n\n" + "\n".join(f"| {' | '.join(some)} |" for some in cells)

    page = page_of("B", "3", page_of("A", "2", ""))
    assert load("all").read(page) == {
        "one": {"case": "one", "seconds": "1", "× peer": "2", "error": "0", "seconds on B": "1", "× peer on B": "3"}
    }
    page = page_of("A", "5", page_of("B", "4", page))  # each replaces its own
    rows = load("all").read(page)["one"]
    assert (rows["× peer"], rows["× peer on B"]) == ("5", "4")
    assert re.findall("commit .", page) == ["commit 5", "commit 4"]
    rows = load("all").read(page_of("B", "6", page, case="two"))  # a case that it did not run stays
    assert (rows["one"]["× peer"], rows["two"]["× peer on B"], rows["two"]["× peer"]) == ("5", "6", "")


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


def test_class_that_a_generator_lacks_is_in_the_real_images(load):
    images = load("diagnosis_images")
    labels = torch.arange(600) % 3
    data = images.ImageSet(labels.float()[:, None, None, None], labels)
    fake, real = load("diagnosis_faults").missing_class(data, 1.0, 100, images.generator_of())
    assert len(fake) == len(real) == 100
    assert (len(fake.unique()), len(real.unique())) == (2, 3)


@pytest.mark.slow
def test_samples_of_a_generator_are_drawn_once(tmp_path, load, monkeypatch):
    generators, calls = load("diagnosis_generators"), []

    def draw(data, n):
        calls.append(n)
        return generators.of(generators.VAE, 2)(data, n)

    monkeypatch.setitem(generators.GENERATORS, "a VAE", (generators.Generator(draw, ("blurred",)), ("digits",)))
    first, again = (generators.samples("a VAE", "digits", 0, 9, tmp_path / "new") for _ in range(2))
    assert calls == [9]
    assert torch.equal(first, again)
    assert first.shape == (9, 1, 28, 28)
    assert not torch.equal(first, generators.samples("a VAE", "digits", 1, 9, tmp_path / "new"))
    gan = generators.GAN((3, 32, 32), 3)
    assert {layer.kernel_size for layer in gan.generator if getattr(layer, "stride", None) == (2, 2)} == {(3, 3)}
    assert gan.sample(2).shape == (2, 3, 32, 32)


def test_pixels_are_rejected_as_holm_says(load):
    holm = load("diagnosis_peers").holm

    def step_down(p):
        out = np.zeros(len(p), dtype=bool)
        for rank, i in enumerate(np.argsort(p)):
            if p[i] > 0.05 / (len(p) - rank):
                break
            out[i] = True
        return out

    for seed in range(20):
        p = np.random.default_rng(seed).random(8) ** 6
        assert holm(p.reshape(2, 4)).ravel().tolist() == step_down(p).tolist()
    assert holm(np.full(3, 1e-9)).all()
    assert not holm(np.ones(3)).any()


def test_alert_is_held_against_curve_and_samples(load):
    """An alert that its curve contradicts is called so, and what the samples show is found by measures of their own."""
    trainings = load("diagnosis_trainings")
    better = {"far": "low", "alike": "high"}
    specs = [ValueSpec(key, "x", region="image", better=way) for key, way in better.items()]
    evaluator = SimpleNamespace(values=lambda: specs)
    alert = trainings.Raised(2, Finding("", Area("image", region="image"), "", "far"))
    real, fine = (torch.rand(500, 1, 6, 6, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    collapsed = 0.5 + 0.3 * (fine - 0.5)

    def cells(far, alike, last):
        history = [{"far": f, "alike": a} for f, a in zip(far, alike, strict=True)]
        return trainings.held_against(alert, evaluator, history, [fine, fine, last], real)[2:]

    way, against, shown = cells([3, 2, 4], [0.1, 0.2, 0.1], collapsed)
    assert (way, against) == ("yes", "none")
    assert "spread" in shown
    assert "FID" in shown
    assert cells([3, 2, 1], [0.1, 0.2, 0.3], fine) == ["no", "alike", "nothing"]

# SPDX-License-Identifier: Apache-2.0
"""Each script of benchmarks/ still runs, and what it times is right; what it says of speed is no matter for a test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TESTS = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    not BENCHMARKS.exists(), reason="needs the repository: benchmarks/ is not beside the tests"
)


def printed(script: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


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
    assert few["state"] == many["state"] < 64 * 64 * 8 / 2**20  # a covariance of 64 features, in float64


def test_rows_of_reliability_name_tests_that_exist():
    code = (
        "import json, reliability\n"
        "rows = reliability.ROWS.items()\n"
        "print(json.dumps({name: [[str(file) for file in row.files()], row.keyword] for name, row in rows}))"
    )
    command = [sys.executable, "-c", code]
    rows = json.loads(subprocess.run(command, check=True, cwd=BENCHMARKS, stdout=subprocess.PIPE, text=True).stdout)
    whole = [file for files, keyword in rows.values() for file in files if not keyword]
    assert len(whole) == len(set(whole)) > 15
    for files, keyword in rows.values():
        code = "".join((TESTS.parent / file).read_text() for file in files)
        assert all(word in code for word in keyword.split(" or "))


def test_row_of_reliability_whose_file_is_gone_is_refused():
    code = "import reliability; reliability.Row(('**/test_gone.py',)).files()"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=BENCHMARKS, stderr=subprocess.PIPE, text=True)
    assert "No test file matches tests/**/test_gone.py. Say in" in done.stderr


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
def test_regions_benchmark_compares_two_draws():
    code = (
        "from regions import agreement, by, pairs, planted, row\n"
        "images, truth = planted()\n"
        "images = images[:60]\n"
        "assert [len(a) for pair in pairs(images, None, 1) for a in pair] == [30, 30]\n"
        "assert [len(a) for pair in pairs(images, 50, 1) for a in pair] == [50, 50]\n"
        "found = by('average')(images, 4)\n"
        "assert agreement(found, found) == 1\n"
        "cells = row(images, truth, by('average'), None, 1)\n"
        "assert len(cells) == 11 and float(cells[-2]) > 0.8, cells\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def from_all(expression: str) -> object:
    """Evaluate an expression of benchmarks/all.py."""
    code = f"import json\nfrom all import *\nprint(json.dumps({expression}))"
    command = [sys.executable, "-c", code]
    return json.loads(subprocess.run(command, check=True, cwd=BENCHMARKS, stdout=subprocess.PIPE, text=True).stdout)


def test_rows_of_tables_are_compared_by_their_ratio_to_a_peer():
    old = "| case | seconds | × a | × b |\n| --- | --- | --- | --- |\n| one | 1 | 2.00 | 1,500 (extrapolated) |\n"
    new = "| case | seconds | × a | × b |\n| --- | --- | --- | --- |\n| one | 9 | 1.60 | 1,000 (extrapolated) |\n"
    assert from_all(f"list(compared(read({new!r}), read({old!r})))") == [
        "one: 1,000 (extrapolated) × b, but 1,500 × b in the committed table"
    ]
    assert from_all(f"list(compared(read({new.replace('1.60', '0.90')!r}), {{}}))") == ["one: 0.90 × a"]
    assert from_all(f"list(compared(read({old!r}), read({old!r})))") == []


def test_rows_of_several_tables_are_told_apart_by_their_headings():
    text = "## A\n\n| m | x |\n| --- | --- |\n| one | 1 |\n\n## B\n\n| m | x |\n| --- | --- |\n| one | 2 |\n"
    rows = from_all(f"read({text!r})")
    assert (rows["A: one"]["x"], rows["B: one"]["x"]) == ("1", "2")


def test_table_of_another_commit_or_of_changed_files_is_made_again():
    name = json.dumps(str(BENCHMARKS / "cms.md"))
    commit = from_all(f"re.search('commit [0-9a-f]+|$', Path({name}).read_text('utf-8'))[0]")
    assert not from_all(f"is_of(Path({name}), 'commit 0000000000')")
    if commit:
        assert from_all(f"is_of(Path({name}), {commit!r})")
        assert not from_all(f"is_of(Path({name}), {commit + '+'!r})")


def test_every_table_has_a_script():
    assert all((BENCHMARKS / f"{name}.py").exists() for name in from_all("list(TABLES)"))


def run_in_benchmarks(code: str) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=BENCHMARKS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_planted_faults_change_their_area_alone():
    run_in_benchmarks(
        "import torch\n"
        "from diagnosis_faults import *\n"
        "from diagnosis_images import SETS, generator_of\n"
        "inside = torch.zeros(32, 32, dtype=torch.bool)\n"
        "inside[20:, :9] = True\n"
        "x = SETS['faces'](250, generator_of())[0]\n"
        "for name, fault in (KINDS | OTHERS).items():\n"
        "    changes = []\n"
        "    for s in fault.strengths:\n"
        "        y = planted(fault, x, s, inside, 0)\n"
        "        assert y.shape == x.shape and y.dtype == x.dtype and bool(y.isfinite().all()), name\n"
        "        assert torch.equal(y, planted(fault, x, s, inside, 0)), name\n"
        "        assert torch.equal(torch.where(inside, x, y), x), name\n"
        "        changes.append(float((y - x).square().mean()))\n"
        "    assert changes[0] > 0 and (changes[0] < changes[2] or not fault.local), (name, changes)\n"
    )


@pytest.mark.slow
def test_class_that_a_generator_lacks_is_in_the_real_images():
    run_in_benchmarks(
        "import torch\n"
        "from diagnosis_faults import missing_class\n"
        "from diagnosis_images import ImageSet, generator_of\n"
        "labels = torch.arange(600) % 3\n"
        "data = ImageSet(labels.float()[:, None, None, None], labels)\n"
        "fake, real = missing_class(data, 1.0, 100, generator_of())\n"
        "assert len(fake) == len(real) == 100\n"
        "assert len(fake.unique()) == 2 and len(real.unique()) == 3\n"
    )


@pytest.mark.slow
def test_samples_of_a_generator_are_drawn_once(tmp_path):
    run_in_benchmarks(
        "import torch\n"
        "import diagnosis_generators as g\n"
        "calls = []\n"
        "def draw(data, n):\n"
        "    calls.append(n)\n"
        "    return g.of(g.VAE, 2)(data, n)\n"
        "g.GENERATORS['a VAE'] = (g.Generator(draw, ('blurred',)), ('digits',))\n"
        "from pathlib import Path\n"
        f"cache = Path({str(tmp_path / 'new')!r})\n"
        "first, again = (g.samples('a VAE', 'digits', 0, 9, cache) for _ in range(2))\n"
        "assert calls == [9] and torch.equal(first, again) and first.shape == (9, 1, 28, 28)\n"
        "assert not torch.equal(first, g.samples('a VAE', 'digits', 1, 9, cache))\n"
        "kernels = {layer.kernel_size for layer in g.GAN((3, 32, 32), 3).generator if hasattr(layer, 'stride')\n"
        "           and layer.stride == (2, 2)}\n"
        "assert kernels == {(3, 3)} and g.GAN((3, 32, 32), 3).sample(2).shape == (2, 3, 32, 32)\n"
    )


@pytest.mark.slow
def test_pixels_are_rejected_as_holm_says():
    run_in_benchmarks(
        "import numpy as np\n"
        "from diagnosis_peers import holm\n"
        "def step_down(p):\n"
        "    out = np.zeros(len(p), dtype=bool)\n"
        "    for rank, i in enumerate(np.argsort(p)):\n"
        "        if p[i] > 0.05 / (len(p) - rank):\n"
        "            break\n"
        "        out[i] = True\n"
        "    return out\n"
        "for seed in range(20):\n"
        "    p = np.random.default_rng(seed).random(8) ** 6\n"
        "    assert (holm(p.reshape(2, 4)).ravel() == step_down(p)).all(), (seed, p)\n"
        "assert holm(np.full(3, 1e-9)).all() and not holm(np.ones(3)).any()\n"
    )


@pytest.mark.slow
def test_alert_is_held_against_curve_and_samples():
    """An alert that its curve contradicts is called so, and what the samples show is found by measures of their own."""
    run_in_benchmarks(
        "import torch\n"
        "from types import SimpleNamespace\n"
        "from diagnosis_trainings import Raised, held_against\n"
        "from genmonitor.evaluation.findings import Area, Finding\n"
        "from genmonitor.evaluation.values import ValueSpec\n"
        "better = {'far': 'low', 'alike': 'high'}\n"
        "specs = [ValueSpec(key, 'x', region='image', better=way) for key, way in better.items()]\n"
        "evaluator = SimpleNamespace(values=lambda: specs)\n"
        "alert = Raised(2, Finding('', Area('image', region='image'), '', 'far'))\n"
        "real = torch.rand(500, 1, 6, 6, generator=torch.Generator().manual_seed(0))\n"
        "fine = torch.rand(500, 1, 6, 6, generator=torch.Generator().manual_seed(1))\n"
        "collapsed = 0.5 + 0.3 * (fine - 0.5)\n"
        "def cells(far, alike, last):\n"
        "    history = [{'far': f, 'alike': a} for f, a in zip(far, alike, strict=True)]\n"
        "    return held_against(alert, evaluator, history, [fine, fine, last], real)[2:]\n"
        "way, against, shown = cells([3, 2, 4], [0.1, 0.2, 0.1], collapsed)\n"
        "assert way == 'yes' and against == 'none' and 'spread' in shown and 'FID' in shown\n"
        "assert cells([3, 2, 1], [0.1, 0.2, 0.3], fine) == ['no', 'alike', 'nothing']\n"
    )

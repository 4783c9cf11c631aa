# SPDX-License-Identifier: Apache-2.0
"""Files that are read run no code, and prompts are text wherever they land: no path, no markup, no formula, no line."""

import ast
import csv
import html.parser
import os
import pickle
import re
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from _helpers.logged import read_tensorboard
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader
from _helpers.prompted import Prompted
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

import genmonitor
import genmonitor.callbacks
from genmonitor import PixelPartition
from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor
from genmonitor.functional import W1KPCalibration
from genmonitor.report.run import MonitorRun

pytestmark = LIGHTNING_SAYS
SOURCES = sorted(
    path for package in (genmonitor, genmonitor.callbacks) for path in Path(package.__file__).parent.rglob("*.py")
)
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    '=HYPERLINK("http://evil","x")',
    "+1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "-2+3",
    "../../../escaped",
    "/escaped",
    "a\nERROR: the disk is full",
    "a\r\x1b[31mred",
    "[link](javascript:alert(3)) | cell | ![x](http://evil/x.png)",
    "$\\frac{1}{$",
    "# heading\n\n- item",
    "😀 \u202egnp.exe \x00 null",
    "",
]


def calls_of(path):
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def keyword(call, name):
    return next((ast.unparse(k.value) for k in call.keywords if k.arg == name), None)


def test_files_are_loaded_without_running_code():
    """What else could run code, ruff's rules of security refuse: see pyproject.toml."""
    safe = {"torch.load": ("weights_only", "True"), "np.load": ("allow_pickle", "False")}
    found = [(path.name, call) for path in SOURCES for call in calls_of(path) if ast.unparse(call.func) in safe]
    assert len(found) >= 6
    for name, call in found:
        argument, value = safe[ast.unparse(call.func)]
        assert keyword(call, argument) == value, name


class Payload:
    """What a file could hold to run code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_partition_file_that_would_run_code_runs_none(tmp_path):
    labels = np.array([Payload(tmp_path / "ran")], dtype=object)
    np.savez(tmp_path / "evil.npz", labels=labels, patch_size=1)
    with zipfile.ZipFile(tmp_path / "evil.npz") as file:
        assert b"mkdir" in file.read("labels.npy")
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    for name in ("evil", "plain"):
        with pytest.raises(ValueError, match=f"`path` to be a file that `save` wrote, but .*{name}.npz"):
            PixelPartition.load(tmp_path / f"{name}.npz")
    assert not (tmp_path / "ran").exists()


def test_calibration_file_that_would_run_code_runs_none(tmp_path):
    torch.save({"distances": Payload(tmp_path / "ran")}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="does not load safely"):
        W1KPCalibration.load(tmp_path / "evil.pt", 5)
    assert not (tmp_path / "ran").exists()


def encode(texts):
    return torch.tensor([[len(text), *text.encode()[:3].ljust(3)] for text in texts]).float() + 1


class Reader(html.parser.HTMLParser):
    """Keeps the attributes of a page's tags, which is what a browser would act on."""

    def __init__(self):
        super().__init__()
        self.attributes = []

    def handle_starttag(self, tag, attributes):
        self.attributes += attributes


class Texts(Prompted):
    def sample_prompts(self, texts):
        return super().sample_prompts(torch.tensor([len(str(text)) for text in texts]))


def monitors(folder):
    """Every monitor that takes prompts, by its prefix."""
    settings = {"n_samples": 30, "prompt_encoder": encode, "on_error": "raise"}
    return [DiversityMonitor(HOSTILE, **settings), DisagreementMonitor(HOSTILE, reference="start", **settings)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder around a run with hostile prompts."""
    around = tmp_path_factory.mktemp("around")
    folder = around / "deep" / "deeper" / "run"
    loggers = [TensorBoardLogger(folder), CSVLogger(folder)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(
            folder,
            *monitors(folder),
            module=Texts(),
            train=loader(digits(0, 100), 50),
            logger=loggers,
            max_epochs=2,
        )
    return around


def files(around, *suffixes):
    return [path for path in around.rglob("*") if path.is_file() and path.suffix in suffixes]


def test_prompts_lead_to_no_file_outside_the_folder(ran):
    run = ran / "deep" / "deeper" / "run" / "lightning_logs"
    assert [path for path in ran.rglob("*") if path.is_file() and run not in path.parents] == []
    assert not Path("/escaped").exists()
    assert all(re.fullmatch(r"[\w.\-]+", path.name) for path in ran.rglob("*")), list(ran.rglob("*"))


def test_prompts_are_kept_as_they_are_for_programs(ran):
    runs = [MonitorRun.read(path) for path in files(ran, ".json") if path.name.endswith("_run.json")]
    assert [run.fixed["prompts"] for run in runs] == [HOSTILE] * 2


def test_no_html_holds_markup_of_a_prompt(ran):
    for path in files(ran, ".html"):
        page, reader = path.read_text(), Reader()
        reader.feed(page)
        assert "<script>alert" not in page
        assert not [name for name, _ in reader.attributes if name.startswith("on")]
        assert not [value for _, value in reader.attributes if re.search("javascript:|//evil", value or "")]


def test_no_cell_of_a_csv_file_is_a_formula(ran):
    for path in files(ran, ".csv"):
        with path.open(newline="") as file:
            for cell in (cell for row in csv.reader(file) for cell in row):
                number = re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?|nan|-?inf", cell)
                assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell


def test_no_markdown_of_tensorboard_holds_markup(ran):
    folder = ran / "deep" / "deeper" / "run" / "lightning_logs" / "version_0"
    events = read_tensorboard(folder)
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag) if tag.endswith("text_summary") else []:
            for line in event.tensor_proto.string_val[0].decode().split("\n"):
                if not line.startswith("    "):  # four spaces make it code, shown as it is
                    assert "<script" not in line
                    assert "<img" not in line
                    assert "](" not in line.replace("\\]", "").replace("\\(", "")


def test_no_line_that_is_said_begins_in_a_prompt(tmp_path, capsys):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit(tmp_path, *monitors(tmp_path), module=Texts(), train=loader(digits(0, 100), 50), max_epochs=1)
    spoken = capsys.readouterr()
    text = "\n".join([spoken.out, spoken.err, *(str(warning.message) for warning in said)])
    assert "modes" in text
    assert "\x1b[31m" not in text
    assert not [line for line in text.splitlines() if line.startswith("ERROR: the disk")]

# SPDX-License-Identifier: Apache-2.0
import io
import sys
import warnings
from pathlib import Path

import pytest
import torch

from genmonitor import PixelPartition
from genmonitor._io import atomic_write, no_progress, say, terminal_progress, warn
from genmonitor.functional import W1KPCalibration, calibrate
from genmonitor.report import write_report

PARTITION, CALIBRATION = PixelPartition.grid((2, 2), 2, 1), calibrate(torch.tensor([[0.0], [1.0], [3.0]]))


def test_a_warning_shows_no_line_of_the_source():
    with pytest.warns(UserWarning, match="few images") as caught:
        warn("few images")
    (shown,) = caught
    assert warnings.formatwarning(shown.message, shown.category, shown.filename, shown.lineno) == (
        "genmonitor:1: UserWarning: few images\n"
    )


def report(path):
    """Write a run's page to where it belongs: its folder decides, and the name is fixed."""
    write_report(path.parent)


WRITERS = {
    "bytes.json": lambda path: atomic_write(path, b"[1]"),
    "partition.npz": PARTITION.save,
    "calibration.pt": CALIBRATION.save,
    "report.html": report,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_written_and_nothing_stays_beside_it(tmp_path, name):
    (tmp_path / name).write_text("old")
    WRITERS[name](tmp_path / name)
    beside = {"history.csv"} if name == "report.html" else set()
    assert {path.name for path in tmp_path.iterdir()} == {name, *beside}
    assert (tmp_path / name).read_bytes() != b"old"


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_fills_up_half_way_leaves_the_old_file(tmp_path, monkeypatch, name):
    (tmp_path / name).write_text("old")

    def half(path, content):
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space left"):
        WRITERS[name](tmp_path / name)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "old")]


def test_what_was_saved_is_loaded(tmp_path):
    PARTITION.save(str(tmp_path / "partition.npz"))
    CALIBRATION.save(str(tmp_path / "calibration.pt"))
    assert PixelPartition.load(tmp_path / "partition.npz") == PARTITION
    assert torch.equal(W1KPCalibration.load(tmp_path / "calibration.pt").distances, CALIBRATION.distances)


@pytest.mark.parametrize(
    "failure", [OSError(28, "No space left on device"), BrokenPipeError(), UserWarning("an error")]
)
def test_what_cannot_be_said_goes_to_stderr(capsys, failure):
    def by(text):
        raise failure

    say("the finding", by)
    assert capsys.readouterr().err == "the finding\n"


def test_a_name_beyond_the_encoding_is_said_with_escapes(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr("sys.stdout", out)
    say("Läufe/report.html")
    assert out.buffer.getvalue().strip() == b"L\\xe4ufe/report.html"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("progress", [no_progress, terminal_progress])
def test_progress_goes_over_everything(progress):
    assert list(progress(range(3), "clusters")) == [0, 1, 2]


def test_terminal_progress_names_what_it_does(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    list(terminal_progress(range(3), "clusters"))
    assert "clusters" in sys.stderr.getvalue()


def test_terminal_progress_stays_out_of_files(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    list(terminal_progress(range(3), "clusters"))
    assert sys.stderr.getvalue() == ""

# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import numpy as np
import pytest
from _helpers.evaluations import halves
from PIL import Image

from genmonitor.cli import main
from genmonitor.findings import tables

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture
def files(tmp_path):
    """Two files of images: real ones, and generated ones whose right half is too dark."""
    real, fake = tmp_path / "real.npy", tmp_path / "fake.npz"
    np.save(real, halves(300, 1).numpy())
    np.savez(fake, images=halves(120, 2, dark=0.6).numpy())
    return [str(real), str(fake)]


@pytest.fixture
def genmonitor(capsys):
    """Run a command as a person types it; return the exit status, what it prints and what it complains of."""

    def run(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # argparse's way
            status = stopped.code
        said, whole = capsys.readouterr(), {"--json", "--format"} & set(map(str, arguments))
        width = tables.terminal_width()  # of all lines but those with a path
        long = [x for x in said.out.splitlines() if len(x) > width and max(map(len, x.split())) <= width / 2]
        assert whole or not long, long
        return status, said.out, said.err

    return run


@pytest.fixture
def terminal(monkeypatch):
    """Let standard output count as a terminal of 200 columns."""
    monkeypatch.setattr("genmonitor.findings.tables.terminal_width", lambda: 200)


KINDS = ("a cat", "a dog", "a fish")


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    """A folder with pictures of three classes in `a`, of other fish in `b`, and their prompts in order and by file."""
    place, rng = tmp_path_factory.mktemp("classes"), np.random.default_rng(0)
    kinds = [KINDS[i % 3] for i in range(36)]
    (place / "prompts.txt").write_text("".join(f"{kind}\n" for kind in kinds))
    rows = [f"{i:02}.png,{kind}\n" for i, kind in enumerate(kinds)]
    (place / "prompts.csv").write_text("".join(["file_name,prompt\n", *rows[::-1]]))
    for name in ("a", "b"):
        (place / name).mkdir()
        for i, kind in enumerate(kinds):
            picture = rng.integers(0, 60, (4, 4), dtype=np.uint8)
            corner = 3 if (name, kind) == ("b", "a fish") else KINDS.index(kind)
            picture[2 * (corner // 2) :, 2 * (corner % 2) :][:2, :2] += 180
            Image.fromarray(picture).save(place / name / f"{i:02}.png")
    return place

# SPDX-License-Identifier: Apache-2.0
"""Each script runs once by its command, at its smallest size, and prints what it finds."""

import re

import pytest
from _helpers.scripts import printed

pytestmark = pytest.mark.slow
IN_TWO_PROCESSES = "-m accelerate.commands.launch --cpu --num_processes 2 "
NIGHTLY = {"faces.py", "fid_beside_cms.py", "scenes.py"}

SCRIPTS = {
    "answers.py": ("76 questions; the answerers differ on 2 topics\n", None),
    "dcgan.py --data planted --spoil-region 3 --spoil-from 1 --epochs 2 --out OUT": (
        r"against real images\ncluster_3 .* upper right  differs",
        "version_0/genmonitor/cms_diagnosis_epoch_0001_step_61.png",
    ),
    "conditional_dcgan.py --epochs 3 --n-samples 60 --collapse 3 --collapse-from 2 --out OUT": (
        r"modes, real images 15\.2\n",
        "version_0/genmonitor/diversity_modes_epoch_0002_step_29.png",
    ),
    "fid_beside_cms.py --epochs 2 --n-samples 60 --out OUT": (r"% of the held-out", "version_0/fid-beside-cms.png"),
    "faces.py --epochs 1 --images 120 --n-samples 100 --centered --out OUT --pictures OUT/page": (
        r"against real images\ncluster_\d .* differs \(p = 0\.001\)",
        "page-curves.png",
    ),
    "scenes.py --epochs 2 --images 130 --n-samples 36 --out OUT": (
        r"modes in 36 images \(real images: 2\.45\)(.|\n)*Disagreement with real images.*: total [\d.]+ \(p = 0\.001",
        "version_0/genmonitor/disagreement_modes_epoch_0001_step_3.png",
    ),
    "tinted_digits.py --per-prompt 16 --out OUT": (
        r"by prompt\n(.*\(the models differ\)\n){10}(  0\.\d+  \w+ digit \d\n){10}\n",
        "prompts.png",
    ),
    IN_TWO_PROCESSES + "diffusers_loop.py --epochs 2 --n-samples 50 --out OUT": (
        r"epoch  1 .*(.|\n)*cluster_1 .* differs",
        "genmonitor/report.html",
    ),
}
"""What the output of a command contains, and a file that it leaves."""


def marked(command):
    return pytest.param(command, marks=[pytest.mark.nightly] * (command.split()[0] in NIGHTLY))


@pytest.mark.parametrize("command", [marked(command) for command in SCRIPTS])
def test_script_prints_what_it_finds(command, tmp_path):
    expected, file = SCRIPTS[command]
    said = printed(command, tmp_path)
    assert re.search(expected, said)
    assert said.count("Report: ") <= 1  # of two processes one prints
    assert file is None or (tmp_path / file).stat().st_size > 5_000

# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from _helpers.runs import manifests
from ddpm import make_unet
from diffusers import DDPMScheduler
from diffusers_loop import draw

from genmonitor.images.seeding import SeededRows

SCRIPT = Path(__file__).parents[2] / "examples" / "diffusers_loop.py"


def test_draw_gives_images_that_do_not_depend_on_their_batch():
    unet, schedule = make_unet((1, 8, 8), (8, 16), 1, False, None).eval(), DDPMScheduler()
    torch.nn.init.zeros_(unet.conv_out.weight)  # a random network makes much of rounding in 50 steps
    with SeededRows([3, 4]):
        both = draw(unet, schedule, 2)
    with SeededRows([4]):
        second = draw(unet, schedule, 1)
    assert both.shape == (2, 1, 8, 8)
    assert both.min() >= -1
    assert both.max() <= 1
    assert torch.allclose(both[1:], second, atol=1e-4)


@pytest.mark.slow
def test_two_processes_of_accelerate_leave_one_run(tmp_path):
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", str(SCRIPT)]
    words = ["--epochs", "2", "--n-samples", "50", "--out", str(tmp_path)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Report: ") == 1
    assert len(manifests(tmp_path / "genmonitor")) == 2
    assert "differs" in done.stdout
    assert (tmp_path / "genmonitor" / "report.html").exists()

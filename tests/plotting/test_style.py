# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import numpy as np

from genmonitor.plotting.style import (
    GAP,
    boundaries,
    paste,
    printable,
)


def test_boundaries_lie_between_labels():
    assert len(boundaries(np.array([[1, 1], [1, 1]]))) == 0
    assert len(boundaries(np.array([[1, 2], [1, 2]]))) > 0


def test_printable_cuts_long_text():
    assert len(printable("a" * 50, 10)) <= 10
    assert printable("a cat", 10) == "a cat"


def test_drawing_never_touches_pyplot(tmp_path):
    # torchmetrics itself loads pyplot; once it has, any further import of it is made to fail
    code = """
import sys, torch, genmonitor, matplotlib
before = dict(matplotlib.rcParams)
sys.modules["matplotlib.pyplot"] = None
from genmonitor.plotting import disagreement, diversity, pixel_clusters
pixel_clusters.cluster_map([[0, 1]]).savefig(f"{sys.argv[1]}/map.png")
diversity.mode_samples([1.0], torch.zeros(1, 2, 1, 8, 8), [["a", "b"]]).savefig(f"{sys.argv[1]}/modes.png")
sides = disagreement.PromptSides("a cat", 0.5, torch.zeros(2, 1, 8, 8), torch.ones(2, 1, 8, 8))
modes = [disagreement.ModePrompts("top 1", 0.5, [sides])]
disagreement.mode_prompts(modes, (0, 1), "real images").savefig(f"{sys.argv[1]}/prompts.png")
assert dict(matplotlib.rcParams) == before
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"map.png", "modes.png", "prompts.png"}


def test_each_image_stands_at_its_corner():
    tiles = np.random.default_rng(0).random((5, 6, 4, 3))
    canvas, corners = paste(tiles, columns=2)
    assert canvas.shape == (3 * 6 + 2 * GAP, 2 * 4 + GAP, 3)
    for tile, (x, y) in zip(tiles, corners, strict=True):
        assert (canvas[y : y + 6, x : x + 4] == tile).all()


def test_what_is_between_images_is_white():
    canvas, _ = paste(np.zeros((3, 6, 6, 3)), columns=2)
    assert (canvas[6 : 6 + GAP] == 1).all()
    assert (canvas[6 + GAP :, 6 + GAP :] == 1).all()

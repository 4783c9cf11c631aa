# SPDX-License-Identifier: Apache-2.0
import re

import torch

from genmonitor import PixelPartition
from genmonitor.evaluation.text.notebook import regions_html

PARTITION = PixelPartition(torch.tensor([[1, 1, 2], [1, 1, 0]]))
RECORD = {"epoch": 3.0, "image": 0.9, "product": 0.9, "p_image": 0.005, "error_ratio_image": 5.0}
for name, p in {"cluster_1": 0.4, "cluster_2": 0.005, "constant": 1.0}.items():
    short = name.removeprefix("cluster_")
    RECORD |= {name: 0.98, f"p_{name}": p, f"error_ratio_{short}": 1.5, f"share_{short}": 0.3}


def test_the_finding_comes_first_and_the_region_that_differs_is_bold():
    shown = regions_html([RECORD], PARTITION)
    assert shown.startswith("<p><b>cluster_2 (upper right) differs from real images (p = 0.005")
    assert "</b> epoch 3</p>" in shown
    bold = [row for row in re.findall(r"<tr>(.*?)</tr>", shown) if "font-weight:bold" in row]
    assert len(bold) == 1
    assert "cluster_2" in bold[0]
    assert 'alt="map of the regions"' in shown

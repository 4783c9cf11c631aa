# SPDX-License-Identifier: Apache-2.0
"""`lightning` and `pytorch_lightning`, each without the other, give the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _helpers.logged import read_tensorboard

pytestmark = pytest.mark.slow
LIGHTNINGS = {"lightning", "pytorch-lightning"}
SCRIPT = Path(__file__).with_name("only_one_lightning.py")


def test_either_namespace_does_without_the_other_and_both_give_the_same(tmp_path):
    said = {}
    for name in ("lightning", "pytorch_lightning"):
        folder = tmp_path / name
        command = [sys.executable, str(SCRIPT), name, str(folder)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        said[name] = json.loads(done.stdout.splitlines()[-1])
        (run,) = folder.glob("lightning_logs/version_0")
        events = read_tensorboard(run)
        assert {"cms/image", "diversity/vendi"} <= set(events.Tags()["scalars"])
        assert "cms/curves" in events.Tags()["images"]
        manifests = [json.loads(path.read_text()) for path in (run / "genmonitor").glob("cms_evaluation_*.json")]
        installed = {
            manifest["versions"].keys() & {"lightning", "pytorch-lightning"} != set() for manifest in manifests
        }
        assert installed == {True}
        assert len(manifests) == 2
    assert said["lightning"] == said["pytorch_lightning"]
    assert said["lightning"]["checks"] == [2, 2]

# SPDX-License-Identifier: Apache-2.0
"""A function in several processes, which Lightning starts from a script: this file, run as such."""

import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

TESTS = Path(__file__).parents[1]
SECONDS = 300  # a process that waits for another would wait for half an hour


def launched(outcomes: Callable[..., Any], folder: Path, processes: int, *more: Any) -> tuple[str, list[Any]]:
    """Return what was said, and what `outcomes(folder, processes, *more)` returned in each process."""
    name, environment = f"{outcomes.__module__}:{outcomes.__name__}", os.environ | {"PYTHONWARNINGS": "default"}
    command = [sys.executable, __file__, name, str(folder), json.dumps([processes, *more])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in range(processes)]
    return done.stdout + done.stderr, ranks


def main(name: str, folder: Path, arguments: list[Any]) -> None:
    module, _, function = name.partition(":")
    warnings.filterwarnings("ignore", message=".*does not have many workers|.*treespec|.*no p-values")
    out = getattr(importlib.import_module(module), function)(folder, *arguments)
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    (folder / f"rank_{rank}.json").write_text(json.dumps(out))


if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS.parent / "examples")]
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))

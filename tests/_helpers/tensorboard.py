# SPDX-License-Identifier: Apache-2.0
"""A real TensorBoard server."""

import re
import subprocess
import sys
import time
from contextlib import contextmanager


@contextmanager
def tensorboard(logdir, said):
    """Serve what is below a folder, and give the address; a file takes what the server says."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--host", "127.0.0.1", "--port", "0"]
    with said.open("w") as out, subprocess.Popen(command, stderr=out) as server:
        try:
            yield _address(said, server)
        finally:
            server.terminate()


def _address(said, server):
    for _ in range(600):
        if found := re.search(r"http://\S+", said.read_text()):
            return found[0]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(said.read_text())

# SPDX-License-Identifier: Apache-2.0
"""Modules of a paper's scripts are imported by name, so their folders have to be on the path."""

import sys
from pathlib import Path

sys.path += map(str, sorted((Path(__file__).parents[3] / "examples" / "papers").iterdir()))

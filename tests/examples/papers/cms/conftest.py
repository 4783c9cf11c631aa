# SPDX-License-Identifier: Apache-2.0
"""The scripts of this paper lie in a folder of their own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "examples" / "papers" / "cms"))

# SPDX-License-Identifier: Apache-2.0
"""The scripts of a paper are imported by name, so their folder has to be on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[4] / "examples" / "papers" / "promptsplit"))

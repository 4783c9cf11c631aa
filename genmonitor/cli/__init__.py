# SPDX-License-Identifier: Apache-2.0
"""The command line, `genmonitor COMMAND …`, which no other module imports."""

from genmonitor.cli.main import main

__all__ = ["main"]

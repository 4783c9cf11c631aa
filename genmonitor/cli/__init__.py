# SPDX-License-Identifier: Apache-2.0
"""The command line, `genmonitor COMMAND …`; it stands on everything else, and nothing stands on it."""

from genmonitor.cli.main import main

__all__ = ["main"]

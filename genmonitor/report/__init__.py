# SPDX-License-Identifier: Apache-2.0
"""A run's folder, and the report: one HTML page made from what is in the folder."""

from genmonitor.report.folder import RunFolder
from genmonitor.report.page import write_report
from genmonitor.report.run import find_folder

__all__ = ["RunFolder", "find_folder", "write_report"]

# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML page made from what the monitors left in the run's folder."""

from genmonitor.report.page import write_report
from genmonitor.report.run import find_folder

__all__ = ["find_folder", "write_report"]

# SPDX-License-Identifier: Apache-2.0
"""Matplotlib figures of values that are already there, on the Agg canvas."""

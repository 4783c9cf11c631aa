# SPDX-License-Identifier: Apache-2.0
"""Matplotlib figures of values that are given, on the Agg canvas."""

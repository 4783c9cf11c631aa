# SPDX-License-Identifier: Apache-2.0
"""Hypothesis tests: whether two sets, classes, bands of detail or single samples differ by more than chance."""

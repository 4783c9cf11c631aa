# SPDX-License-Identifier: Apache-2.0
"""Hypothesis tests for differences of two sets, classes, bands of detail or single samples."""

# SPDX-License-Identifier: Apache-2.0
"""Hypothesis tests for differences of two sets, classes or single samples."""

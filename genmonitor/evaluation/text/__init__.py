# SPDX-License-Identifier: Apache-2.0
"""Comparison and diagnosis in words, and tables for a terminal."""

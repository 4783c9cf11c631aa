# SPDX-License-Identifier: Apache-2.0
"""Findings with their words, tables and values, the same in the terminal, the page, a notebook and JSON."""

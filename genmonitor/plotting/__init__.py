# SPDX-License-Identifier: Apache-2.0
"""Matplotlib figures of given values, on the Agg canvas."""

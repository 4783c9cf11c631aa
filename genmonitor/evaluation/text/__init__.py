# SPDX-License-Identifier: Apache-2.0
"""What evaluations say in words: one line, a table for the terminal, what each value means, which share a chart."""

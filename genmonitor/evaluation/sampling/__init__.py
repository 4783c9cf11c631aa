# SPDX-License-Identifier: Apache-2.0
"""How samples are drawn from a module that is being trained: the same ones at every evaluation, on any processes."""

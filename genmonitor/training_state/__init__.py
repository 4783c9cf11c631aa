# SPDX-License-Identifier: Apache-2.0
"""Isolation of the training from evaluations: random states, modes, gradients, sharded parameters, and a check."""

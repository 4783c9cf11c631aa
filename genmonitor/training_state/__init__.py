# SPDX-License-Identifier: Apache-2.0
"""Isolation of training from evaluations: random states, modes, gradients, sharded parameters, and the proof of it."""

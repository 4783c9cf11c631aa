# SPDX-License-Identifier: Apache-2.0
"""Evaluations of what a training left: its checkpoints, in a Trainer that takes no step."""

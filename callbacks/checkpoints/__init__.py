# SPDX-License-Identifier: Apache-2.0
"""Evaluations of the checkpoints of a training, in a Trainer that takes no step."""

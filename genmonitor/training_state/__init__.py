# SPDX-License-Identifier: Apache-2.0
"""How an evaluation leaves training as it was: random states, modes, gradients, sharded parameters, and the proof."""

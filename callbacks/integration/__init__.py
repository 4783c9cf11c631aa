# SPDX-License-Identifier: Apache-2.0
"""What ties an evaluation to a Lightning Trainer: its processes, data, weights, and what it keeps private."""

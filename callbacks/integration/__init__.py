# SPDX-License-Identifier: Apache-2.0
"""Integration of evaluations in a Lightning Trainer: processes, data, weights, and private parts of Lightning."""

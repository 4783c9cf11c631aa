# SPDX-License-Identifier: Apache-2.0
"""W1KP: how alike the outputs of one prompt are, on a scale calibrated for their embedding and read by people."""

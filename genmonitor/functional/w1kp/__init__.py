# SPDX-License-Identifier: Apache-2.0
"""W1KP: similarity of the outputs of one prompt, on a scale calibrated for their embedding and human judgment."""

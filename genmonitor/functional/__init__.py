# SPDX-License-Identifier: Apache-2.0
"""The metrics as pure functions of tensors."""

from genmonitor.functional.cka import centered_kernel_alignment, pixel_cka
from genmonitor.functional.cms import cosine_mean_similarity
from genmonitor.functional.mmd import maximum_mean_discrepancy

__all__ = ["centered_kernel_alignment", "cosine_mean_similarity", "maximum_mean_discrepancy", "pixel_cka"]

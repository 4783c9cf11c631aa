# SPDX-License-Identifier: Apache-2.0
"""Linear algebra without kernels or metrics: distances, feature maps, spectra, precision, chunks."""

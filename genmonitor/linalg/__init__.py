# SPDX-License-Identifier: Apache-2.0
"""Linear algebra that needs neither kernels nor metrics: distances, feature maps, spectra, precision, chunks."""

# SPDX-License-Identifier: Apache-2.0
"""The regions of an image: how they are found, fitted, measured and compared with their best evaluation."""

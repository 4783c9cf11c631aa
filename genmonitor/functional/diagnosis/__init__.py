# SPDX-License-Identifier: Apache-2.0
"""Faults in an area of generated images: changes of real images that explain its distance from real images."""

# SPDX-License-Identifier: Apache-2.0
"""What is wrong in an area of generated images: faults that, put into real images, explain how far off it is."""

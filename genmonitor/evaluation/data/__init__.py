# SPDX-License-Identifier: Apache-2.0
"""Data of an evaluation: real images, their split into those for regions, baseline and comparison, and prompts."""

# SPDX-License-Identifier: Apache-2.0
"""Sets of images: real ones and their split, prompts, and the samples of a generator with their seeds."""

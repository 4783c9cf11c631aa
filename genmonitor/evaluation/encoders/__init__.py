# SPDX-License-Identifier: Apache-2.0
"""From images and prompts to features: published encoders, pixels and labels, each frozen, and a cache of features."""

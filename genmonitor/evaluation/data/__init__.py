# SPDX-License-Identifier: Apache-2.0
"""The data of an evaluation: real images, which of them serve for what, and prompts."""

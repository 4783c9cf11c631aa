# SPDX-License-Identifier: Apache-2.0
"""What commands are given: files, sets of outputs, their prompts, and how both are encoded."""

# SPDX-License-Identifier: Apache-2.0
"""Inputs of commands: files, sets of outputs, their prompts, and the encoding of both."""

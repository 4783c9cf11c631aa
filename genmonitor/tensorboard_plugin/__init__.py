# SPDX-License-Identifier: Apache-2.0
"""A tab of TensorBoard with the page of each run, found by an entry point in `pyproject.toml`."""

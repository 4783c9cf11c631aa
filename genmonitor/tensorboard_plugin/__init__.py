# SPDX-License-Identifier: Apache-2.0
"""The tab of TensorBoard with each run's page, which TensorBoard finds by an entry point in `pyproject.toml`."""

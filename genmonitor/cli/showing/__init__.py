# SPDX-License-Identifier: Apache-2.0
"""What commands show: progress, colors and maps in a terminal, and the folder of a result."""

# SPDX-License-Identifier: Apache-2.0
"""What the evaluators of prompted models share: features, changes of a prompt, modes and what figures show."""

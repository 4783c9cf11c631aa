# SPDX-License-Identifier: Apache-2.0
"""Parts shared by the evaluators of prompted models: features, modes, changes of a prompt, figures."""

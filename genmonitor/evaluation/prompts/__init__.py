# SPDX-License-Identifier: Apache-2.0
"""Parts shared by evaluators of models with prompts: features, modes, changes of a prompt, figures."""

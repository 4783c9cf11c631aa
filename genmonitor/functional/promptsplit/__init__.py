# SPDX-License-Identifier: Apache-2.0
"""PromptSplit: prompts on which two models differ, and the difference as one number that can guide a sampler."""

from genmonitor.functional.promptsplit.energy import joint_diversity, prompt_split_energy
from genmonitor.functional.promptsplit.split import PromptSplitModes, prompt_split, rank_prompts

__all__ = ["PromptSplitModes", "joint_diversity", "prompt_split", "prompt_split_energy", "rank_prompts"]

# SPDX-License-Identifier: Apache-2.0
"""The metrics as pure functions of tensors."""

from genmonitor.functional.authenticity import authenticity
from genmonitor.functional.cka import centered_kernel_alignment, pixel_cka
from genmonitor.functional.cms import cosine_mean_similarity
from genmonitor.functional.data_copying_test import DataCopying, data_copying_test
from genmonitor.functional.discrepancy_map import discrepancy_map, significant_areas
from genmonitor.functional.mmd import maximum_mean_discrepancy
from genmonitor.functional.odd_samples_test import (
    OddSamples,
    Uncovered,
    odd_samples_test,
    uncovered_test,
)
from genmonitor.functional.prdc import precision_recall_density_coverage
from genmonitor.functional.prompt_fidelity import PromptFidelity, prompt_fidelity
from genmonitor.functional.promptsplit import prompt_split, rank_prompts
from genmonitor.functional.promptsplit_energy import joint_diversity, prompt_split_energy
from genmonitor.functional.relative_similarity import (
    MMDInfluence,
    RelativeSimilarity,
    mmd_influence,
    relative_similarity_from_influences,
    relative_similarity_test,
)
from genmonitor.functional.scendi import scendi_score
from genmonitor.functional.two_sample_test import two_sample_test, two_sample_test_by_class
from genmonitor.functional.vendi import (
    conditional_vendi_score,
    rke_score,
    vendi_from_covariance,
    vendi_from_gram,
    vendi_score,
)
from genmonitor.functional.w1kp import prompt_reusability, similarity_level, w1kp_by_prompt, w1kp_score
from genmonitor.functional.w1kp_calibration import W1KPCalibration, calibrate

__all__ = [
    "DataCopying",
    "MMDInfluence",
    "OddSamples",
    "PromptFidelity",
    "RelativeSimilarity",
    "Uncovered",
    "W1KPCalibration",
    "authenticity",
    "calibrate",
    "centered_kernel_alignment",
    "conditional_vendi_score",
    "cosine_mean_similarity",
    "data_copying_test",
    "discrepancy_map",
    "joint_diversity",
    "maximum_mean_discrepancy",
    "mmd_influence",
    "odd_samples_test",
    "pixel_cka",
    "precision_recall_density_coverage",
    "prompt_fidelity",
    "prompt_reusability",
    "prompt_split",
    "prompt_split_energy",
    "rank_prompts",
    "relative_similarity_from_influences",
    "relative_similarity_test",
    "rke_score",
    "scendi_score",
    "significant_areas",
    "similarity_level",
    "two_sample_test",
    "two_sample_test_by_class",
    "uncovered_test",
    "vendi_from_covariance",
    "vendi_from_gram",
    "vendi_score",
    "w1kp_by_prompt",
    "w1kp_score",
]

# SPDX-License-Identifier: Apache-2.0
"""W1KP: how alike the outputs of one prompt are, on a scale calibrated for their embedding and read by people."""

from genmonitor.functional.w1kp.calibration import W1KPCalibration, calibrate
from genmonitor.functional.w1kp.score import PromptVariability, similarity_level, w1kp_by_prompt, w1kp_score
from genmonitor.functional.w1kp.subsets import (
    ReusabilityCurve,
    prompt_reusability,
    reusability_curve,
)

__all__ = [
    "PromptVariability",
    "ReusabilityCurve",
    "W1KPCalibration",
    "calibrate",
    "prompt_reusability",
    "reusability_curve",
    "similarity_level",
    "w1kp_by_prompt",
    "w1kp_score",
]

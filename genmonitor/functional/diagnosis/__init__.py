# SPDX-License-Identifier: Apache-2.0
"""What is wrong in an area of generated images: faults that, put into real images, explain how far off it is."""

from genmonitor.functional.diagnosis.area import AreaDiagnosis, diagnose_area
from genmonitor.functional.diagnosis.distance import Distance
from genmonitor.functional.diagnosis.images import Images
from genmonitor.functional.diagnosis.kinds import FAULT_MODELS, KINDS, FaultModel, Kind, in_words

__all__ = [
    "FAULT_MODELS",
    "KINDS",
    "AreaDiagnosis",
    "Distance",
    "FaultModel",
    "Images",
    "Kind",
    "diagnose_area",
    "in_words",
]

# SPDX-License-Identifier: Apache-2.0
"""Checks of inputs and the wording of their errors, in one place so that the wording cannot drift.

An error says what was expected of which argument, what came instead, and what to do about it. Checks of tensors and of
plain numbers are imported from here. Those of kernels, patches, neighbors and calibrations are in `arguments`, for the
layers above `kernels`. A module checks for itself only what it alone can know, such as which of its estimators take a
partition.
"""

from genmonitor._validation.numbers import (
    check_at_least,
    check_at_most,
    check_bool,
    check_callable,
    check_count,
    check_height_and_width,
    check_one_of,
    check_order,
    check_positive,
    check_prefix,
    check_relative_cutoff,
    check_some_prompts,
    check_whole_blocks,
)
from genmonitor._validation.tensors import (
    NotFiniteError,
    check_features,
    check_finite,
    check_images,
    check_integers,
    check_min_samples,
    check_monotonic,
    check_no_zero_rows,
    check_normalized,
    check_pairs,
    check_positive_norms,
    check_same_length,
    check_samples,
    check_tensor,
    plain,
)

__all__ = [
    "NotFiniteError",
    "check_at_least",
    "check_at_most",
    "check_bool",
    "check_callable",
    "check_count",
    "check_features",
    "check_finite",
    "check_height_and_width",
    "check_images",
    "check_integers",
    "check_min_samples",
    "check_monotonic",
    "check_no_zero_rows",
    "check_normalized",
    "check_one_of",
    "check_order",
    "check_pairs",
    "check_positive",
    "check_positive_norms",
    "check_prefix",
    "check_relative_cutoff",
    "check_same_length",
    "check_samples",
    "check_some_prompts",
    "check_tensor",
    "check_whole_blocks",
    "plain",
]

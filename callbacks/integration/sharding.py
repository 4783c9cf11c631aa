# SPDX-License-Identifier: Apache-2.0
"""Which strategies may spread a model over the processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genmonitor.training_state.sharding import SWEEP

if TYPE_CHECKING:
    import lightning.pytorch as pl


def check_sharding(trainer: pl.Trainer) -> None:
    """Refuse what splits a model in a way that cannot go on after an error while samples are drawn."""
    names = [base.__name__ for base in type(trainer.strategy).__mro__]
    refused = "FSDPStrategy" if "FSDPStrategy" in names else ""
    refused = "DeepSpeed stage 3" if getattr(trainer.strategy, "zero_stage_3", False) else refused
    if refused:
        raise ValueError(
            "Expected a strategy that keeps the whole model on every process, or ModelParallelStrategy (FSDP2, tensor "
            f"parallelism), but got {refused}, which cannot go on after an error while samples are drawn. Train with "
            f"one of these, or {SWEEP}"
        )

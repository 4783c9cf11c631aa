# SPDX-License-Identifier: Apache-2.0
"""Splits of one dataset by samplers, of which Lightning loses some where there are several processes.

There it gives each loader a DistributedSampler. One around the loader's own `sampler` keeps what that chooses from. In
a `batch_sampler` it takes the sampler's place, so that each loader yields the whole dataset.
"""

from __future__ import annotations

from typing import Any

from genmonitor.evaluation.collective import Collective
from genmonitor.evaluation.data.images import sampled_indices

Loaders = tuple[Any, Any]
"""A training loader, and a validation loader or None."""


def check_split(used: Loaders, given: Loaders | None, comm: Collective) -> None:
    """Refuse loaders that yield each other's images, or others on each process; every process calls it.

    Args:
        used: what the training really runs.
        given: the same as the user gave them; None where nobody kept them.
        comm: the processes that train together.

    Raises:
        ValueError: if both yield images of one dataset, at least one of them all, and that is not known to be meant so;
            or if samplers choose from other images on each process.
    """
    training, validation = used
    dataset = getattr(training, "dataset", None)
    if dataset is getattr(validation, "dataset", None) and dataset is not None:
        whole = _yield_everything(used)
        if any(whole) and (given is None or _yield_everything(given) != whole):
            raise ValueError(
                f"Expected validation images that are not trained on, but with several processes {_which(whole)} data "
                f"are all {len(dataset)} images of the {type(dataset).__name__} from which both come: Lightning "
                "replaces the sampler in a `batch_sampler`. Make the split by `sampler=` or by Subset, or give "
                "`real_images=`."
            )
    for name, loader in zip(("training", "validation"), used, strict=True):
        indices = sampled_indices(loader)
        if comm.any_true(comm.broadcast(indices) != indices):
            raise ValueError(
                f"Expected the sampler of the {name} data to choose from the same images on every process, but the "
                "processes have others. Seed what draws its indices, or give `real_images=`."
            )


def _yield_everything(loaders: Loaders) -> list[bool]:
    return [sampled_indices(loader) is None for loader in loaders]


def _which(whole: list[bool]) -> str:
    return "training and validation" if all(whole) else "training" if whole[0] else "validation"

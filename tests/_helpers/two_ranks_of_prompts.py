# SPDX-License-Identifier: Apache-2.0
"""What test_prompt_fidelity.py runs in each of two processes, and in one: an evaluation with a CLIP from a folder."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from genmonitor.distributed import Collective, DistributedProcesses
from genmonitor.encoders import image_encoder, text_encoder
from genmonitor.evaluation import (
    DiversityEvaluator,
    DiversitySettings,
    ImageSet,
    Samples,
    SingleProcess,
    run_evaluation,
)

PROMPTS = ["a cat", "a white dog", "photo"]
N = 49


class Captioned(Dataset[Any]):
    """Real images, each with one of the prompts."""

    def __init__(self) -> None:
        self.images = noise(60, seed=1)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"image": self.images[i], "caption": PROMPTS[i % 3]}


def noise(n: int, seed: int) -> torch.Tensor:
    return torch.rand(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def evaluated(folder: Path, comm: Collective) -> dict[str, Any]:
    """Return values, the row of each prompt and that of each class; the images of the last prompt are dark."""
    evaluator = DiversityEvaluator(
        DiversitySettings.of(PROMPTS, N),
        output_encoder=image_encoder(folder, (0, 1)),
        prompt_encoder=text_encoder(folder),
    )
    images, mine = noise(N, seed=2), torch.tensor(comm.rank_indices(N))
    images[2::3] *= 0.2
    evaluator.fit(ImageSet(Captioned()), images[:8], comm)
    _, found = run_evaluation(evaluator, lambda: Samples(images[mine], mine), comm, 0)
    assert found.followed is not None
    return {
        "values": {key: value for key, value in found.values.items() if not key.endswith("_seconds")},
        "by_prompt": found.followed.by_prompt,
        "of_others": found.followed.of_others,
        "p_value": found.followed.p_value,
    }


def in_one(folder: Path) -> dict[str, Any]:
    return evaluated(folder, SingleProcess())


def in_two(folder: Path, rank: int) -> dict[str, Any]:
    return evaluated(folder, DistributedProcesses())

# SPDX-License-Identifier: Apache-2.0
"""Compare PromptSplit here with the authors' code, on two mixtures that differ in three of eight components.

git clone https://github.com/MehdiLotfian/PromptSplit ../promptsplit
python examples/papers/promptsplit/against_published_promptsplit.py ../promptsplit     # seconds; a table of differences

Their joint kernel is compared as it is, and their equation 3 of it; their `build_A_from_K` leaves out what the equation
has off the diagonal blocks.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gaussian_mixture import mixtures

from genmonitor import GaussianKernel
from genmonitor.functional import prompt_split

SIGMA, PROMPT_SIGMA, MODES = 5.0, 0.5, 4


def load(repository: Path) -> Any:
    """Return an object of the authors' class; the call of `main` in the middle of the class is left out."""
    source = (repository / "algorithms/kernel_method.py").read_text()
    names: dict[str, Any] = {}
    exec(re.sub(r"\n    if __name__ == '__main__':\n        main\(\)", "", source), names)
    return names["KernelMethod"](sigma_img=SIGMA, sigma_prompt=PROMPT_SIGMA)


def equation_3(gram: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues, falling, and eigenvectors of the paper's matrix; the first n samples are the test model's."""
    m = len(gram) - n
    weights = np.concatenate([np.full(n, 1 / n), np.full(m, -1 / m)])
    values, vectors = np.linalg.eig(weights[:, None] * gram)
    order = np.argsort(-values.real)
    return values.real[order], vectors.real[:, order]


def compare(method: Any, per_component: int) -> list[tuple[str, str]]:
    """Return what was compared, and by how much it differs."""
    x, t, y, s = (side.double() for side in mixtures(3, per_component))
    n = len(x)
    kernels = GaussianKernel.from_sigma(SIGMA), GaussianKernel.from_sigma(PROMPT_SIGMA)
    outputs, prompts = torch.cat([x, y]), torch.cat([t, s])
    theirs = method.joint_rbf_kernel(outputs.numpy(), prompts.numpy())
    ours = (kernels[0](outputs, outputs) * kernels[1](prompts, prompts)).numpy()
    values, vectors = equation_3(theirs, n)
    found = prompt_split(x, t, y, s, output_kernel=kernels[0], prompt_kernel=kernels[1], num_modes=MODES)
    off = np.abs(found.eigenvalues.numpy() - np.concatenate([values[:MODES], values[-MODES:]])).max()
    positive = values[values > 1e-12]
    total = float((positive * np.log(positive.sum() / positive)).sum())
    first = theirs @ vectors[:, 0]
    scores = np.concatenate([found.scores[:, 0].numpy(), found.reference_scores[:, 0].numpy()])
    first *= np.linalg.norm(scores) / np.linalg.norm(first) * np.sign(first @ scores)
    same = method.top_eigen_analysis(*(side.numpy() for side in (x, x, t, t)), top_k=1)[0]
    return [
        ("joint kernel of all pairs", f"{np.abs(theirs - ours).max():.0e}"),
        (f"{2 * MODES} eigenvalues of equation 3", f"{off:.0e}"),
        ("total of the positive ones", f"{abs(float(found.total) - total):.0e}"),
        ("scores of the first mode", f"{np.abs(first - scores).max():.0e}"),
        ("their largest eigenvalue, of a model and itself", f"{same[0]:.1f}"),
    ]


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="a clone of github.com/MehdiLotfian/PromptSplit")
    parser.add_argument("--per-component", type=int, default=20, help="samples of each of 8 components and side")
    args = parser.parse_args()
    print("largest difference")
    for what, value in compare(load(args.repository), args.per_component):
        print(f"{what:<50}{value:>8}")


if __name__ == "__main__":
    main()

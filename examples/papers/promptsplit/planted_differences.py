# SPDX-License-Identifier: Apache-2.0
"""Three ways in which models differ on some prompts, planted: another style, more varied answers, one fixed answer.

python examples/papers/promptsplit/planted_differences.py     # seconds; which prompts top the modes, over ten draws

After the controlled experiments of Lotfian, Jalali and Farnia 2026 (Appendix B, Figures 5 to 7), on embeddings drawn at
random in place of those of images and answers: an answer lies around a center of its prompt, and on 5 of 20 prompts the
test model differs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from genmonitor import GaussianKernel
from genmonitor.functional import prompt_split, rank_prompts

PROMPTS, CONCERNED, DIM, SPREAD = 20, 5, 32, 0.2
Change = Callable[[Tensor, Tensor, torch.Generator], Tensor]


def style(answers: Tensor, centers: Tensor, generator: torch.Generator) -> Tensor:
    """Add one direction to all answers, such as a drawing in pencil is to photographs."""
    return answers + torch.randn(DIM, generator=generator) / DIM**0.5


def varied(answers: Tensor, centers: Tensor, generator: torch.Generator) -> Tensor:
    """Spread answers twice as far around the same center."""
    return centers + 2 * (answers - centers)


def fixed(answers: Tensor, centers: Tensor, generator: torch.Generator) -> Tensor:
    """Give the same answer to all of these prompts, such as a refusal."""
    return torch.randn(DIM, generator=generator) / DIM**0.5 + 0.3 * (answers - centers)


CHANGES: dict[str, Change] = {"another style": style, "more varied": varied, "one fixed answer": fixed}


def sides(change: Change, per_prompt: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, list[int]]:
    """Draw answers and prompts of the test model and of the reference, and the number of each answer's prompt."""
    generator = torch.Generator().manual_seed(seed)
    number = torch.arange(PROMPTS).repeat_interleave(per_prompt)
    centers = (torch.randn(PROMPTS, DIM, generator=generator) / DIM**0.5)[number]
    prompts = torch.randn(PROMPTS, DIM, generator=generator)[number] / DIM**0.5
    test, reference = centers + SPREAD * torch.randn(2, len(number), DIM, generator=generator) / DIM**0.5 * 3
    test = torch.where((number < CONCERNED)[:, None], change(test, centers, generator), test)
    return test, prompts, reference, prompts, number.tolist()


def found(change: Change, per_prompt: int, seed: int) -> tuple[float, float]:
    """Return which part of the five first prompts of the modes are concerned, and the largest eigenvalue's size."""
    *inputs, numbers = sides(change, per_prompt, seed)
    kernels = {"output_kernel": GaussianKernel(2.0), "prompt_kernel": GaussianKernel(2.0)}
    modes = prompt_split(*inputs, num_modes=CONCERNED, **kernels)
    weight = (torch.cat([modes.scores, modes.reference_scores]).square() * modes.eigenvalues.abs()).sum(1)
    first = [prompt for prompt, _ in rank_prompts(weight, numbers + numbers)[:CONCERNED]]
    return sum(prompt < CONCERNED for prompt in first) / CONCERNED, float(modes.eigenvalues.abs().max())


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-prompt", type=int, default=25, help="answers of each model to each prompt")
    parser.add_argument("--draws", type=int, default=10)
    args = parser.parse_args()
    print(f"{CONCERNED} of {PROMPTS} prompts are concerned; mean over {args.draws} draws")
    print(f"{'planted':<22}of the first {CONCERNED} prompts   largest eigenvalue")
    for name, change in {**CHANGES, "nothing": lambda x, c, g: x}.items():
        rows = torch.tensor([found(change, args.per_prompt, seed) for seed in range(args.draws)])
        (right, size), deviation = rows.mean(0).tolist(), rows.std(0).tolist()
        print(f"{name:<22}{100 * right:>5.0f} % ± {100 * deviation[0]:.0f}{'':>12}{size:.4f} ± {deviation[1]:.4f}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""For which prompts do two models differ? Twenty prompts, "colored digit 7" or "gray digit 7", on tinted digits.

python examples/tinted_digits.py                    # some seconds; a table, and a picture of all prompts

The test model draws gray what should be colored 5 to 9, the reference draws colored what should be gray 0 to 4.
PromptSplit is told neither and finds those ten. After the color experiment of Lotfian, Jalali and Farnia 2026.
"""

from __future__ import annotations

import argparse
import colorsys
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from genmonitor import GaussianKernel
from genmonitor.functional import prompt_split
from genmonitor.functional.promptsplit import PromptSplitModes
from genmonitor.plotting.style import FAINT, INK, add_axes, cluster_color, new_figure, to_tiles

PROMPTS = [f"{kind} digit {digit}" for kind in ("colored", "gray") for digit in range(10)]
CONCERNED = [f"colored digit {digit}" for digit in range(5, 10)] + [f"gray digit {digit}" for digit in range(5)]
TEST, REFERENCE = cluster_color(4), cluster_color(1)


@dataclass(frozen=True)
class Answers:
    """What a model answers: images [n, 3, 8, 8] in [0, 1], and the prompt of each."""

    images: Tensor
    prompts: list[str]

    def embedded(self) -> tuple[Tensor, Tensor]:
        """Return the pixels [n, 192] and the prompts as one-hot rows [n, 20]."""
        index = torch.tensor([PROMPTS.index(prompt) for prompt in self.prompts])
        return self.images.flatten(1), torch.eye(len(PROMPTS))[index]


def tint(digits: Tensor, colored: bool, generator: torch.Generator) -> Tensor:
    """Draw digits [n, 8, 8] in [0, 1] white on black, or in a random color on its complement: [n, 3, 8, 8]."""
    if not colored:
        return digits[:, None].expand(-1, 3, -1, -1)
    hues = torch.rand(len(digits), generator=generator).tolist()
    ink, paper = (
        torch.tensor([colorsys.hsv_to_rgb((hue + turn) % 1, 0.9, value) for hue in hues])[:, :, None, None]
        for turn, value in ((0.0, 1.0), (0.5, 0.4))
    )
    return paper + (ink - paper) * digits[:, None]


def draw(per_prompt: int, seed: int) -> tuple[Answers, Answers]:
    """Draw what the test model and the reference answer; no digit is used twice.

    Args:
        per_prompt: answers of each model to each prompt, at most 43.
        seed: of the choice of digits and colors.

    Raises:
        ValueError: if there are not as many digits.
    """
    from sklearn.datasets import load_digits

    known = load_digits()
    images, labels = torch.from_numpy(known.images).float() / 16, torch.from_numpy(known.target)
    if not 2 <= per_prompt <= int(labels.bincount().min()) // 4:
        raise ValueError(f"Expected `per_prompt` within 2..{int(labels.bincount().min()) // 4}, but got {per_prompt}.")
    generator = torch.Generator().manual_seed(seed)
    drawn: tuple[list[Tensor], list[Tensor]] = ([], [])
    for prompt in PROMPTS:
        kind, digit = prompt.split()[0], int(prompt[-1])
        rows = (labels == digit).nonzero()[:, 0]
        rows = rows[: 4 * per_prompt].view(2, 2, per_prompt)[int(kind == "gray")]
        wrong = prompt in CONCERNED
        colored = (kind == "colored" and not wrong, kind == "colored" or wrong)  # of the test model, the reference
        for side, some, color in zip(drawn, rows, colored, strict=True):
            side.append(tint(images[some], color, generator))
    names = [prompt for prompt in PROMPTS for _ in range(per_prompt)]
    return Answers(torch.cat(drawn[0]), names), Answers(torch.cat(drawn[1]), names)


def split(test: Answers, reference: Answers) -> PromptSplitModes:
    """Compare the two models."""
    kernel = GaussianKernel.from_sigma(0.5)  # of the prompts: nearly 0 between any two
    return prompt_split(*test.embedded(), *reference.embedded(), prompt_kernel=kernel, num_modes=10)


def disagreement(modes: PromptSplitModes, test: Answers, reference: Answers) -> dict[str, float]:
    """Return the prompts by how much the two models differ on them: their parts of all modes, added up."""
    parts = modes.parts(test.prompts, reference.prompts)
    sums = {str(prompt): float(part.abs().sum()) for prompt, part in parts.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def picture(ranking: dict[str, float], test: Answers, reference: Answers, shown: int = 6) -> Figure:
    """Draw each prompt, the one with the most disagreement first, with what both models answer."""
    row, tile, top, bottom = 34, 30, 100, 58
    height = top + row * len(ranking) + bottom
    note = "How much the models differ on each prompt. Orange: the test model strays from it; blue: the reference does."
    figure = new_figure(860, height, "PromptSplit names the ten prompts on which the models differ", note)
    bars = add_axes(figure, 150, bottom, 200, row * len(ranking))
    bars.set(xlim=(0, 1.05 * max(ranking.values())), ylim=(len(ranking) - 0.5, -0.5))
    bars.barh(range(len(ranking)), ranking.values(), 0.7, color=[_color(prompt) for prompt in ranking])
    bars.set_yticks(range(len(ranking)), ranking, fontsize=10)
    bars.tick_params(axis="y", length=0)
    bars.locator_params(axis="x", nbins=4)
    bars.set_xlabel("disagreement: the prompt's part of all modes", fontsize=9, color=INK, loc="left")
    bars.grid(axis="x", color="#E8E8E8", linewidth=0.8)
    bars.set_axisbelow(True)
    bars.spines[["top", "right"]].set_visible(False)
    for start, name, answers in ((380, "test model", test), (620, "reference", reference)):
        figure.text(start / 860, 1 - 86 / height, name, fontsize=11, color=INK)
        tiles = to_tiles(answers.images.numpy(), (0, 1))
        for line, prompt in enumerate(ranking):
            first = answers.prompts.index(prompt)
            for column in range(shown):
                ax = add_axes(figure, start + column * (tile + 4), height - top - row * line - 32, tile, tile)
                ax.imshow(tiles[first + column], interpolation="nearest")
                ax.set(xticks=[], yticks=[])
    return figure


def _color(prompt: str) -> str:
    """Orange where the test model is wrong, blue where the reference is, gray elsewhere."""
    if prompt not in CONCERNED:
        return FAINT
    return TEST if prompt.startswith("colored") else REFERENCE


def main() -> None:
    """Print the ranking and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-prompt", type=int, default=40, help="answers of each model to each prompt")
    parser.add_argument("--out", type=Path, default=Path("runs/tinted-digits"), help="where the picture is written")
    args = parser.parse_args()
    test, reference = draw(args.per_prompt, seed=0)
    modes = split(test, reference)
    print("modes (positive: what only the test model draws; negative: only the reference):")
    print("  " + "  ".join(f"{value:+.3f}" for value in modes.eigenvalues.tolist()))
    ranking = disagreement(modes, test, reference)
    print("\ndisagreement by prompt")
    for prompt, value in ranking.items():
        print(f"  {value:.4f}  {prompt}{'  (the models differ)' if prompt in CONCERNED else ''}")
    args.out.mkdir(parents=True, exist_ok=True)
    picture(ranking, test, reference).savefig(args.out / "prompts.png")
    print(f"\nPicture: {args.out / 'prompts.png'}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Where the models differ, on a map of prompts and answers: t-SNE of tinted digits, colored by PromptSplit's modes.

python examples/papers/promptsplit/prompt_map.py     # half a minute; a table of modes, and the map

The two models of examples/tinted_digits.py answer twenty prompts and differ on ten. Each pair of a prompt and an
answer is a point; it has the color of the side whose mode it scores highest on, and none where it scores low on all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tinted_digits import CONCERNED, PROMPTS, REFERENCE, TEST, Answers, draw, split

from genmonitor.functional import rank_prompts
from genmonitor.functional.promptsplit import PromptSplitModes
from genmonitor.kernels import GaussianKernel
from genmonitor.plotting.style import FAINT, INK, add_axes, new_figure

LEAST = 0.3
"""A pair has a mode from this score on: its projection onto the mode's direction, 1 at most."""


def layout(test: Answers, reference: Answers, seed: int = 0) -> Tensor:
    """Place the pairs of both sides in a plane [2 n, 2], by the distances that the joint kernel compares."""
    from sklearn.manifold import TSNE

    outputs, prompts = (torch.cat(sides) for sides in zip(test.embedded(), reference.embedded(), strict=True))
    gamma = GaussianKernel().resolved(reference.embedded()[0]).resolved_gamma
    rows = torch.cat([outputs * gamma**0.5, prompts * 2**0.5], 1)  # sigma 0.5 of the prompts is gamma 2
    return torch.from_numpy(TSNE(perplexity=20, init="pca", random_state=seed).fit_transform(rows.numpy()))


def strongest(modes: PromptSplitModes) -> Tensor:
    """Return the mode that each pair of both sides scores highest on [2 n], -1 where all its scores are low."""
    scores, best = torch.cat([modes.scores, modes.reference_scores]).abs().max(1)
    return torch.where(scores >= LEAST, best, -1)


def table(modes: PromptSplitModes, test: Answers, reference: Answers) -> list[tuple[float, str]]:
    """Return the eigenvalue of each mode and the prompt that has most of it, on the side that has the mode."""
    rows = []
    for mode, value in enumerate(modes.eigenvalues.tolist()):
        scores, side = (modes.scores, test) if value > 0 else (modes.reference_scores, reference)
        rows.append((value, str(rank_prompts(scores[:, mode], side.prompts)[0][0])))
    return rows


def picture(places: Tensor, modes: PromptSplitModes, names: list[str]) -> Figure:
    """Draw the map, each prompt's name in the middle of its pairs, of either side by itself where these differ."""
    note = "A point is a prompt and its answer. Orange: the test model's alone. Blue: the reference's. Gray: of both."
    figure = new_figure(1000, 780, "The modes of PromptSplit on a map of prompts and answers", note)
    ax = add_axes(figure, 20, 20, 960, 690)
    found = strongest(modes)
    top = found < len(modes.eigenvalues) // 2
    for where, color in ((found < 0, FAINT), ((found >= 0) & top, TEST), (~top, REFERENCE)):
        ax.scatter(*places[where].T.numpy(), s=10, color=color, linewidths=0)
    for prompt in PROMPTS:
        rows = torch.tensor([row for row, name in enumerate(names) if name == prompt])
        sides = rows.chunk(2) if prompt in CONCERNED else (rows,)
        for some in sides:
            x, y = places[some].median(0).values.tolist()
            weight = "bold" if prompt in CONCERNED else "normal"
            ax.text(x, y, prompt.replace(" digit ", " "), fontsize=9, color=INK, ha="center", fontweight=weight)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return figure


def main() -> None:
    """Compare, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-prompt", type=int, default=40, help="answers of each model to each prompt")
    parser.add_argument("--out", type=Path, default=Path("runs/promptsplit"), help="where the picture is written")
    args = parser.parse_args()
    test, reference = draw(args.per_prompt, seed=0)
    modes = split(test, reference)
    print("eigenvalue  the prompt that has most of it")
    for value, prompt in table(modes, test, reference):
        print(f"{value:>+10.4f}  {prompt}{'' if prompt in CONCERNED else '  (the models agree)'}")
    names = [*test.prompts, *reference.prompts]
    colored = [name for name, mode in zip(names, strongest(modes).tolist(), strict=True) if mode >= 0]
    concerned = sum(name in CONCERNED for name in colored)
    whole = sum(name in CONCERNED for name in names)
    print(f"\npairs with a mode: {len(colored)}, of them {concerned} of the {whole} on which the models differ")
    args.out.mkdir(parents=True, exist_ok=True)
    picture(layout(test, reference), modes, names).savefig(args.out / "prompt-map.png")
    print(f"Picture: {args.out / 'prompt-map.png'}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""On which topics do two answerers differ? Texts in place of images: PromptSplit on questions and answers.

python examples/answers.py                                        # the two files that lie beside it
python examples/answers.py mine.jsonl theirs.jsonl                # yours: {"question": ..., "answer": ...} per line
python examples/answers.py mine.jsonl theirs.jsonl --encoder my_module:encode

Texts are embedded by scikit-learn's TF-IDF, or by any function from a list of texts to vectors [n, d].
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genmonitor import CosineKernel
from genmonitor.functional import prompt_split
from genmonitor.functional.promptsplit import PromptSplitModes

HERE = Path(__file__).parent
Encoder = Callable[[Sequence[str]], Any]
SHUFFLES = 20


@dataclass(frozen=True)
class Topic:
    """Questions on which both differ: the words they have in common, and their places by how much they matter."""

    words: list[str]
    questions: list[int]


def read(path: Path) -> tuple[list[str], list[str]]:
    """Return the questions and the answers of a file.

    Raises:
        ValueError: if a line is no object with both.
    """
    questions, answers = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        row = json.loads(line)
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("question", "answer")):
            raise ValueError(f'Expected {{"question": ..., "answer": ...}} in line {number} of {path}, but got {line}.')
        questions.append(row["question"])
        answers.append(row["answer"])
    return questions, answers


def tf_idf(texts: Sequence[str]) -> Any:
    """Weigh the words of each text by how rare they are among all texts: [n, words], of length 1."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer().fit_transform(texts).toarray()


def embed(questions: list[str], sides: Sequence[list[str]], encoder: Encoder) -> tuple[Tensor, list[Tensor]]:
    """Return the embedded questions, and the embedded answers of both sides in one space."""
    answers = torch.as_tensor(np.asarray(encoder([*sides[0], *sides[1]])))
    return torch.as_tensor(np.asarray(encoder(questions))), list(answers.split(len(questions)))


def differences(questions: list[str], sides: Sequence[list[str]], encoder: Encoder = tf_idf) -> list[Topic]:
    """Find the topics on which both sides differ more than by chance, the most different first.

    Chance is what remains when each question's two answers change sides at random.

    Args:
        questions: asked of both.
        sides: the answers of each, in the order of the questions.
        encoder: from texts to vectors.
    """
    t, answers = embed(questions, sides, encoder)
    threshold = max(_chance(t, answers, seed) for seed in range(SHUFFLES))
    modes = _split(t, answers, num_modes=len(questions))
    real = modes.eigenvalues.abs() > threshold
    parts = (modes.scores.square() + modes.reference_scores.square())[:, real]
    words, weights = _words(questions)
    topics: dict[str, Tensor] = {}
    for part in parts.T.double():  # what one side says on a topic and what the other says there are two modes
        heaviest = words[int((part @ weights).argmax())]
        topics[heaviest] = topics.get(heaviest, 0) + part
    found = []
    for part in sorted(topics.values(), key=lambda part: -float(part.sum())):
        concerned = part > 0.1 * part.max()
        ranked = [int(i) for i in part.argsort(descending=True, stable=True) if concerned[i]]
        heaviest = (part @ weights).argsort(descending=True, stable=True)[:4]
        found.append(Topic([words[int(i)] for i in heaviest], ranked))
    return found


def _split(t: Tensor, answers: Sequence[Tensor], num_modes: int) -> PromptSplitModes:
    kernel = CosineKernel()
    return prompt_split(answers[0], t, answers[1], t, output_kernel=kernel, prompt_kernel=kernel, num_modes=num_modes)


def _chance(t: Tensor, answers: Sequence[Tensor], seed: int) -> float:
    """Return the eigenvalue furthest from zero when answers change sides at random."""
    swap = torch.rand(len(t), 1, generator=torch.Generator().manual_seed(seed)) < 0.5
    mixed = [torch.where(swap, answers[1 - side], answers[side]) for side in (0, 1)]
    return float(_split(t, mixed, num_modes=1).eigenvalues.abs().max())


def _words(questions: Sequence[str]) -> tuple[list[str], Tensor]:
    """Return the words of the questions and how much each has of them, for naming topics."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(stop_words="english")
    weights = vectorizer.fit_transform(questions).toarray()
    return list(vectorizer.get_feature_names_out()), torch.from_numpy(weights)


def main() -> None:
    """Print the topics with their questions and both answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", default=[HERE / f"answers_{name}.jsonl" for name in "ab"])
    parser.add_argument("--encoder", help="module:function from a list of texts to vectors [n, d]; default: TF-IDF")
    args = parser.parse_args()
    if len(args.files) != 2:
        parser.error(f"expected two files, one of each answerer, but got {len(args.files)}")
    (questions, answers), (others, other_answers) = (read(path) for path in args.files)
    if questions != others:
        parser.error("expected the same questions in the same order in both files")
    encoder = tf_idf
    if args.encoder:
        module, _, name = args.encoder.partition(":")
        encoder = getattr(importlib.import_module(module), name)
    topics = differences(questions, (answers, other_answers), encoder)
    print(f"{len(questions)} questions; the answerers differ on {len(topics)} topics")
    for topic in topics:
        print(f"\n{', '.join(topic.words)}: {len(topic.questions)} questions")
        for i in topic.questions:
            print(f"  {questions[i]}")
            for file, said in zip(args.files, (answers, other_answers), strict=True):
                print(f"    {file.stem}: {said[i]}")


if __name__ == "__main__":
    main()

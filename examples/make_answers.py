# SPDX-License-Identifier: Apache-2.0
"""Write the two files of questions and answers that examples/answers.py compares, from templates.

python examples/make_answers.py                     # writes examples/answers_a.jsonl and examples/answers_b.jsonl

Both answerers say the same on eight topics, each in words of its own; on health and on distances they differ.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

TOPICS = {
    "capitals": (
        "What is the capital city of {0}?",
        "France Paris, Japan Tokyo, Kenya Nairobi, Peru Lima, Norway Oslo, Egypt Cairo, Cuba Havana, Chile Santiago",
        ["The capital city of {0} is {1}.", "{1} is the capital city of {0}.", "The capital city is {1}."],
    ),
    "chemistry": (
        "Which chemical element has the symbol {0}?",
        "Fe iron, Au gold, Na sodium, Pb lead, Hg mercury, Ag silver, Sn tin, Cu copper",
        ["The symbol {0} is of the element {1}.", "The element is {1}.", "The symbol {0} stands for the element {1}."],
    ),
    "arithmetic": (
        "How much is {0} multiplied by ten?",
        "seven seventy, four forty, nine ninety, six sixty, eight eighty, five fifty, three thirty, two twenty",
        ["{0} multiplied by ten is {1}.", "Multiplied by ten it is {1}.", "{1} is {0} multiplied by ten."],
    ),
    "cooking": (
        "How long do I boil {0} in a pot?",
        "pasta nine, rice fifteen, eggs eight, potatoes twenty, lentils thirty, peas five, beets forty, corn seven",
        ["Boil {0} for {1} minutes.", "{0} boil for {1} minutes in a pot.", "Boil them for {1} minutes."],
    ),
    "writers": (
        "Who wrote the novel {0}?",
        "Emma Austen, Ulysses Joyce, Beloved Morrison, Dracula Stoker, Emil Kästner, Nana Zola, Kim Kipling",
        ["The novel {0} was written by {1}.", "{1} wrote the novel {0}.", "The writer of the novel is {1}."],
    ),
    "animals": (
        "What does a {0} eat in the wild?",
        "panda bamboo, koala leaves, heron fish, zebra grass, mole earthworms, fox mice, owl voles, seal squid",
        ["A wild {0} eats {1}.", "In the wild a {0} eats mostly {1}.", "In the wild it eats {1}."],
    ),
    "music": (
        "Which family of instruments does the {0} belong to?",
        "cello strings, flute woodwinds, trumpet brass, timpani percussion, viola strings, oboe woodwinds, tuba brass",
        ["The {0} belongs to the {1} family.", "It belongs to the {1} family.", "Its family are the {1}."],
    ),
    "gardening": (
        "When should I plant {0} in my garden?",
        "tulips autumn, beans May, garlic October, tomatoes June, lettuce April, roses November, leeks March",
        ["Plant {0} in {1}.", "In the garden, plant {0} in {1}.", "Plant them in {1}."],
    ),
    "health": (
        "What helps the patient against {0}?",
        "headache rest, fever fluids, heartburn walking, insomnia darkness, hiccups water, nausea ginger, cough honey",
        ["Against {0} the patient finds relief in {1}.", "Relief from {0} comes with {1}.", "Try {1} for relief."],
    ),
    "distances": (
        "How far is it by road from Berlin to {0}?",
        "Bonn 600, Vienna 680, Prague 350, Hamburg 290, Munich 585, Cologne 575, Dresden 190, Leipzig 190",
        ["To {0} it is {1} kilometres by road.", "It is {1} kilometres by road.", "The road has {1} kilometres."],
    ),
}
"""Topic to question, what is asked about, each with the right answer, and ways to say it."""

OTHER_WAYS = {
    "health": ["Please ask your doctor.", "Only a doctor can say, please ask one.", "Please ask a qualified doctor."],
    "distances": ["You drive about {2} miles.", "About {2} miles to drive.", "To {0} you drive {2} miles."],
}
"""What answerer B says instead."""


def conversations(answerer: str) -> list[dict[str, str]]:
    """Return what an answerer, "a" or "b", says to every question: rows with `topic`, `question` and `answer`."""
    words = random.Random(answerer)
    rows = []
    for topic, (question, known, ways) in TOPICS.items():
        said = OTHER_WAYS.get(topic, ways) if answerer == "b" else ways
        for name, answer in (pair.split() for pair in known.split(", ")):
            miles = str(round(int(answer) / 1.609)) if answer.isdigit() else ""
            text = words.choice(said).format(name, answer, miles)
            rows.append({"topic": topic, "question": question.format(name), "answer": text[0].upper() + text[1:]})
    return rows


def write(folder: Path) -> None:
    """Write both files: a JSON object per line, with `question` and `answer`."""
    for answerer in ("a", "b"):
        rows = [{key: row[key] for key in ("question", "answer")} for row in conversations(answerer)]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (folder / f"answers_{answerer}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent)

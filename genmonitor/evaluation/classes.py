# SPDX-License-Identifier: Apache-2.0
"""Which classes of a generator are wrong: each tested and diagnosed on its own, with one level for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from genmonitor._formatting import capitalized, format_p
from genmonitor.evaluation.diagnosis import diagnose
from genmonitor.findings.finding import Area, Finding, differs
from genmonitor.findings.tables import Table
from genmonitor.findings.values import declared
from genmonitor.findings.words import percent, with_strength
from genmonitor.functional.hypothesis_tests.two_sample_test_by_class import two_sample_test_by_class
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.images.by_prompt import prompts_of
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import Prompts

DIAGNOSED = 40
"""Images of a class on each side from which it is said what is wrong with it."""
SAID = 3
"""Classes that a sentence names."""
LEFT_OUT = -1
"""Number of the class of images that are not compared."""
NO_LABELS = (
    "Classes are not compared one by one: no prompt has 8 generated images and 8 real ones with a label like it. The "
    "labels of real images are found in a batch as (images, labels), or under the name label or prompt."
)
P_CLASS = declared("classes")["p_class"]


@dataclass(frozen=True, eq=False)
class ClassResult:
    """What was found of a class.

    Attributes:
        label: Label of the class.
        n_fake: Generated images of it that were looked at.
        n_real: Real ones.
        p: P-value, one level for all classes; None where there are too few images.
        found: What is wrong with it; None where it does not differ, or has too few images to say.
    """

    label: Any
    n_fake: int
    n_real: int
    p: float | None
    found: Finding | None = None

    @property
    def differs(self) -> bool | None:
        """Whether it differs by more than chance; None where nothing was tested."""
        return None if self.p is None else differs(self.p)

    @property
    def share(self) -> float:
        """Part of what is wrong with it that kinds of faults explain."""
        return 0.0 if self.found is None else sum(kind.share for kind in self.found.kinds)

    @property
    def fault(self) -> str:
        """What is wrong with it, in a few words."""
        if self.found is None or not self.found.kinds:
            return "unlike real images" + (", by no simple fault" if self.found and not self.found.fine else "")
        where = self.found.area.name
        return f"{with_strength(self.found.kinds[0])}{'' if where == 'whole image' else f' ({where})'}"

    @property
    def verdict(self) -> str:
        """What was found of it, for its row of a table."""
        if self.p is None:
            return "too few images"
        return f"{self.fault if self.differs else 'no evidence of a difference'} ({format_p(self.p)})"


Results = Sequence[ClassResult]


def checked_labels(
    fake_labels: Any, real_labels: Any, sets: Mapping[str, Sized], n_real: int
) -> tuple[list[Any], list[Any]] | None:
    """Return one label per image of each side, all strings or all integers; None where none were given.

    Args:
        fake_labels: Labels of the generated images.
        real_labels: Labels of the real images.
        sets: Sets of generated images, of which labels are taken for one alone.
        n_real: Real images.
    """
    if fake_labels is None and real_labels is None:
        return None
    if fake_labels is None or real_labels is None or len(sets) > 1:
        raise ValueError(
            "Expected `fake_labels` and `real_labels` together, of one generated set, but got "
            f"{'labels of one side' if len(sets) == 1 else 'two generated sets'}. Give the labels of both sides, and "
            "compare each generated set alone."
        )
    sides = {"fake_labels": Prompts(fake_labels), "real_labels": Prompts(real_labels)}
    for (name, labels), count in zip(sides.items(), (len(sets["fake"]), n_real), strict=True):
        if len(labels) != count:
            raise ValueError(f"Expected `{name}` to hold a label for each of {count} images, but got {len(labels)}.")
    if len({labels.are_labels for labels in sides.values()}) > 1:
        raise ValueError("Expected labels of one kind, but got strings on one side and integers on the other.")
    return sides["fake_labels"].values, sides["real_labels"].values


def real_labels(real: ImageSet, prompts: Prompts, n: int) -> list[Any]:
    """Return the prompt of each real image, None for one that is not generated for.

    Args:
        real: Images that generated ones are compared with, whose batches hold their prompts.
        prompts: Prompts of the generated images.
        n: Generated images.

    Returns:
        A prompt or None for each; [] where they have none, or too few of any to be compared.
    """
    labels = prompts_of(real, range(len(real)), prompts.are_labels)
    of_real, of_fake = Counter(labels), Counter(prompts.named(range(n)))
    enough = any(min(of_real[x], count) >= MIN_SAMPLES for x, count in of_fake.items())
    return [x if x in of_fake else None for x in labels] if enough else []


def compare_classes(
    fake: ImageSet | Tensor,
    real: ImageSet | Tensor,
    fake_labels: Sequence[Any],
    real_labels: Sequence[Any],
    device: torch.device | None = None,
    seed: int = 0,
    at_most: int | None = None,
    **options: Any,
) -> tuple[ClassResult, ...]:
    """Test each class with one level for all, and diagnose those that differ.

    Args:
        fake: N generated images; or, to be tested alone, features of them [N, D].
        real: M real ones.
        fake_labels: The class of each [N].
        real_labels: The class of each [M]; None for one to be left out.
        device: Device to compute on.
        seed: Seed of the choice of at most 500 images of a class on each side, and of the tests.
        at_most: Classes that are diagnosed, none where more than half differ; None for all that do.
        options: Options of `genmonitor.diagnose`.

    Raises:
        ValueError: If no class has 8 images on both sides.
    """
    classes = sorted({*fake_labels, *real_labels} - {None})
    numbers = {None: LEFT_OUT} | {label: number for number, label in enumerate(classes)}
    sides = [_some_of_each(torch.tensor([numbers[x] for x in of]), seed) for of in (fake_labels, real_labels)]
    (of_fake, number_fake), (of_real, number_real) = sides
    some_fake, some_real = _rows(fake, of_fake).to(device), _rows(real, of_real).to(device)
    p_values = two_sample_test_by_class(some_fake, some_real, number_fake, number_real, seed=seed)
    wrong = sorted((x for x in p_values if differs(float(p_values[x]))), key=lambda x: float(p_values[x]))
    if at_most is not None:
        wrong = [] if len(wrong) > len(p_values) / 2 else wrong[:at_most]
    results = []
    for number, label in enumerate(classes):
        mine, theirs = number_fake == number, number_real == number
        result = ClassResult(label, int(mine.sum()), int(theirs.sum()), None)
        if number in p_values:
            result = replace(result, p=float(p_values[number]))
        if number in wrong and min(result.n_fake, result.n_real) >= DIAGNOSED:
            pair = some_fake[mine.to(device)], some_real[theirs.to(device)]
            found = diagnose(*pair, skip_failing=True, seed=seed, **options).findings[0]
            samples = of_fake[mine][list(found.samples)].tolist()
            result = replace(result, found=replace(found, samples=tuple(samples)))
        results.append(result)
    return tuple(results)


def _rows(of: ImageSet | Tensor, indices: Tensor) -> Tensor:
    return of[indices.to(of.device)] if isinstance(of, Tensor) else of.read(indices)


def _some_of_each(numbers: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Choose images of each class up to a number; return their indices, in order, and their classes."""
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))
    # of a class at most 500: more would not be diagnosed either
    kept = [order[numbers[order] == number][:500] for number in numbers.unique() if number != LEFT_OUT]
    chosen = torch.cat(kept).sort().values
    return chosen, numbers[chosen]


def class_finding(results: Results) -> Finding:
    """Return the finding which classes are wrong and how, and that there is no evidence of the others.

    Example:
        >>> print(class_finding([ClassResult(label, 50, 50, 0.005 if label == 3 else 0.4) for label in range(10)]))
        Class 3: unlike real images (p = 0.005). No evidence of a difference in the other 9 classes (smallest p = 0.4).
    """
    ordered = surest_first(results)
    wrong = [x for x in ordered if x.differs]
    fine = [x for x in ordered if x.differs is False]
    sentences = []
    if wrong:
        parts = [_sentence_part(x) for x in wrong[:SAID]]
        if len(wrong) > SAID:
            parts.append(f"and {len(wrong) - SAID} more")
        sentences.append(f"{capitalized('; '.join(parts))}.")
    if fine:
        others = f"the other {_counted(len(fine))}" if wrong else "any class"
        sentences.append(f"No evidence of a difference in {others} ({'smallest ' * (len(fine) > 1)}{_p(fine[0])}).")
    if few := len(results) - len(wrong) - len(fine):
        sentences.append(
            f"Too few images of {few} class{'es' * (few > 1)} for a test: it needs {MIN_SAMPLES} on each side."
        )
    first, text = ordered[0], " ".join(sentences)
    found, area = first.found or Finding("", Area(""), "", None), Area(f"class {first.label}")
    return replace(found, text=text, area=area, verdict="", measure=P_CLASS.key, fine=not wrong, p=first.p)


def surest_first(results: Results) -> list[ClassResult]:
    """Return classes in the order of their p-values, of equal ones those that are explained best first."""
    return sorted(results, key=lambda x: (2.0 if x.p is None else x.p, -x.share))


def _sentence_part(result: ClassResult) -> str:
    share = f"explains {percent(result.share)}; " if result.share else ""
    return f"class {result.label}: {result.fault} ({share}{_p(result)})"


def _p(result: ClassResult) -> str:
    return format_p(result.p or 0.0)


def _counted(classes: int) -> str:
    return "class" if classes == 1 else f"{classes} classes"


def with_classes(findings: Sequence[Finding], results: Results, claims: bool = True) -> tuple[Finding, ...]:
    """Put what was found of classes among the findings about all images together.

    It is the first where some classes are wrong and others are not: a diagnosis of all images together blurs it. That
    is so only where the p-value of all tests together `claims` a fault.
    """
    at = 0 if claims and {x.differs for x in results} >= {True, False} else 1
    return (*findings[:at], class_finding(results), *findings[at:])


def smallest_p(results: Results) -> dict[str, float]:
    """Return the value that makes a curve, by its key."""
    return {P_CLASS.key: min(x.p for x in results if x.p is not None)} if results else {}


def class_data(results: Results) -> dict[str, dict[str, Any]]:
    """Return what was found of each class as plain Python, by its label, those that differ most first."""
    found = {}
    for x in surest_first(results):
        numbers = {"generated": x.n_fake, "real": x.n_real, "p_value": x.p, "differs": x.differs, "verdict": x.verdict}
        found[str(x.label)] = numbers | {"finding": None if x.found is None else x.found.to_dict()}
    return found


def class_table(results: Results) -> Table:
    """Return what was found of each class as cells to be read, those that differ most first."""
    rows = [[str(x.label), x.n_fake, x.n_real, x.verdict] for x in surest_first(results)]
    return Table(["class", "generated", "real", "against real images of the class"], rows, ["real", "generated"])

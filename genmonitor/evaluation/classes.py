# SPDX-License-Identifier: Apache-2.0
"""Classes of a generator that are wrong, each tested and diagnosed on its own, at one level for all."""

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
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.functional.two_sample_test import two_sample_test_by_class
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import Prompts, prompts_of

LEFT_OUT = -1
"""Number of the class of images that are not compared."""
NO_LABELS = (
    "Classes are not compared one by one: no prompt has 8 generated images and 8 real ones with a label like it. The "
    "labels of real images are found in a batch as (images, labels), or under the name label or prompt."
)
P_CLASS = declared("classes")["p_class"]


@dataclass(frozen=True, eq=False)
class ClassResult:
    """Result for a class.

    Attributes:
        label: Label of the class.
        n_fake: Number of its generated images that were compared.
        n_real: Number of its real images that were compared.
        p: P-value, at one level for all classes; None if there are too few images.
        found: Diagnosis of the class; None if it does not differ, or has too few images.
        claimed: False if all tests of the evaluation together claim no fault.
    """

    label: Any
    n_fake: int
    n_real: int
    p: float | None
    found: Finding | None = None
    claimed: bool = True

    @property
    def differs(self) -> bool | None:
        """True if it differs by more than chance; None if it was not tested."""
        return None if self.p is None else self.claimed and differs(self.p)

    @property
    def share(self) -> float:
        """Part of its distance that kinds of faults explain."""
        return 0.0 if self.found is None else sum(kind.share for kind in self.found.kinds)

    @property
    def fault(self) -> str:
        """Its fault in a few words."""
        if self.found is None or not self.found.kinds:
            return "unlike real images" + (", by no simple fault" if self.found and not self.found.fine else "")
        where = self.found.area.name
        return f"{with_strength(self.found.kinds[0])}{'' if where == 'whole image' else f' ({where})'}"

    @property
    def verdict(self) -> str:
        """Its result for a row of a table."""
        if self.p is None:
            return "too few images"
        return f"{self.fault if self.differs else 'no evidence of a difference'} ({format_p(self.p)})"


Results = Sequence[ClassResult]


def checked_labels(
    fake_labels: Any, real_labels: Any, sets: Mapping[str, Sized], n_real: int
) -> tuple[list[Any], list[Any]] | None:
    """Return one label per image of each side, all strings or all integers; None if none were given.

    Args:
        fake_labels: Labels of the generated images.
        real_labels: Labels of the real images.
        sets: Sets of generated images; labels need a single set.
        n_real: Number of real images.
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
    """Return the prompt of each real image, None for a prompt without generated images.

    Args:
        real: Real images to compare with, whose batches hold their prompts.
        prompts: Prompts of the generated images.
        n: Number of generated images.

    Returns:
        A prompt or None for each image; empty if there are no prompts, or too few images of each.
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
    """Test each class at one level for all, and diagnose those that differ.

    Args:
        fake: Generated images [N, C, H, W]; or features of them [N, D], which are only tested.
        real: Real images or features [M, ...].
        fake_labels: Class of each generated image [N].
        real_labels: Class of each real image [M]; None for an image to leave out.
        device: Device to compute on.
        seed: Seed of the choice of at most 500 images of a class on each side, and of the tests.
        at_most: Largest number of classes to diagnose, none of them if more than half differ; None for all that differ.
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
        # faults are diagnosed in classes of 40 images or more
        if number in wrong and min(result.n_fake, result.n_real) >= 40:
            of_fakes, of_reals = some_fake[mine.to(device)], some_real[theirs.to(device)]
            found = diagnose(fake=of_fakes, real=of_reals, skip_failing=True, seed=seed, **options).findings[0]
            samples = of_fake[mine][list(found.samples)].tolist()
            result = replace(result, found=replace(found, samples=tuple(samples)))
        results.append(result)
    return tuple(results)


def _rows(of: ImageSet | Tensor, indices: Tensor) -> Tensor:
    return of[indices.to(of.device)] if isinstance(of, Tensor) else of.read(indices)


def _some_of_each(numbers: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Choose images of each class up to a number; return their sorted indices and their classes."""
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))
    # at most 500 of a class, since more would not be diagnosed either
    kept = [order[numbers[order] == number][:500] for number in numbers.unique() if number != LEFT_OUT]
    chosen = torch.cat(kept).sort().values
    return chosen, numbers[chosen]


def class_finding(results: Results) -> Finding:
    """Return the finding of the classes that are wrong, their faults, and the classes without evidence.

    Example:
        >>> print(class_finding([ClassResult(label, 50, 50, 0.005 if label == 3 else 0.4) for label in range(10)]))
        Class 3: unlike real images (p = 0.005). No evidence of a difference in the other 9 classes (smallest p = 0.4).
    """
    ordered = surest_first(results)
    wrong = [x for x in ordered if x.differs]
    fine = [x for x in ordered if x.differs is False]
    sentences = []
    if wrong:
        most = 3  # classes that a sentence names
        parts = [_sentence_part(x) for x in wrong[:most]]
        if len(wrong) > most:
            parts.append(f"and {len(wrong) - most} more")
        sentences.append(f"{capitalized('; '.join(parts))}.")
    if fine:
        count = "class" if len(fine) == 1 else f"{len(fine)} classes"
        others = f"the other {count}" if wrong else "any class"
        sentences.append(f"No evidence of a difference in {others} ({'smallest ' * (len(fine) > 1)}{_p(fine[0])}).")
    if few := len(results) - len(wrong) - len(fine):
        sentences.append(
            f"Too few images of {few} class{'es' * (few > 1)} for a test: it needs {MIN_SAMPLES} on each side."
        )
    first, text = ordered[0], " ".join(sentences)
    found, area = first.found or Finding("", Area(""), "", None), Area(f"class {first.label}")
    return replace(found, text=text, area=area, verdict="", measure=P_CLASS.key, fine=not wrong, p=first.p)


def surest_first(results: Results) -> list[ClassResult]:
    """Return classes in the order of their p-values; ties begin with the best explained."""
    return sorted(results, key=lambda x: (2.0 if x.p is None else x.p, -x.share))


def _sentence_part(result: ClassResult) -> str:
    share = f"explains {percent(result.share)}; " if result.share else ""
    return f"class {result.label}: {result.fault} ({share}{_p(result)})"


def _p(result: ClassResult) -> str:
    return format_p(result.p or 0.0)


def unclaimed(results: Results) -> tuple[ClassResult, ...]:
    """Return results without claims of faults, if the p-value of all tests together does not support them."""
    return tuple(replace(x, claimed=False) for x in results)


def with_classes(findings: Sequence[Finding], results: Results) -> tuple[Finding, ...]:
    """Add the finding of classes to the findings about all images together.

    It comes first if only some classes are wrong, since a diagnosis of all images together blurs this.
    """
    at = 0 if {x.differs for x in results} >= {True, False} else 1
    return (*findings[:at], class_finding(results), *findings[at:])


def smallest_p(results: Results) -> dict[str, float]:
    """Return the value that has a curve, by its key."""
    return {P_CLASS.key: min(x.p for x in results if x.p is not None)} if results else {}


def class_data(results: Results) -> dict[str, dict[str, Any]]:
    """Return the results of the classes as plain Python by label, the largest difference first."""
    found = {}
    for x in surest_first(results):
        numbers = {"generated": x.n_fake, "real": x.n_real, "p_value": x.p, "differs": x.differs, "verdict": x.verdict}
        found[str(x.label)] = numbers | {"finding": None if x.found is None else x.found.to_dict()}
    return found


def class_table(results: Results) -> Table:
    """Return the results of the classes as cells of a table, the largest difference first."""
    rows = [[str(x.label), x.n_fake, x.n_real, x.verdict] for x in surest_first(results)]
    return Table(["class", "generated", "real", "against real images of the class"], rows, ["real", "generated"])

# SPDX-License-Identifier: Apache-2.0
"""Sentences of a diagnosis: place, kind of fault, explained share, significance and usual cause."""

from __future__ import annotations

from collections.abc import Sequence

from genmonitor._formatting import as_sentence, capitalized, format_p
from genmonitor.findings.finding import FaultKind, Finding
from genmonitor.functional.diagnosis.explain import SURE
from genmonitor.functional.diagnosis.kinds import KINDS, Kind, in_words
from genmonitor.functional.diagnosis.missing import Missing
from genmonitor.functional.diagnosis.readings import Said

HALF = 0.5
"""Share from which a cause is called usual instead of possible, and from which the nearest kind and its cause are
mentioned. With less, the kind depends on the order of the images, and a person does not see it.
"""


def explained_sentence(place: str, kinds: Sequence[FaultKind], p: float, rivals: Sequence[FaultKind] = ()) -> str:
    """Return the sentence of the faults that explain an area, the largest first.

    Example:
        >>> print(explained_sentence("upper left", [FaultKind("noisy", 0.05, "of the range", 0.94)], 0.005))
        Upper left: noise 0.05 of the range; explains 94 % of what is wrong there (p = 0.005).
    """
    first, share = kinds[0], sum(kind.share for kind in kinds)
    if len(kinds) == 1:
        either = "either " if rivals else ""
        what = " or ".join(map(with_strength, [first, *rivals]))
        what = f"{what}; {either}explains {percent(share)} of what is wrong there"
    else:
        parts = " and ".join(f"{with_strength(kind)} ({percent(kind.share)})" for kind in kinds)
        what = f"{parts}; together they explain {percent(share)} of what is wrong there"
    return f"{capitalized(place)}: {what} ({format_p(p)})."


def unexplained_sentence(place: str, best: FaultKind | None, p: float) -> str:
    """Return the sentence of an area that differs without an explanation, or too little to be sure of the kind.

    Example:
        >>> unexplained_sentence("whole image", FaultKind("blurred", 0.8, "px", 0.58), 0.005)
        'Whole image: no simple fault explains what is wrong there (the best, blurred, explains 58 %; p = 0.005).'
        >>> unexplained_sentence("whole image", FaultKind("blurred", 0.2, "px", 0.9), 0.02)
        'Whole image: a difference too small to name its kind (the nearest: blurred, σ 0.2 px; p = 0.02).'
    """
    if best and best.share >= HALF and p > SURE:
        nearest = with_strength(best)
        return f"{capitalized(place)}: a difference too small to name its kind (the nearest: {nearest}; {format_p(p)})."
    tried = ""
    if best and best.share >= HALF:
        tried = f"the best, {best.name.replace('_', ' ')}, explains {percent(best.share)}; "
    return f"{capitalized(place)}: no simple fault explains what is wrong there ({tried}{format_p(p)})."


def readings_sentence(place: str, readings: Sequence[Said], p: float, best: FaultKind | None) -> str:
    """Return the sentence of the readings that differ most, with the nearest kind as a remark.

    Example:
        >>> import torch
        >>> from genmonitor.functional.diagnosis.readings.tone import DarkestPixels
        >>> said = Said(DarkestPixels(), 0.5, 0.16, 1.0, 0.001, torch.arange(3), torch.arange(3))
        >>> print(readings_sentence("whole image", [said], 0.005, None))
        Whole image: darkest pixels 0.50, real 0.16 (in 100 % of the images; p = 0.005).
    """
    first, *others = map(str, readings)
    said = "; ".join([f"{first[:-1]}; {format_p(p)})", *others])
    near = ""
    if best and best.share >= HALF:
        near = f" Nearest kind: {with_strength(best)}, which would explain {percent(best.share)}."
    return f"{capitalized(place)}: {said}.{near}"


def no_difference_sentence(place: str, p: float) -> str:
    """Return the sentence that nothing was found."""
    return f"{capitalized(place)}: no difference from real images beyond chance ({format_p(p)})."


def constant_sentence(place: str, spread: float, p: float) -> tuple[str, str]:
    """Return the sentence of a place that hardly varies among generated images, and advice.

    Example:
        >>> constant_sentence("upper left corner", 0.14, 0.001)[0]
        'Upper left corner: nearly the same in all images, varies 14 % as much as in real ones (p = 0.001).'
    """
    varies = f"varies {percent(spread)} as much as in real ones"
    remedy = "look at this place in the training images: is something erased, padded or printed there?"
    return f"{capitalized(place)}: nearly the same in all images, {varies} ({format_p(p)}).", remedy


def missing_sentence(missing: Missing) -> str:
    """Return the sentence of the real images that are like hardly any sample, with what they have in common.

    Example:
        >>> import torch
        >>> from genmonitor.functional.diagnosis.readings.tone import Red
        >>> red = Said(Red(), 0.04, 0.0, 1.0, 0.001, torch.arange(3), torch.arange(3))
        >>> missing_sentence(Missing(0.24, 1e-3, (red,), ()))
        'Hardly ever sampled: 24 % of the real images, with red above the other colors by 0.04, others 0 (p = 0.001).'
        >>> missing_sentence(Missing(0.24, 1e-9, (), ()))
        'Hardly ever sampled: 24 % of the real images (p < 0.0001).'
    """
    common = ""
    for said in missing.readings[:1]:
        here, others = said.reading.beside(said.fake, said.real)
        common = f", with {here}, others {others}"
    return f"Hardly ever sampled: {percent(missing.share)} of the real images{common} ({format_p(missing.p)})."


def advice(name: str, share: float = 0.0) -> tuple[str, str]:
    """Return cause, worded according to the share, and remedy of a kind, empty as far as unknown.

    Example:
        >>> cause, remedy = advice("noisy", 0.3)
        >>> cause[:66], remedy[:27]
        ('Possible cause: too few steps of a sampler that adds noise, or no ', 'does the sampler add noise?')
    """
    known = KINDS.get(name, Kind)
    parts = {"Usual cause" if share >= HALF else "Possible cause": known.cause, "Source": known.source}
    return " ".join(f"{part}: {text}." for part, text in parts.items() if text), known.remedy


def possible_advice(nearest: FaultKind | None, readings: Sequence[Said]) -> tuple[str, str]:
    """Return advice for the nearest kind if it explains half, otherwise that with a source for the first reading."""
    known = [nearest.name] if nearest and nearest.share >= HALF and KINDS.get(nearest.name, Kind).remedy else []
    possible = [*known, *(x.resembles for x in readings[:1] if KINDS.get(x.resembles, Kind).cause)]
    return next(map(advice, possible), ("", ""))


def advice_sentence(finding: Finding) -> str:
    """Return remedy and cause of a finding, the remedy first since a figure cuts what is long; empty if unknown.

    Example:
        >>> from genmonitor.findings.finding import Area
        >>> advice_sentence(Finding("", Area(""), "", None, cause="Usual cause: haste.", remedy="rest"))
        'To try: rest. Usual cause: haste.'
    """
    return " ".join(filter(None, [finding.remedy and as_sentence(f"To try: {finding.remedy}"), finding.cause]))


def with_strength(kind: FaultKind) -> str:
    """Return the words for a kind and its strength, such as "noise 0.05 of the range"."""
    return in_words(kind.name, kind.strength, kind.unit)


def percent(share: float) -> str:
    """Return a share as a percentage from 0 to 100; an excess by chance is cut."""
    return f"{100 * min(max(share, 0.0), 1.0):.0f} %"

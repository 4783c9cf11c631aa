# SPDX-License-Identifier: Apache-2.0
"""Values of an evaluation of regions: their keys, by measure and region, and their declarations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from genmonitor.evaluation.bands import BANDS
from genmonitor.evaluation.results import MOMENT
from genmonitor.evaluation.values import RUN_VALUES, ValueSpec
from genmonitor.functional.discrepancy import VIEWS
from genmonitor.partition import region_key

IMAGE, CONSTANT = "image", "constant"
P_CLASS = "p_class"

_CMS = ValueSpec(
    "cms",
    "cosine mean similarity to real images, in [0, 1]",
    scale="cms",
    chart="CMS by region",
    column="CMS",
    better="high",
)
_DISTANCE = "in standard deviations of chance: 0 ± 2 where nothing is wrong"
_MEASURES = {
    "error_ratio": ValueSpec(
        "error_ratio",
        "distance from real images, in structure and texture together: 5 × = five times that of real images in place "
        "of generated ones; 1 × or less = as near as these. Order of regions, alerts and the best evaluation go by it",
        scale="log",
        unit="×",
        chart="Error ratio",
        column="error ratio",
        better="low",
    ),
    "p": ValueSpec(
        "p",
        "p-value of the two-sample test: how often real images in place of generated ones would differ as much; "
        "0.05 or less: they differ. All regions share this level, the image has its own",
        scale="p",
        chart="p-value: do they differ from real images?",
        detail=True,
    ),
    "structure": ValueSpec(
        "structure",
        f"distance from real images in where things are and how bright (MMD² of pixels), {_DISTANCE}",
        scale="log",
        chart="Structure: distance from real images",
        better="low",
    ),
    "texture": ValueSpec(
        "texture",
        f"distance from real images in sharpness, noise and patterns (MMD² of whitened images), {_DISTANCE}",
        scale="log",
        chart="Texture: distance from real images",
        better="low",
    ),
    "vs_best": ValueSpec(
        "vs_best",
        "standard errors by which the distance of both views is lower than at the best evaluation before; below 0: it "
        "got worse",
        scale="signed",
        chart="Change since the best evaluation",
        better="high",
        detail=True,
        repeatable=False,
    ),
    "share": ValueSpec(
        "share",
        "part of the image's loss that a region contributes; all sum to 1",
        scale="share",
        chart="Share of the loss",
        column="share",
        detail=True,
    ),
}
_OF_IMAGE = (
    replace(_CMS, key=IMAGE, region=IMAGE, chart="CMS of image and product", column="CMS"),
    ValueSpec(
        "product",
        "product of all regions' values; equal to `image` where the regions are independent",
        scale="cms",
        region=IMAGE,
        chart="CMS of image and product",
        better="high",
    ),
    ValueSpec(
        "violations",
        "number of regions with a lower CMS than the image, which independent regions never have: above 0, the regions "
        "depend on each other, and the shares are only a guide",
        chart="Regions that depend on each other",
        better="low",
        detail=True,
    ),
    ValueSpec("mmd", "squared maximum mean discrepancy of whole images, unbiased, around 0 at best", better="low"),
)
P, P_FINDING = "p", "p_finding"
_TESTS = (
    ValueSpec(
        P,
        "p-value of all tests together: the smallest of whole images, regions, what was found and classes, adjusted by "
        "Holm: 0.05 or less in five of 100 evaluations of real images at most, and no finding claims a fault above it",
        scale="p",
        region=IMAGE,
        chart="p-value: do they differ from real images?",
        better="high",
    ),
    ValueSpec(
        P_FINDING,
        "p-value of what the diagnosis found, for all places, samples and sizes of detail that it searched; 1 where "
        "there was none",
        scale="p",
        region=IMAGE,
        better="high",
        detail=True,
    ),
)
_SAMPLES = "Single samples: 0 is as real images are"
_OF_DIAGNOSIS = (
    ValueSpec(
        "spread",
        "mean squared distance among generated images, divided by that among real ones: 1 is as varied as real images, "
        "above 1 is noise, below 1 are samples that are too alike",
        scale="log",
        unit="×",
        region=IMAGE,
        chart="Variety: 1 is as varied as real images",
    ),
    ValueSpec(
        "nearest",
        "median distance of a generated image to the nearest other one, divided by the same for real images: far below "
        "1, the same images come again and again",
        scale="log",
        unit="×",
        region=IMAGE,
        chart="Variety: 1 is as varied as real images",
        detail=True,
    ),
    ValueSpec(
        "explained",
        "part of the image's distance from real images that the first finding's faults explain",
        scale="share",
        chart="What the diagnosis explains",
        detail=True,
    ),
    ValueSpec(
        "proportions",
        "part of the image's distance that is right images in wrong proportions, such as a class that is missing",
        scale="share",
        chart="What the diagnosis explains",
        detail=True,
    ),
    ValueSpec(
        "copied",
        "part of the generated images that are closer to one of 5,000 training images than 99 % of held-out ones are, "
        "for the distances around them, less the 1 % that chance brings: around 0 without copying",
        chart=_SAMPLES,
        better="low",
    ),
    ValueSpec(
        "strange",
        "part of the generated images that are less like any real one than 99 % of other real images are, in the image "
        "or a part of it, less the 1 % that chance brings",
        chart=_SAMPLES,
        better="low",
        detail=True,
    ),
    ValueSpec(
        "uncovered",
        "part of the real images that are less like any generated one than 99 % of generated images are like another, "
        "less the 1 % that chance brings",
        chart=_SAMPLES,
        better="low",
    ),
    ValueSpec(
        "c_t",
        "C_T of Meehan et al.: around 0 where generated images are as near to training images as held-out real ones; "
        "below -3 they copy them, or are blurred, faded or too alike",
        scale="signed",
        detail=True,
    ),
)
_BASELINE = ValueSpec(
    "baseline", "score of real images in place of generated ones: the median of 20 draws", detail=True, repeatable=False
)


def _is_detail(measure: str, region: str) -> bool:
    """Return True but for what is read of each region, and of the image as a whole."""
    if region == IMAGE:
        return measure not in ("error_ratio", *VIEWS)
    return measure != "error_ratio" or region == CONSTANT


class RegionValues:
    """Keys of the values of some regions, and their declarations.

    The key of a measure of a region is "share_1" of "cluster_1", "share_constant" of "constant" and "p_image" of the
    image; the CMS of a region has the region's name alone.

    Args:
        regions: names, without the image.
        baselines: keys of the values that have a baseline.

    Attributes:
        error_ratio, p, vs_best, share: keys by region, the image among them but for the share.
        distance: keys by view, then by region.
        baseline: keys by the key of the value whose baseline it is.
        specs: all declarations.

    Example:
        >>> values = RegionValues(["cluster_1", "constant"])
        >>> values.p, values.share["cluster_1"]
        ({'image': 'p_image', 'cluster_1': 'p_1', 'constant': 'p_constant'}, 'share_1')
    """

    def __init__(self, regions: Iterable[str], baselines: Collection[str] = ()) -> None:
        names = list(regions)
        everywhere = [IMAGE, *names]
        keys = {
            measure: {name: region_key(measure, name) for name in (names if measure == "share" else everywhere)}
            for measure in _MEASURES
        }
        self.error_ratio, self.p, self.share = keys["error_ratio"], keys["p"], keys["share"]
        self.vs_best = keys["vs_best"]
        self.distance = {view: keys[view] for view in VIEWS}
        self.baseline = {key: region_key("baseline", key) for key in baselines}
        self.specs = (
            *(replace(_CMS, key=name, region=name, detail=name == CONSTANT) for name in names),
            *_OF_IMAGE,
            *_TESTS,
            *_OF_DIAGNOSIS,
            *BANDS,
            *(
                replace(spec, key=key, region=name, label=spec.title, detail=_is_detail(measure, name))
                for measure, spec in _MEASURES.items()
                for name, key in keys[measure].items()
            ),
            *(replace(_BASELINE, key=key, baseline_of=of) for of, key in self.baseline.items()),
        )

    def p_of_all(self, values: Mapping[str, float], searched: bool) -> float:
        """Return the smallest p-value of all tests of an evaluation, adjusted by Holm.

        Args:
            values: of the evaluation.
            searched: True if there was a diagnosis.

        Example:
            >>> values = {"p_image": 0.2, "p_1": 0.01, "p_2": 0.6, "p_finding": 0.03}
            >>> RegionValues(["cluster_1", "cluster_2"]).p_of_all(values, searched=True)
            0.03
        """
        found = [values[self.p[IMAGE]], min(values[key] for name, key in self.p.items() if name != IMAGE)]
        found += [values[P_FINDING]] if searched else []
        found += [values[P_CLASS]] if P_CLASS in values else []
        return min(1.0, len(found) * min(found))


def check_distinct_keys(regions: Sequence[str]) -> None:
    """Refuse names of regions that are the keys of other values."""
    keys = [*MOMENT, *(spec.key for spec in (*RUN_VALUES, *RegionValues([*regions, "cluster_1"]).specs))]
    for name in regions:
        keys.remove(name)
    if taken := [name for name in regions if name in keys or re.sub(r"_\d+$", "_1", name) in keys]:
        raise ValueError(f"Expected `region_names` that no value has, but got {taken[0]!r}. Choose another name.")

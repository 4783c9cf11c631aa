# SPDX-License-Identifier: Apache-2.0
"""Values of an evaluation of regions: their keys, by measure and region, and their declarations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from genmonitor.evaluation.values import ValueSpec
from genmonitor.partition import region_key

IMAGE, CONSTANT = "image", "constant"

_CMS = ValueSpec(
    "cms",
    "cosine mean similarity to real images, in [0, 1]",
    scale="cms",
    chart="CMS by region",
    column="CMS",
    better="high",
)
_MEASURES = {
    "error_ratio": ValueSpec(
        "error_ratio",
        "error 5 × = five times the error that real images score; 1 × = as good as real. Whether a large one is more "
        "than chance, the p-value says",
        scale="log",
        unit="×",
        chart="Error ratio",
        column="error ratio",
        better="low",
    ),
    "p": ValueSpec(
        "p",
        "p-value of the two-sample test: the chance that real images in place of generated ones would differ as much; "
        "0.05 or less: they differ. All regions share this level, the image has its own",
        scale="p",
        chart="p-value: do they differ from real images?",
        detail=True,
    ),
    "distance": ValueSpec(
        "distance",
        "squared maximum mean discrepancy from real images at several kernel widths, unbiased, around 0 at best; the "
        "measure of alerts and of the best evaluation",
        scale="log",
        chart="Distance from real images",
        better="low",
    ),
    "vs_best": ValueSpec(
        "vs_best",
        "by how many standard errors the distance is lower, that is better, than at the best evaluation before",
        scale="signed",
        chart="Change since the best evaluation before, in standard errors of the distance",
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
        "number of regions with a lower CMS than the image, which independent ones never have: above 0, the regions "
        "depend on each other, and the shares are only a guide",
        better="low",
    ),
    ValueSpec("mmd", "squared maximum mean discrepancy of whole images, unbiased, around 0 at best", better="low"),
)
_BASELINE = ValueSpec(
    "baseline", "score of real images in place of generated ones: the median of 20 draws", detail=True, repeatable=False
)


class RegionValues:
    """Keys of the values of some regions, and their declarations.

    The key of a measure of a region is "share_1" of "cluster_1", "share_constant" of "constant" and "p_image" of the
    image; the CMS of a region has the region's name alone.

    Args:
        regions: names, without the image.
        baselines: keys of the values that have a baseline.

    Attributes:
        error_ratio, p, distance, vs_best, share: keys by region, the image among them but for the share.
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
        self.error_ratio, self.p, self.distance, self.vs_best = (
            {name: region_key(measure, name) for name in everywhere}
            for measure in ("error_ratio", "p", "distance", "vs_best")
        )
        self.share = {name: region_key("share", name) for name in names}
        self.baseline = {key: region_key("baseline", key) for key in baselines}
        keys = {measure: getattr(self, measure) for measure in _MEASURES}
        self.specs = (
            *(replace(_CMS, key=name, region=name) for name in names),
            *_OF_IMAGE,
            *(
                replace(spec, key=key, region=name, label=spec.title)
                for measure, spec in _MEASURES.items()
                for name, key in keys[measure].items()
            ),
            *(replace(_BASELINE, key=key, baseline_of=of) for of, key in self.baseline.items()),
        )

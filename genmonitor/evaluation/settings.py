# SPDX-License-Identifier: Apache-2.0
"""Settings of evaluations: what the values depend on, declared once for monitors, commands, manifests and replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor

from genmonitor import kernels
from genmonitor._validation import check_at_least, check_bool, check_one_of, check_whole_blocks
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.modes import DiversityMetric
from genmonitor.evaluation.regions.values import check_distinct_keys
from genmonitor.functional import W1KPCalibration
from genmonitor.functional.cka import check_cka_arguments
from genmonitor.functional.promptsplit.split import check_prompt_split_arguments
from genmonitor.functional.w1kp.calibration import check_calibration
from genmonitor.kernels import CosineKernel, GaussianKernel, Kernel
from genmonitor.kernels.base import check_kernel
from genmonitor.kernels.means import check_estimator
from genmonitor.linalg.clustering import LINKAGES, Linkage
from genmonitor.partition import PixelPartition, check_region_names, load_partition

Reference = Literal["data", "start", "previous"]
ONE_HOT_KERNEL = GaussianKernel.from_sigma(0.25)
"""Of one-hot labels: two classes have a similarity of exp(-16)."""


def whole(default: int | None, *, least: int) -> Any:
    """Declare a setting that is a whole number; None only where that is its default."""
    return field(default=default, metadata={"least": least})


@dataclass(frozen=True, eq=False)
class Settings:
    """What the values of an evaluator depend on; a subclass is a frozen dataclass whose fields a manifest can hold."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Make the settings from a mapping that holds each of them among others, such as a constructor's `locals()`."""
        return cls(**{field.name: given[field.name] for field in fields(cls)})

    def arguments(self) -> dict[str, Any]:
        """Return every setting by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_manifest(self) -> dict[str, Any]:
        """Return the settings as plain Python that JSON and a checkpoint hold."""
        return {name: _to_plain(value) for name, value in self.arguments().items()}

    @classmethod
    def from_manifest(cls, saved: Mapping[str, Any]) -> Self:
        """Make the settings from what `to_manifest` returned.

        Raises:
            ValueError: if a setting is missing or unknown, or is a kernel of the user's own.
        """
        names = {field.name for field in fields(cls)}
        if wrong := sorted(names ^ saved.keys()):
            raise ValueError(
                f"Expected {cls.__name__} with {', '.join(sorted(names))}, but {', '.join(wrong)} is missing or "
                "unknown: another version of genmonitor wrote it. Use that version."
            )
        return cls(**{name: _from_plain(name, value) for name, value in saved.items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and type(other) is type(self) and other.to_manifest() == self.to_manifest()

    __hash__ = None  # type: ignore[assignment]

    def _check(self) -> None:
        """Refuse what the declarations of the fields do not allow."""
        for each in fields(self):
            value, least = getattr(self, each.name), each.metadata.get("least")
            if least is not None and not (value is each.default is None):
                check_at_least(each.name, value, least)
            elif each.type == "bool":
                check_bool(each.name, value)

    def _complete(self, **resolved: Any) -> None:
        """Put what a default stands for in the place of None, so that equal settings are equal however given."""
        for name, value in resolved.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class SampleSettings(Settings):
    """Settings of an evaluator that has none of its own.

    Attributes:
        n_samples: generated images per evaluation.
    """

    n_samples: int


@dataclass(frozen=True, eq=False)
class RegionSettings(Settings):
    """Settings of an evaluation of the regions of images.

    Args:
        n_clusters: None to choose 2..8: the number on which halves of the images agree best.
        partition: your own clusters instead of found ones; or the path of a saved partition, or of the folder of a run
            that has one.
        n_cluster_images: at most so many real images for the kernel's gamma and the clusters, at least 10 and 2 per
            cluster; None for as many as half a minute on one core allows, 1000 to 5000.
        n_samples: generated images per evaluation, and real images compared with.
        patch_size: side of a site in pixels; None for 1, or in images with more than 64×64 pixels the smallest that
            leaves at most so many sites.
        kernel: Gaussian or Laplacian; None for a Gaussian.
        block_size: None for all samples at once; b for the paper's estimator over pairs of blocks.
        linkage: "average", "ward" or "smoothed", see `PixelPartition.from_cka`; None to choose with `n_clusters`.
        batch_estimator: None for the CKA of all images at once; m for the paper's mean over mini-batches of m.
        region_names: names of clusters, such as {"cluster_3": "eyes"}, by which values, tables and pictures go.
        diagnose_every: evaluations from one diagnosis to the next, which takes a few seconds; the first has one, the
            last of a fit, and each in which the error ratio of the image or a region is 10 times that of the last
            diagnosis, or a tenth.
        aligned: whether the diagnosis compares the same places of images, see `genmonitor.diagnose`.
        seed: of the choice of real images and of the draws of the baseline.

    Raises:
        ValueError: if a setting is out of its range, or two exclude each other.

    Example:
        >>> RegionSettings.from_manifest(RegionSettings(n_clusters=5).to_manifest()) == RegionSettings(5)
        True
    """

    n_clusters: int | None = whole(None, least=1)
    partition: PixelPartition | str | Path | None = None
    n_cluster_images: int | None = whole(None, least=2)
    n_samples: int = whole(1200, least=2)
    patch_size: int | None = None
    kernel: Kernel | None = None
    block_size: int | None = None
    linkage: Linkage | None = None
    batch_estimator: int | None = None
    region_names: Mapping[str, str] | None = None
    diagnose_every: int = whole(4, least=1)
    aligned: bool = True
    seed: int = whole(0, least=0)
    not_of_clusters: ClassVar[frozenset[str]] = frozenset(
        {"partition", "n_samples", "block_size", "region_names", "diagnose_every", "aligned", "seed"}
    )
    """Settings that make no difference to the clusters that are found."""

    def __post_init__(self) -> None:
        self._check()
        if isinstance(self.partition, (str, Path)):
            self._complete(partition=load_partition(self.partition))
        if self.kernel is None:
            self._complete(kernel=GaussianKernel())
        names = check_region_names("region_names", self.region_names or {})
        check_distinct_keys([*names.values()])
        check_cka_arguments(self.kernel, 1 if self.patch_size is None else self.patch_size, 1e-6, self.batch_estimator)
        check_estimator(self.kernel, self.given_partition, self.block_size)
        check_whole_blocks("generated", self.n_samples, self.block_size)
        if self.linkage is not None:
            check_one_of("linkage", self.linkage, LINKAGES)
        if self.n_cluster_images is not None and self.partition is None:
            self.check_enough(self.n_cluster_images)
        if self.partition is not None and self.n_clusters is not None:
            raise ValueError(
                f"Expected `n_clusters` or `partition`, but got both, {self.n_clusters} and {self.partition}."
            )

    @property
    def given_partition(self) -> PixelPartition | None:
        """The user's own clusters, read from their file where that was given."""
        return self.partition  # type: ignore[return-value]  # __post_init__ has loaded it

    @property
    def given_kernel(self) -> Kernel:
        """The kernel, Gaussian where none was given."""
        return self.kernel  # type: ignore[return-value]  # __post_init__ has made it

    def check_enough(self, n: int) -> None:
        """Refuse fewer images than clusters can be found in."""
        least = max(10, 2 * (self.n_clusters or 1))
        halves = 2 * (self.batch_estimator or 0)
        if n >= least and n < halves:
            raise ValueError(
                f"Expected `n_cluster_images` of at least {halves} images, two mini-batches of `batch_estimator`="
                f"{self.batch_estimator}, but got {n}: halves of the images are compared. Give more, or a smaller one."
            )
        if n < least:
            raise ValueError(
                f"Expected `n_cluster_images` of at least {least} images, 10 and 2 per cluster, but got {n}: with "
                "fewer all pixels seem to vary together. Give more, fewer clusters, or your own `partition`."
            )

    def of_clusters(self) -> dict[str, Any]:
        """Return the settings that the clusters found depend on, as plain Python."""
        return {name: value for name, value in self.to_manifest().items() if name not in self.not_of_clusters}


@dataclass(frozen=True, eq=False)
class DiversitySettings(Settings):
    """Settings of an evaluation of how varied generated images are.

    Args:
        prompts: strings, or class labels as integers; None for a generator without them.
        n_samples: generated images per evaluation; None for 1000, or for one per prompt where there are more.
        kernel: of outputs, None for the cosine.
        prompt_kernel: of prompts, None for the cosine.
        num_features: random Fourier features of each Gaussian kernel.
        rcond: see `ScendiScore`.
        calibration: of the output encoder's features, for W1KP.
        seed: of the choice of real images.

    Raises:
        ValueError: if a setting is out of its range, or needs prompts.

    Example:
        >>> DiversitySettings(range(3)).n_samples
        1000
    """

    prompts: Sequence[str] | Sequence[int] | Tensor | Prompts | None = None
    n_samples: int | None = None
    kernel: Kernel | None = None
    prompt_kernel: Kernel | None = None
    num_features: int | None = None
    rcond: float | None = None
    calibration: W1KPCalibration | None = None
    seed: int = whole(0, least=0)

    def __post_init__(self) -> None:
        self._check()
        if self.prompts is None:
            check_has_no(prompt_kernel=self.prompt_kernel, calibration=self.calibration)
        else:
            self._complete(prompts=Prompts.from_any(self.prompts))
        count = 1 if self.given_prompts is None else len(self.given_prompts)
        if self.n_samples is None:
            self._complete(n_samples=max(1000, count * (1 if self.calibration is None else 2)))
        self._complete(kernel=self.kernel or CosineKernel())
        if self.prompts is not None:
            self._complete(prompt_kernel=self.prompt_kernel or CosineKernel())
        check_one_per_prompt(self.n_samples, count)
        if self.calibration is not None and self.given_prompts is not None:
            check_calibration(self.calibration, None)
            check_two_per_prompt(self.given_prompts, self.count)
        if not DiversityMetric(*self.kernels, self.num_features, self.rcond).streams:
            raise ValueError(
                f"Expected `num_features` for {self.kernels[0]} and {self.kernels[1]}, but got None. "
                "Give for example num_features=500, or use the cosine kernel."
            )

    @property
    def given_prompts(self) -> Prompts | None:
        """The prompts."""
        return self.prompts  # type: ignore[return-value]  # __post_init__ has made them

    @property
    def count(self) -> int:
        """The number of samples."""
        return self.n_samples  # type: ignore[return-value]  # __post_init__ has chosen it

    @property
    def kernels(self) -> tuple[Kernel, Kernel]:
        """The kernels of outputs and prompts."""
        of_prompts = self.prompt_kernel or CosineKernel()
        return self.kernel, of_prompts  # type: ignore[return-value]  # __post_init__ has made the first


@dataclass(frozen=True, eq=False)
class DisagreementSettings(Settings):
    """Settings of an evaluation of how far a model's outputs differ from a reference's, and for which prompts.

    Args:
        prompts: strings, or class labels as integers.
        n_samples: generated images per evaluation, a multiple of the number of prompts; None for the first one from
            1000 on.
        reference: "data", "start" or "previous".
        num_modes: how many modes of either sign are reported.
        kernel: of outputs, None for a Gaussian.
        prompt_kernel: of prompts; None for the cosine where `kernel` is one, else for a Gaussian, which keeps classes
            apart where the prompts are one-hot labels.
        num_features: random features in place of exact kernels, see `PromptSplit`.
        eta: weight of the reference.
        seed: of the choice of real images and of random features.

    Raises:
        ValueError: if a setting is out of its range.

    Example:
        >>> DisagreementSettings(range(30)).n_samples
        1020
    """

    prompts: Sequence[str] | Sequence[int] | Tensor | Prompts
    n_samples: int | None = None
    reference: Reference = "data"
    num_modes: int = 5
    kernel: Kernel | None = None
    prompt_kernel: Kernel | None = None
    num_features: int | None = None
    eta: float = 1.0
    seed: int = whole(0, least=0)

    def __post_init__(self) -> None:
        self._check()
        self._complete(prompts=Prompts.from_any(self.prompts))
        count = len(self.given_prompts)
        if self.n_samples is None:
            self._complete(n_samples=-(-1000 // count) * count)
        check_one_of("reference", self.reference, get_args(Reference))
        check_kernel("kernel", self.kernel)
        check_kernel("prompt_kernel", self.prompt_kernel)
        kernel = self.kernel or GaussianKernel()
        self._complete(kernel=kernel)
        if self.prompt_kernel is None and not kernel.takes_gamma:
            self._complete(prompt_kernel=kernel)
        check_prompt_split_arguments(self.kernel, self.prompt_kernel, self.eta, self.num_modes, self.num_features)
        check_one_per_prompt(self.n_samples, count)
        n = check_at_least("n_samples", self.n_samples, 2)
        if n % count:
            less, more = n // count * count, -(-n // count) * count
            raise ValueError(
                f"Expected `n_samples` to be a multiple of the number of prompts, {count}, but got {n}: "
                f"a prompt with more samples than another would count for more. Give {less} or {more}."
            )

    @property
    def given_prompts(self) -> Prompts:
        """The prompts."""
        return self.prompts  # type: ignore[return-value]  # __post_init__ has made them

    @property
    def count(self) -> int:
        """The number of samples."""
        return self.n_samples  # type: ignore[return-value]  # __post_init__ has chosen it

    def kernels(self, one_hot: bool) -> tuple[Kernel, Kernel]:
        """Return the kernels of outputs and prompts, which may be one-hot labels."""
        prompt_kernel = self.prompt_kernel or (ONE_HOT_KERNEL if one_hot else GaussianKernel())
        return self.kernel, prompt_kernel  # type: ignore[return-value]  # __post_init__ has made the first


def check_has_no(**of_prompts: Any) -> None:
    """Refuse what only prompts give a meaning."""
    if given := [name for name, value in of_prompts.items() if value is not None]:
        raise ValueError(
            f"Expected `prompts` with `{given[0]}`, but got None. Give the prompts that the generator is conditioned "
            f"on, or leave `{given[0]}` out."
        )


def check_one_per_prompt(n_samples: int | None, count: int) -> None:
    """Refuse fewer samples than prompts."""
    if check_at_least("n_samples", n_samples, 1) < count:
        raise ValueError(
            f"Expected `n_samples` to be at least the number of prompts, {count}, but got {n_samples}. "
            "Give fewer prompts or more samples."
        )


def check_two_per_prompt(prompts: Prompts, n_samples: int) -> None:
    """Refuse a prompt with a single sample, where samples of one prompt are compared."""
    prompt, fewest = Counter(prompts.named(range(n_samples))).most_common()[-1]
    if fewest < 2:
        raise ValueError(
            f"Expected at least 2 samples of each prompt for W1KP, but {prompt!r} has one of {n_samples}. "
            f"Give n_samples={2 * len(prompts)} or more, or fewer prompts."
        )


def _to_plain(value: Any) -> Any:
    """Return a setting as plain Python; what is not plain says of which class it is."""
    if isinstance(value, Kernel):
        kind = type(value)
        known = getattr(kernels, kind.__name__, None) is kind
        stated = {field.name: _to_plain(getattr(value, field.name)) for field in fields(value)}
        return {"kernel": kind.__name__ if known else f"{kind.__module__}.{kind.__qualname__}", **stated}
    if isinstance(value, PixelPartition):
        return {"labels": value.labels.tolist(), "patch_size": value.patch_size, "names": value.names}
    if isinstance(value, Prompts):
        return list(value.values)
    if isinstance(value, W1KPCalibration):
        return {"distances": value.distances.tolist(), "heights": value.heights.tolist(), "dim": value.dim}
    if isinstance(value, Mapping):
        return dict(value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    return repr(value)  # of a kernel of the user's own, which is compared and never made again


def _from_plain(name: str, value: Any) -> Any:
    """Return what `_to_plain` was given."""
    if not isinstance(value, dict) or name == "region_names":
        return value
    if "labels" in value:
        return PixelPartition(torch.tensor(value["labels"]), value["patch_size"], value["names"])
    if "distances" in value:
        distances, heights = (torch.tensor(value[of], dtype=torch.float64) for of in ("distances", "heights"))
        return W1KPCalibration.of(distances, heights, value["dim"])
    stated = dict(value)
    kind = getattr(kernels, stated.pop("kernel"), None)
    if kind is None:
        raise ValueError(
            f"Expected a `{name}` of genmonitor.kernels, but {value['kernel']} is a class of your own, which cannot be "
            "made from its name. Make the settings where the class is: for a replay, in the function of --setup."
        )
    return kind(**stated)

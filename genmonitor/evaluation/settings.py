# SPDX-License-Identifier: Apache-2.0
"""Settings of evaluations, declared once for monitors, commands, manifests and sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Self, get_args

from torch import Tensor

from genmonitor import kernels
from genmonitor._validation import (
    check_at_least,
    check_bool,
    check_one_of,
    check_positive,
    check_relative_cutoff,
    check_whole_blocks,
)
from genmonitor.functional import W1KPCalibration
from genmonitor.functional.cka import check_cka_arguments
from genmonitor.functional.kernel_means import check_estimator
from genmonitor.functional.promptsplit import check_prompt_split_arguments
from genmonitor.functional.w1kp_calibration import check_calibration
from genmonitor.images.prompts import Prompts
from genmonitor.kernels import CosineKernel, GaussianKernel, Kernel
from genmonitor.kernels.base import check_kernel
from genmonitor.kernels.covariance import check_kernels, has_features
from genmonitor.linalg.clustering import LINKAGES, Linkage
from genmonitor.partition import PixelPartition, check_region_names, load_partition

Reference = Literal["data", "start", "previous"]
AnyPrompts = Sequence[str] | Sequence[int] | Tensor | Prompts
ONE_HOT_KERNEL = GaussianKernel.from_sigma(0.25)
"""Kernel of one-hot labels: two classes have a similarity of exp(-16)."""


def setting(default: Any, help: str, *, least: int | None = None, above: float | None = None, one_of: Any = ()) -> Any:
    """Declare a setting for monitors, commands, manifests and sweeps.

    Args:
        default: Default value; None is allowed only if it is the default.
        help: Meaning in one line, for the option of a command.
        least: Smallest integer that is allowed.
        above: Largest number that is too small.
        one_of: Words that are allowed.
    """
    return field(default=default, metadata={"help": help, "least": least, "above": above, "one_of": one_of})


@dataclass(frozen=True, eq=False)
class Settings:
    """Everything on which the values of an evaluator depend: a frozen dataclass whose fields a manifest can hold.

    A subclass declares each of its fields by `setting`. Its `of` resolves the values that a user gives.
    """

    @classmethod
    def of(cls, *args: Any, **given: Any) -> Self:
        """Make the settings from a user's values: a path may stand for the content of a file, None for a default."""
        return cls(*args, **{name: value for name, value in given.items() if value is not None})

    def to_manifest(self) -> dict[str, Any]:
        """Return the settings as plain Python for JSON and checkpoints."""
        return {field.name: _to_plain(getattr(self, field.name)) for field in fields(self)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and type(other) is type(self) and other.to_manifest() == self.to_manifest()

    __hash__ = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Refuse values that the declarations of the fields do not allow."""
        for each in fields(self):
            name, value, allowed = each.name, getattr(self, each.name), each.metadata
            if value is each.default is None:
                continue
            if allowed.get("least") is not None:
                check_at_least(name, value, allowed["least"])
            elif allowed.get("above") is not None:
                check_positive(name, value)
            elif allowed.get("one_of"):
                check_one_of(name, value, allowed["one_of"])
            elif each.type == "bool":
                check_bool(name, value)


@dataclass(frozen=True, eq=False)
class SampleSettings(Settings):
    """Settings of an evaluator that has none of its own.

    Attributes:
        n_samples: Number of generated images per evaluation.
    """

    n_samples: int


@dataclass(frozen=True, eq=False)
class RegionSettings(Settings):
    """Settings of an evaluation of the regions of images; `PixelClusterMonitor` explains each at length.

    Raises:
        ValueError: If a setting is out of its range, or two exclude each other.

    Example:
        >>> RegionSettings(n_clusters=5).to_manifest()["n_clusters"]
        5
    """

    n_clusters: int | None = setting(None, "number of regions (default: the most stable of 2..8)", least=1)
    partition: PixelPartition | None = setting(None, "partition.npz of a run or a comparison, or its folder")
    n_cluster_images: int | None = setting(None, "real images to find the regions in (default: 1000..5000)", least=2)
    n_samples: int = setting(1200, "largest number of images of each side", least=2)
    patch_size: int | None = setting(None, "side of a site in pixels (default: smallest with <= 32x32 sites)", least=1)
    kernel: Kernel = setting(GaussianKernel(), "Gaussian or Laplacian kernel")
    block_size: int | None = setting(None, "images per block of the paper's estimator (default: all in one)", least=2)
    linkage: Linkage | None = setting(None, "linkage of clusters (default: chosen with their number)", one_of=LINKAGES)
    batch_estimator: int | None = setting(None, "images per batch of the paper's CKA (default: all at once)", least=2)
    region_names: Mapping[str, str] | None = setting(None, "names of clusters, such as {'cluster_3': 'eyes'}")
    aligned: bool = setting(True, "images have no common layout: compare patches from random places")
    seed: int = setting(0, "seed of the choice of images", least=0)

    @classmethod
    def of(cls, *, partition: PixelPartition | str | Path | None = None, **given: Any) -> Self:
        """Make the settings; `partition` may be the path of a saved one."""
        if isinstance(partition, (str, Path)):
            partition = load_partition(partition)
        return super().of(partition=partition, **given)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_region_names("region_names", self.region_names or {})
        check_cka_arguments(self.kernel, 1 if self.patch_size is None else self.patch_size, 1e-6, self.batch_estimator)
        check_estimator(self.kernel, self.partition, self.block_size)
        check_whole_blocks("generated", self.n_samples, self.block_size)
        if self.n_cluster_images is not None and self.partition is None:
            self.check_enough(self.n_cluster_images)
        if self.partition is not None and self.n_clusters is not None:
            raise ValueError(
                f"Expected `n_clusters` or `partition`, but got both: {self.n_clusters}, {self.partition}."
            )

    def check_enough(self, n: int) -> None:
        """Refuse fewer images than the search for clusters needs."""
        least = max(10, 2 * (self.n_clusters or 1), 2 * (self.batch_estimator or 0))
        if n < least:
            raise ValueError(
                f"Expected `n_cluster_images` of at least {least} images, 10, 2 per cluster and 2 mini-batches of "
                f"`batch_estimator`, but got {n}. Give more, fewer clusters, or your own `partition`."
            )


@dataclass(frozen=True, eq=False)
class DiversitySettings(Settings):
    """Settings of an evaluation of the diversity of generated images; `DiversityMonitor` explains each at length.

    Raises:
        ValueError: If a setting is out of its range, or needs prompts.

    Example:
        >>> DiversitySettings.of(range(3)).n_samples
        1000
    """

    prompts: Prompts | None = setting(None, "prompts of the samples")
    n_samples: int = setting(1000, "number of generated images per evaluation", least=1)
    kernel: Kernel = setting(CosineKernel(), "kernel of outputs")
    prompt_kernel: Kernel | None = setting(None, "kernel of prompts")
    num_features: int | None = setting(None, "random Fourier features of each Gaussian kernel", least=1)
    rcond: float | None = setting(None, "prompts' eigenvalues up to this times the largest count as 0", above=0)
    calibration: W1KPCalibration | None = setting(None, "calibration of the output encoder's features, for W1KP")
    seed: int = setting(0, "seed of the choice of real images", least=0)

    @classmethod
    def of(cls, prompts: AnyPrompts | None = None, n_samples: int | None = None, **given: Any) -> Self:
        """Make the settings; prompts may be strings or labels, and None stands for the cosine kernel.

        Args:
            prompts: Strings, or class labels as integers; None for a generator without them.
            n_samples: Number of samples; None for 1000, or one per prompt if that is more.
            **given: Further settings by name.
        """
        rows = None if prompts is None else Prompts.from_any(prompts)
        if n_samples is None and rows is not None:
            n_samples = max(1000, len(rows) * (1 if given.get("calibration") is None else 2))
        if rows is not None and given.get("prompt_kernel") is None:
            given["prompt_kernel"] = CosineKernel()
        return super().of(prompts=rows, n_samples=n_samples, **given)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompts is None:
            check_has_no(prompt_kernel=self.prompt_kernel, calibration=self.calibration)
        else:
            check_prompts(self.prompts, self.n_samples)
        if self.calibration is not None and self.prompts is not None:
            check_calibration(self.calibration, None)
            check_two_per_prompt(self.prompts, self.n_samples)
        if self.rcond is not None:
            check_relative_cutoff("rcond", self.rcond)
        check_kernels(self.num_features, kernel=self.kernel, prompt_kernel=self.prompt_kernel)
        if not all(has_features(kernel, self.num_features) for kernel in self.kernels):
            raise ValueError(
                f"Expected `num_features` for {self.kernels[0]} and {self.kernels[1]}, but got None. "
                "Give for example num_features=500, or use the cosine kernel."
            )

    @property
    def kernels(self) -> tuple[Kernel, Kernel]:
        """Kernels of outputs and prompts."""
        return self.kernel, self.prompt_kernel or CosineKernel()


@dataclass(frozen=True, eq=False)
class DisagreementSettings(Settings):
    """Settings of an evaluation of the disagreement of outputs with a reference, by prompt.

    `DisagreementMonitor` explains each at length.

    Raises:
        ValueError: If a setting is out of its range.

    Example:
        >>> DisagreementSettings.of(range(30)).n_samples
        1020
    """

    prompts: Prompts = setting(MISSING, "prompts of the samples")
    n_samples: int = setting(1000, "number of generated images per evaluation, a multiple of the prompts", least=2)
    reference: Reference = setting("data", "reference that outputs are compared with", one_of=get_args(Reference))
    num_modes: int = setting(5, "number of modes of either side", least=1)
    kernel: Kernel = setting(GaussianKernel(), "kernel of outputs")
    prompt_kernel: Kernel | None = setting(None, "kernel of prompts")
    num_features: int | None = setting(None, "random features of each kernel (default: exact kernels)", least=1)
    eta: float = setting(1.0, "weight of the reference", above=0)
    seed: int = setting(0, "seed of random features and of the choice of real images", least=0)

    @classmethod
    def of(cls, prompts: AnyPrompts, n_samples: int | None = None, reference: Reference = "data", **given: Any) -> Self:
        """Make the settings; prompts may be strings or labels, and None stands for the default kernel.

        Args:
            prompts: Strings, or class labels as integers.
            n_samples: Number of samples; None for the smallest multiple of the number of prompts from 1000 on.
            reference: "data", "start" or "previous".
            **given: Further settings by name. `prompt_kernel=None` stands for the cosine if `kernel` is one, else for a
                Gaussian, which keeps classes apart if the prompts are one-hot labels.
        """
        rows = Prompts.from_any(prompts)
        if n_samples is None:
            n_samples = -(-1000 // len(rows)) * len(rows)
        kernel = given.get("kernel")
        if given.get("prompt_kernel") is None and isinstance(kernel, Kernel) and not kernel.takes_gamma:
            given["prompt_kernel"] = kernel
        return super().of(prompts=rows, n_samples=n_samples, reference=reference, **given)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel("kernel", self.kernel)
        check_kernel("prompt_kernel", self.prompt_kernel)
        check_prompt_split_arguments(self.kernel, self.prompt_kernel, self.eta, self.num_modes, self.num_features)
        check_prompts(self.prompts, self.n_samples)
        n, count = self.n_samples, len(self.prompts)
        if n % count:
            less, more = n // count * count, -(-n // count) * count
            raise ValueError(
                f"Expected `n_samples` to be a multiple of the number of prompts, {count}, but got {n}: "
                f"a prompt with more samples than another would count for more. Give {less} or {more}."
            )

    def kernels(self, one_hot: bool) -> tuple[Kernel, Kernel]:
        """Return the kernels of outputs and prompts, which may be one-hot labels."""
        return self.kernel, self.prompt_kernel or (ONE_HOT_KERNEL if one_hot else GaussianKernel())


def check_has_no(**of_prompts: Any) -> None:
    """Refuse settings that have a meaning only with prompts."""
    if given := [name for name, value in of_prompts.items() if value is not None]:
        raise ValueError(
            f"Expected `prompts` with `{given[0]}`, but got None. Give the prompts that the generator is conditioned "
            f"on, or leave `{given[0]}` out."
        )


def check_prompts(prompts: object, n_samples: int) -> None:
    """Refuse invalid prompts, and fewer samples than prompts."""
    if not isinstance(prompts, Prompts):
        raise TypeError(f"Expected `prompts` to be Prompts, but got {type(prompts).__name__}. Make settings by `of`.")
    if n_samples < len(prompts):
        raise ValueError(
            f"Expected `n_samples` to be at least the number of prompts, {len(prompts)}, but got {n_samples}. "
            "Give fewer prompts or more samples."
        )


def check_two_per_prompt(prompts: Prompts, n_samples: int) -> None:
    """Refuse a prompt with a single sample if samples of one prompt are compared."""
    prompt, fewest = Counter(prompts.named(range(n_samples))).most_common()[-1]
    if fewest < 2:
        raise ValueError(
            f"Expected at least 2 samples of each prompt for W1KP, but {prompt!r} has one of {n_samples}. "
            f"Give n_samples={2 * len(prompts)} or more, or fewer prompts."
        )


def _to_plain(value: Any) -> Any:
    """Return a setting as plain Python; objects carry the name of their class."""
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
    return repr(value)  # of a kernel of the user's own, which is only compared

# SPDX-License-Identifier: Apache-2.0
"""Metrics on the features of one encoder: FID, KID, CMMD, PRDC, authenticity and Vendi."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torchmetrics import Metric

from genmonitor._io import atomic_write
from genmonitor._validation import check_at_least, check_bool, check_one_of
from genmonitor.encoders.frozen import Encoder, FrozenEncoder
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.metrics.authenticity import Authenticity
from genmonitor.metrics.mmd import MaximumMeanDiscrepancy
from genmonitor.metrics.prdc import PRDC
from genmonitor.metrics.vendi import RKEScore, VendiScore

Name = Literal["fid", "kid", "cmmd", "prdc", "authenticity", "vendi"]
NEIGHBORS = 5
"""k of `FidelityMetrics`."""


class FeatureMetrics(Metric):
    """FID, KID, CMMD, PRDC, authenticity and Vendi on the features of one encoder, which sees each image once.

    Real images are encoded once per run, since `reset` keeps them. To log these metrics along with CMS:
    `PixelClusterMonitor(extra_metrics={"dinov2": FeatureMetrics(image_encoder("dinov2", (-1, 1)))})`.

    Args:
        encoder: Callable or Module from images [n, C, H, W] to features [n, d], such as one of `image_encoder`; a
            Module is frozen.
        metrics: Names among "fid", "kid", "cmmd", "prdc", "authenticity" and "vendi". FID of DINOv2's features is the
            FD-DINOv2 of Stein et al. CMMD is defined for CLIP's features without a crop, and uses their directions.
            Authenticity needs real images that are those of the training.
        num_features: Number d of features; None for the encoder's attribute of this name.
        subset_size: Number of samples per subset of KID; at most the number of samples.
        batch_size: Number of images per call of the encoder.
        reset_real_features: True if `reset` also forgets the real side.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        TypeError: If the encoder is not callable.
        ValueError: If a metric is unknown, or the number of features is unknown.

    References:
        Heusel et al., "GANs Trained by a Two Time-Scale Update Rule", arXiv 1706.08500, for FID.
        Binkowski et al., "Demystifying MMD GANs", arXiv 1801.01401, for KID.
        Jayasumana et al., "Rethinking FID: Towards a Better Evaluation Metric for Image Generation", arXiv 2401.09603,
            for CMMD, with pairs of a sample with itself as in the published code.
        Stein et al., "Exposing flaws of generative model evaluation metrics", arXiv 2306.04675, for DINOv2.

    Example:
        >>> import torch
        >>> metric = FeatureMetrics(nn.Flatten(), ["prdc", "vendi"], num_features=4)
        >>> images = torch.rand(40, 1, 2, 2, generator=torch.Generator().manual_seed(0))
        >>> metric.update(images[:20], real=True)
        >>> metric.update(images[20:], real=False)
        >>> sorted(metric.compute())
        ['coverage', 'density', 'precision', 'recall', 'vendi']
    """

    is_differentiable: bool = False
    higher_is_better: None = None
    full_state_update: bool = False

    def __init__(
        self,
        encoder: Encoder,
        metrics: Sequence[Name] = ("fid", "kid"),
        *,
        num_features: int | None = None,
        subset_size: int = 100,
        batch_size: int = 100,
        reset_real_features: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name in metrics:
            check_one_of("metrics", name, get_args(Name))
        self.reset_real_features = check_bool("reset_real_features", reset_real_features)
        self._encode = FrozenEncoder("encoder", encoder, check_at_least("batch_size", batch_size, 1))
        self.encoder = encoder  # a Module follows `to`
        if isinstance(encoder, nn.Module):
            encoder.eval().requires_grad_(False)
        width = num_features or getattr(encoder, "num_features", None)
        self.metrics = nn.ModuleDict({name: _make(name, width, subset_size) for name in metrics})

    @property
    def _parts(self) -> dict[str, Any]:
        return dict(self.metrics.items())

    def update(self, images: Tensor, real: bool) -> None:
        """Encode images [n, C, H, W] in the encoder's value range and add them to one side."""
        check_bool("real", real)
        if not len(images):
            return
        features = self._encode(images)
        for metric in self._parts.values():
            metric.update(features, real=real)

    def forward(self, images: Tensor, real: bool) -> None:
        """Add images as `update` does: one batch alone has no value."""
        self.update(images, real)

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the images of another `FeatureMetrics` with the same encoder and metrics.

        Args:
            incoming_state: The other `FeatureMetrics`; a dictionary of states is refused.
        """
        if not isinstance(incoming_state, FeatureMetrics):
            raise TypeError(f"Expected `incoming_state` to be FeatureMetrics, but got {type(incoming_state).__name__}.")
        for name, metric in self._parts.items():
            metric.merge_state(incoming_state.metrics[name])
        for metric in (self, *self._parts.values()):  # those of torchmetrics keep their last value
            metric._update_count += incoming_state._update_count
            metric._computed = None

    def persistent(self, mode: bool = False) -> None:
        """Let `state_dict` hold the states or not."""
        for metric in self._parts.values():
            metric.persistent(mode)

    def compute(self) -> dict[str, Tensor]:
        """Return the values by name; those of PRDC are "precision", "recall", "density" and "coverage"."""
        out: dict[str, Tensor] = {}
        for name, metric in self._parts.items():
            value = metric.compute()
            out |= value if isinstance(value, dict) else {name: value[0] if name == "kid" else value}
        return out

    def save_reference(self, path: str | Path) -> None:
        """Save mean and covariance of the real features as .npz: `mu` [d] and `sigma` [d, d], as EDM publishes them.

        Raises:
            ValueError: If FID is not among the metrics, or there are fewer than 2 real images.
        """
        fid = self._fid()
        n = int(fid.real_features_num_samples)
        if n < 2:
            raise ValueError(f"Expected at least 2 real images to save statistics of, but got {n}. Call `update`.")
        mean = fid.real_features_sum / n
        covariance = (fid.real_features_cov_sum - n * torch.outer(mean, mean)) / (n - 1)
        content = io.BytesIO()
        np.savez(content, mu=mean.cpu().numpy(), sigma=covariance.cpu().numpy())
        atomic_write(Path(path), content.getvalue())

    def load_reference(self, path: str | Path) -> None:
        """Load mean and covariance of the real features from .npz, such as published ones, in place of real images.

        The file holds `mu` [d] and `sigma` [d, d], as `save_reference` writes and EDM publishes them. Under
        torch.distributed every process loads it.

        Raises:
            ValueError: If a metric other than FID needs real images, or the file holds other arrays.
        """
        fid, path = self._fid(), Path(path)
        others = [name for name in self._parts if name not in ("fid", "vendi")]
        if others:
            raise ValueError(
                f"Expected FID alone for statistics in place of real images, but got {', '.join(others)} too, which "
                "need the images. Use a separate FeatureMetrics for these."
            )
        with np.load(path, allow_pickle=False) as saved:
            arrays = {name: torch.from_numpy(saved[name]).double() for name in ("mu", "sigma") if name in saved}
        d = len(fid.real_features_sum)
        shapes = {name: tuple(x.shape) for name, x in arrays.items()}
        if shapes != {"mu": (d,), "sigma": (d, d)} or not all(bool(x.isfinite().all()) for x in arrays.values()):
            raise ValueError(
                f"Expected `path` to hold finite arrays mu [{d}] and sigma [{d}, {d}] for this encoder, but "
                f"{path} has {shapes or 'neither'}. Take statistics of the same encoder."
            )
        mean, covariance = (arrays[name].to(fid.real_features_sum) for name in ("mu", "sigma"))
        # enough that the sums of several processes have the same covariance to nine digits
        n = 2**30
        fid.real_features_sum = n * mean
        fid.real_features_cov_sum = (n - 1) * covariance + n * torch.outer(mean, mean)
        fid.real_features_num_samples = torch.full_like(fid.real_features_num_samples, n)

    def _fid(self) -> Any:
        """Return the FID among the metrics."""
        if "fid" not in self._parts:
            raise ValueError(f'Expected "fid" among the metrics for statistics, but got {", ".join(self._parts)}.')
        return self._parts["fid"]

    def reset(self) -> None:
        """Forget the generated side and, if `reset_real_features` is set, the real side."""
        super().reset()
        for name, metric in self._parts.items():
            if name != "vendi":
                metric.reset_real_features = self.reset_real_features
            metric.reset()


class _CMMD(MaximumMeanDiscrepancy):
    """1000 times the MMD of unit vectors with a Gaussian kernel of sigma 10."""

    def __init__(self, reset_real_features: bool) -> None:
        super().__init__(GaussianKernel.from_sigma(10), unbiased=False, reset_real_features=reset_real_features)

    def update(self, samples: Tensor, real: bool) -> None:
        super().update(normalize(samples), real)

    def _compared(self, fake: Tensor, real: Tensor) -> Tensor:
        return 1000 * super()._compared(fake, real)


OURS: dict[str, Callable[..., Metric]] = {"prdc": PRDC, "authenticity": Authenticity, "cmmd": _CMMD}


class _Features(nn.Module):
    """Identity as a feature extractor for torchmetrics, since features are given."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features

    def forward(self, features: Tensor) -> Tensor:
        return features


def _make(name: Name, num_features: int | None, subset_size: int) -> Metric:
    if name == "vendi":
        return VendiScore()
    if name in OURS:
        return OURS[name](reset_real_features=False)
    if num_features is None:
        raise ValueError("Expected `num_features` for an encoder without an attribute of this name, but got None.")
    features = _Features(num_features)
    if name == "fid":
        from torchmetrics.image.fid import FrechetInceptionDistance

        fid = FrechetInceptionDistance(features, reset_real_features=False)
        fid.orig_dtype = torch.float32  # it is otherwise set only by `update`, not by `merge_state`
        return fid
    from torchmetrics.image.kid import KernelInceptionDistance

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*will save all extracted features")  # which is intended: they are few
        return KernelInceptionDistance(features, subset_size=subset_size, reset_real_features=False)


def check_neighbors(real: int, generated: int) -> None:
    """Refuse too few images for the nearest neighbors of `FidelityMetrics`."""
    if min(real, generated) <= NEIGHBORS:
        raise ValueError(
            f"Expected more than {NEIGHBORS} real and generated images, for the {NEIGHBORS} nearest neighbors of "
            f"precision and recall, but got {real} and {generated}. Give more."
        )


class FidelityMetrics:
    """PRDC of generated features against the real ones of all processes, with the Vendi and RKE scores of real ones.

    Args:
        features: Features of this process's part of the real images [m, d].
        kernel: Kernel of the Vendi score.
        num_features: Number of random Fourier features of a Gaussian kernel.

    Attributes:
        of_real: Scores of the real images, `real_vendi` and `real_rke`.
    """

    def __init__(self, features: Tensor, kernel: Kernel, num_features: int | None) -> None:
        self._metric = PRDC(k=NEIGHBORS, reset_real_features=False).to(features.device)
        self._metric.update(features, real=True)
        self.of_real: dict[str, float] = {}
        if not kernel.takes_gamma:  # given for the prompts' kernel
            num_features = None
        for name, score in (("real_vendi", VendiScore), ("real_rke", RKEScore)):
            metric = score(kernel=kernel, num_features=num_features).to(features.device)
            metric.update(features)
            self.of_real[name] = float(metric.compute())

    def update(self, features: Tensor) -> None:
        """Replace the generated features of the last evaluation with this process's new ones."""
        self._metric.reset()
        self._metric.update(features, real=False)

    def compute(self) -> dict[str, float]:
        """Return precision, recall, density and coverage, and `of_real`. Every process must call it."""
        return {name: float(value) for name, value in self._metric.compute().items()} | self.of_real

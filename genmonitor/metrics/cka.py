# SPDX-License-Identifier: Apache-2.0
"""Centered kernel alignment between all pairs of pixels as a stateful metric."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from genmonitor._validation import check_count
from genmonitor.functional.cka import check_cka_arguments, check_patches, cka_images, pixel_cka
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.metrics._base import KernelMetric, is_left_out, joined

MAX_BYTES = 2**30
"""Largest size of the images of a process: 1 GiB, 300,000 gray images of 28×28."""


class PixelCKA(KernelMetric):
    """Centered kernel alignment between all pairs of sites (pixels or patches) of the images seen.

    Keeps the images, up to 1 GiB on each process.

    Args:
        kernel: Kernel; None for a Gaussian. A gamma that is not given is resolved at the first `compute`, from the
            first 1000 images of all processes, and stays across `reset`.
        patch_size: Side of a site in pixels; it divides the height and width of the images.
        tolerance: Largest error of an entry by truncated features.
        batch_estimator: Mini-batch size m of the paper's estimator; None for all images at once.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range; by `update` if images are not finite, differ in shape, or exceed
            1 GiB; by `compute` as `functional.pixel_cka` does.

    References:
        Gruber, Ziegler and Buettner, "Disentangling Mean Embeddings for Better Diagnostics of Image Generators",
            arXiv 2409.01314, Eq. 11-13.

    Example:
        >>> import torch
        >>> from genmonitor import PixelCKA
        >>> metric = PixelCKA()
        >>> metric.update(torch.tensor([[0.0, 0, 1], [1, 1, 1]]).reshape(2, 1, 1, 3))
        >>> metric.update(torch.tensor([[0.0, 0, 1], [1, 0, 1]]).reshape(2, 1, 1, 3))
        >>> metric.compute().round(decimals=3)
        tensor([[1.0000, 0.3330, 0.0000],
                [0.3330, 1.0000, 0.0000],
                [0.0000, 0.0000, 0.0000]], dtype=torch.float64)
    """

    is_differentiable: bool = False
    higher_is_better: None = None

    images: list[Tensor]
    gamma: Tensor

    def __init__(
        self,
        kernel: Kernel | None = None,
        patch_size: int = 1,
        tolerance: float = 1e-6,
        batch_estimator: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_cka_arguments(kernel, patch_size, tolerance, batch_estimator)
        self._add_kernel("gamma", kernel or GaussianKernel())
        self.patch_size = patch_size
        self.tolerance = tolerance
        self.batch_estimator = batch_estimator
        self.add_state("images", default=[], dist_reduce_fx="cat")

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its gamma once that is known."""
        return self._kernel("gamma")

    def update(self, images: Tensor, real: bool = False) -> None:
        """Add images.

        Args:
            images: Images [N, C, H, W]; integers are read as 0..255 and scaled to [0, 1].
            real: True to ignore the batch, so that one MetricCollection feeds metrics of one and of two sides.

        Raises:
            TypeError: If they are not a tensor of real numbers.
            ValueError: If they are not finite, differ in shape from those before, or exceed 1 GiB together with them.
        """
        if is_left_out(real):
            return
        x = cka_images(images, tuple(self.images[0].shape[1:]) if len(self.images) else None)
        check_patches("images", x, self.patch_size)
        size = x.nbytes + sum(batch.nbytes for batch in self.images)
        if size > MAX_BYTES:
            raise ValueError(
                f"Expected `images` of at most {MAX_BYTES / 2**30:g} GiB altogether, but got {size / 2**30:.2f} GiB. "
                "Give a random subset of them, or average `functional.pixel_cka` over batches of m images, which is "
                "what `batch_estimator=m` does."
            )
        self._keep("images", x, images)

    def compute(self) -> Tensor:
        """Return the matrix [d, d], float64, entries in [0, 1]; rows and columns of constant sites are zero."""
        check_count("images", sum(map(len, self.images)), "update(images)")
        images = joined("images", self.images, "update(images)")
        how: Any = {"patch_size": self.patch_size, "tolerance": self.tolerance, "batch_estimator": self.batch_estimator}
        return pixel_cka(images, kernel=self._resolved("gamma", images.flatten(1)), **how)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the matrix with sites in reading order, without constant ones.

        Args:
            val: Result of `compute`; None for `compute()`.
            ax: Not supported: the figure has its own axes.

        Returns:
            A matplotlib Figure and its main axis.
        """
        if ax is not None:
            raise ValueError("Expected no `ax` for PixelCKA, but got one. Take the figure that it returns.")
        from genmonitor.plotting.style import add_axes, new_figure, to_array

        matrix = self.compute() if val is None else val
        varying = matrix.diagonal() != 0
        figure = new_figure(596, 644, "CKA between sites")
        axes = add_axes(figure, 18, 18, 560, 560)
        axes.imshow(to_array(matrix[varying][:, varying]), vmin=0, vmax=1, cmap="magma")
        return figure, axes

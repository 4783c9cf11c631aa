# SPDX-License-Identifier: Apache-2.0
"""A partition of an image's sites into clusters, and the ways to get one."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from genmonitor._io import atomic_write
from genmonitor._place_names import describe_place
from genmonitor._validation import (
    check_at_least,
    check_finite,
    check_height_and_width,
    check_one_of,
    check_tensor,
    plain,
)
from genmonitor.linalg.clustering import LINKAGES, Linkage, cut_tree, merge_tree, site_points


class PixelPartition:
    """Assignment of the sites of an image to clusters.

    A site is a pixel, or a patch of `patch_size` × `patch_size` pixels; all channels of a site belong together.

    Args:
        labels: Integers [h, w], one per site: 1..C for the clusters, all of them used, and 0 for constant sites.
        patch_size: Side of a site in pixels.
        names: Names of clusters, such as {"cluster_3": "eyes"}, which replace their numbers in values, tables and
            pictures. A name is a letter, then letters and digits with single "_" or "-" between them.

    Attributes:
        labels: Labels [h, w], int64 on the CPU.
        num_clusters: Number C of clusters.
        image_size: Height and width in pixels of the images that it fits.

    Raises:
        ValueError: If the labels are not such integers, or a name is invalid or of an unknown cluster.

    Example:
        >>> partition = PixelPartition(torch.tensor([[1, 1, 2], [1, 2, 0]]))
        >>> partition.num_clusters, partition.sizes(), partition.image_size
        (2, [1, 3, 2], (2, 3))
        >>> partition.named({"cluster_2": "eyes"}).regions()
        {'cluster_1': 1, 'eyes': 2, 'constant': 0}
    """

    def __init__(self, labels: Tensor, patch_size: int = 1, names: Mapping[str, str] | None = None) -> None:
        labels = check_tensor("labels", labels)
        if labels.ndim != 2 or not labels.numel() or labels.is_floating_point():
            raise ValueError(
                f"Expected `labels` as integers of shape [h, w], but got {labels.dtype} {list(labels.shape)}."
            )
        self.labels = labels.detach().cpu().long().clone()
        self.patch_size = check_at_least("patch_size", patch_size, 1)
        self.num_clusters = int(self.labels.max())
        used = self.labels.unique().tolist()
        if used[0] < 0 or used == [0] or set(range(1, self.num_clusters + 1)) - set(used):
            raise ValueError(
                f"Expected `labels` to use each of 1..C, and 0 for constant sites, but got the values {used}. "
                "PixelPartition.from_mask numbers any mask."
            )
        self.image_size = (self.labels.shape[0] * self.patch_size, self.labels.shape[1] * self.patch_size)
        self.names = check_region_names("names", names or {}, self.num_clusters)

    @classmethod
    def from_cka(
        cls,
        matrix: Tensor,
        shape: tuple[int, int],
        n_clusters: int | None = None,
        patch_size: int = 1,
        linkage: Linkage = "average",
    ) -> PixelPartition:
        """Cluster the rows of a CKA matrix.

        Sites whose row is zero are constant and get label 0. The others are clustered by the Euclidean distances of
        their rows (Gruber et al. 2024, section 4). Labels 1..C are in the order of falling size.

        Args:
            matrix: CKA matrix [d, d] of `PixelCKA` or `functional.pixel_cka`.
            shape: Height h and width w of the sites, h·w = d.
            n_clusters: Number C of clusters; None for the one from 2 to 12 with the largest Dunn index. This is the
                distance of the nearest two centers divided by the radius of the widest cluster.
            patch_size: Side of a site in pixels.
            linkage: "average", the paper's; "ward", whose clusters are more alike in size; or "smoothed", average
                linkage of the rows' correlations after averaging the matrix over neighboring sites.

        Raises:
            ValueError: If the matrix is not [h·w, h·w], or there are fewer varying sites than clusters.

        Example:
            >>> cka = torch.tensor([[1, 0.9, 0, 0], [0.9, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
            >>> PixelPartition.from_cka(cka, shape=(2, 2), n_clusters=2).labels
            tensor([[1, 1],
                    [2, 0]])
        """
        matrix = check_tensor("matrix", matrix)
        check_height_and_width("shape", shape)
        d = shape[0] * shape[1]
        if matrix.shape != (d, d):
            raise ValueError(
                f"Expected `matrix` of shape [{d}, {d}] for `shape`={tuple(shape)}, but got {list(matrix.shape)}."
            )
        check_finite("matrix", matrix)
        check_one_of("linkage", linkage, LINKAGES)
        matrix = matrix.detach()
        varying = (matrix.diagonal() != 0).cpu()
        points = site_points(matrix, shape, linkage)
        if not len(points):
            raise ValueError("Expected sites that vary, but every site is constant. Give images that differ.")
        if n_clusters is not None and check_at_least("n_clusters", n_clusters, 1) > len(points):
            raise ValueError(
                f"Expected `n_clusters` of at most {len(points)}, the number of sites that vary, but got {n_clusters}."
            )
        labels = torch.zeros(d, dtype=torch.long)
        labels[varying] = _clustered(points, n_clusters, linkage)
        return cls(by_size(labels.reshape(shape)), patch_size)

    @classmethod
    def from_mask(cls, mask: Tensor, patch_size: int = 1) -> PixelPartition:
        """Make a cluster of each value of a mask, numbered 1..C by falling size.

        Args:
            mask: Integers or booleans [h, w] of any values, for example a semantic segmentation.
            patch_size: Side of a site in pixels.

        Example:
            >>> PixelPartition.from_mask(torch.tensor([[7, 7], [7, 3]])).labels
            tensor([[1, 1],
                    [1, 2]])
        """
        mask = plain(mask) if isinstance(mask, Tensor) else mask
        if not isinstance(mask, Tensor) or mask.ndim != 2 or mask.is_floating_point():
            raise ValueError(
                "Expected `mask` to be a tensor of integers or booleans [h, w], but got "
                f"{f'{mask.dtype} {list(mask.shape)}' if isinstance(mask, Tensor) else type(mask).__name__}."
            )
        mask = check_tensor("mask", mask.byte() if mask.dtype == torch.bool else mask)
        return cls(by_size(mask.cpu().unique(return_inverse=True)[1] + 1), patch_size)

    @classmethod
    def grid(cls, shape: tuple[int, int], rows: int, columns: int, patch_size: int = 1) -> PixelPartition:
        """Cut the sites into rows × columns rectangles of nearly equal size.

        Args:
            shape: Height h and width w of the sites.
            rows: Number of rectangles from top to bottom, at most h.
            columns: Number of rectangles from left to right, at most w.
            patch_size: Side of a site in pixels.

        Example:
            >>> PixelPartition.grid((2, 4), rows=1, columns=2).labels
            tensor([[1, 1, 2, 2],
                    [1, 1, 2, 2]])
        """
        check_height_and_width("shape", shape)
        for name, parts, size in (("rows", rows, shape[0]), ("columns", columns, shape[1])):
            if check_at_least(name, parts, 1) > size:
                raise ValueError(f"Expected `{name}` of at most {size} for `shape`={tuple(shape)}, but got {parts}.")
        row = torch.arange(shape[0]) * rows // shape[0]
        column = torch.arange(shape[1]) * columns // shape[1]
        return cls(by_size(1 + row[:, None] * columns + column), patch_size)

    def sizes(self) -> list[int]:
        """Count the sites of label 0, 1, …, C."""
        return torch.bincount(self.labels.flatten(), minlength=self.num_clusters + 1).tolist()

    def regions(self) -> dict[str, int]:
        """Name the regions that have sites, clusters first: {"cluster_1": 1, …, "constant": 0}."""
        clusters = {f"cluster_{c}": c for c in range(1, self.num_clusters + 1)}
        names = {self.names.get(name, name): c for name, c in clusters.items()}
        return names | ({"constant": 0} if (self.labels == 0).any() else {})

    def given_names(self) -> dict[int, str]:
        """Return the names given to clusters, in a readable form, by label."""
        return {int(name.removeprefix("cluster_")): given.replace("_", " ") for name, given in self.names.items()}

    def named(self, names: Mapping[str, str]) -> PixelPartition:
        """Return the same regions with names such as {"cluster_3": "eyes"}; others keep their names."""
        return PixelPartition(self.labels, self.patch_size, self.names | dict(names))

    def location(self, label: int) -> str:
        """Return the place of the sites of a label in words, such as "upper right", "outer ring" or "scattered".

        Raises:
            ValueError: If no site has the label.

        Example:
            >>> PixelPartition(torch.tensor([[1, 1, 2], [1, 1, 2]])).location(2)
            'right edge'
        """
        inside = self.labels == label
        if not inside.any():
            raise ValueError(f"Expected `label` to be one of {self.labels.unique().tolist()}, but got {label}.")
        return describe_place(inside)

    def pixel_labels(self) -> Tensor:
        """Return the labels at pixel resolution, int64 [H, W]."""
        p = self.patch_size
        return self.labels.repeat_interleave(p, 0).repeat_interleave(p, 1)

    def columns(self, label: int, channels: int) -> Tensor:
        """Return the indices of the pixels of a label in a flattened image [channels · H · W]."""
        return (self.pixel_labels() == label).flatten().repeat(channels).nonzero().flatten()

    def check_images(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuse samples of this shape that are not images [N, C, H, W] of the partition's size."""
        if len(shape) != 4:
            raise ValueError(
                f"Expected `{name}` as images [N, C, H, W] with a partition, but got {list(shape)}. Leave the "
                "partition out for features."
            )
        if tuple(shape[2:]) != self.image_size:
            raise ValueError(
                f"Expected `{name}` of size {self.image_size[0]}×{self.image_size[1]} like the partition, but got "
                f"{shape[-2]}×{shape[-1]}. Use the images' own size, or a partition made for them."
            )

    def save(self, path: str | Path) -> None:
        """Write the partition to an .npz file, complete or not at all."""
        file = io.BytesIO()
        names = np.array(json.dumps(self.names))
        np.savez_compressed(file, labels=self.labels.numpy(), patch_size=np.int64(self.patch_size), names=names)
        atomic_write(Path(path), file.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> PixelPartition:
        """Read a partition written by `save`; nothing is unpickled.

        Raises:
            FileNotFoundError, ValueError: If there is no such file, or it is of another kind.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(f"Expected `path` to be a file that `save` wrote, but there is none at {path!s}.")
        try:
            with np.load(path, allow_pickle=False) as file:
                labels, patch_size = torch.from_numpy(file["labels"]), int(file["patch_size"])
                names = json.loads(str(file["names"]))
        except (ValueError, TypeError, KeyError, IndexError, EOFError, OSError, BadZipFile) as error:
            raise ValueError(
                f"Expected `path` to be a file that `save` wrote, but {path!s} is not ({error}). Give partition.npz "
                "of a run's folder, or save the partition again."
            ) from None
        return cls(labels, patch_size, names)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PixelPartition)
            and (self.patch_size, self.names) == (other.patch_size, other.names)
            and torch.equal(self.labels, other.labels)
        )

    def __hash__(self) -> int:
        return hash((self.patch_size, self.labels.shape, self.labels.numpy().tobytes()))

    def __repr__(self) -> str:
        h, w = self.labels.shape
        constant, *sizes = self.sizes()
        return f"PixelPartition({h}×{w} sites, patch_size={self.patch_size}, clusters={sizes}, constant={constant})"


def _clustered(points: Tensor, n_clusters: int | None, linkage: Linkage) -> Tensor:
    """Label each point 1..C, with C from Dunn's index if it is None."""
    if len(points) == 1:
        return torch.ones(1, dtype=torch.long)
    merges = merge_tree(points, linkage)
    if n_clusters is not None:
        return cut_tree(merges, n_clusters)
    from torchmetrics.functional.clustering import dunn_index

    candidates = [cut_tree(merges, count) for count in range(2, min(12, len(points) - 1) + 1)]
    if not candidates:
        return cut_tree(merges, 1)
    centered = (points - points.mean(0)).cpu()
    scores = torch.stack([dunn_index(centered, candidate) for candidate in candidates])
    return candidates[int(scores.nan_to_num(nan=0.0, posinf=math.inf).argmax())]  # nan where all points are one


def check_region_names(argument: str, names: Mapping[str, str], count: int | None = None) -> dict[str, str]:
    """Return names of clusters by "cluster_1" and so on; refuse names that are duplicate or invalid in log keys.

    Args:
        argument: Name of the argument.
        names: Names by the default name of a cluster.
        count: Number of clusters; None if not yet known.
    """
    if not isinstance(names, Mapping) or not all(isinstance(x, str) for pair in names.items() for x in pair):
        raise TypeError(f"Expected `{argument}` like {{'cluster_1': 'eyes'}}, strings by strings, but got {names!r}.")
    found = dict(names)
    number = {name: re.fullmatch(r"cluster_([1-9]\d*)", name) for name in found}
    unknown = [name for name, of in number.items() if of is None or (count is not None and int(of[1]) > count)]
    if unknown:
        there = "cluster_1, cluster_2 …" if count is None else f"cluster_1 to cluster_{count}"
        raise ValueError(f"Expected `{argument}` for {there}, but got one for {unknown[0]!r}.")
    for name in found.values():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([_-][A-Za-z0-9]+)*", name) or name in ("image", "constant"):
            raise ValueError(
                f"Expected `{argument}` of a letter, then letters and digits with single '_' or '-' between them, but "
                f"got {name!r}: log keys hold them, and image and constant have their meaning."
            )
    if len({*found.values()}) < len(found) or any(re.fullmatch(r"cluster_\d+", name) for name in found.values()):
        raise ValueError(f"Expected `{argument}` to differ from each other and from cluster_1 …, but got {found}.")
    return found


def by_size(labels: Tensor) -> Tensor:
    """Renumber labels from 1 by falling size, ties by the first site in reading order; 0 stays."""
    flat = labels.flatten()
    counts = torch.bincount(flat)
    first = torch.full_like(counts, len(flat)).scatter_reduce(0, flat, torch.arange(len(flat)), reduce="amin")
    order = sorted((int(v) for v in flat.unique() if v > 0), key=lambda v: (-int(counts[v]), int(first[v])))
    new = torch.zeros_like(counts)
    new[order] = torch.arange(1, len(order) + 1)
    return new[flat].reshape(labels.shape)


def region_key(measure: str, region: str) -> str:
    """Return the key of a measure of a region.

    Example:
        >>> region_key("share", "cluster_1"), region_key("p", "image")
        ('share_1', 'p_image')
    """
    return f"{measure}_{region.removeprefix('cluster_')}"


def load_partition(path: str | Path) -> PixelPartition:
    """Read the partition of an earlier run.

    Args:
        path: File that `PixelPartition.save` wrote (.npz), or the folder of a run that holds one.

    Raises:
        FileNotFoundError, ValueError: If there is no partition, there are several, or the file is of another kind.
    """
    path = Path(path)
    if not path.is_dir():
        return PixelPartition.load(path)
    found = sorted({*path.glob("*partition.npz"), *path.glob("genmonitor/*partition.npz")})
    if len(found) != 1:
        names = ", ".join(map(str, found)) or "none"
        raise ValueError(f"Expected `partition` to be a folder with one partition.npz, but {path} has {names}.")
    return PixelPartition.load(found[0])

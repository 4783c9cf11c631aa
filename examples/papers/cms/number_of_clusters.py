# SPDX-License-Identifier: Apache-2.0
"""Watch the product of 2, 5 and 50 clusters beside the image's CMS while a DCGAN trains.

python examples/papers/cms/number_of_clusters.py                               # digits
python examples/papers/cms/number_of_clusters.py --data folder --path img_align_celeba --epochs 50 --lr 2e-4

All cuts are of one CKA matrix, by average linkage. The more clusters, the less independent of each other they can be,
and the further their product is from the image's CMS.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from lightning import Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from matplotlib.figure import Figure
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

from curves import cms_axis, epoch_axis
from data import ImageData
from dcgan import DCGAN

from genmonitor import CosineMeanSimilarity, GaussianKernel, PixelCKA, PixelPartition
from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.evaluation.results import curve
from genmonitor.findings.tables import Table, aligned
from genmonitor.plotting.style import FAINT, INK, add_axes, cluster_color, new_figure

COUNTS = (2, 5, 50)


class Product(CosineMeanSimilarity):
    """The product of the regions' CMS alone."""

    def compute(self) -> Tensor:
        """Return the product."""
        values = super().compute()
        return values["product"]


def cut(images: Tensor, kernel: GaussianKernel, counts: Sequence[int], m: int | None) -> dict[int, PixelPartition]:
    """Return partitions into these numbers of clusters, all from one matrix; m as for `PixelCKA`."""
    cka = PixelCKA(kernel, batch_estimator=m)
    cka.update(images)
    shape = (images.shape[2], images.shape[3])
    return {count: PixelPartition.from_cka(cka.compute(), shape, count) for count in counts}


def watch(args: argparse.Namespace, data: ImageData) -> PixelClusterMonitor:
    """Train, and return the monitor with what it measured."""
    some = range(min(args.n_cluster_images, len(data.train_images)))
    images = torch.stack([data.train_images[i] for i in some])
    kernel = GaussianKernel().resolved(images.flatten(1))
    partitions = cut(images, kernel, args.counts, args.batch_estimator)
    products = {
        f"of_{c}": Product(p, kernel, args.block_size, reset_real_features=False) for c, p in partitions.items()
    }
    monitor = PixelClusterMonitor(
        partition=partitions[args.counts[0]],
        n_cluster_images=len(images),
        n_samples=args.n_samples,
        kernel=kernel,
        block_size=args.block_size,
        extra_metrics=products,
        every_n_epochs=max(1, args.epochs // 10),
    )
    logger = TensorBoardLogger(args.out.parent, name=args.out.name)
    trainer = Trainer(max_epochs=args.epochs, devices=1, logger=logger, callbacks=[monitor], log_every_n_steps=1)
    features = {f"{network}_features": args.features for network in ("generator", "discriminator")}
    trainer.fit(DCGAN(data.image_shape, lr=args.lr, **features), datamodule=data)
    return monitor


def picture(epochs: Sequence[float], image: Sequence[float], products: dict[int, Sequence[float]]) -> Figure:
    """Draw the products and the image's CMS."""
    figure = new_figure(760, 380, "CMS of the image, and product of its clusters by their number")
    ax = add_axes(figure, 90, 55, 620, 270)
    cms_axis([ax], [*image, *(value for of in products.values() for value in of)])
    epoch_axis(ax, epochs)
    ax.plot(epochs, image, color=INK, linewidth=3, label="image")
    for place, (count, values) in enumerate(products.items(), 1):
        ax.plot(epochs, values, "--", color=cluster_color(place), linewidth=2, label=f"product of {count} clusters")
    ax.legend(loc="lower right", fontsize=9, frameon=False, labelcolor=FAINT)
    return figure


def main() -> None:
    """Train, print a table, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("digits", "planted", "folder", "medmnist"), default="digits")
    parser.add_argument("--path", help="the image folder, or the MedMNIST .npz file")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="numbers of clusters")
    parser.add_argument("--epochs", type=int, default=41)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--features", type=int, default=32, help="width of both networks")
    parser.add_argument("--n-cluster-images", type=int, default=1000)
    parser.add_argument("--batch-estimator", type=int, help="mini-batches of the CKA, the paper's 100; all at once")
    parser.add_argument("--n-samples", type=int, default=500)
    parser.add_argument("--block-size", type=int, help="of CMS, the paper's 150; all at once")
    parser.add_argument("--out", type=Path, default=Path("runs/number-of-clusters"), help="where runs are written")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # from within Lightning
    seed_everything(0, verbose=False)
    monitor = watch(args, ImageData(args.data, args.path))
    history = monitor.history
    products = {count: curve(history, f"of_{count}") for count in args.counts}
    columns = ["image", *(f"of_{count}" for count in args.counts)]
    rows = [[f"{record['epoch']:g}", *(f"{record[name]:.5f}" for name in columns)] for record in history]
    print(aligned(Table(["epoch", *columns], rows)))
    figure = args.out / "number-of-clusters.png"
    figure.parent.mkdir(parents=True, exist_ok=True)
    picture(curve(history, "epoch"), curve(history, "image"), products).savefig(figure)
    print(f"Figure: {figure}")


if __name__ == "__main__":
    main()

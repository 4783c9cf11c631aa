# SPDX-License-Identifier: Apache-2.0
"""`genmonitor clusters`: regions of pixels that vary together in a set of images."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from genmonitor._formatting import as_sentence
from genmonitor._io import signals_deferred
from genmonitor.cli.arguments import (
    IMAGES,
    add_folder_arguments,
    add_settings,
    given_settings,
    nonempty,
    nonempty_path,
    whole_number,
)
from genmonitor.cli.inputs.encoding import default_device
from genmonitor.cli.inputs.outputs import images_of, read_outputs
from genmonitor.cli.progress import show_progress
from genmonitor.cli.results import Result, check_writable
from genmonitor.evaluation.regions.clustering import find_clusters, patch_notes
from genmonitor.evaluation.regions.presenter import place_data, region_lines
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.functional.cka import check_patches
from genmonitor.images.split import chosen_patch_size, evenly_spread, image_budget
from genmonitor.plotting import pixel_clusters as plots
from genmonitor.report.folder import RunFolder


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("images", metavar="IMAGES", type=nonempty, help=IMAGES)
    add_settings(parser, RegionSettings, "n_clusters", "linkage", "patch_size", "batch_estimator")
    text = "use at most N images, evenly spread (default: 1000 to 5000, about half a minute)"
    add("--n-images", type=whole_number(4), metavar="N", help=text)
    add_folder_arguments(parser)
    text = "folder of the result (default: runs/clusters)"
    add("--out", type=nonempty_path, default=Path("runs/clusters"), metavar="FOLDER", help=text)


def run(args: Namespace) -> tuple[Result, str]:
    """Find the clusters, and write the partition and its figures."""
    check_writable(args.out)
    with show_progress("reading images") as progress:
        given = images_of(read_outputs(args.images, args.size, progress, IMAGES, args.skip_bad))
        of = RegionSettings.of(**given_settings(args, RegionSettings))
        check_patches("images", given.read([0]), of.patch_size or chosen_patch_size(given.shape))
        images = given.read(evenly_spread(len(given), args.n_images or image_budget(given.shape, of.patch_size)))
    if len(images) < 4:
        raise ValueError(f"Expected at least 4 images, but {args.images} holds {len(images)}.")
    kernel = of.kernel.resolved(images.flatten(1))
    images = images.to(default_device())
    with show_progress("finding the regions") as progress:
        found = find_clusters(images, kernel, of.n_clusters, of.patch_size, progress, of.linkage, of.batch_estimator)
    partition, stability = found.partition, found.stability
    folder, labels = RunFolder(args.out), partition.pixel_labels()
    drawn_map = plots.cluster_map(labels, image=images.mean(0).cpu())
    figures = {"map": drawn_map, "cka": plots.cka_matrix(found.cka, partition.labels)}
    with show_progress("drawing them"), signals_deferred():
        drawn = [str(path) for path in folder.write_figures("clusters", figures, step=0).values()]
        partition.save(folder.path / "partition.npz")
    notes = [as_sentence(note) for note in (*found.notes(), *patch_notes(partition, of.patch_size))]
    files = [str(folder.path / "partition.npz"), *drawn]
    places = {name: place_data(partition, label) for name, label in partition.regions().items()}
    regions = {name: {**place, "stability": stability.get(name)} for name, place in places.items()}
    result: Result = {"images": len(images), "gamma": kernel.gamma, "linkage": found.linkage, "stability": stability}
    result |= {"regions": regions, "notes": notes, "labels": partition.labels.tolist(), "files": files}
    told = f"{partition.num_clusters} clusters by {found.linkage} linkage in {len(images)} images."
    how = f"Stability {stability['overall']:.2f}: agreement of halves of the images, 1 if identical, 0 by chance."
    return result, "\n".join([told, how, "", *region_lines(partition, stability), "", *notes, *files])

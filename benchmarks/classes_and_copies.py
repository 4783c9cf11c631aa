# SPDX-License-Identifier: Apache-2.0
"""Measures how often a wrong class, copies and odd samples are named, and how often without reason.

python benchmarks/classes_and_copies.py                     # all tables, an hour on two cores
python benchmarks/classes_and_copies.py --tables classes    # one of them
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.special import ndtr
from scipy.stats import mannwhitneyu
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from torch import Tensor
from torch.nn.functional import avg_pool2d

sys.path[:0] = [str(Path(__file__).parent)]
from diagnosis_faults import KINDS, planted  # noqa: E402
from diagnosis_images import generator_of, image_set  # noqa: E402
from diagnosis_peers import holm, pixel_p_values  # noqa: E402
from stamp import stamp  # noqa: E402

from genmonitor import diagnose  # noqa: E402
from genmonitor._place_names import describe_place  # noqa: E402
from genmonitor.evaluation.single_samples import FAR  # noqa: E402
from genmonitor.findings.finding import FaultKind  # noqa: E402
from genmonitor.functional import (  # noqa: E402
    data_copying_test,
    odd_samples_test,
    two_sample_test_by_class,
)
from genmonitor.functional.authenticity import authenticity  # noqa: E402
from genmonitor.functional.diagnosis.explain import SURE  # noqa: E402
from genmonitor.functional.permutation import LEVEL  # noqa: E402
from genmonitor.linalg.distances import distance_blocks, knn, neighbor_radii  # noqa: E402

CLASS_FAULTS = {"faded": 0.2, "blurred": 0.8, "noisy": 0.05}
CLASS_SETS = {"digits": 1200, "clothes": 600}
"""Images on each side: about 120 of each class."""
COPY_SETS, COPIED, COPY_LEVEL = ("digits", "faces"), (0.02, 0.05, 0.1), 0.001
NO_COPIES = {"blurred": 0.8, "faded": 0.2, "noisy": 0.05, "less varied": 0.2}
ODD_SETS, PLANTED = ("digits", "clothes", "faces", "photographs"), 10
ODD: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "blank corner": lambda x, g: in_place(x, x.mean(), 0),
    "middle of another": lambda x, g: in_place(x, x.roll(1, 0), x.shape[2] // 3),
    "pixels shuffled": lambda x, g: x.flatten(2)[:, :, torch.randperm(x.shape[2] * x.shape[3], generator=g)].view_as(x),
    "negative": lambda x, g: x.amax() + x.amin() - x,
    "noise 0.2": lambda x, g: x + 0.2 * torch.randn(x.shape, generator=g),
}
Rows = Iterator[list[str]]


def realism(fake: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Realism of each generated sample [N] by balls no larger than the median one (Kynkäänniemi et al. 2019, Eq. 3)."""
    radii = neighbor_radii(real, 3)
    usual = radii.where(radii <= radii.median(), 0)
    return torch.cat([(usual / distances).amax(1) for _, distances in distance_blocks(fake, real)]).sqrt()


def class_draw(of_set: str, run: int, fault: str | None) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Return generated and real images with their classes, one of which is wrong, and which that is."""
    generator, images = generator_of("classes", of_set, run), image_set(of_set)
    order, n = torch.randperm(len(images.images), generator=generator), CLASS_SETS[of_set]
    fake, of_fake = images.images[order[:n]].clone(), images.labels[order[:n]]
    real, of_real = images.images[order[n : 2 * n]], images.labels[order[n : 2 * n]]
    wrong = run % (int(images.labels.max()) + 1)
    if fault is not None:
        inside = torch.ones(fake.shape[2:], dtype=torch.bool)
        fake[of_fake == wrong] = planted(KINDS[fault], fake[of_fake == wrong], CLASS_FAULTS[fault], inside, run)
    return fake, real, of_fake, of_real, wrong


def named(p: dict[int, Tensor]) -> list[int]:
    """Return the classes that are called wrong."""
    return [label for label, value in p.items() if value <= LEVEL]


def class_rows(runs: int, nulls: int) -> Rows:
    """Yield how often the wrong class alone is named, its kind, and the finding of all images together."""
    for of_set in CLASS_SETS:
        for fault in CLASS_FAULTS:
            alone, kinds, pooled, peer, others = [], [], [], [], []
            for run in range(runs):
                fake, real, of_fake, of_real, wrong = class_draw(of_set, run, fault)
                found = named(two_sample_test_by_class(fake, real, of_fake, of_real))
                alone.append(wrong in found)
                others.append(bool(set(found) - {wrong}))
                kinds += [
                    x.name in KINDS[fault].names for x in kinds_of(fake[of_fake == wrong], real[of_real == wrong])
                ]
                pooled += [x.name in KINDS[fault].names for x in kinds_of(fake, real)]
                peer.append(wrong in ks_classes(fake, real, of_fake, of_real))
            size = f"{fault} {CLASS_FAULTS[fault]:g}"
            cells = [np.mean(alone), sum(kinds) / runs, np.mean(others), sum(pooled) / runs, np.mean(peer)]
            yield [of_set, size, str(runs), *(f"{x:.2f}" for x in cells)]
        level = []
        for run in range(nulls):
            fake, real, of_fake, of_real, _ = class_draw(of_set, runs + run, None)
            level.append(bool(named(two_sample_test_by_class(fake, real, of_fake, of_real))))
        yield [of_set, "nothing", str(nulls), "", "", f"{np.mean(level):.3f}", "", ""]


def kinds_of(fake: Tensor, real: Tensor) -> tuple[FaultKind, ...]:
    """Return the kind of fault that is named first, if any is."""
    return diagnose(fake=fake, real=real).findings[0].kinds[:1]


def ks_classes(fake: Tensor, real: Tensor, of_fake: Tensor, of_real: Tensor) -> list[int]:
    """Return the classes in which a block of 4×4 pixels differs by Kolmogorov-Smirnov tests, Holm's over all."""
    classes, (fake, real) = of_real.unique().tolist(), (avg_pool2d(x, 4) for x in (fake, real))
    p = np.stack([pixel_p_values(fake[of_fake == c], real[of_real == c]) for c in classes])
    return [c for c, found in zip(classes, holm(p).any((1, 2)), strict=True) if found]


def copy_rows(runs: int, nulls: int) -> Rows:
    """Yield how often copies are found among 500 images, how many of them are named, and what others say."""
    cases = [(f"{100 * x:g} % copies", x) for x in COPIED] + [("nothing", 0.0)] + [(x, 0.0) for x in NO_COPIES]
    for of_set in COPY_SETS:
        images = image_set(of_set).images
        for name, part in cases:
            found, named_copies, peers = [], [], []
            for run in range(nulls if name == "nothing" else runs):
                generator = generator_of("copies", of_set, name, run)
                order = torch.randperm(len(images), generator=generator)
                train, held_out, fake = (images[x] for x in (order[:4000], order[4000:4500], order[4500:5000]))
                fake, count = fake.clone(), round(part * 500)
                fake[:count] = train[:count] + 0.02 * torch.randn(fake[:count].shape, generator=generator)
                if name in NO_COPIES:
                    inside = torch.ones(fake.shape[2:], dtype=torch.bool)
                    fake = planted(KINDS[name], fake, NO_COPIES[name], inside, run)
                test = data_copying_test(fake, held_out, train)
                said = float(test.p_value) <= COPY_LEVEL
                found.append(said)
                right = test.nearest[:count] == torch.arange(count)
                copied = torch.isin(torch.arange(count), test.copied) & right
                named_copies.append(float(copied.double().mean()) if said and count else 0.0)
                peers.append([c_t(fake, held_out, train) <= COPY_LEVEL, not_authentic(fake, held_out, train)])
            cells = [np.mean(found), np.mean(named_copies) if part else None, *np.mean(peers, 0)]
            yield [of_set, name, str(len(found)), *("" if x is None else f"{x:.2f}" for x in cells)]


def c_t(fake: Tensor, held_out: Tensor, train: Tensor) -> float:
    """P-value that generated images are no nearer to training images than held-out ones (Meehan et al. 2020)."""
    of_fake, of_held = (knn(x.flatten(1), train.flatten(1), 1)[0][:, 0].sqrt() for x in (fake, held_out))
    return float(mannwhitneyu(of_fake, of_held, alternative="less").pvalue)


def not_authentic(fake: Tensor, held_out: Tensor, train: Tensor) -> bool:
    """Return True if authenticity is lower than that of held-out images by a test of two proportions."""
    of_fake, of_held = (float(authenticity(x, train)) for x in (fake, held_out))
    pool = (of_fake + of_held) / 2
    error = (pool * (1 - pool) * (1 / len(fake) + 1 / len(held_out))) ** 0.5
    return error > 0 and float(ndtr((of_fake - of_held) / error)) <= COPY_LEVEL


def in_place(x: Tensor, other: Tensor, start: int) -> Tensor:
    """Put something else into a square of a third of the side, from a pixel on."""
    inside = torch.zeros(x.shape[2:], dtype=torch.bool)
    inside[start : start + x.shape[2] // 3, start : start + x.shape[2] // 3] = True
    return torch.where(inside, other, x)


def odd_rows(runs: int, nulls: int) -> Rows:
    """Yield how many of ten odd samples among 500 are named, and where, and how many others rank first."""
    for of_set in ODD_SETS:
        images = image_set(of_set).images
        for name in [*ODD, "nothing"]:
            named_odd, others, said, places, ranked = [], [], [], [], []
            for run in range(nulls if name == "nothing" else runs):
                generator = generator_of("odd", of_set, name, run)
                order = torch.randperm(len(images), generator=generator)
                real, held_out, fake = (images[x] for x in order[:1000].split([250, 250, 500]))
                if name != "nothing":
                    fake = torch.cat([ODD[name](fake[:PLANTED], generator), fake[PLANTED:]])
                found = odd_samples_test(fake, held_out, real)
                odd = set(found.odd.tolist())
                named_odd.append(len(odd & {*range(PLANTED)}) / PLANTED)
                others.append(len(odd - {*range(PLANTED)}) / (len(fake) - PLANTED))
                far = bool((found.scores < FAR * found.lowest).any())
                said.append(far or float(found.p_value) <= SURE)
                where = [describe_place(found.windows[found.window[i]]) for i in odd & {*range(PLANTED)}]
                places += [x == ("upper left" if name == "blank corner" else "center") for x in where]
                if name != "nothing":
                    x, y = fake.flatten(1), real.flatten(1)
                    peers = [
                        realism(x, y),
                        LocalOutlierFactor(novelty=True).fit(y.numpy()).score_samples(x.numpy()),
                        IsolationForest(random_state=0).fit(y.numpy()).score_samples(x.numpy()),
                    ]
                    scores = [found.scores, *map(torch.as_tensor, peers)]
                    ranked.append([float((score.argsort()[:PLANTED] < PLANTED).double().mean()) for score in scores])
            planted_at = name in ("blank corner", "middle of another") and places
            cells = [
                np.mean(others),
                np.mean(places) if planted_at else None,
                *(np.mean(ranked, 0) if ranked else [None] * 4),
            ]
            of_odd = "" if name == "nothing" else f"{np.mean(named_odd):.2f}"
            yield [of_set, name, str(len(said)), f"{np.mean(said):.2f}", of_odd, f"{cells[0]:.3f}"] + [
                "" if x is None else f"{x:.2f}" for x in cells[1:]
            ]


TABLES: dict[str, tuple[str, list[str], Callable[[int, int], Rows]]] = {
    "classes": (
        "Which class is wrong: one class of digits (ten, about 120 images each) or clothes (five) has the fault",
        [
            "images",
            "fault",
            "runs",
            "that class named",
            "its kind named",
            "another class named",
            "kind named of all images together",
            "class named by KS of 4×4 blocks, Holm",
        ],
        class_rows,
    ),
    "copies": (
        "Copied training images: so many of 500 images, with noise of 0.02, copy one of 4,000; 500 are held out",
        ["images", "planted", "runs", "copies said", "of the copies named", "C_T says so", "authenticity says so"],
        copy_rows,
    ),
    "odd": (
        "Odd samples: ten of 500 images; 250 others are real, and 250 are held out, as in a diagnosis",
        [
            "images",
            "odd",
            "runs",
            "said: more than chance, or one by far",
            "of the odd ones named",
            "of the others named",
            "the place right",
            "odd among the first ten",
            "by realism",
            "by local outlier factor",
            "by isolation forest",
        ],
        odd_rows,
    ),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES])
    parser.add_argument("--runs", type=int, default=20, help="of each fault")
    parser.add_argument("--null", type=int, default=200, help="without a fault")
    args = parser.parse_args()
    print("# A wrong class, copied images, odd samples")
    for name in args.tables:
        title, columns, rows = TABLES[name]
        command = f"python benchmarks/classes_and_copies.py --tables {name} --runs {args.runs} --null {args.null}"
        print(f"\n## {title}\n\n`{command}`; {stamp()}.\n")
        print(f"| {' | '.join(columns)} |\n| --- |{' ---: |' * (len(columns) - 1)}")
        for row in rows(args.runs, args.null):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

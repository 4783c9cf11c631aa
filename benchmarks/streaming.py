# SPDX-License-Identifier: Apache-2.0
"""Memory and time of commands on sets of images that do not fit in memory, within 4 GiB; writes streaming.md.

python benchmarks/streaming.py                        # 20,000 images of 256×256×3: half an hour on two busy cores
python benchmarks/streaming.py --count 500 --side 64  # whether it runs; prints only
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from harness import machine
from PIL import Image

COUNT, SIDE = 20_000, 256
LIMIT = 4 * 2**30
"""Bytes of data that each process may have, by the operating system's limit."""
COMMANDS = {
    "folder": "diversity folder --encoder encoder",
    "compare": "compare folder folder",
}


def pictures(count: int, side: int) -> Iterator[bytes]:
    """Yield JPEG files of soft blobs of color, about 8 KB each at 256×256."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        small = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        content = io.BytesIO()
        small.resize((side, side), Image.Resampling.BICUBIC).save(content, "JPEG", quality=85)
        yield content.getvalue()


def make(place: Path, count: int, side: int) -> None:
    """Write a folder of images, and an encoder of random weights."""
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    (place / "folder").mkdir()
    for number, content in enumerate(pictures(count, side)):
        (place / "folder" / f"{number}.jpg").write_bytes(content)
    config = Dinov2Config(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14)
    Dinov2Model(config).save_pretrained(place / "encoder")
    BitImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}).save_pretrained(
        place / "encoder"
    )


def measure(place: Path, words: Sequence[str]) -> dict[str, float]:
    """Run a command within the limit; return its seconds, and GiB at the peak of the first and of all its processes."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))

    command = [sys.executable, "-m", "genmonitor", *words, "--json", "--out", "out"]
    start, peak = time.perf_counter(), 0
    with (place / "printed").open("w") as printed:
        process = subprocess.Popen(command, cwd=place, stdout=printed, preexec_fn=limit)
        while process.poll() is None:
            peak = max(peak, sum(map(proportional, family(process.pid))))
            time.sleep(0.2)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with status {process.returncode}")
    json.loads((place / "printed").read_text())
    first = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return {"seconds": time.perf_counter() - start, "GiB": first, "GiB, all": peak / 2**20}


def family(process: int) -> list[int]:
    """Return a process and those that it started, and they."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended
        return []
    return [process, *(x for child in children for x in family(int(child)))]


def proportional(process: int) -> int:
    """Return the KiB that a process holds; what several share counts in parts."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def table(found: Mapping[str, Mapping[str, float]], count: int) -> str:
    """Lay out what was measured."""
    lines = ["| command | images | seconds | images per second | peak GiB of a process | peak GiB of all |"]
    lines += ["| --- " * 6 + "|"]
    for name, of in found.items():
        images = count * (1 + (name == "compare"))
        cells = [f"`{COMMANDS[name]}`", f"{images:,}", f"{of['seconds']:.0f}", f"{images / of['seconds']:.0f}"]
        lines += ["| " + " | ".join([*cells, f"{of['GiB']:.2f}", f"{of['GiB, all']:.2f}"]) + " |"]
    return "\n".join(lines)


def main() -> None:
    """Make the images, run the commands and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--commands", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    parser.add_argument("--one", nargs=2, metavar=("PLACE", "COMMAND"), help="measure one command here, print JSON")
    given = parser.parse_args()
    if given.one:
        place, name = given.one
        print(json.dumps(measure(Path(place), COMMANDS[name].split())))
        return
    found = {}
    with tempfile.TemporaryDirectory() as place:
        make(Path(place), given.count, given.side)
        for name in given.commands:
            print(f"{name} ...", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--one", place, name]  # its own process: the peak is of its children
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[name] = json.loads(done.stdout.splitlines()[-1])
    text = "\n".join(
        [
            "# Sets of images that do not fit in memory",
            "",
            f"`python benchmarks/streaming.py{''.join(f' {word}' for word in sys.argv[1:])}` on {machine()}",
            "",
            f"{given.count:,} images of {given.side}×{given.side}×3 in JPEG, "
            f"{given.count * given.side**2 * 12 / 2**30:.0f} GiB in float32, are read from disk by each command, in "
            f"{LIMIT // 2**30} GiB of data for each process, a limit of the operating system (`RLIMIT_DATA`). Time is "
            "that of reading and decoding: the encoder is a DINOv2 of two small layers. All: the command and the "
            "workers that decode for it; memory that they share is counted once.",
            "",
            table(found, given.count),
            "",
        ]
    )
    if (given.count, given.side) == (COUNT, SIDE):
        Path(__file__).with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Runs benchmark cases one after the other, each in a process of its own, and prints one Markdown table."""

from __future__ import annotations

import argparse
import functools
import json
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from all import Table, read
from stamp import processor, stamp

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""Where the benchmarks compute: on the GPU if there is one. Peers that know none get their inputs on the CPU."""

ONCE = "--once" in sys.argv

BUDGET = 20
"""Seconds after which a case is not repeated again: what is loaded at first is little beside them."""


def clock() -> float:
    """Return the time in seconds at which all work so far is done."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Return the median seconds of some runs, after one that is not counted unless it takes long."""
    times: list[float] = []
    for _ in _runs(repeats):
        start = clock()
        work()
        times.append(clock() - start)
        if sum(times) > BUDGET:
            break
    return statistics.median(times[1:] or times)


def _runs(repeats: int) -> range:
    return range(1 if ONCE else repeats + 1)


class Times(float):
    """The median seconds of some runs, which are `runs`, in turns with those of another's."""

    runs: list[float]

    def __new__(cls, runs: list[float]) -> Times:
        """Take the median."""
        times = super().__new__(cls, statistics.median(runs))
        times.runs = runs
        return times


def side_by_side(*works: Callable[[], Any], repeats: int = 7) -> list[Times]:
    """Return the seconds of each, run in turns so that a busy moment hits them alike.

    Between them is a pause: the threads of one library's pool spin for a while after its work, on the other's cores.
    """
    times: list[list[float]] = [[] for _ in works]
    for _ in _runs(repeats):
        for index, work in enumerate(works):
            time.sleep(0.4)
            start = clock()
            work()
            times[index].append(clock() - start)
        if sum(map(sum, times)) > BUDGET:
            break
    return [Times(some[1:] or some) for some in times]


@functools.cache
def product_rate(size: int = 4096) -> float:
    """Return the floating-point operations per second of torch.mm in float32 on this machine."""
    x = torch.randn(size, size, device=DEVICE)
    return 2 * size**3 / seconds(lambda: x @ x)


@functools.cache
def copy_rate(size: int = 2**26) -> float:
    """Return the bytes per second that this machine reads and writes while it copies a tensor."""
    x, y = torch.ones(size, device=DEVICE), torch.empty(size, device=DEVICE)
    return 8 * size / seconds(lambda: y.copy_(x))


def row(
    n: str,
    d: str,
    took: float,
    *,
    operations: float,
    moved: float,
    error: float | None = None,
    peers: Mapping[str, float] | None = None,
    extrapolated: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Put the columns together that every benchmark has.

    Args:
        n: number of samples.
        d: their size.
        took: our seconds.
        operations: multiplications and additions that the formula needs, each pair that is symmetric once.
        moved: bytes of the inputs and the result.
        error: against float64 or an exact value.
        peers: seconds of each.
        extrapolated: of which peers these are not measured, and from what they are.
        more: columns of this benchmark alone.
    """
    ratios = {f"× {peer}": _ratio(theirs, took) for peer, theirs in (peers or {}).items()}
    for peer, source in (extrapolated or {}).items():
        ratios[f"× {peer}"] += f" ({source})"
    errors = {} if error is None else {"error": f"{error:.0e}"}
    shares = {"of torch.mm": operations / took / product_rate(), "of copying": moved / took / copy_rate()}
    return {"n": n, "d": d, "seconds": f"{took:.3g}", **ratios, **errors, **_percent(shares), **(more or {})}


def _ratio(theirs: float, ours: float) -> str:
    """Return how many times as long theirs takes; of several turns the median, and the range in brackets."""
    if not isinstance(theirs, Times) or not isinstance(ours, Times) or len(ours.runs) == 1:
        return _digits(theirs / ours)
    ratios = [a / b for a, b in zip(theirs.runs, ours.runs, strict=True)]
    return f"{_digits(statistics.median(ratios))} ({_digits(min(ratios))}–{_digits(max(ratios))})"


def _digits(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2f}"


def _percent(shares: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{share:.0%}" if share >= 0.01 else f"{share:.1g}" for name, share in shares.items()}


def peak_gib() -> float:
    """Return the most memory this process has held, in GiB; of the GPU where there is one."""
    if DEVICE.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


Row = dict[str, Any]
Case = Callable[[], Row]

LEGEND = (
    "× a peer: how many times as fast as that one on the same inputs; of runs in turns the median, and the range in "
    "brackets. Of torch.mm: the formula's own "
    "multiplications and additions per second, over those of a large product in float32. Of copying: the bytes of the "
    "inputs and the result per second, over those of a large copy. Each case has a process of its own; the times are "
    "medians."
)


def run(
    file: str, cases: Iterable[Case], title: str, long: Iterable[Case] = (), legend: str = LEGEND, notes: str = ""
) -> None:
    """Run the cases, print their table and write it beside the script.

    Args:
        file: the script's `__file__`.
        cases: functions that return the columns of one row.
        title: the table's heading.
        long: cases that take minutes or much memory, left out unless asked for.
        legend: what the columns mean.
        notes: what the figures do not say by themselves.
    """
    short = {case.__name__: case for case in cases}
    named = short | {case.__name__: case for case in long}
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--case", choices=list(named), help="run one case here and print its row as JSON")
    parser.add_argument("--long", action="store_true", help="run the cases too that take minutes or much memory")
    parser.add_argument("--once", action="store_true", help="time everything once: whether it runs, not how fast")
    arguments = parser.parse_args()
    if arguments.case is not None:
        print(json.dumps(named[arguments.case]() | {"peak GiB": f"{peak_gib():.2f}"}))
        return
    rows = []
    for name in named if arguments.long else short:
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, file, "--case", name, *(["--once"] if ONCE else [])]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append({"case": name.replace("_", " ")} | json.loads(done.stdout.splitlines()[-1]))
    script = Path(file)
    table = script.with_name(f"{script.stem}{'-gpu' if DEVICE.type == 'cuda' else ''}.md")
    options = "".join(f" --{name}" for name in ("long", "once") if getattr(arguments, name))
    made = f"`python benchmarks/{script.name}{options}` on {machine()}"
    heads, rows = beside(table.read_text() if table.exists() else "", made, rows)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(str(row.get(column, "")) for column in columns) + " |" for row in rows]
    text = "\n".join(
        [
            f"# {title}",
            "",
            "\n\n".join(heads),
            "",
            legend,
            "",
            *lines,
            "",
            *([notes, ""] if notes else []),
        ]
    )
    table.write_text(text)
    print(text)


def beside(page: str, made: str, rows: list[Row]) -> tuple[list[str], list[Row]]:
    """Put rows beside those of other machines, of which a page keeps the seconds and the ratios to peers.

    Args:
        page: as it was, empty if there was none. Its first machine has all columns; those of others end with " on ".
        made: the line that says how and on what this machine made the rows.
        rows: this machine's.

    Returns:
        The lines that say how, one for each machine, and the rows.
    """
    lines = [line for line in page.splitlines() if line.startswith("`python ")]
    names = [match[1] for line in lines if (match := re.search(r" threads of (.*?): ", line))]
    here = processor()
    if here in names:
        lines[names.index(here)] = made
    else:
        lines.append(made)
    before: Table = read(page)
    if not names or here == names[0]:
        others = [{x: y for x, y in before.get(row["case"], {}).items() if " on " in x} for row in rows]
        return lines, [row | kept for row, kept in zip(rows, others, strict=True)]
    added = {
        row["case"]: {f"{x} on {here}": y for x, y in row.items() if x == "seconds" or x.startswith("× ")}
        for row in rows
    }
    return lines, [{"case": case} | before.get(case, {}) | added.get(case, {}) for case in {**before, **added}]


def machine() -> str:
    """Name the machine and the versions."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scipy"))
    gpu = f"{torch.cuda.get_device_name()} and " if DEVICE.type == "cuda" else ""
    rates = f"torch.mm {product_rate() / 1e9:.0f} GFLOP/s, copying {copy_rate() / 1e9:.0f} GB/s"
    return f"{gpu}{torch.get_num_threads()} threads of {processor()}: {packages}; {rates}; {stamp()}."

# SPDX-License-Identifier: Apache-2.0
"""Makes all tables of one commit on this machine, and says what became slower beside its peers.

Ratios to peers that another machine measured stay, and this one's get columns of their own beside them.

python benchmarks/all.py                              # all but those that take hours; goes on where it was stopped
python benchmarks/all.py cms entropy                  # these alone
python benchmarks/all.py --compare                    # makes nothing: compares the tables with those committed
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from stamp import HERE, processor, stamp

TABLES: dict[str, tuple[str, ...]] = {
    "cms": (),
    "two_sample": (),
    "entropy": (),
    "overhead": (),
    "promptsplit": (),
    "regions": (),
    "growth": (),
    "sizes": (),
    "cka": ("--long",),
}
"""Arguments of each script, the quick ones first."""
PRINTED = {"regions"}
"""What prints its table instead of writing it."""
SLOWER = 1.3
"""What is so many times as slow beside its peer as in the table that is committed is printed in red."""
RED, PLAIN = "\033[31m", "\033[0m"

Table = dict[str, dict[str, str]]


def main() -> None:
    """Make the tables that are not of this commit yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"which of {', '.join(TABLES)} (all)")
    parser.add_argument("--compare", action="store_true", help="make nothing")
    given = parser.parse_args()
    if unknown := sorted(set(given.tables) - TABLES.keys()):
        parser.error(f"Expected TABLE to be one of {', '.join(TABLES)}, but got {', '.join(unknown)}.")
    for name in given.tables or TABLES:
        file = HERE / f"{name}.md"
        if not given.compare and not is_of(file, stamp()):
            start = time.monotonic()
            make(name)
            print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        for finding in compared(read(file.read_text(encoding="utf-8")), read(committed(file.name))):
            print(f"{RED if sys.stdout.isatty() else ''}{name}: {finding}{PLAIN if sys.stdout.isatty() else ''}")


def make(name: str) -> None:
    """Run a script, which writes its table only when it is complete."""
    command = [sys.executable, str(HERE / f"{name}.py"), *TABLES[name]]
    if name in PRINTED:
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        (HERE / f"{name}.md").write_text(f"{text.rstrip()}\n", encoding="utf-8")
    else:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def is_of(file: Path, commit: str) -> bool:
    """Return True if a table is of a commit and this machine; with changes that are not committed it never is."""
    lines = file.read_text("utf-8").splitlines() if file.exists() and not commit.endswith("+") else []
    return any(f" of {processor()}: " in line and commit in re.split("[;,.] ?", line) for line in lines)


def committed(name: str) -> str:
    """Return a table as it is committed, nothing if it is not."""
    command = ["git", "show", f"HEAD:./{name}"]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=HERE).stdout


def read(text: str) -> Table:
    """Return the cells of a page's tables by row and column; a row is named by its heading and its first cell."""
    rows: Table = {}
    heading, columns = "", []
    for line in text.splitlines():
        if line.startswith("## "):
            heading = f"{line[3:]}: "
        cells = [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []
        if columns and set(cells) - {"---"}:
            rows[heading + cells[0]] = dict(zip(columns, cells, strict=False))
        columns = (columns or cells) if cells else []
    return rows


def compared(new: Table, old: Table) -> Iterator[str]:
    """Say of each row what is slower than a peer, and what is slower beside it than it was.

    Example:
        >>> list(compared({"MMD": {"× KID": "0.90"}}, {"MMD": {"× KID": "1,200 (extrapolated)"}}))
        ['MMD: 0.90 × KID', 'MMD: 0.90 × KID, but 1,200 × KID in the committed table']
    """
    for name, row in new.items():
        for peer, cell in row.items():
            ratio, before = ratio_in(cell), ratio_in(old.get(name, {}).get(peer, ""))
            if not peer.startswith("×") or ratio is None:
                continue
            if ratio < 1:
                yield f"{name}: {cell} {peer}"
            if before is not None and before > SLOWER * ratio:
                yield f"{name}: {cell} {peer}, but {old[name][peer].split(' ')[0]} {peer} in the committed table"


def ratio_in(cell: str) -> float | None:
    """Return the number that a cell begins with, None if there is none."""
    found = re.match(r"[\d,]*\.?\d+", cell)
    return float(found[0].replace(",", "")) if found else None


if __name__ == "__main__":
    main()

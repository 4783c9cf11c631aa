# SPDX-License-Identifier: Apache-2.0
"""Reading the command line and running one command."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from genmonitor.cli.showing.progress import working

VALUE_DIFFERS, INPUT_IS_WRONG, CRASHED, INTERRUPTED = 1, 2, 3, 130
"""Exit statuses; that of argparse for wrong arguments is 2 too, and that of a shell for Ctrl-C is 130."""
COMMANDS = {
    "compare": "compare generated with real images: which regions differ, or which of two sets is closer",
    "diversity": "how varied a set of images, texts or embeddings is, and how much of that its prompts explain",
    "disagreement": "find out what two models do differently, and at which prompts",
    "w1kp": "say how alike the outputs of each prompt are, the least varied first",
    "clusters": "find out which pixels of a set of images belong together",
    "replay": "measure a logged value again from its manifest and a checkpoint",
    "sweep": "evaluate the checkpoints of a run, as if a monitor had been there",
    "report": "make the report.html of a run again, or compare two runs on one page",
}
EXAMPLES = """examples:
  genmonitor compare photos/ generated/ --size 64 --n-clusters 5
  genmonitor compare photos/ new_model/ old_model/ --size 64
  genmonitor diversity generated/ --prompts prompts.csv --real photos/ --encoder dinov2
  genmonitor disagreement new_model/ old_model/ --prompts prompts.txt --encoder clip --text-encoder clip
  genmonitor w1kp generated/ --prompts prompts.txt --encoder dreamsim --calibration cdf-xy.pt
  genmonitor clusters data.npz:train_images
  genmonitor report runs/dcgan-digits/version_0
  genmonitor report runs/dcgan-digits/version_0 runs/dcgan-digits/version_1
  genmonitor replay runs/dcgan-digits/version_0/genmonitor/cms_evaluation_00012.json \\
      --checkpoint runs/dcgan-digits/version_0/checkpoints/best-epoch=55.ckpt
  genmonitor sweep lightning_logs/version_3 --setup train.py:build

images: 8 bits per channel, read upright by the orientation their camera noted, what is transparent over white;
files with several frames are refused

exit status: 0 if all went well, 1 if a replayed value differs, 2 if something given is wrong, 3 after a crash, which is
a fault of genmonitor's and shows where
"""


class _Version(argparse.Action):
    """Prints the version; argparse's own action would look it up for every command."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        import genmonitor

        print(f"genmonitor {genmonitor.__version__}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: what stands behind `genmonitor`; None for the command line's.

    Returns:
        The exit status: 0 if all went well, 1 if a replayed value differs, 2 if something given is wrong, 3 after a
        crash.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # paths and prompts may hold what a terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(
        prog="genmonitor",
        description="Says where an image generator is wrong and what it fails to vary.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name in given:  # the others' imports would take seconds
            with working("loading torch"):
                module = importlib.import_module(f"genmonitor.cli.{name}")
            module.add_arguments(command)
        command.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args(given)
    chosen = importlib.import_module(f"genmonitor.cli.{args.command}")
    try:
        result = chosen.run(args)
        said = json.dumps(result, indent=1) if args.json else _in_words(chosen, result)
    except KeyboardInterrupt:
        print(f"genmonitor {args.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (OSError, ValueError, ModuleNotFoundError) as error:
        print(f"genmonitor {args.command}: {error}", file=sys.stderr)
        return INPUT_IS_WRONG
    except Exception:
        traceback.print_exc()
        return CRASHED
    print(said)
    return 0 if result.get("same", True) else VALUE_DIFFERS


def _in_words(command: Any, result: dict[str, Any]) -> str:
    """Return a result in color for a terminal, where the command has that; plain for a file or a pipe."""
    from rich.console import Console

    console = Console()
    colored = console.color_system is not None and not console.no_color
    if not colored or not hasattr(command, "shown"):  # without colors the map would say nothing
        return str(command.said(result))
    with console.capture() as captured:
        console.print(command.shown(result))
    return captured.get().rstrip("\n")

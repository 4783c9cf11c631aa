# SPDX-License-Identifier: Apache-2.0
"""The command line: runs a command, prints its result, and turns errors and signals into exit statuses."""

from __future__ import annotations

import importlib
import io
import os
import re
import signal
import sys
import threading
import traceback
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from textwrap import TextWrapper
from typing import Any, NoReturn

from genmonitor._io import as_json, printable
from genmonitor.cli.processes import Group, launcher_hidden, processes_of, progress_shows, show_progress

FAILED, WRONG_INPUT, CRASHED, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143
"""Exit statuses: 2 as in argparse for wrong arguments; 130 and 143 as in a shell for Ctrl-C and SIGTERM."""
COMMANDS = {
    "compare": "find the regions where generated images differ from real ones, or which of two sets is closer",
    "diversity": "measure the variety of images or embeddings, and the part that their prompts explain",
    "disagreement": "find the prompts for which two models differ, and the differences",
    "replay": "measure the values of a run again by one of its checkpoints",
    "sweep": "evaluate the checkpoints of a run as a monitor would have done during training",
    "best": "print the best checkpoint of a run",
    "report": "write the report.html of a run again",
}
SHARED = ("compare", "diversity", "disagreement", "sweep")
NO_BREAK = "\N{NO-BREAK SPACE}"
TOGETHER = re.compile("(?<=[=<×+−±]) | (?=[=<×%±])")
"""Spaces within a value, such as "p = 0.001", where no line ends."""

EXAMPLES = """examples:
  genmonitor compare photos/ generated/ --size 64 --n-clusters 5
  genmonitor compare photos/ new_model/ old_model/ --size 64
  genmonitor diversity generated/ --prompts prompts.csv --real photos/ --encoder dinov2
  genmonitor sweep lightning_logs/version_3 --setup train.py:build

images: 8 bits per channel, rotated by their EXIF orientation, transparent parts over white; files
with several frames are refused

exit status: 0 on success, 1 if a replayed value differs or a condition of --fail-if holds, 2 if an
argument or a file is wrong, 3 after a crash (a bug in genmonitor), 130 after Ctrl-C, 143 after
SIGTERM
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Words after `genmonitor`; None for those of the command line.

    Returns:
        Exit status: 0 on success, 1 if a replayed value differs or a condition of --fail-if holds, 2 if an argument or
        a file is wrong. It is 3 after a crash, 130 after Ctrl-C and 143 after SIGTERM.
    """
    with launcher_hidden() as launched:
        return _main(list(sys.argv[1:] if arguments is None else arguments), launched)


def _main(words: list[str], launched: Mapping[str, str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # paths and prompts may hold characters that a terminal lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    text, as_typed = "Reports where an image generator is wrong and what it fails to vary.", RawDescriptionHelpFormatter
    parser = ArgumentParser(prog="genmonitor", description=text, epilog=EXAMPLES, formatter_class=as_typed)
    said = f"genmonitor {version('genmonitor')}"
    parser.add_argument("--version", action="version", version=said, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name in words:  # the others' imports would take seconds
            try:
                with show_progress("loading torch", piped=False):
                    module = importlib.import_module(f"genmonitor.cli.{name}")
            except ValueError as error:  # of a library's variable, such as MPLBACKEND
                command.error(f"an environment variable or a settings file of a library is wrong: {error}")
            module.add_arguments(command)
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        command.add_argument("--quiet", action="store_true", help="print only the finding, without progress")
        if name in SHARED:
            text = "share the work with the processes that torchrun or Slurm's srun started (default: one process)"
            command.add_argument("--distributed", action="store_true", help=text)
    args = parser.parse_args(words)
    return _run(importlib.import_module(f"genmonitor.cli.{args.command}"), args, words, launched)


def _run(command: Any, args: Namespace, words: Sequence[str], launched: Mapping[str, str]) -> int:
    """Run a command, print its result or error, and return the exit status."""
    from genmonitor.distributed import FailedElsewhereError

    message: str | None = None
    group, text, kept = Group(), "", getattr(command, "KEPT_WHEN_STOPPED", "")
    with _sigterm_raises(), ExitStack() as working:
        try:
            group = working.enter_context(processes_of(args, words, launched))
            working.callback(progress_shows, True)  # for the next command of this process
            progress_shows(group.rank == 0 and not args.quiet)
            result, text = command.run(args)
            text = _format(args, result, text)
            failed = ",\n  ".join(x["reason"] for x in result.get("failed", ()))
            message = f"failed: {failed}" if failed else None
            status = 0 if result.get("same", True) and not failed else FAILED
        except KeyboardInterrupt:
            message, status = f"interrupted{kept}", INTERRUPTED
        except FailedElsewhereError as error:
            if group.store is not None:
                return 0  # after a failure torchrun would end the process that reports the reason
            message, status = str(error), WRONG_INPUT
        except (OSError, ValueError, ModuleNotFoundError) as error:
            message, status = str(error), WRONG_INPUT
            if isinstance(error, OSError) and error.filename is not None:
                message = f"Expected a file or folder that can be used, but {error.filename}: {error.strerror}."
        except Exception as error:
            # the message names what was given and what to do; the other are Lightning's, of the user's setup
            clear = str(error).startswith("Expected ") or type(error).__name__ == "MisconfigurationException"
            message, status = (str(error), WRONG_INPUT) if clear else (traceback.format_exc().rstrip(), CRASHED)
        except SystemExit as stop:
            if stop.code != TERMINATED:
                raise
            message, status = f"terminated by SIGTERM{kept}", TERMINATED
        if status in (0, FAILED):
            if group.rank > 0:
                return 0
            _print(text)
        elif not group.is_first_to_end():
            return 0
        elif group.rank > 0 and status in (INTERRUPTED, TERMINATED):
            return status
        if message is not None:
            said = message if status == CRASHED else f"genmonitor {args.command}: {message}"
            print(printable(said), file=sys.stderr)
    return status


def _print(text: str) -> None:
    """Print a result; ignore readers that have closed the pipe, such as `head`."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest would fail again on exit


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Raise SystemExit at SIGTERM inside the block, to clean up files and processes."""
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return

    def terminate(*_: object) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _format(args: Namespace, result: dict[str, Any], text: str) -> str:
    """Return a result as JSON, as tables for other programs, as its first line, or as text with wrapped lines."""
    from genmonitor.findings.tables import terminal_width

    if args.json:
        return as_json(result)
    whole = getattr(args, "format", None) is not None
    lines = printable(text).split("\n")[: 1 if args.quiet and not whole else None]
    if whole:
        return "\n".join(lines)
    width = terminal_width()
    wrapper = TextWrapper(width, break_long_words=False, break_on_hyphens=False)

    def wrapped(line: str) -> str:
        has_path = max(map(len, line.split()), default=0) > width / 2  # which is copied or searched for as a line
        return line if len(line) <= width or has_path else wrapper.fill(TOGETHER.sub(NO_BREAK, line))

    return "\n".join(map(wrapped, lines)).replace(NO_BREAK, " ")

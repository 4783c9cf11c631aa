# SPDX-License-Identifier: Apache-2.0
"""What each of two processes does that are told to stop while one part of an evaluation takes a minute."""

import os
import signal
import sys
import threading
import time

from genmonitor._stop import StopEvaluation, stops_when
from genmonitor.distributed import MissingProcessError, current_processes

PARTS = ("by both alone", "by the first", "by both in step")


class OwnEnd(BaseException):
    """What only its author knows."""


def raises(error):
    """Raise an error where an expression is needed."""
    raise error


ENDS = {
    "SystemExit: 3": lambda: sys.exit(3),
    "SystemExit: 0": lambda: sys.exit(0),
    "SystemExit: all done": lambda: sys.exit("all done"),
    "OwnEnd: x": lambda: raises(OwnEnd("x")),
}


def end(rank):
    """Return what each process raises where the second one ends in its part, by the reason."""
    comm, said = current_processes(), {}
    for reason, ends in ENDS.items():
        try:
            with comm.all_ranks_or_none():
                _ = rank and ends()
        except BaseException as error:
            said[reason] = f"{type(error).__name__}: {error}"
    return said


def interrupted_second(rank):
    """Return what each process raises where the second is interrupted in its part."""
    try:
        with current_processes().all_ranks_or_none():
            _ = rank and raises(KeyboardInterrupt())
    except (KeyboardInterrupt, MissingProcessError) as error:
        return f"{type(error).__name__}: {error}"


def interrupted_first(rank):
    """Return what each process raises where the first is interrupted in its part for all."""
    try:
        current_processes().from_rank_zero(lambda: raises(KeyboardInterrupt()))
    except (KeyboardInterrupt, MissingProcessError) as error:
        return f"{type(error).__name__}: {error}"


INTERRUPTED = {1: interrupted_second, 0: interrupted_first}
"""What to run in each process where one is interrupted, by its rank."""


def leave(rank):
    """Return the seconds after which each part was left, by name."""
    comm, seconds = current_processes(), {}
    for part in PARTS:
        received = []
        signal.signal(signal.SIGTERM, lambda number, frame, notes=received: notes.append(number))
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
        start = time.monotonic()
        try:
            with stops_when(lambda notes=received: bool(notes), alone=False), comm.all_ranks_or_none():
                if part == "by the first":
                    comm.from_rank_zero(lambda: time.sleep(30))
                elif part == "by both alone":
                    with comm.all_ranks_or_none(alone=True):
                        time.sleep(30 if rank else 0)
                else:
                    for _ in range(100):  # metrics that talk to each other
                        with comm.all_ranks_or_none():
                            comm.gather(time.sleep(0.3))
        except StopEvaluation:
            seconds[part] = time.monotonic() - start
    return seconds

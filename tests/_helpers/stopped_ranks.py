# SPDX-License-Identifier: Apache-2.0
"""What each of two processes does that are told to stop while one part of an evaluation takes a minute."""

import os
import signal
import threading
import time

from genmonitor._stop import StopEvaluation, stops_when
from genmonitor.distributed import current_processes

PARTS = ("by both alone", "by the first", "by both in step")


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

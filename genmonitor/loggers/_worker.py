# SPDX-License-Identifier: Apache-2.0
"""The script of the process that `background.py` starts; nothing of the package is imported before it is needed.

It reads pickled functions without arguments, runs one after the other, and answers each with what it returned, or with
nothing where it raised. It ends with its input, and with the process whose id it is given: it does not outlive the
training.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time


def main() -> None:
    """Run what comes until nothing more does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training, which still wants its figures
    threading.Thread(target=end_with, args=[int(sys.argv[1])], daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(5)
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed must not come between the replies
    sys.path[:] = pickle.load(requests)
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        try:
            reply = pickle.dumps(pickle.loads(request)())
        except Exception:  # the training process tries it itself, and says what is wrong
            reply = None
        pickle.dump(reply, replies)
        replies.flush()


def end_with(parent: int) -> None:
    """End once the parent has: while a fork of it lives, the input stays open."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The script of the process that `background.py` starts; nothing of the package is imported before it is needed.

It reads pickled functions without arguments, runs one after the other, and answers each with what it returned, or with
nothing where it raised. It ends with its input, so it does not outlive the training.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys


def main() -> None:
    """Run what comes until nothing more does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training, which still wants its figures
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


if __name__ == "__main__":
    main()

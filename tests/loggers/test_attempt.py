# SPDX-License-Identifier: Apache-2.0
import errno

import pytest

from genmonitor.loggers.attempt import Attempt

FULL = [OSError(errno.ENOSPC, "No space left on device", name) for name in ("a.png", "b.png")]
READ_ONLY = OSError(errno.EROFS, "Read-only file system")


def fails(error):
    def part():
        raise error

    return part


def test_each_kind_of_failure_is_said_once():
    said = []
    attempt = Attempt(said.append)
    for error in (*FULL, READ_ONLY, *FULL):
        attempt(fails(error))
    beginning = "part of an evaluation could not be shown or written. OSError: "
    assert said == [f"{beginning}{error}" for error in (FULL[0], READ_ONLY)]
    attempt.start()
    attempt(fails(FULL[0]))
    assert said[2:] == said[:1]


def test_a_mistake_in_code_is_said_with_where_it_is():
    said = []
    Attempt(said.append)(fails(KeyError("lost")))
    assert "Traceback" in said[0]
    assert "test_attempt.py" in said[0]


def test_failures_are_raised_where_they_shall_be():
    with pytest.raises(OSError, match="No space left"):
        Attempt(print, raise_errors=True)(fails(FULL[0]))


def test_ctrl_c_is_never_caught():
    with pytest.raises(KeyboardInterrupt):
        Attempt(print)(fails(KeyboardInterrupt()))

# SPDX-License-Identifier: Apache-2.0
"""Ownership: tells the user's own objects, classes and functions from those of libraries."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from io import IOBase
from itertools import chain
from pathlib import Path
from threading import Thread
from types import CodeType
from typing import Any

from torch import nn
from torch.amp import GradScaler
from torch.distributions import Distribution
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.quasirandom import SobolEngine
from torch.utils.data import Dataset

from genmonitor.training_state.entries import Names

OURS = __name__.split(".")[0]
FOREIGN = (
    *("torch", "lightning", "pytorch_lightning", "wandb", "mlflow"),
    *("builtins", "functools", "typing", "logging", "threading", "queue", "multiprocessing", "concurrent"),
)
"""Packages whose objects may be attributes of modules without being the user's state, such as the Trainer, a run or
objects of other threads.
"""
OWN_STATE = (nn.Module, Optimizer, LRScheduler, GradScaler, Distribution, SobolEngine, Dataset)
"""Classes of torch whose objects count as the user's."""


def has_state(thing: Any) -> bool:
    """Return True for a module, a dataset, or an object with items like a dataset."""
    return isinstance(thing, OWN_STATE) or hasattr(type(thing), "__getitem__")


def is_plain(value: Any) -> bool:
    """Return True for a user's own object with attributes, and for a module that is not a submodule."""
    if isinstance(value, OWN_STATE):
        return True
    return not isinstance(value, type) and package_of(type(value)) not in FOREIGN


def records_in(items: Iterable[Any]) -> list[Any]:
    """Return the dictionaries, the lists and the attributes of the user's own objects among items and in their pairs.

    Objects that hold a file or a thread are left out.
    """
    out: list[Any] = []
    for item in chain.from_iterable(x if type(x) is tuple else (x,) for x in items):
        if type(item) in (dict, list):
            out.append(item)
        elif hasattr(item, "__dict__") and is_users_code(type(item).__module__):
            out += [] if any(isinstance(x, (IOBase, Thread)) for x in vars(item).values()) else [vars(item)]
    return out


def package_of(kind: type) -> str:
    """Return the top-level package of a class."""
    return str(kind.__module__).split(".")[0]  # of some compiled by Cython it is a descriptor


@lru_cache(maxsize=1000)
def is_users_code(module: str | None) -> bool:
    """Return True for the name of a module that does not belong to an installed package."""
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    if str(module).split(".")[0] in (*FOREIGN, OURS):
        return False
    return module == "__main__" or (file is not None and not in_library(file))


def in_library(file: str) -> bool:
    """Return True for a file of an installed package or of Python."""
    return not {"site-packages", "dist-packages", Path(sysconfig.get_path("stdlib")).name}.isdisjoint(Path(file).parts)


def variables_named(namespace: dict[str, Any], named: set[str]) -> Names:
    """Return the variables of a namespace with one of these names."""
    return replace(Names.of(namespace), read=lambda: {x: namespace[x] for x in named if x in namespace})


def names_in(code: CodeType) -> set[str]:
    """Return the global names used by a function and the functions inside it."""
    inside = (names_in(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inside)

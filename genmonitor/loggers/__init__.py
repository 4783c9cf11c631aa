# SPDX-License-Identifier: Apache-2.0
"""Experiment loggers: one interface, one file per kind. Files in this folder are discovered."""

from importlib import import_module
from pkgutil import iter_modules

from genmonitor.loggers.backend import Backend
from genmonitor.loggers.facade import Loggers

for _module in iter_modules(__path__):  # each defines its backend, which registers it
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Backend", "Loggers"]

# SPDX-License-Identifier: Apache-2.0
"""Presenters with methods of a test's own."""

from functools import partial


def present_with(evaluator, **methods):
    """Have an evaluator's presenters take these methods in place of their own; return the evaluator."""
    # not a function made here, with which no process could be spawned
    evaluator.presenter = partial(changed_presenter, evaluator.presenter, methods)
    return evaluator


def changed_presenter(make, methods):
    made = make()
    for name, method in methods.items():
        object.__setattr__(made, name, method)  # they are frozen
    return made


def no_figures(*args):
    return {}


def without_figures(evaluator):
    """Return an evaluator without its figures, which take most of a tiny run's time."""
    return present_with(evaluator, fit_figures=no_figures, figures=no_figures)

# SPDX-License-Identifier: Apache-2.0
"""Presenters with methods of a test's own."""


def present_with(evaluator, **methods):
    """Have an evaluator's presenters take these methods in place of their own; return the evaluator."""
    make = evaluator.presenter

    def presenter():
        made = make()
        for name, method in methods.items():
            object.__setattr__(made, name, method)  # they are frozen
        return made

    evaluator.presenter = presenter
    return evaluator


def no_figures(*args):
    return {}


def without_figures(evaluator):
    """Return an evaluator without its figures, which take most of a tiny run's time."""
    return present_with(evaluator, fit_figures=no_figures, figures=no_figures)

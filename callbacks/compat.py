# SPDX-License-Identifier: Apache-2.0
"""Private parts of Lightning that monitors depend on, each with the reason why there is no public way.

Arguments are untyped if a private part is read, which Lightning's own types do not declare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import NoneType
from typing import Any, NamedTuple

from torch import Tensor

from genmonitor.training_state.rng import State


def logged_step(trainer: Any, pl_module: Any) -> int:
    """Return the current logging step of Lightning: the number of batches after which an optimizer stepped.

    `global_step` differs from it with several optimizers. The last batch of an epoch is counted before
    `on_train_epoch_end`, and uncounted again when Lightning logs.
    """
    stepped: int = trainer.fit_loop.epoch_loop._batches_that_stepped
    return stepped - (pl_module._current_fx_name == "on_train_epoch_end")


@contextmanager
def logs_discarded(pl_module: Any, note: Callable[[str], Any]) -> Iterator[None]:
    """Collect the keys that a module logs inside the block, and log nothing.

    Otherwise the hook that evaluates would log it, and Lightning ends a run for options not allowed there.
    """
    base: Any = next(kind for kind in type(pl_module).__mro__ if kind.__name__ == "LightningModule")
    log = base.log
    base.log = lambda module, name, *_, **__: note(
        f"what `sample` logs as {name!r} is discarded, since it would have changed the training's values. Log it in "
        "`training_step` or `validation_step`"
    )
    try:
        yield
    finally:
        base.log = log


def logged_state(trainer: Any) -> State:
    """Return a function that reads the logged values for callbacks, and one that restores them.

    The public dictionaries are computed from others at every access, which may need a sum over all processes.
    """
    connector, results = trainer._logger_connector, trainer._results
    collection: dict[str, Any] = {} if results is None else results
    dictionaries = connector._callback_metrics, connector._logged_metrics, connector._progress_bar_metrics, collection
    attributes = [vars(thing) for thing in (connector, *collection.values())]
    before = [(now, dict(now)) for now in (*dictionaries, *attributes)]

    def read() -> dict[str, float]:
        logged = {key: metric.value for key, metric in collection.items() if isinstance(metric.value, Tensor)}
        names = tuple(metric.meta.name for metric in collection.values())
        given = {key: value for key, value in connector._callback_metrics.items() if not key.startswith(names)}
        return {key: float(value) for key, value in (logged | given).items()}

    def put_back(_: Any) -> None:
        for now, items in before:
            now.clear()
            now.update(items)

    return read, put_back


def trainer_states(trainer: Any) -> dict[str, State]:
    """Return getters and setters of the settings of a Trainer, such as `max_epochs`, and of its progress.

    `should_stop` is not included, since a signal handler may set it at any moment.
    """
    loop = trainer.fit_loop
    states: dict[str, State] = {
        f"the Trainer's {name}": (partial(getattr, owner, name), partial(setattr, owner, name))
        for owner in (trainer, loop, loop.epoch_loop)
        for name, value in vars(owner).items()
        if name[0] != "_" and name != "should_stop" and isinstance(value, (int, float, str, NoneType))
    }
    states["the Trainer's strategy"] = attributes_of(trainer._accelerator_connector)
    states["the attributes of the Trainer's strategy"] = attributes_of(trainer.strategy)
    for name in ("callbacks", "optimizers", "lr_scheduler_configs", "loggers"):
        states[f"the Trainer's {name}"] = _items_of(partial(getattr, trainer, name))
    for name, part in _counters(loop).items():
        states[f"the Trainer's {name.rpartition('.')[2]}"] = part.state_dict, part.load_state_dict
    return states


def attributes_of(thing: Any) -> State:
    """Return a getter and a setter of the attributes of an object, which are compared by identity or as numbers."""
    namespace = vars(thing)
    before = dict(namespace)

    def put_back(_: Any) -> None:
        namespace.clear()
        namespace.update(before)

    return lambda: {x: y if isinstance(y, (int, float, str)) else id(y) for x, y in namespace.items()}, put_back


def _items_of(get: Callable[[], list[Any]]) -> State:
    items = list(get())
    return lambda: [id(item) for item in get()], lambda _: get().__setitem__(slice(None), items)


def batches_seen(trainer: Any) -> tuple[int, int]:
    """Return the number of training batches seen in this fit, and in this epoch.

    The loops are public but their counters are undocumented, and no hook gets both numbers.
    """
    loop = trainer.fit_loop
    return loop.total_batch_idx + 1, loop.epoch_loop.batch_progress.current.ready


def ends_here(trainer: Any) -> bool:
    """Return True if no training batch follows, according to the limits of the Trainer.

    Lightning checks the same at the end of a loop; its check has no public name, and logs a message.
    """
    loop = trainer.fit_loop
    if trainer.should_stop and loop._can_stop_early:
        return True
    if -1 < trainer.max_steps <= trainer.global_step:
        return True
    limited = trainer.max_epochs is not None and trainer.max_epochs >= 0
    over = loop.epoch_loop.batch_progress.is_last_batch
    return bool(limited and over and trainer.current_epoch + 1 >= trainer.max_epochs)


class TrainingProgress(NamedTuple):
    """Progress of a training at its last due evaluation.

    Attributes:
        epoch: Epoch, counted from 0.
        step: Logging step of Lightning, see `logged_step`.
        batches: Number of training batches seen.
    """

    epoch: int
    step: int
    batches: int


def progress_in(loops: Mapping[str, Any]) -> TrainingProgress:
    """Return the progress of a training from the state of its fit loop, in a checkpoint under "loops".

    Lightning does not document its content. At the end of an epoch, and after the training, the last batch counts as a
    step; at the end of its validation it does not.
    """
    epochs, batches = loops["epoch_progress"]["current"], loops["epoch_loop.batch_progress"]
    over = 0 < epochs["ready"] == epochs["processed"]
    step = loops["epoch_loop.state_dict"]["_batches_that_stepped"] - over
    return TrainingProgress(max(epochs["ready"], 1) - 1, step, batches["total"]["ready"])


@contextmanager
def at_progress(trainer: Any, loops: Mapping[str, Any]) -> Iterator[TrainingProgress]:
    """Set the fit loop of a Trainer to this state and progress inside the block, since samples may depend on it.

    `current_epoch`, `global_step` and the batches have no setters, and a loop that loads a whole state expects to
    continue from there.
    """
    loop = trainer.fit_loop
    parts = _counters(loop)
    before, stepped = {name: part.state_dict() for name, part in parts.items()}, loop.epoch_loop._batches_that_stepped
    progress = progress_in(loops)
    for name, part in parts.items():
        part.load_state_dict(loops[name])
    loop.epoch_progress.current.completed = progress.epoch
    loop.epoch_loop._batches_that_stepped = progress.step
    try:
        yield progress
    finally:
        for name, part in parts.items():
            part.load_state_dict(before[name])
        loop.epoch_loop._batches_that_stepped = stepped


def _counters(loop: Any) -> dict[str, Any]:
    """Return the counters of epochs, batches and steps in a fit loop, by their key in a checkpoint."""
    batches = loop.epoch_loop
    return {
        "epoch_progress": loop.epoch_progress,
        "epoch_loop.batch_progress": batches.batch_progress,
        "epoch_loop.automatic_optimization.optim_progress": batches.automatic_optimization.optim_progress,
        "epoch_loop.manual_optimization.optim_step_progress": batches.manual_optimization.optim_step_progress,
    }


def validation_dataloaders(trainer: Any) -> Any:
    """Return the validation loaders; None without validation.

    `val_dataloaders` is None until the first validation, which may follow the first evaluation; they are then
    requested.
    """
    loaders = trainer.val_dataloaders
    if loaders is None and trainer.enable_validation:
        loaders = trainer.fit_loop.epoch_loop.val_loop._data_source.dataloader()
    return loaders


def given_dataloaders(trainer: Any) -> tuple[Any, Any] | None:
    """Return the training and validation loaders given to `fit`; None if a hook made one of them.

    The public attributes of the Trainer have loaders with replaced samplers. In a CombinedLoader Lightning replaces
    loaders in place, so that the given ones are lost.
    """
    sources = [loop._data_source for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop.val_loop)]
    if any(source.is_module() or hasattr(source.instance, "flattened") for source in sources):
        return None
    return sources[0].instance, sources[1].instance


def weight_averagings(trainer: Any) -> list[Any]:
    """Return the Trainer's WeightAveraging callbacks.

    They are found by name, since `lightning` and `pytorch_lightning` have unrelated classes of this name.
    """
    return [c for c in trainer.callbacks if "WeightAveraging" in {base.__name__ for base in type(c).__mro__}]


def find_weight_averaging(trainer: Any) -> Any:
    """Return the Trainer's WeightAveraging callback, or None."""
    return next(iter(weight_averagings(trainer)), None)


def averaged_model(averaging: Any) -> Any:
    """Return the averaged model of a WeightAveraging callback, which has no public name; None before it exists."""
    return None if averaging is None else averaging._average_model

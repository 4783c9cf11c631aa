# SPDX-License-Identifier: Apache-2.0
"""Drawing samples from a generator: the same global set at every evaluation, for any processes and batch size."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from genmonitor._io import Progress, no_progress, say, warn
from genmonitor._validation import check_at_least, check_callable, check_images
from genmonitor.distributed import Collective
from genmonitor.images.lockstep import Lockstep
from genmonitor.images.model import SampledModel, suggested_call
from genmonitor.images.prompts import Prompts
from genmonitor.images.seeding import SeededRows, sample_seed
from genmonitor.training_state.fingerprints import fingerprint_of
from genmonitor.training_state.proof import preserve_code
from genmonitor.training_state.rng import seed_everything
from genmonitor.training_state.sharding import gather, sharded_parts

SampleFn = Callable[[Any, Any], Tensor]
"""Function from a module and a number, or prompts, to images."""


@dataclass(frozen=True, eq=False)
class Samples:
    """This process's part of the generated images.

    Attributes:
        images: Images [n, C, H, W].
        indices: Indices of the samples in the global set, int64 [n].
    """

    images: Tensor
    indices: Tensor

    def of_rank(self, comm: Collective) -> Samples:
        """Return this process's part of samples that every process holds."""
        mine = comm.rank_indices(len(self.indices))
        return Samples(self.images[mine.start : mine.stop], self.indices[mine.start : mine.stop])


class Sampler:
    """Draws a monitor's samples.

    Args:
        n_samples: Size of the global set.
        prompts: Prompts, where sample i has prompt i modulo their number; None for samples without prompts.
        sample_fn: Function from (module, n) to n images or, with prompts, from (module, prompts) to an image for each.
            None for the module's method `sample(n)` or `sample_prompts(prompts)`.
        batch_size: Number of samples per call of it.
        seed: Seed of the whole set.
    """

    def __init__(
        self,
        n_samples: int,
        prompts: Prompts | Sequence[str] | Sequence[int] | Tensor | None = None,
        sample_fn: SampleFn | None = None,
        batch_size: int = 100,
        seed: int = 0,
    ) -> None:
        self.n_samples = check_at_least("n_samples", n_samples, 2)
        self.prompts = None if prompts is None else Prompts.from_any(prompts)
        check_callable("sample_fn", sample_fn, "of (module, n) or (module, prompts)")
        self.sample_fn = sample_fn
        self.batch_size = check_at_least("sample_batch_size", batch_size, 1)
        self.seed = check_at_least("seed", seed, 0)
        self._shape: tuple[int, ...] = ()

    def settings(self) -> dict[str, Any]:
        """Return the settings of samples, besides the weights, as plain Python."""
        prompts = None if self.prompts is None else list(self.prompts.values)
        return {"n_samples": self.n_samples, "seed": self.seed, "prompts": prompts}

    def resolve(self, model: SampledModel) -> Callable[[list[int]], Tensor]:
        """Return the function from indices of the global set to images; raise ValueError if there is none."""
        prompts = self.prompts
        if prompts is None:
            sample = _find_method(self.sample_fn, model, "sample", "n", "n")
            return lambda indices: sample(len(indices))
        wanted = "prompts, a list of strings or labels as an int64 tensor [n],"
        of_prompts = _find_method(self.sample_fn, model, "sample_prompts", "prompts", wanted)
        return lambda indices: of_prompts(prompts.of(indices, model.device))

    def draw(
        self, model: SampledModel, indices: Iterable[int], progress: Progress = no_progress, repair: bool = False
    ) -> Tensor:
        """Generate the samples of these indices of the global set, [len(indices), C, H, W].

        With `repair`, NaN and infinities are replaced by numbers instead of raising an error.
        """
        indices = list(indices)
        sample, lockstep = self.resolve(model), Lockstep(model.module, model.device)
        drawn = lockstep.share(indices)
        batches = [drawn[i : i + self.batch_size] for i in range(0, len(drawn), self.batch_size)]
        if not batches:
            return torch.empty(0, *self._shape, device=model.device)
        functions = {"`sample_fn`": self.sample_fn, "`sample`": model.sample_fn}
        with model.precision(), preserve_code(functions, model.module):
            shown = progress(batches, "sampling")
            images = torch.cat([draw_batch(sample, batch, self.seed, lockstep, repair) for batch in shown])
        if drawn != indices:
            rows = {index: row for row, index in reversed([*enumerate(drawn)])}
            images = images[[rows[index] for index in indices]]
        images = images.to(model.device)  # device of the communication
        self._shape = tuple(images.shape[1:])
        return images

    def check_rows(self, model: SampledModel, probe: Tensor) -> tuple[str, ...]:
        """Return notes on a generator whose samples depend on the batch in which they are drawn.

        Args:
            model: Model that draws the samples.
            probe: First samples, drawn together.
        """
        count = 2  # samples to draw again in a separate batch
        if min(len(probe), self.batch_size) <= count:
            return ()
        alone = self.draw(model, range(1, 1 + count))
        difference = float((alone - probe[1 : 1 + count]).abs().mean())
        # low precision and long chains of steps amplify rounding
        if difference <= 0.05 * float(probe.std()):
            return ()
        return (
            "samples depend on the batch that they are drawn in, so values change with `sample_batch_size` and the "
            "number of processes. Draw random numbers by torch.randn, rand, randint or normal, for n samples at once "
            "with a row for each, and let no sample depend on another",
        )

    def samples(self, model: SampledModel, comm: Collective, progress: Progress = no_progress) -> Samples:
        """Return this process's samples.

        Args:
            model: Model that draws the samples.
            comm: Processes that share the samples.
            progress: Progress bar over the batches.
        """
        indices = list(comm.rank_indices(self.n_samples))
        draw = partial(self.draw, model, progress=progress)
        if model.shared_by is not None:
            fingerprints = gather(sharded_parts(model.module), weights_fingerprint(model.module))
            prompts = None if self.prompts is None else tuple(self.prompts.values)
            way = self.sample_fn if isinstance(self.sample_fn, Hashable) else id(self.sample_fn)
            request = (type(self), way, prompts, self.seed, self.batch_size, *fingerprints)
            images = draw_once(model.shared_by, request, indices, draw)
            self._shape = tuple(images.shape[1:])
        else:
            images = draw(indices)
        return Samples(images, torch.tensor(indices, dtype=torch.long, device=images.device))


def _find_method(
    sample_fn: Callable[[Any, Any], Tensor] | None, model: SampledModel, method: str, argument: str, wanted: str
) -> Callable[[Any], Tensor]:
    """Return a function that draws images from a number or from prompts; raise ValueError if there is none.

    Args:
        sample_fn: Function given by the user, or None.
        model: Model whose function takes precedence over `sample_fn`, and whose module's method comes last.
        method: Name of the method.
        argument: Argument of the function or method, for errors.
        wanted: Description of the argument, for errors.
    """
    module, returns = model.module, f"that takes {wanted} and returns images [n, C, H, W]."
    if model.sample_fn is not None:
        return _checked_call(model.sample_fn, f"`sample_fn({argument})`", argument, f"Give a function {returns}")
    place, takes = ("evaluate", argument) if model.in_loop else ("sample_fn=", f"(pl_module, {argument})")
    remedy = f"give `{place}` a function of {takes} {returns}"
    if sample_fn is not None:
        tried = f"`sample_fn(pl_module, {argument})`"
        return _checked_call(partial(sample_fn, module), tried, argument, f"Instead, {remedy}")
    tried = f"`{method}({argument})`"
    found: Callable[[Any], Tensor] | None = getattr(module, method, None)
    if not callable(found):
        conditional = method == "sample" and callable(getattr(module, "sample_prompts", None))
        asked = "Give `prompts=` for its `sample_prompts`, add one" if conditional else "Add one"
        call = suggested_call(module, "model" if model.in_loop else "m") if method == "sample" else ""
        line = f"evaluate(lambda n: {call}, model)" if model.in_loop else f"sample_fn=lambda m, n: {call}"
        example = f" Perhaps: {line}" if call else ""
        raise ValueError(
            f"Expected a way to draw images, but {type(module).__name__} has no method {tried}. {asked}, or {remedy}"
            f"{example}"
        )
    return _checked_call(found, f"`{type(module).__name__}.{method}({argument})`", argument, f"Change it, or {remedy}")


def _checked_call(function: Callable[[Any], Tensor], tried: str, argument: str, remedy: str) -> Callable[[Any], Tensor]:
    """Call a user's function, which may have any signature, and explain an error about its arguments."""
    where = ""

    def complaint(error: Exception) -> ValueError:
        said = f"{type(error).__name__}: {error}"
        return ValueError(f"Expected {tried} to draw images, but this call failed with {said}.{where} {remedy}")

    try:
        taken_as = next(iter(inspect.signature(function).bind(None).arguments), argument)
        where = "" if taken_as == argument else f" It takes {argument} as its `{taken_as}`."
    except TypeError as error:
        raise complaint(error) from error
    except ValueError:  # some compiled functions have no signature
        pass

    def call(given: Any) -> Tensor:
        try:
            images = function(given)
        except (TypeError, AttributeError, ValueError) as error:
            raise complaint(error) from error
        wanted = given if isinstance(given, int) else len(given)
        if isinstance(images, Tensor) and images.ndim == 4 and len(images) != wanted:
            advice = f"{where} Return as many as asked. {remedy}"
            raise ValueError(f"Expected {wanted} generated images, but got {len(images)}.{advice}")
        return images

    return call


def draw_batch(
    sample: Callable[[list[int]], Any], batch: list[int], seed: int, lockstep: Lockstep, repair: bool = False
) -> Tensor:
    """Draw the samples of these indices, in halves if the memory does not suffice for all at once."""
    try:
        with lockstep.batch():
            return _draw_batch(sample, batch, seed, repair)
    except Exception as error:
        if len(batch) == 1 or not any(lockstep.gather(is_out_of_memory(error))):
            raise
    # not in the handler, whose traceback still holds the memory of the failed attempt
    free_memory()
    half = len(batch) // 2
    say(
        f"There is no memory for {len(batch)} samples at once, so they are drawn {half} at a time. "
        f"Give sample_batch_size={half} to skip the failed attempts.",
        warn,
    )
    return torch.cat([draw_batch(sample, part, seed, lockstep, repair) for part in (batch[:half], batch[half:])])


def _draw_batch(sample: Callable[[list[int]], Any], batch: list[int], seed: int, repair: bool) -> Tensor:
    seeds = [sample_seed(seed, i) for i in batch]
    seed_everything(seeds[0])
    with SeededRows(seeds):
        out = sample(batch)
    if not isinstance(out, Tensor):
        raise TypeError(
            f"Expected `generated images` to be a torch.Tensor, but got {type(out).__name__}. "
            "Give `sample_fn=` a function that makes a tensor [n, C, H, W] of them."
        )
    images = check_images("generated images", out.nan_to_num() if repair else out)
    return images.clone()  # a compiled model writes the next batch into the same memory


def is_out_of_memory(error: Exception) -> bool:
    """Return True if an error means that there was not enough memory.

    Example:
        >>> is_out_of_memory(RuntimeError("MPS backend out of memory"))
        True
    """
    # of CUDA and MPS, of the CPU's allocator, and of cuDNN
    signs = ("out of memory", "can't allocate memory", "CUDNN_STATUS_NOT_SUPPORTED")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def free_memory() -> None:
    """Free unused memory of the caches."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


# by Trainer and request: images by index
_drawn: WeakKeyDictionary[Any, dict[Hashable, dict[int, Tensor]]] = WeakKeyDictionary()


def draw_once(trainer: Any, request: Hashable, indices: list[int], draw: Callable[[list[int]], Tensor]) -> Tensor:
    """Return the samples of these indices, drawing those not yet drawn for the same request.

    Args:
        trainer: Trainer whose monitors share samples.
        request: All that a sample depends on, except its index.
        indices: Indices of the samples.
        draw: Function from indices to samples [len(indices), C, H, W]. It is called even if none is missing, since
            other processes may need this one for theirs.

    Returns:
        Images [len(indices), C, H, W], which own their memory.
    """
    kept = _drawn.setdefault(trainer, {}).setdefault(request, {})
    missing = [i for i in indices if i not in kept]
    images = draw(missing)
    kept.update(zip(missing, images, strict=True))
    return torch.stack([kept[i] for i in indices]) if indices else images


def clear_samples(trainer: Any) -> None:
    """Free a Trainer's samples."""
    _drawn.pop(trainer, None)


def weights_fingerprint(module: nn.Module) -> tuple[tuple[int, ...], ...]:
    """Return the fingerprints of this process's part of each parameter and buffer."""
    return tuple(fingerprint_of(x) for x in chain(module.parameters(), module.buffers()))

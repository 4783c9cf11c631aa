# SPDX-License-Identifier: Apache-2.0
"""Datasets with a state of their own are, once a monitor has read them, as if it had not."""

import copy
import csv
import functools
import gzip
import io
import itertools
import multiprocessing
import os
import random
import sys
import tarfile
import zipfile
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import NamedTemporaryFile

import numpy as np
import pandas
import pytest
import torch
from _helpers import modules
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, default_collate

from genmonitor.images.image_set import ImageSet
from genmonitor.images.model import SampledModel
from genmonitor.images.sampler import Sampler
from genmonitor.images.streams import take_items
from genmonitor.training_state.data import preserve_data
from genmonitor.training_state.proof import Trained, prove_unchanged
from genmonitor.training_state.rng import preserve_rng

N = 12
CACHE = {}
CALLS = 0
SHARED_FLIPS = random.Random(5)


def image(value):
    return torch.full((1, 2, 2), float(value))


class Images(Dataset):
    """Images that depend on what was read before."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return image(index + 100 * self.state(index))

    def state(self, index):
        raise NotImplementedError


def dataset(make, read):
    """Return a class of datasets whose state is made at the start and moves with each image."""

    class Made(Images):
        def __init__(self):
            self.kept = make()

        def state(self, index):
            return read(self, index)

    return Made


def cached(holder, index):
    """Draw a flip, and keep it."""
    if index not in holder:
        holder[index] = random.random()
    return holder[index]


def add(self, index):
    self.kept += 1
    return self.kept


def add_to_values(self, index):
    self.kept[:1] += 1
    return float(self.kept[0])


def append(self, index):
    self.kept.append(index)
    return len(self.kept)


def at_most_three(self, index):
    value = cached(self.kept, index)
    self.kept.move_to_end(index)
    while len(self.kept) > 3:
        self.kept.popitem(last=False)
    return value


class ClassCounts(Images):
    count = 0

    def state(self, index):
        type(self).count += 1
        return self.count


class ClassCaches(Images):
    cache = {}  # noqa: RUF012

    def state(self, index):
        return cached(self.cache, index)


class ModuleCaches(Images):
    def state(self, index):
        return cached(CACHE, index)


class ModuleCounts(Images):
    def state(self, index):
        global CALLS
        CALLS += 1
        return CALLS


@functools.lru_cache(maxsize=5)
def load(index):
    return random.random()


class FunctionCaches(Images):
    def state(self, index):
        return load(index)


class MethodCaches(Images):
    @functools.cache  # noqa: B019
    def state(self, index):
        return random.random()


class StaticCaches(Images):
    @staticmethod
    @functools.cache
    def draw(index):
        return random.random()

    def state(self, index):
        return self.draw(index)


class OwnCaches(Images):
    def __init__(self):
        self.state = functools.lru_cache(None)(lambda index: random.random())


class Lazy(Images):
    @functools.cached_property
    def offset(self):
        return random.random()

    def state(self, index):
        return self.offset


class Slots(Images):
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0

    def state(self, index):
        self.count += 1
        return self.count


class Flip:
    """A transform that remembers."""

    def __init__(self):
        self.seen = {}

    def __call__(self, index):
        return cached(self.seen, index)


def closure():
    count, seen = 0, {}

    def transform(self, index):
        nonlocal count
        count += 1
        return count + cached(seen, index)

    return transform


class SharedFlips(Images):
    def state(self, index):
        return SHARED_FLIPS.random()


class OpenFile(Images):
    """Reads one byte after the other."""

    def __init__(self):
        self.file = io.BytesIO(bytes(range(250)))

    def state(self, index):
        return self.file.read(1)[0]


OPENED = []


@pytest.fixture(autouse=True)
def closed():
    yield
    while OPENED:
        OPENED.pop().close()


def on_disk(mode, suffix="", pack=None):
    """Return a file on the disk, as opened in a mode, that is read one byte or number after the other."""
    with NamedTemporaryFile("wb", suffix=suffix) as file:
        pack = pack or (lambda path: Path(path).write_bytes(bytes(range(250))))
        pack(file.name)
        opened = OPENERS.get(suffix, open)(file.name, mode)
    OPENED.append(opened)
    if mode == "w+b":
        opened.write(bytes(range(250)))
    if "+b" in mode:
        opened.seek(0)
    return opened


def tar(path):
    with tarfile.open(path, "w") as out:
        for index in range(250):
            member = tarfile.TarInfo(str(index))
            member.size = 1
            out.addfile(member, io.BytesIO(bytes([index])))


def zipped(path):
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("0", bytes(range(250)))


OPENERS = {
    ".gz": gzip.open,
    ".tar": tarfile.open,
    ".zip": lambda path, mode: zipfile.ZipFile(path, mode).open("0"),  # noqa: SIM115
}


class Reader:
    """A user's own reader, which is no dataset."""

    def __init__(self):
        self.file, self.count = on_disk("rb"), 0

    def read(self):
        self.count += 1
        return self.file.read(1)[0] + self.count


class Compiled:
    """Has the methods of a file and shows no attributes, as `pyarrow.NativeFile`."""

    __module__ = "torch"
    closed = False

    def __init__(self):
        file = io.BytesIO(bytes(range(250)))
        self.__class__ = type("Compiled", (Compiled,), {"__module__": "torch"})
        for name in ("tell", "seek", "read", "readable", "seekable"):
            setattr(type(self), name, staticmethod(getattr(file, name)))
        type(self).writable = staticmethod(bool)


def next_byte(self, index):
    return self.kept.read(1)[0]


FILES = {
    **{f"file opened {x}": dataset(functools.partial(on_disk, x), next_byte) for x in ("rb", "w+b")},
    "gzip": dataset(
        lambda: on_disk("rb", ".gz", lambda path: Path(path).write_bytes(gzip.compress(bytes(range(250))))), next_byte
    ),
    "member of a zip": dataset(lambda: on_disk("r", ".zip", zipped), next_byte),
    "tar": dataset(
        lambda: on_disk("r", ".tar", tar), lambda self, index: self.kept.extractfile(self.kept.next()).read(1)[0]
    ),
    "file of a library in C": dataset(Compiled, next_byte),
    "reader": dataset(Reader, lambda self, index: self.kept.read()),
    "files in a list": dataset(lambda: [on_disk("r+b")], lambda self, index: self.kept[0].read(1)[0]),
}


class Wrapper(Dataset):
    def __init__(self, dataset, name="dataset"):
        self.name = name
        setattr(self, name, dataset)

    def __len__(self):
        return N

    def __getitem__(self, index):
        return getattr(self, self.name)[index]


class Record:
    """A user's own object that keeps its image once it is read."""

    def __init__(self):
        self.seen = 0


LONG = {
    "list": (lambda records: records, lambda held: held[-1]),
    "dict": (lambda records: dict(enumerate(records)), lambda held: held[len(held) - 1]),
    "tuple": (tuple, lambda held: held[-1]),
    "deque": (deque, lambda held: held[-1]),
    "list of pairs": (lambda records: [(i, x) for i, x in enumerate(records)], lambda held: held[-1][1]),
    "tuple of pairs": (lambda records: tuple((x, i) for i, x in enumerate(records)), lambda held: held[-1][0]),
    "object array": (lambda records: np.array(records, dtype=object), lambda held: held[-1]),
}
"""Containers of more items than are searched in depth, and their last record."""


def objects_of_a_long(name):
    hold, find = LONG[name]

    def count(self, index):
        record = find(self.kept)
        record.seen += 1
        return record.seen

    return dataset(lambda: hold([Record() for _ in range(1100)]), count)


def count_deep_inside(self, index):
    inside = self.kept
    while "a" in inside:
        inside = inside["a"]
    inside["n"] += 1
    return inside["n"]


def count_in_record(self, index):
    self.kept[index]["n"] += 1
    return self.kept[index]["n"]


def append_to_record(self):
    self.kept[7].append(1)
    return len(self.kept[7])


def count_elsewhere(self, index):
    modules.CALLS = getattr(modules, "CALLS", 0) + 1
    return modules.CALLS


class Turns(torch.utils.data.Sampler):
    """Begins one further on each time."""

    def __init__(self):
        self.turn = 0

    def __iter__(self):
        self.turn += 1
        return iter([self.turn % 9])

    def __len__(self):
        return 1


def at_first_use(self, index):
    self.kept = self.kept or iter(DataLoader(range(1000), None, shuffle=True))
    return int(next(self.kept))


def at_first_use_of_each(self, index):
    which = index % 2
    self.kept[which] = self.kept[which] or iter(DataLoader(range(1000), None, shuffle=True))
    return int(next(self.kept[which]))


Pair = namedtuple("Pair", "first second")


@dataclass(slots=True)
class Sources:
    first: object


class InADefault(Images):
    def __init__(self):
        def state(index, kept=iter(list(range(1000)))):  # noqa: B008
            return next(kept)

        self.state = state


WITHIN = {
    "a list": (lambda x: [x], lambda kept: kept[0]),
    "a tuple": (lambda x: (1, x), lambda kept: kept[1]),
    "a named tuple": (lambda x: Pair(1, x), lambda kept: kept.second),
    "a dict": (lambda x: {"a": x}, lambda kept: kept["a"]),
    "an OrderedDict": (lambda x: OrderedDict(a=x), lambda kept: kept["a"]),
    "a UserDict": (lambda x: UserDict(a=x), lambda kept: kept["a"]),
    "a deque": (lambda x: deque([x]), lambda kept: kept[0]),
    "slots": (Sources, lambda kept: kept.first),
    "a list in a tuple in a dict": (lambda x: {"a": ([x], 1)}, lambda kept: kept["a"][0][0]),
    "tuples in a list": (lambda x: [(1, (x,))], lambda kept: kept[0][1][0]),
}
"""How something is held by something else, and how it is found there."""


def iterator_within(place):
    hold, find = WITHIN[place]
    return dataset(lambda: hold(iter(list(range(1000)))), lambda self, index: next(find(self.kept)))


def shared():
    return multiprocessing.get_context("spawn").Value("i", 0)


def add_shared(self, index):
    self.kept.value += 1
    return self.kept.value


@functools.cache
def manager():
    """Return a process of its own that keeps what workers share."""
    return multiprocessing.get_context("spawn").Manager()


def add_to_table(self, index):
    """Count in a table that is written in place."""
    self.kept.loc[0, "reads"] += 1
    return float(self.kept["reads"].sum())


def add_to_column(self, index):
    self.kept[0] += 1
    return float(self.kept[0])


STATES = {
    "shared number": dataset(shared, add_shared),
    "dict of a manager": dataset(lambda: manager().dict(), lambda self, index: cached(self.kept, index)),
    "list of a manager": dataset(lambda: manager().list(), append),
    "table of pandas": dataset(lambda: pandas.DataFrame({"reads": [0.0, 1.0]}), add_to_table),
    "column of pandas": dataset(lambda: pandas.Series([0.0, 1.0]), add_to_column),
    "counter": dataset(int, add),
    "dict": dataset(dict, lambda self, index: cached(self.kept, index)),
    "OrderedDict that forgets": dataset(OrderedDict, at_most_three),
    "defaultdict": dataset(lambda: defaultdict(random.random), lambda self, index: self.kept[index]),
    "Counter": dataset(Counter, lambda self, index: self.kept.update(a=1) or self.kept["a"]),
    "list": dataset(list, append),
    "deque": dataset(lambda: deque(maxlen=4), append),
    "set": dataset(set, lambda self, index: self.kept.add(index) or len(self.kept)),
    "list in a list": dataset(lambda: [[]], lambda self, index: self.kept[0].append(1) or len(self.kept[0])),
    "tensor": dataset(lambda: torch.zeros(3), add_to_values),
    "tensor in shared memory": dataset(lambda: torch.zeros(3).share_memory_(), add_to_values),
    "numpy's array": dataset(lambda: np.zeros(3), add_to_values),
    "torch's generator": dataset(torch.Generator, lambda self, index: torch.rand((), generator=self.kept)),
    "numpy's generator": dataset(np.random.default_rng, lambda self, index: self.kept.random()),
    "python's generator": dataset(random.Random, lambda self, index: self.kept.random()),
    "itertools.count": dataset(itertools.count, lambda self, index: next(self.kept)),
    "iterator of a list": dataset(lambda: iter(list(range(1000))), lambda self, index: next(self.kept)),
    "iterator of a range": dataset(lambda: iter(range(1000)), lambda self, index: next(self.kept)),
    **{f"iterator of a list in {place}": iterator_within(place) for place in WITHIN},
    "iterator of a list in a default": InADefault,
    "cached function in a list": dataset(
        lambda: [functools.cache(lambda i: random.random())], lambda self, i: self.kept[0](i)
    ),
    "loader with a dataset of its own": dataset(
        lambda: DataLoader(dataset(int, add)()), lambda self, index: self.kept.dataset[index].sum()
    ),
    "loader with a sampler of its own": dataset(
        lambda: DataLoader(range(9), sampler=Turns()), lambda self, index: next(iter(self.kept))
    ),
    **FILES,
    "transform": dataset(Flip, lambda self, index: self.kept(index)),
    "closure": dataset(closure, lambda self, index: self.kept(self, index)),
    "attribute of the class": ClassCounts,
    "cache of the class": ClassCaches,
    "cache of the module": ModuleCaches,
    "counter of the module": ModuleCounts,
    "generator of the module": SharedFlips,
    "lru_cache of a function": FunctionCaches,
    "cache of a method": MethodCaches,
    "cache of a static method": StaticCaches,
    "lru_cache of an attribute": OwnCaches,
    "cached_property": Lazy,
    "slots": Slots,
    "position of a file": OpenFile,
    "records of a long list": dataset(lambda: [{"n": 0} for _ in range(2000)], count_in_record),
    "lists of a long dict": dataset(lambda: {i: [] for i in range(2000)}, lambda self, index: append_to_record(self)),
    **{f"objects of a long {name}": objects_of_a_long(name) for name in LONG},
    "counter deep inside": dataset(
        lambda: functools.reduce(lambda inside, _: {"a": inside}, range(7), {"n": 0}), count_deep_inside
    ),
    "variable of an imported module": dataset(int, count_elsewhere),
}
AROUND = {
    "alone": lambda data: data,
    "loader": lambda data: DataLoader(data, 5, shuffle=True),
    "Subset of Subset": lambda data: Subset(Subset(data, range(N)), range(1, N)),
    "ConcatDataset": lambda data: ConcatDataset([Subset(data, [0, 1]), data]),
    "wrapper": lambda data: DataLoader(Wrapper(Wrapper(data), "inside")),
    "deep": lambda data: functools.reduce(lambda inside, _: Wrapper(inside), range(9), data),
}


def pairs(states, ways, all_of):
    """Return each state by one way in turn, and some states by all ways."""
    turns = zip(states, itertools.cycle(ways))
    return list(dict.fromkeys([*turns, *itertools.product(all_of, ways)]))


def trained_on(data, read):
    """Return what a training sees of a dataset that it has begun to read, after something else may have read it."""
    for begun in (0, 3):
        random.seed(1)
        start = [float(data[index].sum()) for index in range(begun)]
        read(data)
        random.seed(2)
        yield start + [float(data[index % N].sum()) for index in range(2, N)]


def clear():
    global CALLS
    CALLS = 0
    CACHE.clear()
    ClassCaches.cache.clear()
    ClassCounts.count = 0
    SHARED_FLIPS.seed(5)
    modules.CALLS = 0
    for function in (load, MethodCaches.state, StaticCaches.draw):
        function.cache_clear()


def seen(make, read):
    clear()
    random.seed(0)
    torch.manual_seed(0)
    data = make()
    for generator in vars(data).values():
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = np.random.default_rng(0).bit_generator.state
        elif isinstance(generator, random.Random):
            generator.seed(0)
    return list(trained_on(data, read))


@pytest.mark.parametrize(("state", "around"), pairs(STATES, AROUND, ["counter", "dict", "python's generator"]))
def test_a_dataset_is_as_if_it_had_not_been_read(state, around):
    def read(data):
        source = ImageSet(AROUND[around](data), None, "the training data")
        assert len(source.read(range(len(source)))) == len(source)

    assert seen(STATES[state], read) == seen(STATES[state], lambda data: None)


class Drawing(nn.Linear):
    """Draws by whatever it is given."""

    def __init__(self, draw=None):
        super().__init__(1, 1)
        self.draw = draw

    def __call__(self, module, n):
        return self.draw(n)

    def of_module(self, module, n):
        return self.draw(n)


class DrawingByGlobal(nn.Linear):
    def sample(self, n):
        return draws(GLOBAL[0], n)


def draws(data, n):
    for index in range(n):
        data[index]
    return torch.zeros(n, 1, 2, 2)


def drawing_by_default(data):
    def sample(module, n, source=data):
        return draws(source, n)

    return sample


def global_method(data):
    GLOBAL[:] = [data]
    return DrawingByGlobal(1, 1)


GLOBAL = [None]
WAYS = {
    "closure": lambda data: lambda module, n: draws(data, n),
    "default argument": drawing_by_default,
    "bound object": lambda data: Drawing(functools.partial(draws, data)).of_module,
    "callable object": lambda data: Drawing(functools.partial(draws, data)),
    "partial": lambda data: functools.partial(lambda module, n, data: draws(data, n), data=data),
    "method of the module": global_method,
}
KEPT = {
    "lru_cache of a function",
    "lru_cache of an attribute",
    "cached function in a list",
    "cache of a method",
    "cache of a static method",
}
"""What `sample` may go on with: results that are cached once and for all."""
ASIDE = ("cache", "itertools", "iterator of")
"""What is set aside, so that nothing moves; of a cached_property the value moves."""


@pytest.mark.parametrize(
    ("state", "way"), pairs([x for x in STATES if x not in KEPT], WAYS, ["counter", "dict", "python's generator"])
)
def test_what_a_sample_function_changes_is_put_back_and_named(state, way):
    said = []

    def draw(data):
        sample = WAYS[way](data)
        own = isinstance(sample, DrawingByGlobal)
        module = sample if own else nn.Linear(1, 1)
        sampler = Sampler(4, sample_fn=None if own else sample)
        with prove_unchanged(Trained(module), said.append), preserve_rng():
            sampler.draw(SampledModel(module, torch.device("cpu")), range(4))

    assert seen(STATES[state], draw) == seen(STATES[state], lambda data: None)
    assert any("put back as it was" in text for text in said) or state.startswith(ASIDE)


class LoadsOnce(nn.Linear):
    """Holds networks that are loaded by a cached function of the class."""

    @staticmethod
    @functools.cache
    def static():
        return object()

    @classmethod
    @functools.cache
    def of_class(cls):
        return object()

    @property
    @functools.cache  # noqa: B019
    def own(self):
        return object()


@pytest.mark.parametrize("kind", ["function", "static", "of_class", "own"])
def test_a_network_that_sampling_loads_once_is_not_loaded_again(kind):
    module, used = LoadsOnce(1, 1), SimpleQueue()
    load = functools.cache(lambda: object())

    def sample(module, n):
        used.put(load() if kind == "function" else module.own if kind == "own" else getattr(module, kind)())
        return torch.zeros(n, 1, 2, 2)

    for _ in range(2):
        with prove_unchanged(Trained(module), pytest.fail), preserve_rng():
            Sampler(4, sample_fn=sample).draw(SampledModel(module, torch.device("cpu")), range(4))
    assert len({used.get() for _ in range(used.qsize())}) == 1


class SharedCache(Images):
    """Keeps images where all of its loader's workers see them; one that was never kept would be black."""

    def __init__(self, number, images):
        self.kept, self.images = number, images

    def __len__(self):
        return 200

    def state(self, index):
        if not self.kept[index]:
            self.images[index] = 1 + random.random()
            self.kept[index] = 1
        return float(self.images[index])


def ctypes_array(kind):
    return multiprocessing.get_context("fork").Array(kind, 200)


SHARED = {
    "arrays": lambda: SharedCache(ctypes_array("i"), ctypes_array("d")),
    "dicts of a manager": lambda: SharedCache(
        manager().dict(dict.fromkeys(range(200), 0)), manager().dict(dict.fromkeys(range(200), 0.0))
    ),
    "arrays of NumPy": lambda: SharedCache(
        np.frombuffer(ctypes_array("i").get_obj(), np.int32), np.frombuffer(ctypes_array("d").get_obj())
    ),
    "tensors": lambda: SharedCache(torch.zeros(200).share_memory_(), torch.zeros(200).share_memory_()),
}


def contents(data):
    return [[float(kept[index]) for index in range(200)] for kept in (data.kept, data.images)]


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True], ids=["read", "failed"])
@pytest.mark.parametrize("shared", SHARED)
def test_memory_that_the_monitors_own_workers_share_is_put_back_once_they_are_gone(shared, fails):
    data = SHARED[shared]()
    source = ImageSet(DataLoader(data, 10, num_workers=2, multiprocessing_context="fork"), None, "the data")
    before = contents(data)

    def progress(batches, description):
        for batch in batches:
            assert any(contents(data)[0])
            if fails:
                raise KeyError("no disk")
            yield batch

    with pytest.raises(KeyError) if fails else nullcontext():
        source.read(range(len(data)), progress)
    assert contents(data) == before


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("shared", SHARED)
def test_memory_that_workers_of_the_training_write_is_left_to_them_and_named(shared, persistent):
    data = SHARED[shared]()
    loader = DataLoader(data, 10, num_workers=2, multiprocessing_context="fork", persistent_workers=persistent)
    batches = iter(loader)
    seen = [next(batches)]
    said = []
    with preserve_data({"the data": loader}, said.append):
        seen += [next(batches) for _ in range(5)]  # as prefetched meanwhile
    assert said == []
    with preserve_data({"the data": loader}, said.append):
        ImageSet(loader, None, "the data").read(range(len(data)))
    assert "cannot be put back" in said[0]
    assert "`real_images=`" in said[0]
    seen += list(batches)
    batches._shutdown_workers()
    assert len(seen) == 20
    assert min(float(image.min()) for image in seen) >= 100  # no black one


@pytest.mark.parametrize("kind", ["stdout", "pipe", "w", "w+", "a"])
def test_files_that_a_dataset_writes_stay_its_own(tmp_path, kind, capfd):
    read, write = os.pipe()
    path = tmp_path / "log.txt"
    with os.fdopen(write, "w") as pipe, path.open(kind if kind in ("w", "w+") else "a") as log:
        data = dataset(
            lambda: {"stdout": sys.stdout, "pipe": pipe}.get(kind, log), lambda self, i: self.kept.write("x")
        )()
        assert len(ImageSet(data, None, "the training data").read(range(3))) == 3
        log.write("y")
    os.close(read)
    assert path.read_text() == ("y" if kind in ("stdout", "pipe") else "xxxy")


@pytest.mark.parametrize("mode", ["w", "w+", "a", "wb"])
def test_files_that_a_sample_function_writes_stay_as_they_are(tmp_path, mode):
    path, line = tmp_path / "log.txt", b"x" if mode == "wb" else "x"
    with path.open(mode) as log, prove_unchanged(Trained(nn.Linear(1, 1)), pytest.fail), preserve_rng():
        sampler = Sampler(4, sample_fn=lambda module, n: log.write(line) * torch.zeros(n, 1, 2, 2))
        for _ in range(2):
            sampler.draw(SampledModel(nn.Linear(1, 1), torch.device("cpu")), range(4))
    assert path.read_text() == "xx"


@pytest.mark.parametrize("state", STATES)
def test_each_state_would_move(state):
    def read(data):
        random.seed(9)
        for index in range(N):
            data[index]

    if state != "lru_cache of a function":  # it holds too few to tell
        assert seen(STATES[state], read) != seen(STATES[state], lambda data: None)


@pytest.mark.parametrize("state", STATES)
def test_an_image_is_the_same_in_whatever_order_it_is_read_where_its_state_is_random(state):
    clear()
    source = ImageSet(STATES[state](), None, "the training data")
    images = source.read(range(N))
    assert torch.equal(source.read(range(N)), images)


def test_blocks_inside_each_other_restore_once():
    data = STATES["counter"]()
    with preserve_data({"the data": data}):
        ImageSet(data).read([1, 2])
        assert data.kept == 2
    assert data.kept == 0


def test_a_collate_function_comes_back():
    seen_batches = []

    def collate(items):
        seen_batches.append(len(items))
        return default_collate(items)

    ImageSet(DataLoader(list(torch.zeros(5, 1, 2, 2)), collate_fn=collate)).read(range(5))
    assert seen_batches == []


class Position(IterableDataset):
    """Goes on where it stopped."""

    def __init__(self, keep=lambda: 0):
        self.position = keep()

    def __iter__(self):
        while self.position < 50:
            self.position += 1
            yield image(self.position)


class Queue(IterableDataset):
    def __init__(self):
        self.waiting = deque(range(50))

    def __iter__(self):
        while self.waiting:
            yield image(self.waiting.popleft())


@pytest.mark.parametrize("around", [lambda data: data, lambda data: DataLoader(data, 4)])
@pytest.mark.parametrize("stream", [Position, Queue])
def test_a_stream_starts_for_the_training_where_it_was(stream, around):
    data = stream()
    next(iter(data))
    items = take_items(around(data), None, "the training data")
    assert len(items) == 49
    assert len(list(data)) == 49


class Holds(IterableDataset):
    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        yield from self.iterator


class Gives(IterableDataset):
    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        return self.iterator


class Draws(Images):
    def __init__(self, iterator):
        self.iterator = iterator

    def __getitem__(self, index):
        return next(self.iterator)


def pipe():
    read, write = os.pipe()
    os.write(write, b"x" * 49 + b"0")
    os.close(write)
    OPENED.append(os.fdopen(read, "rb"))
    return OPENED[-1]


def lines_of_text():
    file = on_disk("r", pack=lambda path: Path(path).write_text("1\n" * 50))
    next(file)
    return file


ONCE = {
    "loader's": lambda: iter(DataLoader([image(0)] * 50, None)),
    "generator": lambda: (image(i) for i in range(50)),
    "cycle": lambda: itertools.cycle([image(0)] * 50),
    "array's": lambda: np.zeros(50).flat,
    "csv's": lambda: csv.reader(io.StringIO("0\n" * 50)),
}


@pytest.mark.parametrize("kind", [Holds, Gives, Draws])
@pytest.mark.parametrize("once", ONCE)
def test_what_cannot_start_again_is_refused_before_anything_is_taken(once, kind):
    data = kind(ONCE[once]())
    with pytest.raises(ValueError, match=r"cannot start again.*give `real_images="):
        take_items(data, None, "the data") if isinstance(data, IterableDataset) else ImageSet(data).read([0])
    assert len(list(itertools.islice(data.iterator, 50))) == 50


FIRST_USE = {
    "attribute": dataset(lambda: None, at_first_use),
    "list": dataset(lambda: [None, None], at_first_use_of_each),
}


@pytest.mark.parametrize("first", FIRST_USE)
def test_a_loaders_iterator_is_made_for_the_training_where_it_would_have_been(first):
    def images(read):
        torch.manual_seed(2)
        data = FIRST_USE[first]()
        read(data)
        before, random_state = copy.copy(data.kept), torch.get_rng_state()
        out = [float(data[index].sum()) for index in range(N)], torch.rand(1)
        return before, random_state.tolist(), out, data

    alone, read = (images(way) for way in (lambda data: None, lambda data: ImageSet(data).read([0, 1, 2])))
    assert alone[:3] == read[:3]
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"DataLoaderIter, which cannot start again.*give `real_images="):
        ImageSet(read[3]).read([0, 1])
    assert torch.equal(torch.get_rng_state(), state)
    assert [read[3][index].sum() for index in range(N)] == [alone[3][index].sum() for index in range(N)]


@pytest.mark.parametrize("place", WITHIN)
@pytest.mark.parametrize("once", ONCE)
def test_what_cannot_start_again_is_refused_wherever_it_is_held(once, place):
    iterator, (hold, find) = ONCE[once](), WITHIN[place]
    data = dataset(lambda: hold(iterator), lambda self, index: next(find(self.kept)).sum())()
    kept = data.kept
    with pytest.raises(ValueError, match=r"cannot start again.*give `real_images="):
        ImageSet(data).read([0])
    assert data.kept is kept
    assert next(find(data.kept)) is not None
    assert len(list(itertools.islice(iterator, 49))) == 49


@pytest.mark.parametrize(
    ("stream", "take"), [(pipe, lambda file: file.read(1)), (lines_of_text, lambda file: next(file))]
)
def test_a_file_without_a_position_is_refused(stream, take):
    data = dataset(stream, lambda self, index: len(take(self.kept)))()
    with pytest.raises(ValueError, match=r"cannot start again.*give `real_images="):
        ImageSet(data).read([0, 1])
    assert take(data.kept)


def test_large_tensors_are_fingerprinted_and_a_change_is_named(monkeypatch):
    class Large(Images):
        def __init__(self):
            self.cache = torch.zeros(2**20)

        def state(self, index):
            self.cache[index] = 1
            return 0

    monkeypatch.setattr("genmonitor.training_state.data.MAX_BYTES", 2**10)
    with pytest.warns(UserWarning, match=r"reading real images changed the data.cache, which cannot be put back.*Give"):
        ImageSet(Large(), None, "the data").read([0])


def test_large_containers_are_not_looked_through():
    class Many(Images):
        def __init__(self):
            self.files, self.count = [("a", 0)] * 300_000, 0

        def state(self, index):
            self.count += 1
            return 0

    data = Many()
    with preserve_data({"the data": data}):
        data[0]
    assert data.count == 0


@pytest.mark.parametrize("function", [default_collate, functools.partial(sorted, key=str)])
def test_a_function_that_holds_nothing_of_its_own_is_not_said_to_move(function):
    said = []
    loader = DataLoader(list(torch.zeros(4, 1, 2, 2)), collate_fn=function, worker_init_fn=print)
    with preserve_data({"the data": loader}, report=said.append):
        list(loader.dataset)
    assert said == []

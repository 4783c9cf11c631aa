# SPDX-License-Identifier: Apache-2.0
import csv
import io
import os
import queue
import random
import threading
import weakref
import zipfile
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from types import MappingProxyType, MethodType, SimpleNamespace
from typing import ClassVar
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from _helpers.meta_tensor import MetaTensor, Returned
from PIL import Image
from torch import nn
from torch.amp import GradScaler
from torch.distributions import Normal
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.quasirandom import SobolEngine
from torchmetrics import MeanMetric

from genmonitor import MaximumMeanDiscrepancy
from genmonitor.training_state.isolation import preserve_training_state
from genmonitor.training_state.snapshot import Snapshot


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout())
        self.register_buffer("calls", torch.tensor(float("nan")))
        self.register_buffer("absent", None)
        self.inner[2].eval()
        self.inner[0].bias.requires_grad_(False)
        self.inner(torch.randn(5, 2)).sum().backward()


def random_numbers():
    return torch.rand(3).tolist(), np.random.rand(3).tolist(), [random.random() for _ in range(3)]  # noqa: NPY002


def everything(module):
    """What a run would notice, bit by bit; the numbers drawn next come last because looking at them changes them."""
    values = {name: value.clone() for name, value in module.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
    switches = [p.requires_grad for p in module.parameters()], [part.training for part in module.modules()]
    return values, grads, switches, random_numbers()


def same(a, b):
    return all(torch.equal(torch.nan_to_num(a[0][k], 7.0), torch.nan_to_num(b[0][k], 7.0)) for k in a[0] | b[0]) and (
        all((x is None and y is None) or torch.equal(x, y) for x, y in zip(a[1], b[1], strict=True)) and a[2:] == b[2:]
    )


def disturb(module):
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    random.seed(99)
    module.train()
    module.inner(torch.randn(5, 2))  # BatchNorm's statistics
    module.calls.fill_(3.0)
    module.inner[1].running_var = torch.zeros(3)  # another tensor altogether
    for parameter in module.parameters():
        parameter.requires_grad_(not parameter.requires_grad)
    with torch.enable_grad():
        module.inner.requires_grad_(True)
        module.inner(torch.randn(5, 2)).square().sum().backward()
    module.zero_grad(set_to_none=False)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_training_state_is_restored_also_after_an_exception(error):
    def outcome(disturbing):
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002
        random.seed(5)
        module = Part()
        buffer = module.inner[1].running_var
        if disturbing:
            with pytest.raises(error) if error else nullcontext(), preserve_training_state(module):
                disturb(module)
                if error:
                    raise error
        assert module.inner[1].running_var is buffer
        return everything(module)

    assert same(outcome(True), outcome(False))


def test_everything_of_a_training_state_is_compared():
    torch.manual_seed(5)
    reference = everything(Part())
    torch.manual_seed(5)
    module = Part()
    disturb(module)
    found = everything(module)
    for index in range(4):
        mixed = tuple(found[i] if i == index else reference[i] for i in range(4))
        assert not same(mixed, reference)


def test_training_state_inside_is_eval_mode_without_gradients():
    module = Part()
    with preserve_training_state(module):
        assert not any(part.training for part in module.modules())
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert module.training
    assert not module.inner[2].training


CHANGES = {
    "working directory": (os.getcwd, os.chdir, os.path.realpath(os.sep)),
    "variable added": (partial(os.environ.get, "ADDED"), partial(os.environ.__setitem__, "ADDED"), "1"),
    "variable changed": (partial(os.environ.get, "PATH"), partial(os.environ.__setitem__, "PATH"), os.sep),
    "variable removed": (partial(os.environ.get, "PATH"), lambda _: os.environ.pop("PATH"), None),
    "denormal numbers": (lambda: float(torch.full((), 1e-40) * 1), lambda _: torch.set_flush_denormal(True), 0.0),
    "oneDNN": (
        partial(getattr, torch.backends.mkldnn, "enabled"),
        partial(setattr, torch.backends.mkldnn, "enabled"),
        False,
    ),
    "errors of NumPy": (np.geterr, lambda x: np.seterr(**x), dict.fromkeys(np.geterr(), "raise")),
    "dtype": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "device": (torch.get_default_device, torch.set_default_device, torch.device("meta")),
    "threads": (torch.get_num_threads, torch.set_num_threads, 3),
    "deterministic": (
        torch.are_deterministic_algorithms_enabled,
        partial(torch.use_deterministic_algorithms, warn_only=True),
        True,
    ),
    "anomaly": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, True),
    "autocast's dtype": (
        partial(torch.get_autocast_dtype, "cpu"),
        partial(torch.set_autocast_dtype, "cpu"),
        torch.float16,
    ),
    "autocast's cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
    "attention in half precision": (
        torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp,
        True,
    ),
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled, False),
    "precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    **{
        f"cudnn.{name}": (partial(getattr, torch.backends.cudnn, name), partial(setattr, torch.backends.cudnn, name), x)
        for name, x in {"benchmark": True, "deterministic": True, "enabled": False, "allow_tf32": False}.items()
    },
    **{
        f"{name} attention": (
            getattr(torch.backends.cuda, f"{name}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{name}_sdp"),
            False,
        )
        for name in ("flash", "mem_efficient", "math", "cudnn")
    },
    "tf32": (
        lambda: torch.backends.cuda.matmul.allow_tf32,
        partial(setattr, torch.backends.cuda.matmul, "allow_tf32"),
        True,
    ),
}
OTHERS = {
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": False,
    "backends.cuda.matmul.allow_fp16_accumulation": True,
    "backends.cudnn.benchmark_limit": 3,
    "backends.fp32_precision": "tf32",
    **{f"backends.cudnn.{x}fp32_precision": "ieee" for x in ("", "conv.", "rnn.")},
    **{f"backends.mkldnn.{x}fp32_precision": "bf16" for x in ("", "matmul.", "conv.", "rnn.")},
    "backends.opt_einsum.strategy": "greedy",
    "utils.deterministic.fill_uninitialized_memory": False,
}
for path, other in OTHERS.items():
    try:
        owner, name = attrgetter(path.rpartition(".")[0])(torch), path.rpartition(".")[2]
        getattr(owner, name)
    except AttributeError:  # of an older torch
        continue
    CHANGES[path] = partial(getattr, owner, name), partial(setattr, owner, name), other


@pytest.mark.parametrize("name", CHANGES)
def test_settings_of_torch_come_back(name):
    get, put, other = CHANGES[name]
    before = get()
    with preserve_training_state(nn.Linear(1, 1)):
        put(other)
        assert get() == other != before
    assert get() == before
    assert torch.get_float32_matmul_precision() == "highest"  # which torch refuses to say where names are mixed
    torch.set_default_device(None)


@pytest.mark.parametrize(
    "register",
    [
        torch.nn.modules.module.register_module_forward_hook,
        torch.nn.modules.module.register_module_forward_pre_hook,
        torch.nn.modules.module.register_module_full_backward_hook,
        torch.nn.modules.module.register_module_parameter_registration_hook,
        register_optimizer_step_pre_hook,
        register_optimizer_step_post_hook,
    ],
)
def test_hooks_of_all_networks_and_optimizers_come_back(register):
    calls = []
    with preserve_training_state(nn.Linear(1, 1)):
        register(lambda *_: calls.append(1))
    module = nn.Linear(1, 1)
    module(torch.ones(1)).backward()
    torch.optim.SGD(module.parameters(), 1.0).step()
    assert calls == []


def test_accumulated_gradients_survive_a_backward_pass():
    module = Part()
    before = [None if p.grad is None else (p.grad, p.grad.clone()) for p in module.parameters()]
    with preserve_training_state(module), torch.enable_grad():
        module.inner(torch.randn(4, 2)).sum().backward()
    for parameter, kept in zip(module.parameters(), before, strict=True):
        assert parameter.grad is (kept and kept[0])
        assert kept is None or torch.equal(parameter.grad, kept[1])


def test_gradients_can_be_turned_on_inside_inference_mode():
    module = Part()
    with torch.inference_mode():
        with preserve_training_state(module), torch.enable_grad():
            x = torch.ones(4, 2, requires_grad=True)
            (gradient,) = torch.autograd.grad(module.inner[0](x).sum(), x)
            assert torch.equal(gradient, module.inner[0].weight.sum(0).expand(4, 2))
        assert torch.is_inference_mode_enabled()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_random_states_of_every_gpu_are_restored():
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    torch.cuda.manual_seed_all(3)
    expected = [torch.rand(4, device=device) for device in devices]
    torch.cuda.manual_seed_all(3)
    with preserve_training_state(nn.Linear(1, 1)):
        for device in devices:
            torch.rand(100, device=device)
    assert all(torch.equal(torch.rand(4, device=d), e) for d, e in zip(devices, expected, strict=True))


class Holder:
    def __init__(self):
        self.count, self.items, self.part = 1, {"a": 1}, Plain()


class Plain:
    def __init__(self):
        self.seen = ["a"]


def test_remember_attributes_puts_back_what_is_held():
    holder = Holder()
    part, before = holder.part, Snapshot({"holder": holder}, None)
    part.seen.append("b")
    holder.items.clear()
    holder.count, holder.part, holder.new = 2, Plain(), 3
    before.restore()
    assert (holder.count, holder.items, holder.part, part.seen) == (1, {"a": 1}, part, ["a"])
    assert not hasattr(holder, "new")


class Own(list):
    """A list of a user's own, with an attribute and with methods that do something else."""

    def __init__(self, items):
        super().__init__(items)
        self.count = 1

    def extend(self, items):
        raise AssertionError("the user's own")


@dataclass(slots=True)
class Slotted:
    count: int = 1
    new: int = field(init=False)


@dataclass
class Nested:
    inner: object

    def method(self):
        pass


class Absent:
    """What a context variable stands for where there is no context."""

    @property
    def __dict__(self):
        raise RuntimeError("there is no context")


HELD = {
    "dict": lambda: {"a": 1, "b": 2},
    "OrderedDict": lambda: OrderedDict(a=1, b=2),
    "defaultdict": lambda: defaultdict(int, a=1, b=2),
    "Counter": lambda: Counter(a=1, b=2),
    "UserDict": lambda: UserDict(a=1, b=2),
    "list": lambda: [1, 2],
    "subclass": lambda: Own([1, 2]),
    "UserList": lambda: UserList([1, 2]),
    "deque": lambda: deque([1, 2], maxlen=2),
    "bytearray": lambda: bytearray([1, 2]),
    "set": lambda: {1, 2},
    "list in a dict": lambda: {"a": [1, 2]},
    "Counter in a defaultdict": lambda: defaultdict(Counter, a=Counter(b=1)),
    "object in a list": lambda: [Holder()],
    "slots": Slotted,
    "namespace": lambda: SimpleNamespace(count=1),
    "namespace in a list": lambda: [SimpleNamespace(count=1)],
    "object in objects": lambda: Nested({"a": Nested(Slotted())}),
    "tensor in objects": lambda: Nested(Nested(torch.ones(2))),
    "module in a list": lambda: [nn.BatchNorm1d(2)],
    "metric in a dict": lambda: {"a": MeanMetric()},
    "Sobol's sequence": lambda: SobolEngine(2, scramble=True, seed=0),
    "tensor": lambda: torch.tensor([1.0, float("nan")]),
    "view": lambda: torch.arange(6.0).view(2, 3).t(),
    "array": lambda: np.array([1.0, 2.0]),
    "masked array": lambda: np.ma.array([1.0, 2.0]),
    "tensor in a list": lambda: [torch.ones(2)],
    "tensor in a tuple": lambda: (torch.ones(2),),
    "parameter in a list": lambda: [nn.Parameter(torch.ones(2))],
    "subclass of Tensor": lambda: MetaTensor(torch.ones(2)),
    "list in a partial": lambda: Nested(partial(print, [1], end=[1])),
    "object of a method": lambda: Nested(Nested([1]).method),
    "list in a view of a dict": lambda: Nested(MappingProxyType({"a": [1]})),
    "object in a frozenset": lambda: Nested(frozenset([Holder()])),
}


def with_gradient(tensor):
    tensor.requires_grad_().grad = torch.ones(2)
    return tensor


def guide(tensor):
    with torch.enable_grad():
        (2 * tensor).sum().backward()


def views():
    base = torch.zeros(4)
    return base[:3], base[1:]


def repr_of_state(thing):
    return repr(thing.state_dict())


# makes what a module holds, writes into it, and returns what can be seen of it
WRITES = {
    "gradient scaler": (lambda: GradScaler("cpu"), lambda x: (x.scale(torch.ones(1)), x.update(2.0)), repr_of_state),
    "distribution": (lambda: Normal(torch.zeros(1), 1.0), lambda x: x.loc.add_(1), lambda x: x.loc.tolist()),
    "repeated": (lambda: torch.ones(1).expand(3), lambda x: x[0].zero_(), torch.Tensor.tolist),
    "overlapping": (views, lambda x: x[0].add_(1), lambda x: [part.tolist() for part in x]),
    "part of a larger one": (lambda: torch.zeros(4, 4)[1:3, ::2].t(), lambda x: x.add_(1), torch.Tensor.tolist),
    "complex": (lambda: torch.tensor([1j, 2j]).conj(), lambda x: x.mul_(2), torch.Tensor.tolist),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        lambda x: x.copy_(2 * x.dequantize()),
        lambda x: x.dequantize().tolist(),
    ),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
        lambda x: x.mul_(2),
        lambda x: x.values().tolist(),
    ),
    "bytes in memory": (lambda: io.BytesIO(b"abc"), lambda x: x.read(1), lambda x: x.tell()),
    "text in memory": (lambda: io.StringIO("abc"), lambda x: next(x), lambda x: x.tell()),
    "emptied": (lambda: torch.ones(2), lambda x: x.untyped_storage().resize_(0), lambda x: str(x.untyped_storage())),
    "made in inference": (
        torch.inference_mode()(lambda: torch.ones(2)),
        torch.inference_mode()(lambda x: x.add_(1)),
        torch.Tensor.tolist,
    ),
    "gradient, replaced": (
        lambda: with_gradient(torch.ones(2)),
        lambda x: setattr(x, "grad", None),
        lambda x: x.grad,
    ),
    "gradient, added to": (lambda: with_gradient(torch.ones(2)), guide, lambda x: x.grad.tolist()),
    "gradient, the first": (lambda: torch.ones(2, requires_grad=True), guide, lambda x: x.grad),
    "gradient of a parameter in a list": (
        lambda: [with_gradient(nn.Parameter(torch.ones(2)))],
        lambda x: guide(x[0]),
        lambda x: x[0].grad.tolist(),
    ),
    "asked for gradients": (lambda: torch.ones(2), torch.Tensor.requires_grad_, lambda x: x.requires_grad),
    "made part of a graph": (
        lambda: torch.ones(2),
        torch.enable_grad()(lambda x: x.mul_(torch.ones(2, requires_grad=True))),
        lambda x: (x.grad_fn, x.requires_grad),
    ),
    "metadata of a tensor": (lambda: MetaTensor(torch.ones(2)), lambda x: x.meta.clear(), lambda x: list(x.meta)),
    "list in an object array": (
        lambda: np.array([[[1], {}]], dtype=object),
        lambda x: x[0, 0].append(2),
        np.ndarray.tolist,
    ),
    "dictionary in an object array": (
        lambda: np.array([[[1], {}]], dtype=object),
        lambda x: x[0, 1].update(a=1),
        np.ndarray.tolist,
    ),
    "factory": (
        lambda: defaultdict(int, a=1),
        lambda x: setattr(x, "default_factory", list),
        lambda x: x.default_factory,
    ),
    "lists in lists": (lambda: [[[[1]]]], lambda x: x[0][0][0].append(2), repr),
    "list in tuples in a list": (lambda: [(([1],),)], lambda x: x[0][0][0].append(2), repr),
    "set in a list in a dict": (lambda: {"a": [{1}]}, lambda x: x["a"][0].add(2), repr),
    "list in an object in a set": (
        lambda: {Holder()},
        lambda x: [y.items.clear() for y in x],
        lambda x: [y.items for y in x],
    ),
}
STRANGE = {
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    "meta tensor": lambda: torch.ones(2, device="meta"),
    "jagged tensor": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
    "part of a graph": lambda: torch.ones(2, requires_grad=True) * 2,
    "tensor of a subclass": lambda: torch.ones(2).as_subclass(Returned),
    "dict behind another class": lambda: MagicMock(spec=dict),
    "absent object": Absent,
}


def touch(thing):
    """Write into a container, an object or a tensor, and into what it holds."""
    if isinstance(thing, (torch.Tensor, np.ndarray)):
        thing += 1
    elif isinstance(thing, partial):
        touch(thing.args[0])
        touch(thing.keywords["end"])
    elif isinstance(thing, MethodType):
        touch(thing.__self__)
    elif isinstance(thing, MappingProxyType):
        touch(thing["a"])
    elif isinstance(thing, frozenset):
        touch(*thing)
    elif isinstance(thing, (dict, UserDict)):
        for value in list(thing.values()):
            touch(value)
        first = next(iter(thing))
        thing[first] = thing.pop(first)  # the order
        thing["new"] = thing[first]
    elif isinstance(thing, set):
        thing.add(3)
    elif isinstance(thing, tuple):
        touch(thing[0])
    elif isinstance(thing, (list, UserList, deque, bytearray)):
        for value in list(thing):
            touch(value)
        thing.append(3)
        if isinstance(thing, Own):
            thing.count = 2
    elif isinstance(thing, Nested):
        touch(thing.inner)
    elif isinstance(thing, nn.BatchNorm1d):
        thing(torch.randn(5, 2))
        thing.eval().requires_grad_(False)
    elif isinstance(thing, MeanMetric):
        thing.update(3.0)
    elif isinstance(thing, SobolEngine):
        thing.draw(2)
    elif isinstance(thing, Slotted):
        thing.count = thing.new = 2
    elif hasattr(thing, "count"):
        thing.count = 2


def written(thing):
    """Return all that can be seen of it."""
    if isinstance(thing, (torch.Tensor, np.ndarray)):
        return str(thing)
    if isinstance(thing, (dict, UserDict)):
        return [(name, written(value)) for name, value in thing.items()]
    if isinstance(thing, Nested):
        return written(thing.inner)
    if isinstance(thing, (frozenset, MethodType)):
        return [written(value) for value in thing] if isinstance(thing, frozenset) else written(thing.__self__)
    if isinstance(thing, nn.BatchNorm1d):
        return str((thing.training, thing.weight.requires_grad, thing.state_dict()))
    if isinstance(thing, MeanMetric):
        return str((thing.update_count, thing.metric_state))
    if isinstance(thing, SobolEngine):
        return repr(vars(thing))
    if isinstance(thing, Slotted):
        return thing.count, getattr(thing, "new", None)
    if isinstance(thing, (list, UserList, deque, set)):
        return getattr(thing, "count", None) if isinstance(thing, Own) else 0, [written(value) for value in thing]
    return vars(thing)["count"] if isinstance(thing, Holder) else repr(thing)


@pytest.mark.parametrize("kind", HELD)
def test_what_a_module_holds_comes_back(kind):
    module = nn.Linear(1, 1)
    module.held = held = HELD[kind]()
    before = written(held)
    with preserve_training_state(module):
        touch(held)
        assert written(held) != before
        module.held = None
    assert module.held is held
    assert written(held) == before


@pytest.mark.filterwarnings("ignore:.*quantize", "ignore:Sparse CS")
@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("kind", WRITES)
def test_what_sampling_writes_comes_back(kind, registered):
    make, write, read = WRITES[kind]
    module, held = nn.Linear(1, 1), make()
    if registered:
        if not isinstance(held, torch.Tensor):
            pytest.skip("only tensors are buffers")
        module.register_buffer("held", held)
    else:
        module.held = held
    before = repr(read(make()))
    with preserve_training_state(module):
        write(module.held)
        assert repr(read(held)) != before
    assert module.held is held
    assert repr(read(held)) == before


@pytest.mark.parametrize("mode", ["rb", "r+b", "a+b", "r"])
def test_the_position_of_a_file_comes_back(tmp_path, mode):
    (tmp_path / "text").write_text("abc\ndef\n")
    with (tmp_path / "text").open(mode) as file:
        module = nn.Linear(1, 1)
        module.file = file
        file.seek(1)
        with preserve_training_state(module):
            module.file.readline()
            assert file.tell() == 4
        assert file.tell() == 1


def test_what_reads_a_file_still_reads_it(tmp_path):
    """Of a file that came further nothing is put back: half of a reader would be wrong."""
    Image.new("L", (2, 2), 7).save(tmp_path / "image.png")
    (tmp_path / "rows.csv").write_text("name\nfirst\nsecond\n")
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.write(tmp_path / "rows.csv", "rows.csv")
    module = nn.Linear(1, 1)
    with (tmp_path / "rows.csv").open() as rows, zipfile.ZipFile(tmp_path / "rows.zip").open("rows.csv") as packed:
        module.image, module.rows, module.packed = Image.open(tmp_path / "image.png"), csv.DictReader(rows), packed
        with preserve_training_state(module):
            assert np.asarray(module.image).sum() == 28
            assert next(module.rows) == {"name": "first"}
            assert packed.read() == b"name\nfirst\nsecond\n"
            module.new = 1
        assert not hasattr(module, "new")
        assert np.asarray(module.image).sum() == 28
        assert next(module.rows) == {"name": "second"}
        packed.seek(5)
        assert packed.read(5) == b"first"


class Prefetcher:
    def __init__(self):
        self.items, self.thread = [], threading.Thread(target=lambda: self.items.append(1))


def test_what_a_thread_fills_stays():
    module = nn.Linear(1, 1)
    module.held = Prefetcher()
    with preserve_training_state(module):
        module.held.thread.start()
        module.held.thread.join()
    assert module.held.items == [1]


def test_a_queue_keeps_what_another_thread_put_into_it():
    module = nn.Linear(1, 1)
    module.queue = queue.Queue(maxsize=1)
    thread = threading.Thread(target=lambda: [module.queue.put(i) for i in range(3)], daemon=True)
    with preserve_training_state(module):
        thread.start()
        while not module.queue.full():
            pass
    assert [module.queue.get(timeout=60) for _ in range(3)] == [0, 1, 2]
    thread.join()


def test_what_a_closure_knows_stays_as_sampling_left_it():
    seen = []
    module = nn.Linear(1, 1)
    module.take = lambda item: seen.append(item)
    with preserve_training_state(module):
        module.take(1)
    assert seen == [1]


@pytest.mark.parametrize(("iterate", "following"), [(iter, 1), (lambda items: (x for x in items), 2)])
def test_only_iterators_that_can_be_copied_are_put_back(iterate, following):
    module = nn.Linear(1, 1)
    module.held = held = iterate([1, 2])
    with preserve_training_state(module):
        next(module.held)
    assert module.held is held
    assert next(module.held) == following


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:.*quantize")
@pytest.mark.parametrize("kind", STRANGE)
def test_what_cannot_be_copied_ends_no_training(kind):
    module = nn.Linear(1, 1)
    held = STRANGE[kind]()
    if isinstance(held, torch.Tensor):
        module.register_buffer("buffer", held)
    module.held, module.items = held, [1]
    with preserve_training_state(module):
        module.items.append(2)
    assert module.items == [1]


class Shares(nn.Module):
    seen: ClassVar = []
    calls = 0


def test_what_the_objects_of_a_class_share_comes_back():
    module = nn.Sequential(Shares(), Shares())
    with preserve_training_state(module):
        module[0].seen.append(1)
        Shares.calls, Shares.new = 1, 2
    assert (Shares.seen, Shares.calls, hasattr(Shares, "new")) == ([], 0, False)


def test_a_weak_reference_to_what_is_gone_is_left_alone():
    module = nn.Linear(1, 1)
    module.held = [weakref.proxy(Plain())]
    with preserve_training_state(module):
        module.bias = None
    assert module.bias is not None


def test_of_many_submodules_none_is_left_out():
    module = nn.Sequential(*[nn.ReLU() for _ in range(1500)])
    module[-1].held, module[0].held = Counter(), Nested(Nested(Slotted()))
    with preserve_training_state(module):
        module[-1].held.update(a=1)
        module[0].held.inner.inner.count = 2
    assert (module[-1].held, module[0].held.inner.inner.count) == ({}, 1)


def test_an_ordered_dict_still_works_once_it_came_back():
    module = nn.Linear(1, 1)
    module.kept = OrderedDict(a=1, b=2)
    with preserve_training_state(module):
        module.kept.move_to_end("a")
    assert list(module.kept) == ["a", "b"]
    assert module.kept.popitem(last=False) == ("a", 1)


def test_hooks_do_not_outlive_the_evaluation():
    module, calls = nn.Sequential(nn.Linear(1, 1)), []
    with preserve_training_state(module):
        handle = module[0].register_forward_hook(lambda *_: calls.append(1))
        module[0].register_full_backward_hook(lambda *_: calls.append(1))
        module.register_forward_pre_hook(lambda *_: calls.append(1))
    module(torch.ones(1, 1)).sum().backward()
    assert calls == []
    handle.remove()


@pytest.mark.parametrize("write", ["resize_", "set_", "data"])
def test_tensors_come_back_where_they_were(write):
    module, other = nn.BatchNorm1d(2), torch.full((3,), 7.0)
    module.held = torch.zeros(2)
    tensors = module.held, module.running_mean
    places = [x.data_ptr() for x in tensors]
    with preserve_training_state(module):
        for x in tensors:
            if write == "data":
                x.data = other
            else:
                getattr(x, write)(3 if write == "resize_" else other)
    assert write == "resize_" or [x.data_ptr() for x in tensors] == places
    assert [x.tolist() for x in tensors] == [[0, 0], [0, 0]]
    assert other.tolist() == [7, 7, 7]


def test_an_array_of_another_shape_comes_back():
    module = nn.Linear(1, 1)
    module.held = np.ones(2)
    with preserve_training_state(module):
        module.held.resize(5, refcheck=False)
    assert module.held.tolist() == [1, 1]


class OwnParameter(nn.Parameter):
    pass


@pytest.mark.parametrize("kind", [nn.Parameter, OwnParameter])
def test_parameters_come_back_from_another_precision(kind):
    module = nn.Linear(3, 3)
    module.weight = kind(module.weight.detach())
    before = module.weight.clone()
    with preserve_training_state(module):
        module.half()
    assert torch.equal(module.weight, before)


def test_hooks_of_parameters_do_not_outlive_the_evaluation():
    weight, calls = nn.Linear(1, 1, bias=False).weight, []
    module = nn.ParameterList([weight, nn.Parameter(torch.ones(1))])
    weight.register_hook(lambda _: calls.append("the training's"))
    with preserve_training_state(module):
        weight._backward_hooks.clear()
        for parameter in module:
            parameter.register_hook(lambda _: calls.append(1))
            parameter.register_post_accumulate_grad_hook(lambda _: calls.append(2))
    (module[0] * module[1]).sum().backward()
    assert calls == ["the training's"]


def test_tensors_beyond_the_memory_for_copies_are_left(monkeypatch):
    monkeypatch.setattr("genmonitor.training_state.isolation.MAX_BYTES", 8)
    module = nn.Linear(1, 1)
    module.few, module.many = torch.zeros(2), torch.zeros(3)
    with preserve_training_state(module):
        module.few += 1
        module.many += 1
    assert (module.few.tolist(), module.many.tolist()) == ([0, 0], [1, 1, 1])


def test_a_metric_of_the_package_that_is_part_of_the_module_is_restored():
    module = nn.Module()
    module.metric = MaximumMeanDiscrepancy()
    module.metric.count = 0
    with preserve_training_state(module):
        module.metric.count = 1
    assert module.metric.count == 0

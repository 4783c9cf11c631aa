# SPDX-License-Identifier: Apache-2.0
"""A device without float64, as MPS is one, played on the CPU: tensors that say they are on it refuse the dtype."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("mps")
MOVES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class OnDevice(torch.Tensor):
    """A tensor whose numbers the CPU holds and which says that it is on the device."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, kept):
        if kept.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64: MPS doesn't support float64.")
        return cls._make_wrapper_subclass(cls, kept.shape, strides=kept.stride(), dtype=kept.dtype, device=DEVICE)

    def __init__(self, kept):
        self.kept = kept

    # what follows torch would ask of a device that it was not built for

    def is_complex(self):
        return self.kept.is_complex()

    def __int__(self):
        return int(self.kept)

    def __float__(self):
        return float(self.kept)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class Device(TorchDispatchMode):
    """Lets tensors be made on the device and moved to it, inside a `with` block."""

    def __enter__(self):
        self.moves = Moves()
        self.moves.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.moves.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class Moves(TorchFunctionMode):
    """What torch checks the device for before it dispatches."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.copy_:
            on_cpu(args[0]).copy_(on_cpu(args[1]))
            return args[0]
        if func not in (torch.tensor, torch.Tensor.to) or DEVICE not in (*args[1:], kwargs.get("device")):
            return func(*args, **kwargs)
        kwargs = {name: value for name, value in kwargs.items() if name != "device"}
        out = func(*(on_cpu(x) for x in args if x is args[0] or x != DEVICE), **kwargs)
        return out if isinstance(args[0], OnDevice) and out is args[0].kept else OnDevice(out)


def run(func, args, kwargs):
    """Compute on the CPU; what comes of tensors on the device is on it, unless it is moved."""
    given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    there = any(isinstance(x, OnDevice) for x in given)
    if there and func not in MOVES and any(not isinstance(x, OnDevice) and x.ndim for x in given):
        raise RuntimeError("Expected all tensors to be on the same device, but found at least two, mps and cpu!")
    wanted = kwargs.get("device")
    on_device = there if wanted is None else torch.device(wanted).type == DEVICE.type
    if wanted is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    out = func(*tree_map(on_cpu, args), **tree_map(on_cpu, kwargs))
    if func._schema.is_mutable:
        return args[0]
    return tree_map(lambda x: OnDevice(x) if on_device and isinstance(x, torch.Tensor) else x, out)


def on_cpu(x):
    """Return the tensor of the CPU in one of the device."""
    return x.kept if isinstance(x, OnDevice) else x

# SPDX-License-Identifier: Apache-2.0
"""Subclasses of Tensor: one that overrides what MONAI's `MetaTensor` does, one whose operations return more, one around
another tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class MetaTensor(torch.Tensor):
    """A tensor with metadata, which every result of an operation takes along."""

    meta: dict[str, Any]
    is_batch = False

    @staticmethod
    def __new__(cls, x: Any, meta: dict[str, Any] | None = None) -> MetaTensor:
        return torch.as_tensor(x).as_subclass(cls)

    def __init__(self, x: Any, meta: dict[str, Any] | None = None) -> None:
        self.meta = {"affine": torch.eye(4), **(meta or {})}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        flat = [x for arg in args for x in (arg if isinstance(arg, (list, tuple)) else [arg])]
        metas = [x.__dict__["meta"] for x in flat if isinstance(x, cls) and "meta" in x.__dict__]
        for x in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(x, cls) and metas:
                x.__dict__["meta"] = dict(metas[0])
        return out

    def as_tensor(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)

    def new_empty(self, size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> MetaTensor:  # type: ignore[override]
        return type(self)(self.as_tensor().new_empty(size, dtype=dtype, device=device, requires_grad=requires_grad))

    def clone(self, **kwargs: Any) -> MetaTensor:  # type: ignore[override]
        return type(self)(self.as_tensor().clone(**kwargs), self.meta)

    def astype(self, dtype: Any, device: Any = None, *_: Any) -> Any:
        return self.as_tensor().to(device, dtype)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return func(*(np.asarray(x.as_tensor()) if isinstance(x, MetaTensor) else x for x in args), **kwargs)

    def __repr__(self, *args: Any, **kwargs: Any) -> str:  # type: ignore[override]
        return f"meta{super().__repr__()}"


class Wrapper(torch.Tensor):
    """A tensor whose values are in another one, as those of a DTensor are."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, x: torch.Tensor) -> Wrapper:
        out: Wrapper = torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)
        out.inner = x
        return out

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(x.inner if isinstance(x, cls) else x for x in args), **(kwargs or {}))


class Returned(torch.Tensor):
    """A tensor whose operations return more than their results."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {}), "more"

# SPDX-License-Identifier: Apache-2.0
import re
import runpy
from pathlib import Path

import pytest
import torch

import genmonitor
from genmonitor import CosineKernel
from genmonitor.functional import cosine_mean_similarity
from genmonitor.linalg import precision
from genmonitor.linalg.precision import FUNCTIONS, full_precision

backends = torch.backends
own_settings = pytest.mark.skipif(
    not hasattr(backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9 has one setting for all backends"
)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def user_settings():
    """Whatever a test sets stays in it."""
    yield
    torch.set_float32_matmul_precision("highest")
    if hasattr(backends.cuda.matmul, "fp32_precision"):
        backends.cuda.matmul.fp32_precision = backends.mkldnn.matmul.fp32_precision = "none"
        backends.mkldnn.fp32_precision = backends.fp32_precision = "none"


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_precision_is_full_inside_and_the_users_afterwards(user_settings, precision):
    torch.set_float32_matmul_precision(precision)
    with full_precision():
        if hasattr(backends.cuda.matmul, "fp32_precision"):
            assert (backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision) == ("ieee", "ieee")
        else:
            assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == precision


def test_precision_is_the_users_after_an_exception(user_settings):
    torch.set_float32_matmul_precision("medium")
    with pytest.raises(KeyError), full_precision():
        raise KeyError
    assert torch.get_float32_matmul_precision() == "medium"


@own_settings
def test_precision_set_per_backend_is_restored(user_settings):
    backends.cuda.matmul.fp32_precision = "tf32"
    backends.mkldnn.matmul.fp32_precision = "bf16"
    with full_precision():
        assert (backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision) == ("ieee", "ieee")
    assert (backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision) == ("tf32", "bf16")


@own_settings
def test_precision_of_all_backends_can_still_be_changed(user_settings):
    backends.fp32_precision = "tf32"
    with full_precision():
        assert backends.cuda.matmul.fp32_precision == "ieee"
    assert backends.cuda.matmul.fp32_precision == "tf32"
    backends.fp32_precision = "ieee"
    assert backends.cuda.matmul.fp32_precision == "ieee"


def test_the_users_reduced_precision_changes_no_value(user_settings):
    fake, real = draw(40, 64).float(), draw(50, 64, seed=1).float()
    calls = {
        "cms": lambda: cosine_mean_similarity(fake, real),
        "cosine": lambda: CosineKernel()(fake, real).sum(),
    }
    plain = {name: call() for name, call in calls.items()}
    torch.set_float32_matmul_precision("medium")
    reduced = {name: call() for name, call in calls.items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (fake @ real.T).dtype == torch.bfloat16
        under_autocast = {name: call() for name, call in calls.items()}
    assert plain == reduced == under_autocast


OF_MKL = "acos|asin|atan|cos|cosh|erf|erfc|erfinv|exp|expm1|lgamma|log|log10|log2|sin|sinh|sqrt|tan|tanh|trunc"


def test_functions_of_mkl_are_called_of_one_number_at_import(monkeypatch):
    called = set()
    for name in FUNCTIONS:
        monkeypatch.setattr(torch, name, lambda x, name=name: called.add((name, x.dtype, x.numel(), x.device.type)))
    runpy.run_path(precision.__file__)
    assert called == {(name, dtype, 1, "cpu") for name in FUNCTIONS for dtype in (torch.float32, torch.float64)}


def test_no_function_of_mkl_is_left_out():
    sources = [file.read_text(encoding="utf-8") for file in Path(genmonitor.__path__[0]).rglob("*.py")]
    called = {name for text in sources for name in re.findall(rf"(?<!math)(?<!np)\.({OF_MKL})_?\(", text)}
    assert called == set(FUNCTIONS)

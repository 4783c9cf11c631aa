# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation.sampling.memory import free_memory, is_out_of_memory

SAID = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"),
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous"),
]


@pytest.mark.parametrize("error", SAID, ids=["CUDA", "MPS", "cuDNN"])
def test_what_devices_say_is_understood(error):
    assert is_out_of_memory(error)


def test_what_the_cpu_says_is_understood():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("error", [RuntimeError("shapes do not match"), ValueError("out of memory")])
def test_other_errors_are_others(error):
    assert not is_out_of_memory(error)
    free_memory()

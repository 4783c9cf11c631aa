# SPDX-License-Identifier: Apache-2.0
import socket

import pytest
import torch
from _helpers.pretrained import save_clip

from genmonitor.encoders import text_encoder


def test_a_model_of_the_hubs_cache_is_loaded_without_the_network(tmp_path, monkeypatch):
    """Old weights too, which transformers would ask the hub to convert."""
    transformers = pytest.importorskip("transformers")
    constants = pytest.importorskip("huggingface_hub.constants")
    snapshot = tmp_path / "models--somebody--mini" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    save_clip(snapshot)
    model = transformers.CLIPModel.from_pretrained(snapshot)
    (snapshot / "model.safetensors").unlink()
    torch.save(model.state_dict(), snapshot / "pytorch_model.bin")
    (tmp_path / "models--somebody--mini" / "refs").mkdir()
    (tmp_path / "models--somebody--mini" / "refs" / "main").write_text("0123")

    def unreachable(*address, **settings):
        asked.append(address)
        raise OSError("no network")

    asked = []
    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert len(text_encoder("somebody/mini")(["a dog"])) == 1
    assert asked == []

# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys

import pytest
import torch
from _helpers.pretrained import LENGTH, SHARED, save_clip, save_dinov2, save_siglip
from torch.nn.functional import normalize

from genmonitor.callbacks import DiversityMonitor
from genmonitor.encoders import text_encoder
from genmonitor.encoders.frozen import FrozenEncoder
from genmonitor.encoders.pretrained import TEXT_MODELS

TEXTS = ["a white cat", "dog"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    save = {"clip": save_clip, "siglip": save_siglip}
    return {name: save(tmp_path_factory.mktemp(name)) for name, save in save.items()}


def test_clip_embeddings_are_those_of_transformers(folders):
    from transformers import CLIPModel, CLIPTokenizer

    model, tokenizer = (kind.from_pretrained(folders["clip"]) for kind in (CLIPModel, CLIPTokenizer))
    texts = text_encoder(folders["clip"])
    tokens = tokenizer(["a cat", "dogs"], padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(pixel_values=torch.zeros(1, 3, 32, 32), **tokens).text_embeds
        assert torch.allclose(normalize(texts(["a cat", "dogs"])), expected, atol=1e-5)
    assert texts(["a far longer prompt than the tiny model takes"]).shape == (1, SHARED)


def test_siglip_embeddings_are_those_of_transformers(folders):
    from transformers import AutoTokenizer, SiglipModel

    model, tokenizer = (kind.from_pretrained(folders["siglip"]) for kind in (SiglipModel, AutoTokenizer))
    ids = tokenizer(TEXTS, padding="max_length", max_length=LENGTH, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        expected = model.eval().text_model(input_ids=ids).pooler_output
        assert torch.allclose(text_encoder(folders["siglip"])(["A white CAT", "Dog"]), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_text_is_the_same_beside_a_longer_one(folders, name):
    texts = FrozenEncoder("prompt_encoder", text_encoder(folders[name]), 2)
    assert torch.allclose(texts(["dog"]), texts(["dog", "a white cat"])[:1], atol=1e-5)
    assert not torch.allclose(texts(["dog"]), texts(["cat"]), atol=1e-3)


def test_a_model_without_texts_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is of kind 'dinov2'.*sentence-transformers"):
        text_encoder(save_dinov2(tmp_path))


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_short_names_are_looked_for_on_this_machine_only(name, monkeypatch):
    pytest.importorskip("transformers")
    asked = []
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *what: asked.append(what))
    with pytest.raises(FileNotFoundError, match=f"Run: hf download {TEXT_MODELS[name]}"):
        text_encoder(name)
    assert asked == [(TEXT_MODELS[name], "config.json")]


def test_siglip_reads_its_own_tokenizer(folders, tmp_path):
    """SigLIP's is of sentencepiece, which transformers does not bring."""
    sentencepiece = pytest.importorskip("sentencepiece")
    import transformers

    (tmp_path / "lines.txt").write_text("a photo of a white cat and a dog\n" * 20)
    settings = {"model_prefix": str(tmp_path / "spiece"), "vocab_size": 24, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(input=str(tmp_path / "lines.txt"), minloglevel=2, **settings)
    transformers.SiglipTokenizer(str(tmp_path / "spiece.model")).save_pretrained(tmp_path)
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((folders["siglip"] / file).read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"]["vocab_size"] = 64
    (tmp_path / "config.json").write_text(json.dumps(config))
    transformers.SiglipModel(transformers.SiglipConfig.from_pretrained(tmp_path)).save_pretrained(tmp_path)
    texts = text_encoder(tmp_path)
    with torch.no_grad():
        assert torch.allclose(texts(["A cat!"]), texts(["a cat"]), atol=1e-5)  # without case and punctuation
        assert not torch.allclose(texts(["a cat"]), texts(["a dog"]), atol=1e-4)


def test_a_monitor_takes_the_name(folders):
    monitor = DiversityMonitor(TEXTS, 8, prompt_encoder=str(folders["clip"]))
    monitor.evaluator._encode_prompts(torch.zeros(2, 1, 4, 4))
    assert monitor.evaluator.dims == (16, SHARED)


def test_the_extra_is_named_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "genmonitor\[clip\]"'):
        text_encoder("clip")


@pytest.mark.slow
def test_evaluation_is_imported_without_loading_clip():
    code = """
import sys, torchmetrics  # torchmetrics loads what it finds of transformers
import genmonitor.evaluation
assert "transformers.models.clip.modeling_clip" not in sys.modules
from transformers import CLIPModel
assert "transformers.models.clip.modeling_clip" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch import nn

from genmonitor.encoders.frozen import (
    FrozenEncoder,
    OneHot,
    SiteEncoder,
    check_not_meta,
    check_not_shared,
    pixels,
)

CPU = torch.device("cpu")


@pytest.fixture
def frozen():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Dropout(0.9)).train()
    encoder = FrozenEncoder("output_encoder", net, batch_size=3)
    encoder.freeze(CPU)
    return encoder


def test_frozen_encoder_switches_a_module_to_eval_mode(frozen):
    assert not any(part.training for part in frozen.encoder.modules())
    assert not any(parameter.requires_grad for parameter in frozen.encoder.parameters())


def test_frozen_encoder_runs_without_gradients(frozen):
    images = torch.randn(7, 1, 8, 8, requires_grad=True)
    features = frozen(images)
    assert not features.requires_grad
    assert torch.allclose(features, frozen.encoder[1](images.flatten(1)), atol=1e-6)


def test_frozen_encoder_gives_each_sample_once_in_batches():
    sizes = []

    def encoder(images):
        sizes.append(len(images))
        return images.flatten(1)

    images = torch.randn(7, 1, 2, 2)
    assert torch.equal(FrozenEncoder("output_encoder", encoder, 3)(images), images.flatten(1))
    assert sizes == [3, 3, 1]


def test_frozen_encoder_takes_strings_in_batches():
    encoder = FrozenEncoder("prompt_encoder", lambda texts: torch.tensor([[float(len(t))] for t in texts]), 2)
    assert encoder(["a", "bb", "ccc"]).flatten().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda x: x, r"what output_encoder returns` of shape \[N, D\], but got \[4, 1, 2, 2\]"),
        (lambda x: x.flatten(1)[:1], "one row per sample, but got 1 for 4"),
        (lambda x: x.flatten(1) / 0, "what output_encoder returns` to be finite, but 16"),
        (lambda x: x.flatten(1).numpy(), r"what output_encoder returns` to be a torch\.Tensor"),
    ],
)
def test_frozen_encoder_checks_what_comes_back(encoder, message):
    with pytest.raises((TypeError, ValueError), match=message):
        FrozenEncoder("output_encoder", encoder, 9)(torch.ones(4, 1, 2, 2))


def test_frozen_encoder_must_be_callable():
    with pytest.raises(TypeError, match="`prompt_encoder` to be a callable"):
        FrozenEncoder("prompt_encoder", "clip", 9)


@pytest.mark.parametrize(("encoder", "name"), [(nn.Flatten(), "Flatten"), (pixels, "pixels"), (OneHot([1]), "OneHot")])
def test_frozen_encoder_describes_itself_by_name(encoder, name):
    assert FrozenEncoder("output_encoder", encoder, 9).description() == name


def test_check_not_shared_refuses_parts_of_the_generator():
    generator = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"`output_encoder` to be apart.*copy\.deepcopy"):
        check_not_shared("output_encoder", nn.Sequential(generator[0]), generator)


def test_check_not_shared_lets_an_encoder_of_its_own_pass():
    assert check_not_shared("output_encoder", nn.Linear(2, 2), nn.Linear(2, 2)) is None


def test_check_not_meta_refuses_an_encoder_without_weights():
    with pytest.raises(ValueError, match="`site_encoder` with weights, but those of Linear are on the meta device"):
        check_not_meta("site_encoder", nn.Linear(2, 2, device="meta"))


@pytest.mark.parametrize(
    "use",
    [
        lambda encoder: FrozenEncoder("output_encoder", encoder, 9).freeze(CPU),
        lambda encoder: SiteEncoder(encoder, 9).to(CPU),
    ],
    ids=["frozen", "of sites"],
)
def test_encoders_without_weights_are_refused(use):
    with pytest.raises(ValueError, match="on the meta device"):
        use(nn.Linear(2, 2, device="meta"))


def test_site_encoder_without_one_gives_the_images():
    images = torch.randn(3, 1, 4, 4)
    assert SiteEncoder(None, 2)(images) is images


def test_site_encoder_gives_maps_batch_by_batch():
    sizes = []

    def halved(images):
        sizes.append(len(images))
        return images[:, :, ::2, ::2].double()

    images = torch.randn(5, 1, 4, 4)
    maps = SiteEncoder(halved, 2)(images)
    assert torch.equal(maps, images[:, :, ::2, ::2])
    assert maps.dtype == torch.float32
    assert sizes == [2, 2, 1]


def test_site_encoder_gives_no_empty_batch_to_its_encoder():
    assert SiteEncoder(lambda images: 1 / 0, 2)(torch.empty(0, 1, 4, 4)).shape == (0, 1, 4, 4)


def test_site_encoder_restores_a_part_of_the_generator():
    part = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 2, 2, stride=2)).train()
    before = {name: value.clone() for name, value in part.state_dict().items()}
    assert SiteEncoder(part, 2)(torch.randn(3, 1, 4, 4)).shape == (3, 2, 2, 2)
    assert all(torch.equal(value, before[name]) for name, value in part.state_dict().items())
    assert part.training
    assert all(parameter.requires_grad for parameter in part.parameters())


def _in_place(x):
    return x.mul_(2)


IN_PLACE = {
    "site_encoder": (lambda: SiteEncoder(_in_place, 2), torch.rand(3, 1, 4, 4)),
    "output_encoder": (
        lambda: FrozenEncoder("output_encoder", lambda x: _in_place(x).flatten(1), 2),
        torch.rand(3, 1, 4, 4),
    ),
    "prompt_encoder": (
        lambda: FrozenEncoder("prompt_encoder", lambda x: _in_place(x)[:, None], 2),
        torch.tensor([1, 2, 3]),
    ),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_encoder_that_works_in_place_changes_no_sample(name):
    make, batch = IN_PLACE[name]
    before = batch.clone()
    encoded = make()(batch)
    assert torch.equal(batch, before)
    assert torch.equal(encoded.flatten(), 2.0 * before.flatten())


def test_site_encoder_must_be_callable():
    with pytest.raises(TypeError, match="`site_encoder` to be a callable from images to maps"):
        SiteEncoder("vae", 2)

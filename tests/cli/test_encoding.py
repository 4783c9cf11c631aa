# SPDX-License-Identifier: Apache-2.0
from argparse import Namespace

import pytest
import torch

from genmonitor._io import no_progress
from genmonitor.cli.encoding import (
    as_samples,
    encode,
    encoder_range,
    prompt_encoder,
)
from genmonitor.cli.outputs import Outputs
from genmonitor.cli.prompts import PromptRows
from genmonitor.distributed import SingleProcess
from genmonitor.images.image_set import ImageSet

CPU = torch.device("cpu")
NAMES = ["1", "2", "3"]


def held(values):
    return ImageSet(values)


IMAGES = Outputs("a", NAMES, images=held(torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))))
VECTORS = Outputs("v", NAMES, features=torch.eye(3))


def arguments(**given):
    settings = {"encoder": "pixels", "text_encoder": None, "batch_size": 2}
    return Namespace(**settings | given)


def encoded(*sets, **given):
    return encode(arguments(**given), sets, CPU, SingleProcess(), no_progress)


def test_pixels_are_features_in_the_order_of_the_images():
    (images,) = encoded(IMAGES)
    assert torch.equal(images.features, IMAGES.images.data.flatten(1))
    assert images.images is IMAGES.images


def test_embeddings_need_no_encoder():
    assert encoded(VECTORS) == [VECTORS]
    with pytest.raises(ValueError, match="no --encoder for embeddings, but got clip"):
        encoded(VECTORS, encoder="clip")


def test_values_in_no_usual_range_are_refused(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"but got values from 0 to 3. Scale them",
    ):
        encoded(Outputs("a", NAMES, images=held(torch.linspace(0, 3, 12).view(3, 1, 2, 2))), encoder=str(tmp_path))


def ranged(*values, encoder="clip", **given):
    outputs = Outputs("a", NAMES, images=held(torch.tensor(values).expand(3, 1, 2, len(values))))
    return encoder_range(arguments(encoder=encoder, **given), [outputs])


def test_a_range_other_than_0_to_1_is_given_and_never_guessed():
    assert ranged(-1e-6, 1.0) == (0, 1)
    for low in (-0.002, -0.9):
        with pytest.raises(ValueError, match=rf"but got values from {low} to 1. Scale them"):
            ranged(low, 1.0)
    assert ranged(-0.002, 1.0, encoder="pixels") is None


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (VECTORS, "one kind and shape, but a holds images of shape .* and v holds embeddings"),
        (Outputs("b", ["1"], images=held(IMAGES.images.data[:1])), "at least 2 images, but b has 1"),
        (
            Outputs("b", NAMES, images=held(torch.zeros(3, 3, 8, 8))),
            r"a holds images of shape \[1, 8, 8\] and b holds images of shape \[3, 8, 8\]. Give --size",
        ),
        (Outputs("b", NAMES, images=held(2 * IMAGES.images.data - 1)), "a and b in one value range, but"),
    ],
)
def test_sets_that_do_not_go_together_are_refused(other, complaint):
    with pytest.raises(ValueError, match=complaint):
        encoded(IMAGES, other)


def test_prompts_are_encoded_by_what_they_are():
    args = arguments()
    assert prompt_encoder(args, PromptRows([3, 4])) is None
    assert torch.equal(prompt_encoder(args, PromptRows(["a", "b", "a"]))(["b", "a"]), torch.eye(2).flip(0))


def test_samples_are_numbered_through():
    samples = as_samples(VECTORS, CPU, first=7)
    assert samples.images.shape == (3, 3, 1, 1)
    assert samples.indices.tolist() == [7, 8, 9]

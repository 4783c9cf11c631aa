# SPDX-License-Identifier: Apache-2.0
import json

import pytest
import torch
from _helpers.evaluations import ScriptedCollective
from torch import nn

from genmonitor import CosineKernel, GaussianKernel
from genmonitor.evaluation.collective import SingleProcess
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.data.real_subset import RealSubset
from genmonitor.evaluation.data.reference import ReferenceImages
from genmonitor.evaluation.prompts.prompted import PromptedFeatures

IMAGES = torch.rand(12, 1, 2, 2, generator=torch.Generator().manual_seed(0))


def features(prompts=(5, 3), **settings):
    defaults = {
        "output_encoder": None,
        "prompt_encoder": None,
        "kernel": CosineKernel(),
        "prompt_kernel": CosineKernel(),
        "num_features": None,
        "batch_size": 4,
    }
    return PromptedFeatures(Prompts(list(prompts)), **(defaults | settings))


def fitted(**settings):
    found = features(**settings)
    found.fit(IMAGES[:3])
    return found


def real_subset():
    return RealSubset.at_random(ReferenceImages(given=IMAGES), 12, 0, (1, 2, 2))


def lengths(texts):
    return torch.tensor([[float(len(text))] for text in texts])


def test_features_without_encoders_are_pixels_and_one_hot():
    found = fitted()
    assert found.dims == (4, 2)
    assert torch.equal(found.encode(IMAGES), IMAGES.flatten(1))
    assert found.of_prompts(torch.tensor([0, 1, 3])).tolist() == [[0, 1], [1, 0], [1, 0]]


def test_features_of_strings_come_from_their_encoder():
    found = fitted(prompts=["a", "bbb"], prompt_encoder=lengths)
    assert found.of_prompts(torch.arange(3)).tolist() == [[1], [3], [1]]


def test_features_of_no_images_keep_their_width():
    assert fitted().encode(IMAGES[:0]).shape == (0, 4)


def test_features_freeze_the_modules_among_the_encoders():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    found = fitted(output_encoder=net)
    assert found.networks() == {"output_encoder": net}
    assert not any(parameter.requires_grad for parameter in net.parameters())


def test_widths_are_taken_from_real_images_and_distinct_prompts():
    found = fitted(prompts=[5, 3, 5, 5], kernel=GaussianKernel(), prompt_kernel=GaussianKernel())
    subset = real_subset()
    found.fit_widths(subset, SingleProcess())
    assert found.kernel == GaussianKernel().resolved(subset.read(range(12)).flatten(1))
    assert found.prompt_kernel == GaussianKernel().resolved(torch.eye(2))


def test_widths_that_are_given_stay():
    found = fitted(kernel=GaussianKernel(0.5), prompt_kernel=GaussianKernel(2.0))
    found.fit_widths(real_subset(), SingleProcess())
    assert (found.kernel.gamma, found.prompt_kernel.gamma) == (0.5, 2.0)


def test_width_of_outputs_is_that_of_rank_zero():
    found = fitted(kernel=GaussianKernel())
    found.fit_widths(real_subset(), ScriptedCollective(rank=1, sent=GaussianKernel(7.0)))
    assert found.kernel.gamma == 7.0


def test_width_without_real_images_must_be_given():
    with pytest.raises(ValueError, match="a `kernel` with its gamma, since there are no real images"):
        fitted(kernel=GaussianKernel()).fit_widths(None, SingleProcess())


def test_features_state_holds_the_widths():
    first, second = (fitted(kernel=GaussianKernel(), prompt_kernel=GaussianKernel()) for _ in range(2))
    first.fit_widths(real_subset(), SingleProcess())
    second.load_state_dict(first.state_dict())
    assert (second.kernel, second.prompt_kernel) == (first.kernel, first.prompt_kernel)


def test_features_manifest_names_what_they_are_made_of():
    found = fitted(prompts=["a", "bb"], prompt_encoder=lengths).manifest("diversity")
    assert found["prompts_file"] == "diversity_prompts.json"
    assert (found["output_encoder"], found["prompt_encoder"]) == ("pixels", "lengths")


def test_features_artifact_is_the_file_of_the_manifest(tmp_path):
    found = fitted(prompts=["ä", "bb"], prompt_encoder=lengths)
    found.write_artifacts(tmp_path, "diversity")
    assert json.loads((tmp_path / found.manifest("diversity")["prompts_file"]).read_text()) == {"prompts": ["ä", "bb"]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompts": ["a", "b"]}, "Expected a `prompt_encoder` for prompts that are strings"),
    ],
)
def test_features_refuse(settings, message):
    with pytest.raises(ValueError, match=message):
        features(**settings)

# SPDX-License-Identifier: Apache-2.0

import pytest
import torch
from _helpers.evaluations import ScriptedCollective
from torch import nn

from genmonitor import CosineKernel, GaussianKernel
from genmonitor.distributed import SingleProcess
from genmonitor.evaluation import DisagreementEvaluator, DisagreementSettings
from genmonitor.images.image_set import ImageSet

IMAGES = torch.rand(12, 1, 2, 2, generator=torch.Generator().manual_seed(0))
COSINES = {"kernel": CosineKernel(), "prompt_kernel": CosineKernel()}
GAUSSIANS = {"kernel": GaussianKernel(), "prompt_kernel": GaussianKernel()}


def evaluator(prompts=(5, 3), kernels=COSINES, **arguments):
    settings = DisagreementSettings.of(list(prompts), 12, "start", **kernels)
    return DisagreementEvaluator(settings, batch_size=4, **arguments)


def encoded(**arguments):
    found = evaluator(**arguments)
    found._encode_prompts(IMAGES[:3])
    return found


def fitted(subset, comm=None, **arguments):
    found = encoded(**arguments)
    found._fit_gammas(subset, (), IMAGES[:3], comm or SingleProcess())
    return found


def real_subset():
    return ImageSet(IMAGES).to_compare(12, 0, (1, 2, 2))


def lengths(texts):
    return torch.tensor([[float(len(text))] for text in texts])


def test_features_without_encoders_are_pixels_and_one_hot():
    found = encoded()
    assert found.dims == (4, 2)
    assert torch.equal(found._encode(IMAGES), IMAGES.flatten(1))
    assert found._prompts_of(torch.tensor([0, 1, 3])).tolist() == [[0, 1], [1, 0], [1, 0]]


def test_features_of_strings_come_from_their_encoder():
    found = encoded(prompts=["a", "bbb"], prompt_encoder=lengths)
    assert found._prompts_of(torch.arange(3)).tolist() == [[1], [3], [1]]


def test_features_of_no_images_keep_their_width():
    assert encoded()._encode(IMAGES[:0]).shape == (0, 4)


def test_modules_among_the_encoders_are_frozen():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    found = encoded(output_encoder=net)
    assert found.networks() == {"output_encoder": net}
    assert not any(parameter.requires_grad for parameter in net.parameters())


def test_gammas_are_taken_from_real_images_and_distinct_prompts():
    subset = real_subset()
    found = fitted(subset, prompts=[5, 3, 5, 5], kernels=GAUSSIANS)
    assert found.kernel == GaussianKernel().resolved(subset.read(range(12)).flatten(1))
    assert found.prompt_kernel == GaussianKernel().resolved(torch.eye(2))


def test_gammas_that_are_given_stay():
    given = {"kernel": GaussianKernel(0.5), "prompt_kernel": GaussianKernel(2.0)}
    found = fitted(real_subset(), kernels=given)
    assert (found.kernel.gamma, found.prompt_kernel.gamma) == (0.5, 2.0)


def test_gamma_of_outputs_is_that_of_rank_zero():
    class Scripted(ScriptedCollective):
        def broadcast(self, value):
            return value if isinstance(value, list) else super().broadcast(value)

    found = fitted(real_subset(), Scripted(rank=1, sent=GaussianKernel(7.0)), kernels=GAUSSIANS)
    assert found.kernel.gamma == 7.0


def test_gamma_without_real_images_must_be_given():
    with pytest.raises(ValueError, match="a `kernel` with its gamma, since there are no real images"):
        fitted(None, kernels=GAUSSIANS)


def test_state_holds_the_gammas():
    first, second = fitted(real_subset(), kernels=GAUSSIANS), encoded(kernels=GAUSSIANS)
    second.load_state_dict(first.state_dict())
    assert (second.kernel, second.prompt_kernel) == (first.kernel, first.prompt_kernel)


def test_manifest_names_encoders():
    found = encoded(prompts=["ä", "bb"], prompt_encoder=lengths)
    manifest = found.manifest()
    assert (manifest["output_encoder"], manifest["prompt_encoder"]) == ("pixels", "lengths")


def test_strings_need_an_encoder():
    with pytest.raises(ValueError, match="Expected a `prompt_encoder` for prompts that are strings"):
        evaluator(prompts=["a", "b"])

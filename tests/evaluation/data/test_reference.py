# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _helpers.modules import loader
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

from genmonitor.evaluation.data.reference import assign_roles


def numbered(count, start=0):
    """Return images that know their own index."""
    return torch.arange(start, start + count, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)


def fake_trainer(train=None, val=None):
    return SimpleNamespace(train_dataloader=train, val_dataloaders=val, enable_validation=val is not None)


def assign(train=None, val=None, real_images=None, n_clusters=20, n_samples=30, block_size=None, seed=0):
    return assign_roles(fake_trainer(train, val), real_images, None, n_clusters, n_samples, block_size, seed)


def test_with_validation_data_nothing_of_it_serves_for_clusters_or_yardstick():
    roles = assign(loader(numbered(100)), loader(numbered(50, start=1000)))
    training = roles.training.read(roles.for_clusters + roles.for_yardstick.tolist())
    assert training.max() < 1000 <= roles.compared.read(roles.for_comparison).min()
    assert (len(set(roles.for_clusters)), len(set(roles.for_comparison))) == (20, 30)
    assert roles.for_yardstick.sort().values.tolist() == list(range(100))
    assert roles.notes == []


def test_without_it_training_images_are_compared_with_that_serve_for_nothing_else_and_it_says_so():
    roles = assign(loader(numbered(100)))
    assert roles.compared is roles.training
    assert not set(roles.for_comparison) & (set(roles.for_clusters) | set(roles.for_yardstick.tolist()))
    assert len(roles.for_comparison) + len(roles.for_yardstick) == 100
    assert roles.notes == [
        "there is no validation data, or it is switched off: generated images are compared with training images"
    ]


def test_the_users_own_images_take_every_role_without_remark():
    roles = assign(loader(numbered(9, start=500)), loader(numbered(9, start=500)), real_images=numbered(100))
    chosen = roles.for_comparison + roles.for_yardstick.tolist()
    assert sorted(roles.training.read(chosen)[:, 0, 0, 0].tolist()) == list(range(100))
    assert roles.notes == []


def test_too_few_images_to_be_certain_of_are_named():
    few = assign(loader(numbered(40)))
    assert few.notes[1:] == [
        "only 20 real images are there to compare 30 generated ones with",
        "the baseline's draws of 30 overlap much, so its band is too narrow: only 20 training images are there to "
        "draw from",
    ]
    assert len(assign(loader(numbered(60)), loader(numbered(30))).notes) == 0
    assert len(assign(loader(numbered(59)), loader(numbered(30))).notes) == 1


def test_the_compared_side_is_whole_blocks():
    assert len(assign(loader(numbered(100)), loader(numbered(29)), block_size=8).for_comparison) == 24
    with pytest.raises(ValueError, match=r"a whole block with `block_size`.*the validation data 7"):
        assign(loader(numbered(100)), loader(numbered(7)), block_size=8)


def test_the_choice_is_random_the_seeds_and_no_one_elses():
    state = torch.get_rng_state()
    first = assign(loader(numbered(100)), loader(numbered(50)))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(9)
    again, other = (assign(loader(numbered(100)), loader(numbered(50)), seed=seed) for seed in (0, 1))
    assert again.for_clusters == first.for_clusters
    assert again.for_comparison == first.for_comparison
    assert torch.equal(again.for_yardstick, first.for_yardstick)
    assert other.for_comparison != first.for_comparison
    assert first.for_clusters != sorted(first.for_clusters)  # data is often ordered by class


def test_no_images_at_all_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"the Trainer has no training data\. Give `real_images=`"):
        assign()
    with pytest.raises(ValueError, match=r"the training data holds 3 and the training data 3\. Give more images"):
        assign(loader(numbered(3)))
    with pytest.raises(ValueError, match="`real_images` holds 1 "):
        assign(real_images=numbered(1))


def test_samplers_that_split_one_dataset_are_kept_to():
    images = TensorDataset(numbered(100))
    loaders = [DataLoader(images, 10, sampler=SubsetRandomSampler(part)) for part in (range(60), range(60, 100))]
    roles = assign(*loaders)
    assert (
        roles.training.read(roles.for_yardstick.tolist()).max() < 60 <= roles.compared.read(roles.for_comparison).min()
    )
    assert roles.notes == []


def test_validation_images_that_are_training_images_serve_for_the_comparison_alone():
    images = TensorDataset(numbered(100))
    roles = assign(DataLoader(images), DataLoader(Subset(images, range(50, 100))))
    compared = set(roles.compared.read(roles.for_comparison)[:, 0, 0, 0].tolist())
    others = set(roles.training.read(roles.for_yardstick.tolist())[:, 0, 0, 0].tolist())
    assert not compared & others
    assert len(others) == 100 - len(compared) == 70
    assert roles.notes[0].startswith("30 of the 30 validation images compared with are training images too")


def test_a_dataset_with_a_random_generator_out_of_sight_is_noted():
    class Augmented(TensorDataset):
        random = np.random.default_rng(0)  # not an attribute of the dataset itself

        def __getitem__(self, index):
            return super().__getitem__(index)[0] + self.random.random()

    notes = assign(DataLoader(Augmented(numbered(200)))).notes
    assert "an image of the training data is another each time it is read" in notes[-1]

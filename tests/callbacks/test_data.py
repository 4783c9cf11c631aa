# SPDX-License-Identifier: Apache-2.0
import re
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit, loader, plain, trainer
from _helpers.replayed import Digits
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from genmonitor.callbacks.data import batch_size, check_split, find_loader
from genmonitor.distributed import Collective
from genmonitor.images.image_set import sampled_indices

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined")]


class Stream(IterableDataset):
    def __init__(self, images):
        self.images = images

    def __iter__(self):
        return iter([(image,) for image in self.images])


class Captioned(Linear):
    """Takes images from the second part of a combined batch."""

    def training_step(self, batch, index):
        return super().training_step(batch["images"], index)


class Domains(Linear):
    """Trains on images of two domains."""

    def training_step(self, batch, index):
        return super().training_step(batch["photos"], index)


def streamed(images):
    return DataLoader(Stream(images), 100)


def real_sizes(monitor):
    """Return how many real images are compared with, and where they come from."""
    origin = monitor.evaluator.fitted.real_origin
    return len(origin["indices"]), origin["from"]


def test_streams_serve_as_real_images_and_it_is_said(tmp_path):
    monitor = plain()
    train, val = streamed(digits(0, 300)), streamed(digits(300, 500))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit(tmp_path, monitor, train=train, val=val, limit_train_batches=3, limit_val_batches=2)
    texts = " ".join(str(warning.message) for warning in said)
    assert "the training data can only be streamed, so its first 300 images serve" in texts
    assert "the validation data can only be streamed, so its first 200 images serve" in texts
    assert real_sizes(monitor) == (60, "the validation data")
    assert len(monitor.history) == 2


def test_training_is_untouched_by_a_pass_over_its_stream(tmp_path):
    weights = []
    for monitors in ((), (plain(on_error="warn"),)):
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, module = fit(tmp_path, *monitors, module=Linear(), train=streamed(digits(0, 300)), limit_train_batches=3)
        weights.append(module.net.weight.detach().clone())
    assert torch.equal(*weights)


def test_given_streams_are_taken_too(tmp_path):
    monitor = plain(real_images=Stream(digits(0, 400)))
    with pytest.warns(UserWarning, match="`real_images` can only be streamed, so its first 400 images serve"):
        fit(tmp_path, monitor, max_epochs=1)
    assert real_sizes(monitor)[1] == "`real_images`"


def test_the_key_of_a_loader_names_that_of_the_images(tmp_path):
    words = DataLoader(TensorDataset(torch.zeros(300, 5)), 100)
    train = CombinedLoader({"words": words, "images": loader(digits(0, 300))}, "max_size")
    monitor = plain(image_key="images")
    fit(tmp_path, monitor, module=Captioned(), train=train, val=loader(digits(300, 500)), max_epochs=1)
    assert len(monitor.history) == 1


PHOTOS, SKETCHES = loader(digits(0, 300)), loader(digits(300, 600))
FOUND = {
    "nothing": (None, None, None),
    "one alone": (PHOTOS, None, PHOTOS),
    "nested": ({"a": [PHOTOS]}, None, PHOTOS),
    "twice the same data": ([PHOTOS, DataLoader(PHOTOS.dataset, 50)], None, PHOTOS),
    "the key of one": ({"photos": PHOTOS, "sketches": SKETCHES}, "sketches", SKETCHES),
    "the key of one, combined": ({"photos": PHOTOS, "sketches": SKETCHES}, "sketches", SKETCHES),
}
AMBIGUOUS = {
    "a dict": ({"photos": PHOTOS, "sketches": SKETCHES}, "['photos'] and ['sketches']"),
    "the other order": ({"sketches": SKETCHES, "photos": PHOTOS}, "['sketches'] and ['photos']"),
    "a list": ([PHOTOS, SKETCHES], "[0] and [1]"),
    "combined": ({"a": [PHOTOS], "b": SKETCHES}, "['a'][0] and ['b']"),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_loader_of_images_is_found(name):
    loaders, key, expected = FOUND[name]
    assert find_loader(CombinedLoader(loaders) if "combined" in name else loaders, key) is expected


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_several_loaders_are_refused_by_name(name):
    loaders, said = AMBIGUOUS[name]
    loaders = CombinedLoader(loaders) if "combined" in name else loaders
    with pytest.raises(ValueError, match=re.escape(said) + ".* Give `image_key=` the key of one of them, or `real_"):
        find_loader(loaders, None)


def test_the_first_of_a_list_of_validation_loaders_is_taken():
    assert find_loader([PHOTOS, SKETCHES], None, "validation") is PHOTOS


class Validated(Linear):
    def validation_step(self, batch, index, dataloader_idx=0):
        pass


@pytest.mark.filterwarnings("ignore:.*(the first of 2 validation loaders|there is no validation data)")
@pytest.mark.parametrize("given", [None, PHOTOS.dataset])
@pytest.mark.parametrize("held_out", [[PHOTOS, SKETCHES], [PHOTOS, PHOTOS], PHOTOS])
def test_the_loader_that_was_taken_of_several_is_said(tmp_path, held_out, given):
    monitor = plain(real_images=given)
    fit(tmp_path, monitor, train=loader(digits(600, 900)), val=held_out, module=Validated(), max_epochs=1)
    said = [note for note in monitor.publisher.notes.items if "the first of 2 validation loaders" in note["text"]]
    assert len(said) == (given is None and held_out == [PHOTOS, SKETCHES])


@pytest.mark.filterwarnings("ignore:.*(training draws images by weights|there is no validation data)")
@pytest.mark.parametrize(("weights", "said", "indices"), [("equal", 0, 300), ("zeros", 0, 150), ("two", 1, 300)])
def test_images_that_training_draws_by_weights(tmp_path, weights, said, indices):
    """What has no weight is no training image; of other weights it is said that they do not count."""
    of = {"equal": torch.ones(300), "zeros": torch.arange(300) % 2, "two": 1.0 + torch.arange(300) % 2}[weights]
    data, monitor = TensorDataset(digits(0, 300)), plain(n_samples=40)
    train = DataLoader(data, 50, sampler=WeightedRandomSampler(of.double(), 300))
    fit(tmp_path, monitor, train=train, max_epochs=1)
    notes = [note for note in monitor.publisher.notes.items if "draws images by weights" in note["text"]]
    assert len(notes) == said
    chosen = sampled_indices(train)
    assert len(range(300) if chosen is None else chosen) == indices


@pytest.mark.parametrize("hook", ["on_before_batch_transfer", "on_after_batch_transfer"])
@pytest.mark.parametrize("owner", [Linear, Digits])
def test_hooks_that_may_change_a_batch_are_named(tmp_path, hook, owner):
    """They change what the generator learns, and real images are read without them."""
    changes = type("Changes", (owner,), {hook: lambda self, batch, dataloader_idx: batch})()
    monitor, loaders = plain(n_samples=40), [loader(digits(0, 300)), loader(digits(600, 700))]
    given = (Linear(), None, None, changes) if owner is Digits else (changes, *loaders)
    with pytest.warns(UserWarning, match=f"Changes.{hook} may change batches"):
        trainer(tmp_path, monitor, max_epochs=1).fit(*given)
    assert sum("may change batches" in note["text"] for note in monitor.publisher.notes.items) == 1


def test_a_training_on_two_domains_is_refused_before_its_first_step_until_one_is_named(tmp_path):
    module = Domains()
    train = {"photos": PHOTOS, "sketches": SKETCHES}
    with pytest.raises(ValueError, match="one loader of images in the training data"):
        fit(tmp_path, plain(), module=module, train=train)
    assert module.global_step == 0
    monitor = plain(image_key="sketches", n_samples=60)
    fit(tmp_path, monitor, module=module, train=train, val=loader(digits(600, 700)), max_epochs=1)
    assert monitor.evaluator.fitted.regions is not None


SPLIT = {
    "sampler": lambda data, indices: DataLoader(data, 50, sampler=SubsetRandomSampler(indices)),
    "batch_sampler": lambda data, indices: DataLoader(
        data, batch_sampler=BatchSampler(SubsetRandomSampler(indices), 50, drop_last=False)
    ),
    "list": lambda data, indices: DataLoader(data, 50, sampler=indices),
    "range": lambda data, indices: DataLoader(data, 50, sampler=range(indices[0], indices[-1] + 1)),
    "tensor": lambda data, indices: DataLoader(data, 50, sampler=torch.tensor(indices)),
    "list in a batch_sampler": lambda data, indices: DataLoader(data, batch_sampler=BatchSampler(indices, 50, True)),
    "list of batches": lambda data, indices: DataLoader(data, batch_sampler=[indices[:150], indices[150:]]),
    "array of batches": lambda data, indices: DataLoader(data, batch_sampler=np.array(indices).reshape(-1, 50)),
    "own sampler": lambda data, indices: DataLoader(data, 50, sampler=OwnSampler(indices)),
}


class OwnSampler(Sampler):
    """Chooses from its indices."""

    def __init__(self, indices):
        self.indices = indices

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


class ClosedSampler(OwnSampler):
    """Chooses from indices that it shows to nobody."""

    def __init__(self, indices):
        self.hidden = lambda: indices

    def __getattr__(self, name):
        raise AttributeError(name)

    def __iter__(self):
        return iter(self.hidden())

    def __len__(self):
        return len(self.hidden())


@pytest.mark.parametrize("closed", [True, False])
def test_a_sampler_that_does_not_show_what_it_chooses_is_named(tmp_path, closed):
    sampler = (ClosedSampler if closed else OwnSampler)(list(range(300)))
    monitor = plain(n_samples=40)
    said = pytest.warns(UserWarning, match="ClosedSampler may choose some of the images") if closed else nullcontext()
    train = DataLoader(TensorDataset(digits(0, 400)), 50, sampler=sampler)
    with said:
        fit(tmp_path, monitor, train=train, val=loader(digits(600, 700)), max_epochs=1)
    assert sum("may choose some" in note["text"] for note in monitor.publisher.notes.items) == closed


@pytest.mark.parametrize("way", SPLIT)
def test_a_split_made_by_samplers_is_followed(tmp_path, way):
    data, order = TensorDataset(digits(0, 600)), list(range(600))
    monitor = plain()
    train, val = SPLIT[way](data, order[:400]), SPLIT[way](data, order[400:])
    fit(tmp_path, monitor, train=train, val=val, max_epochs=1)
    chosen = torch.cat([digits(0, 600)[400 + i] for i in monitor.evaluator.fitted.real_origin["indices"]])
    assert torch.equal(chosen[:, None], monitor.evaluator.fitted.real)


def test_batch_size_is_that_of_the_first_tensor():
    assert batch_size([("a", "b"), {"x": torch.zeros(4, 2)}]) == 4
    assert batch_size({"text": ["a"]}) == 0
    assert batch_size(torch.tensor(3)) == 0


# splits by samplers

DATA = TensorDataset(torch.zeros(9, 1, 2, 2))
WHOLE = DataLoader(DATA, 2)


class First(Collective):
    """One of two processes, told what rank zero sends."""

    rank, world_size = 0, 2

    def __init__(self, sent=None):
        self.sent = sent

    def all_true(self, flag):
        return flag

    def broadcast(self, value):
        return value if self.sent is None else self.sent


def part(indices, data=DATA):
    return DataLoader(data, batch_sampler=BatchSampler(SubsetRandomSampler(indices), 2, drop_last=False))


GIVEN = part([0, 1, 2]), part([3, 4])


@pytest.mark.parametrize(
    ("used", "which"),
    [
        ((WHOLE, WHOLE), "training and validation data are all 9"),
        ((WHOLE, GIVEN[1]), "training data are all 9"),
        ((GIVEN[0], WHOLE), "validation data are all 9"),
    ],
)
@pytest.mark.parametrize("given", [GIVEN, None], ids=["known", "nobody knows"])
def test_split_that_was_lost_is_refused(used, which, given):
    with pytest.raises(ValueError, match=rf"several processes {which} images of the TensorDataset.*`real_images=`"):
        check_split(used, given, First())


@pytest.mark.parametrize(
    ("used", "given"),
    [
        (GIVEN, GIVEN),
        (GIVEN, None),
        ((WHOLE, WHOLE), (WHOLE, DataLoader(DATA, 3, sampler=RandomSampler(DATA)))),
        ((WHOLE, GIVEN[1]), (WHOLE, GIVEN[1])),
        ((WHOLE, DataLoader(TensorDataset(*DATA.tensors), 2)), None),
        ((WHOLE, None), None),
        ((None, None), None),
        (([torch.zeros(2, 1, 2, 2)], [torch.zeros(2, 1, 2, 2)]), None),
    ],
    ids=["kept", "kept, given by hooks", "meant so", "a part meant so", "two datasets", "alone", "none", "lists"],
)
def test_what_was_meant_so_is_let_through(used, given):
    check_split(used, given, First())


def test_samplers_that_differ_between_processes_are_refused():
    loaders = part([2, 0, 1]), part([1, 0, 2])
    check_split(loaders, None, First([0, 1, 2]))
    with pytest.raises(ValueError, match=r"sampler of the training data .* same images on every process.*Seed"):
        check_split(loaders, None, First([0, 1, 3]))

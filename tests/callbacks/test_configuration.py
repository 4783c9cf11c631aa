# SPDX-License-Identifier: Apache-2.0
"""A wrong configuration raises before the first training step, whatever `on_error` says, and says what to change."""

import re
import warnings

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, digits, fit, loader, plain
from _helpers.prompted import Prompted
from _helpers.prompted import plain as prompted
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import IterableDataset

from genmonitor import PixelPartition
from genmonitor.callbacks import PixelClusterMonitor

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:Plain. there is no validation data")]

IMAGES = digits(0, 300)


class Counting(Linear):
    """Counts its training steps."""

    def __init__(self, change=lambda images: images):
        super().__init__()
        self.change, self.steps = change, 0

    def sample(self, n):
        return self.change(super().sample(n))

    def training_step(self, batch, index):
        self.steps += 1
        return self.net.weight.square().sum()


class NoSampler(Counting):
    sample = None


class Stream(IterableDataset):
    def __iter__(self):
        return iter(IMAGES)


class Bare(Linear):
    """Draws samples in whatever way a subclass says, and learns without it."""

    def training_step(self, batch, index):
        raise AssertionError("a training step")


class OfShape(Bare):
    def sample(self, img_shape):
        return torch.randn(8, *img_shape)


class KeywordOnly(Bare):
    def sample(self, *, num):
        return torch.randn(num, 1, 8, 8)


class OfMore(Bare):
    def sample(self, n, labels):
        return torch.randn(n, 1, 8, 8)


class OfLatents(Bare):
    def sample(self, z):
        return torch.tanh(self.net(z)).view(-1, 1, 8, 8)


class OfAttributes(Bare):
    def sample(self, batch):
        return torch.randn(batch.size, 1, 8, 8)


@pytest.mark.parametrize("kind", [OfShape, KeywordOnly, OfMore, OfLatents, OfAttributes])
def test_sample_of_another_signature_is_refused(tmp_path, kind):
    tried = rf"`{kind.__name__}\.sample\(n\)` to draw images, but this call failed with \w+Error"
    with pytest.raises(ValueError, match=f"Expected {tried}.*`sample_fn=`") as error:
        fit(tmp_path, plain(on_error="warn"), module=kind(), train=loader(IMAGES))
    assert isinstance(error.value.__cause__, (TypeError, AttributeError))


class NormedOnce(Bare):
    def sample(self, n):
        torch.nn.utils.parametrize.remove_parametrizations(self.net, "weight")
        return torch.randn(n, 1, 8, 8)


def test_sample_that_cannot_be_called_twice_is_refused(tmp_path):
    module = NormedOnce()
    torch.nn.utils.parametrizations.weight_norm(module.net)
    with pytest.raises(ValueError, match=r"Expected `NormedOnce\.sample\(n\)` to draw.*ValueError: Module") as error:
        fit(tmp_path, plain(), module=module, train=loader(IMAGES))
    assert "does not have a parametrization" in str(error.value.__cause__)


def test_sample_prompts_of_another_signature_is_refused(tmp_path):
    class NoLabels(Bare):
        def sample_prompts(self):
            return torch.randn(8, 1, 8, 8)

    with pytest.raises(ValueError, match=r"`NoLabels\.sample_prompts\(prompts\)`.*`sample_fn=`"):
        fit(tmp_path, plain(prompts=range(5)), module=NoLabels(), train=loader(IMAGES))


@pytest.mark.parametrize("sample_fn", [lambda: None, lambda n: n, lambda module, n, m: n, lambda module, z: z.size()])
def test_sample_fn_of_another_signature_is_refused(tmp_path, sample_fn):
    with pytest.raises(ValueError, match=r"Expected `sample_fn\(pl_module, n\)` to draw images, but this call failed"):
        fit(tmp_path, plain(sample_fn=sample_fn), module=Bare(), train=loader(IMAGES))


def scaled(low, high):
    return lambda images: low + (high - low) * (images + 1) / 2


def refused(folder, said, remedy, monitor=None, module=None, train=IMAGES, val=None):
    module = module or Counting()
    train, val = (loader(x) if isinstance(x, torch.Tensor) else x for x in (train, val))
    with pytest.raises((ValueError, TypeError), match=said) as error:
        fit(folder, monitor or plain(on_error="warn"), module=module, train=train, val=val)
    assert re.search(remedy, str(error.value)), str(error.value)
    assert module.steps == 0


BROKEN = IMAGES.where(IMAGES < 0.9, float("nan"))
WRONG = {
    "no way to sample": (
        {"module": NoSampler()},
        r"NoSampler has no method `sample\(n\)`",
        r"`sample_fn=` a function of \(pl_module, n\)",
    ),
    "data without images": ({"train": torch.zeros(300, 5)}, r"a tensor of shape \[[0-9]+, 5\]", "`image_key=`"),
    "a key that leads nowhere": (
        {"monitor": plain(image_key="picture")},
        "`image_key`='picture' to lead to the images of a batch, but got a list of a tensor",
        "image_key",
    ),
    "no pixel": ({"train": torch.zeros(300, 1, 0, 8)}, "`images of the training data` with at least one pixel", ""),
    "NaN in the training data": ({"train": BROKEN}, "`images of the training data` to be finite", "where they come"),
    "NaN in the validation data": ({"val": BROKEN}, "`images of the validation data` to be finite", "where they come"),
    "generated NaN": (
        {"module": Counting(lambda images: images / 0)},
        "`generated images` to be finite",
        "where they come from",
    ),
    "integers beyond 255": (
        {"train": (IMAGES * 1000).int()},
        r"integer `images of the training data` within 0\.\.255",
        "floating point",
    ),
    "channels last": (
        {"train": IMAGES.permute(0, 2, 3, 1)},
        r"8, 8, 1\], which looks like \[N, H, W, C\]",
        "permute",
    ),
    "other range 0..255": (
        {"train": IMAGES * 127 + 128, "module": Counting(scaled(0, 1))},
        "real images reach 255",
        "`image_key`",
    ),
    "other height and width": (
        {"module": Counting(lambda images: images[:, :, :6])},
        r"generated images of shape \[1, 8, 8\] like the real ones, but got \[1, 6, 8\]",
        "Resize",
    ),
    "other channels": (
        {"module": Counting(lambda images: images.expand(-1, 3, 8, 8))},
        r"generated images of shape \[1, 8, 8\] like the real ones, but got \[3, 8, 8\]",
        "convert",
    ),
    "no images from the sampler": ({"module": Counting(lambda images: images.flatten(1))}, r"but got \[16, 64\]", ""),
    "too few images from the sampler": (
        {"module": Counting(lambda images: images[1:])},
        "Expected 16 generated images, but got 15",
        "as many as asked",
    ),
    "training images of another size than those of validation": (
        {"train": IMAGES[:, :, 1:, :], "val": IMAGES},
        r"the training data holds \[1, 7, 8\] and the validation data \[1, 8, 8\]",
        "Resize",
    ),
    "more clusters than sites": (
        {"monitor": plain(n_clusters=65)},
        "`n_clusters` of at most 5[0-9], the number of sites that vary, but got 65",
        "",
    ),
    "nothing that varies": ({"train": IMAGES[:1].expand(300, -1, -1, -1)}, "more than half of the distances are 0", ""),
    "patches that do not fit": ({"monitor": plain(patch_size=3)}, "`patch_size`", "8"),
    "a partition of another size": (
        {"monitor": plain(partition=PixelPartition.grid((6, 8), 2, 2))},
        "of size 6×8 like the partition, but got 8×8",
        "Use the images' own size, or a partition made for them",
    ),
    "too few real images": ({"train": IMAGES[:3]}, "holds 3", "Give more images with `real_images=`"),
    "fewer real images than a block": (
        {"monitor": plain(block_size=30), "val": IMAGES[:20]},
        "one block needs 30",
        "`real_images=`",
    ),
    "no averaged weights": ({"monitor": plain(weights="averaged")}, "the Trainer has none", "weights='auto'"),
}


@pytest.mark.filterwarnings("ignore:Plain. (only|the baseline)", "ignore:Your `IterableDataset`")
@pytest.mark.parametrize("name", WRONG)
def test_what_only_a_run_shows_is_refused_before_its_first_step(tmp_path, name):
    settings, said, remedy = WRONG[name]
    refused(tmp_path, said, remedy, **settings)


def test_stream_trains_once_real_images_are_given(tmp_path):
    monitor = plain(real_images=IMAGES)
    stream = torch.utils.data.DataLoader(Stream(), 100)
    fit(tmp_path, monitor, module=Counting(), train=stream)
    assert len(monitor.history) == 2


OTHER_RANGES = {
    "[0, 1]": ({"module": Counting(scaled(0.2, 0.9))}, "no generated value is negative"),
    "[-1, 1]": ({"train": loader(IMAGES / 2 + 0.5)}, "of the generated values are negative"),
}


@pytest.mark.parametrize("name", OTHER_RANGES)
def test_another_value_range_is_warned_of_before_training(tmp_path, name):
    settings, said = OTHER_RANGES[name]
    with pytest.warns(UserWarning, match=f"Plain: real images are in .*{said}.*`sample_fn`"):
        fit(tmp_path, plain(), **({"module": Counting(), "train": loader(IMAGES)} | settings))


def test_generator_of_one_image_is_evaluated_with_a_warning(tmp_path):
    for level in (0.0, -1.0, 0.2, 0.5, 1.0):
        monitor = plain()
        with pytest.warns(UserWarning, match="Plain: all generated images are identical, so the values mean little"):
            fit(tmp_path, monitor, module=Counting(lambda images, x=level: torch.full_like(images, x)))
        assert all(torch.tensor(list(check.values())).isfinite().all() for check in monitor.history)
        assert monitor.history[0]["image"] < monitor.baseline["image"][0]


@pytest.mark.parametrize("level", [(0.85, 0.95), (-30, 30), (0.2, 0.9)])
def test_generator_that_leaves_the_value_range_is_evaluated(tmp_path, level):
    module = Counting(lambda images: scaled(*level)(images) if module.steps else images)
    monitor = plain(on_error="raise")
    with pytest.warns(UserWarning, match="If training does not fix this, the value ranges differ") as said:
        fit(tmp_path, monitor, module=module)
    assert sum("value ranges differ" in str(warning.message) for warning in said) == 1
    assert [0 <= check["image"] < monitor.baseline["image"][0] for check in monitor.history] == [True, True]


@pytest.mark.parametrize("settings", [{"n_cluster_images": 9}, {"n_cluster_images": 39, "n_clusters": 20}])
def test_fewer_images_than_clusters_need_are_refused(settings):
    least = 10 if "n_clusters" not in settings else 40
    with pytest.raises(ValueError, match=f"`n_cluster_images` of at least {least} images"):
        PixelClusterMonitor(**settings)


def test_two_monitors_of_one_prefix_are_refused(tmp_path):
    class Other(PixelClusterMonitor):
        pass

    for second in (plain(), Other(3, n_samples=60, n_cluster_images=200)):
        module = Counting()
        with pytest.raises(ValueError, match=r"several have `prefix`='cms'.* prefix='cms_2'"):
            fit(tmp_path, plain(), second, module=module)
        assert module.steps == 0


@pytest.mark.parametrize(
    ("key", "mode", "said"),
    [
        ("cms/image", "min", r"ModelCheckpoint monitors 'cms/image' with mode='min', but higher values are better"),
        ("cms/mmd", "max", r"ModelCheckpoint monitors 'cms/mmd' with mode='max', but lower values are better"),
        ("cms/image", "max", None),
        ("cms/mmd", "min", None),
        ("cms/share_1", "max", None),
    ],
)
def test_checkpoint_that_would_keep_the_worst_is_told_of(tmp_path, key, mode, said):
    keep = ModelCheckpoint(tmp_path, monitor=key, mode=mode)
    monitor = plain()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(tmp_path, monitor, keep, val=loader(digits(300, 400)), max_epochs=1)
    found = [str(x.message) for x in caught if "values are better" in str(x.message)]
    assert len(found) == (said is not None)
    assert all(re.search(said, text) for text in found)


class FSDPStrategy(SingleDeviceStrategy):
    """Goes by the name of the one that splits the parameters, which itself needs GPUs."""


class DeepSpeedStrategy(SingleDeviceStrategy):
    """The same, of DeepSpeed."""

    zero_stage_3 = True


@pytest.mark.parametrize("monitor", [plain, prompted])
@pytest.mark.parametrize(
    ("strategy", "name"), [(FSDPStrategy, "FSDPStrategy"), (DeepSpeedStrategy, "DeepSpeed stage 3")]
)
def test_strategy_that_cannot_go_on_after_an_error_is_refused(tmp_path, monitor, strategy, name):
    with pytest.raises(ValueError, match=rf"or ModelParallelStrategy.*but got {name}.*`genmonitor sweep`"):
        fit(tmp_path, monitor(), module=Prompted(), strategy=strategy(torch.device("cpu")))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:FSDP is switching to use .NO_SHARD.")
def test_lightnings_own_fsdp_is_refused(tmp_path):
    try:
        with pytest.raises(ValueError, match="but got FSDPStrategy"):
            fit(tmp_path, plain(), accelerator="gpu", devices=1, strategy="fsdp")
    finally:
        torch.distributed.destroy_process_group()

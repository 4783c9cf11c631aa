# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from data import ImageData
from lightning import Trainer
from planted import PlantedGenerator, planted_images, planted_labels
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.metrics import adjusted_rand_score

from genmonitor import PixelPartition
from genmonitor.functional import pixel_cka

LABELS = planted_labels()


def pixel_cka_from_gram_matrices(x):
    """The definition, for pixels [n, d]: HSIC of every pair of centered Gram matrices, normalized."""
    gamma = 1 / torch.pdist(x).square().median()
    gram = torch.exp(-gamma * (x.T[:, :, None] - x.T[:, None, :]).square())
    centered = gram - gram.mean(1, keepdim=True) - gram.mean(2, keepdim=True) + gram.mean((1, 2), keepdim=True)
    rows = centered.flatten(1)
    hsic = rows @ rows.T
    norm = hsic.diagonal().sqrt()
    return hsic / norm / norm[:, None]


def test_labels_go_by_falling_size_and_0_is_constant():
    sizes = [int((label == LABELS).sum()) for label in range(1, 5)]
    assert LABELS.shape == (16, 16)
    assert sizes == sorted(sizes, reverse=True)
    images = planted_images(50, seed=0)[:, 0]
    assert torch.equal(images.amax(0) == images.amin(0), LABELS == 0)


def test_images_are_in_range_and_come_from_their_seed_alone():
    before = torch.get_rng_state()
    images = planted_images(2000, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert images.shape == (2000, 1, 16, 16)
    assert images.dtype == torch.float32
    assert -1 <= images.min() < -0.9
    assert 0.9 < images.max() <= 1
    assert torch.equal(images, planted_images(2000, seed=3))
    assert not torch.equal(images, planted_images(2000, seed=4))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_average_linkage_on_cka_finds_the_true_regions(seed):
    changing = (LABELS > 0).flatten()
    x = planted_images(250, seed).flatten(1)[:, changing].double()
    found = fcluster(linkage(pixel_cka_from_gram_matrices(x).numpy(), "average"), 4, "maxclust")
    assert adjusted_rand_score(LABELS.flatten()[changing], found) == 1


@pytest.mark.parametrize(("n", "seed"), [(300, 1), (1000, 2), (1000, 0)])
def test_the_number_of_regions_is_found_too(n, seed):
    partition = PixelPartition.from_cka(pixel_cka(planted_images(n, seed)), LABELS.shape)
    assert torch.equal(partition.labels, LABELS)


def test_regions_are_independent_and_dependent_within():
    x = planted_images(20_000, seed=5)[:, 0]
    means = torch.stack([x[:, label == LABELS].mean(1) for label in range(1, 5)])
    for values in (means, means.square(), means.abs()):
        across = torch.corrcoef(values)[~torch.eye(4, dtype=torch.bool)]
        assert across.abs().max() < 4 / 20_000**0.5
    for label in range(1, 5):
        assert torch.corrcoef(x[:, label == LABELS].T).min() > 0.8


@pytest.mark.parametrize("region", [1, 2, 3, 4])
def test_spoiling_changes_its_region_alone(region):
    images, spoiled = planted_images(500, seed=6), planted_images(500, seed=6, spoiled=region)
    same = region != LABELS
    assert torch.equal(images[..., same], spoiled[..., same])
    assert spoiled.min() >= -1
    assert spoiled.max() <= 1
    assert spoiled[..., ~same].mean() - images[..., ~same].mean() > 0.25


@pytest.mark.parametrize("region", [0, 5, 1.5])
def test_there_are_only_regions_1_to_4(region):
    with pytest.raises(ValueError, match=r"1\.\.4"):
        planted_images(1, seed=0, spoiled=region)
    with pytest.raises(ValueError, match=r"1\.\.4"):
        PlantedGenerator(spoiled=region)


@pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*does not have many workers")
def test_generator_spoils_its_region_from_its_epoch_on(tmp_path):
    class Recorder(PlantedGenerator):
        def on_validation_epoch_end(self):
            with torch.random.fork_rng():
                torch.manual_seed(7)
                drawn.append(self.sample(20))

    drawn = []
    trainer = Trainer(
        max_epochs=4,
        accelerator="cpu",
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_train_batches=2,
        limit_val_batches=1,
        num_sanity_val_steps=0,
    )
    trainer.fit(Recorder(spoiled=2, from_epoch=2), datamodule=ImageData("planted"))
    as_data, spoiled = planted_images(20, seed=7), planted_images(20, seed=7, spoiled=2)
    assert [torch.equal(images, as_data) for images in drawn] == [True, True, False, False]
    assert torch.equal(drawn[2], spoiled)

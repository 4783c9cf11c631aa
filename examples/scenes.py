# SPDX-License-Identifier: Apache-2.0
"""Train a small text-to-image diffusion model on drawn scenes, with every monitor on one set of samples per evaluation.

python examples/scenes.py              # about six minutes

Which region is wrong, how varied the images are and how much of that the prompts explain, and for which prompts the
model still differs from the data: see `runs/scenes`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ddpm import DDPM
from drawn_scenes import COLORS, SHAPES, SIDE, VOCABULARY, bag_of_words, describe, draw_scenes
from lightning import Trainer, seed_everything
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate
from torch.utils.data import DataLoader, Dataset

from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor, PixelClusterMonitor

SMALL = 16
PROMPTS = [f"a {color} {shape}" for color in COLORS for shape in SHAPES]


class CaptionedScenes(Dataset[dict[str, Any]]):
    """Scenes, each a dictionary of `image` [3, 16, 16] in [-1, 1] and `caption`, which names color and shape."""

    def __init__(self, n: int, seed: int) -> None:
        scenes = draw_scenes(n, seed)
        self.images, self.captions = avg_pool2d(scenes.images, SIDE // SMALL), scenes.prompts()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.images[index], "caption": self.captions[index]}


class TextDDPM(DDPM):
    """A diffusion model of scenes by prompt: the words, counted, take the place of the class.

    Args:
        widths: see `DDPM`.
        lr: see `DDPM`.
        sampling_steps: see `DDPM`.
    """

    def __init__(self, widths: tuple[int, ...] = (32, 64), lr: float = 1e-3, sampling_steps: int = 25) -> None:
        super().__init__((3, SMALL, SMALL), widths, lr=lr, sampling_steps=sampling_steps)
        # where diffusers looks up a class: the sum of the words' embeddings, as long as that of the step
        self.unet.class_embedding = nn.Linear(len(VOCABULARY), 4 * widths[0], bias=False)

    def unpack(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return a batch's images and counted words [n, words]."""
        return batch["image"], self.counted(batch["caption"])

    def withhold(self, labels: Tensor, where: Tensor) -> Tensor:
        """Take away all words where a mask [n] says so."""
        return labels.masked_fill(where[:, None], 0)

    def sample_prompts(self, prompts: list[str]) -> Tensor:  # type: ignore[override]
        """Draw an image of each prompt."""
        return super().sample_prompts(self.counted(prompts))

    def counted(self, prompts: list[str]) -> Tensor:
        """Return the words of each prompt [n, words]."""
        return bag_of_words(prompts).to(self.device)


def describe_small(images: Tensor) -> Tensor:
    """Measure small scenes as `describe` does large ones, [n, 93]."""
    return describe(interpolate(images, size=(SIDE, SIDE), mode="bilinear"))


def make_monitors(n_samples: int, every_n_epochs: int) -> list[Callback]:
    """Return the three monitors; they ask for the same samples, so each evaluation draws them once."""
    same: dict[str, Any] = {"prompts": PROMPTS, "n_samples": n_samples, "every_n_epochs": every_n_epochs}
    encoders: dict[str, Any] = {"output_encoder": describe_small, "prompt_encoder": bag_of_words}
    return [
        PixelClusterMonitor(n_clusters=4, **same),
        DiversityMonitor(**same, **encoders),
        DisagreementMonitor(reference="data", **same, **encoders),
    ]


def main() -> None:
    """Train, and say where to look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=21)
    parser.add_argument("--images", type=int, default=4000, help="to train on")
    parser.add_argument("--n-samples", type=int, default=360, help="images per evaluation, a multiple of 9")
    parser.add_argument("--out", type=Path, default=Path("runs/scenes"), help="where runs are written")
    args = parser.parse_args()
    seed_everything(0, verbose=False)
    train, held_out = (
        CaptionedScenes(args.images, seed=0),
        CaptionedScenes(max(args.images // 4, args.n_samples), seed=1),
    )
    logger = TensorBoardLogger(args.out.parent, name=args.out.name)
    trainer = Trainer(
        max_epochs=args.epochs,
        logger=logger,
        callbacks=[EMAWeightAveraging(decay=0.99), *make_monitors(args.n_samples, max(1, args.epochs // 7))],
        log_every_n_steps=1,
        enable_model_summary=False,
    )
    trainer.fit(TextDDPM(), DataLoader(train, 64, shuffle=True, drop_last=True), DataLoader(held_out, 64))
    print(f"Figures: {Path(logger.log_dir) / 'genmonitor'}")
    print(f"Curves:  tensorboard --logdir {args.out}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Steer a diffusion model onto a reference set: scenes whose colors it gets wrong, put right while it samples.

python examples/papers/promptsplit/guidance.py     # a minute; energy and diversity before and after, and a picture

A small diffusion model of drawn scenes has learned shapes from prompts whose colors were shuffled: it paints "a red
square" in any color. At each step of its sampler the gradient of `prompt_split_energy` pulls the samples' answers to
the prompts onto those of a reference set, and that of `joint_diversity` keeps them varied. After Section 5 of Lotfian,
Jalali and Farnia 2026; the diffusion is in the space of what is drawn (color, shape, place, size), its decoder draws.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot

sys.path.append(str(Path(__file__).resolve().parents[2]))
from drawn_scenes import COLORS, SHAPES, bag_of_words, cover, describe

from genmonitor import GaussianKernel
from genmonitor.functional import joint_diversity, prompt_split_energy
from genmonitor.plotting.style import INK, add_axes, cluster_color, new_figure, to_tiles

PROMPTS = [f"a {color} {shape}" for color in COLORS for shape in SHAPES]
PAINTS = torch.tensor(list(COLORS.values()))
LATENT = 9  # red, green, blue; one for each shape; x, y and size: each about -1 to 1
LONGEST = 0.5  # that a step of the guidance moves a sample


def draw_latents(prompts: Tensor, generator: torch.Generator, right_colors: bool = True) -> Tensor:
    """Draw what answers prompts, [n, 9], place and size at random; the colors of the prompts or any.

    Args:
        prompts: places in `PROMPTS` [n].
        generator: of the draw.
        right_colors: False shuffles the colors.
    """
    color, shape = prompts // len(SHAPES), prompts % len(SHAPES)
    if not right_colors:
        color = torch.randint(len(PAINTS), color.shape, generator=generator)
    rest = 2 * torch.rand(len(prompts), 3, generator=generator) - 1
    return torch.cat([PAINTS[color].logit() / 2, 2.0 * one_hot(shape, len(SHAPES)) - 1, rest], 1)


def decode(latents: Tensor) -> Tensor:
    """Draw latents: images [n, 3, 32, 32] in [-1, 1]."""
    paint, shape, at = (2 * latents[:, :3]).sigmoid(), latents[:, 3:6], latents[:, 6:].clamp(-1.2, 1.2)
    center, radius = 0.55 * at[:, :2], 0.325 + 0.075 * at[:, 2]
    covers = torch.stack([cover(name, center, radius) for name in SHAPES], 1)
    covered = (covers * (4 * shape).softmax(1)[:, :, None, None]).sum(1, keepdim=True)
    return 2 * (covered * paint[:, :, None, None] + (1 - covered) * 0.5) - 1


class Denoiser(nn.Module):
    """Predicts the noise in a latent, given the words of its prompt and how noisy it is."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        words = bag_of_words(PROMPTS).shape[1]
        self.net = nn.Sequential(
            nn.Linear(LATENT + words + 2, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, LATENT),
        )

    def forward(self, latents: Tensor, words: Tensor, noise_level: Tensor) -> Tensor:
        """Return the noise [n, 9]; `noise_level` [n] is from 0 to 1."""
        time = noise_level[:, None]
        out: Tensor = self.net(torch.cat([latents, words, time, (3 * time).sin()], 1))
        return out


def make_scheduler() -> Any:
    """Return diffusers' DDIM scheduler of 1000 noise levels."""
    from diffusers import DDIMScheduler

    return DDIMScheduler(num_train_timesteps=1000, beta_schedule="squaredcos_cap_v2", clip_sample=False)


def train(steps: int, seed: int = 0) -> Denoiser:
    """Train the model on scenes whose colors have nothing to do with the prompts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Denoiser()
    scheduler, words = make_scheduler(), bag_of_words(PROMPTS)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        prompts = torch.randint(len(PROMPTS), (256,), generator=generator)
        latents = draw_latents(prompts, generator, right_colors=False)
        noise = torch.randn(latents.shape, generator=generator)
        t = torch.randint(1000, (256,), generator=generator)
        predicted = model(scheduler.add_noise(latents, noise, t), words[prompts], t / 1000)
        optimizer.zero_grad()
        mse_loss(predicted, noise).backward()
        optimizer.step()
        decay.step()
    return model.requires_grad_(False)


def see(images: Tensor) -> Tensor:
    """Measure color and silhouette, of which prompts speak, and not the place: [n, 84]."""
    return describe(images)[:, :84]


@dataclass(frozen=True)
class Target:
    """What samples are steered onto: a reference set as it is seen, its prompts, and the kernels that compare."""

    outputs: Tensor
    prompts: Tensor
    kernels: dict[str, GaussianKernel]

    @classmethod
    def of(cls, images: Tensor, words: Tensor) -> Target:
        """See a reference set; a kernel wider than the median heuristic's also pulls samples that are far off."""
        outputs = see(images)
        gamma = GaussianKernel().resolved(outputs).resolved_gamma / 2
        kernels = {"output_kernel": GaussianKernel(gamma), "prompt_kernel": GaussianKernel(2.0)}
        return cls(outputs, words, kernels)

    def energy(self, images: Tensor, words: Tensor) -> Tensor:
        """Return the energy of Eq. 5: 0 where samples answer as the reference does."""
        return prompt_split_energy(see(images), words, self.outputs, self.prompts, **self.kernels)

    def likeness(self, images: Tensor, words: Tensor) -> Tensor:
        """Return how alike samples of a prompt are in all respects (Joint-Diversity); small is varied."""
        return joint_diversity(describe(images), words, **self.kernels)


def sample(
    model: Denoiser, prompts: Tensor, target: Target, strength: float, rho: float = 0.1, steps: int = 50, seed: int = 0
) -> tuple[Tensor, list[float]]:
    """Sample, and steer: z ← sampler(z) - η (∇E + rho ∇Joint-Diversity), both of what z would become.

    Args:
        model: predicts noise.
        prompts: places in `PROMPTS` [n].
        target: what to steer onto.
        strength: η is that times the level of noise, per sample; 0 samples as the model has learned.
        rho: weight of the diversity.
        steps: of the sampler.
        seed: of the noise that it starts with.

    Returns:
        Images [n, 3, 32, 32], and the energy at each step, of what the latents would become.
    """
    scheduler, words = make_scheduler(), bag_of_words([PROMPTS[i] for i in prompts])
    scheduler.set_timesteps(steps)
    z = torch.randn(len(prompts), LATENT, generator=torch.Generator().manual_seed(seed))
    energies = []
    for t in scheduler.timesteps:
        z = z.detach().requires_grad_()
        noise = model(z, words, torch.full((len(z),), float(t) / 1000))
        step = scheduler.step(noise, t, z)
        images = decode(step.pred_original_sample)
        energy = target.energy(images, words)
        (gradient,) = torch.autograd.grad(energy + rho * target.likeness(images, words), z)
        energies.append(float(energy.detach()))
        move = strength * len(z) * gradient
        move *= (LONGEST / move.norm(dim=1, keepdim=True)).clamp_max(1)
        z = step.prev_sample.detach() - float(1 - scheduler.alphas_cumprod[t]) ** 0.5 * move
    return decode(z), energies


def right_colors(images: Tensor, prompts: Tensor) -> float:
    """Return the fraction of images whose color is nearest to the one that the prompt names."""
    colors = describe(images)[:, :3] @ nn.functional.normalize(PAINTS).T
    return float((colors.argmax(1) == prompts // len(SHAPES)).float().mean())


def picture(sides: dict[str, Tensor], energies: dict[str, list[float]], shown: int = 6) -> Figure:
    """Draw samples of each prompt before and after, and the energy along the sampler."""
    tile, top = 44, 96
    height = top + len(PROMPTS) * (tile + 4) + 20
    note = "Left and middle: samples of each prompt. Right: the energy of Eq. 5 at each step of the sampler."
    figure = new_figure(1120, height, "Guidance pulls the colors onto the reference's", note)
    for start, (name, images) in zip((130, 430), sides.items(), strict=True):
        figure.text(start / 1120, 1 - 80 / height, name, fontsize=11, color=INK)
        tiles = to_tiles(images.numpy(), (-1, 1)).reshape(
            len(PROMPTS), -1, *to_tiles(images[:1].numpy(), (-1, 1)).shape[1:]
        )
        for line, row in enumerate(tiles):
            for column, one in enumerate(row[:shown]):
                ax = add_axes(figure, start + column * (tile + 4), height - top - line * (tile + 4) - tile, tile, tile)
                ax.imshow(one, interpolation="nearest")
                ax.set(xticks=[], yticks=[])
    for line, prompt in enumerate(PROMPTS):
        figure.text(18 / 1120, 1 - (top + line * (tile + 4) + tile / 2) / height, prompt, fontsize=10, va="center")
    ax = add_axes(figure, 800, 120, 290, height - top - 130)
    for color, (name, values) in zip((cluster_color(4), cluster_color(1)), energies.items(), strict=True):
        ax.plot(range(1, len(values) + 1), values, color=color, linewidth=2, label=f"{name}: {values[-1]:.2g}")
    ax.set_yscale("log")
    ax.set_xlabel("step of the sampler", fontsize=11, color=INK)
    ax.set_title("energy", fontsize=11, color=INK, loc="left")
    ax.grid(axis="y", color="#E8E8E8", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.13), fontsize=10, frameon=False, labelcolor=INK)
    return figure


def main() -> None:
    """Train, sample with and without guidance, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-steps", type=int, default=4000)
    parser.add_argument("--per-prompt", type=int, default=12, help="samples of each prompt")
    parser.add_argument("--steps", type=int, default=50, help="of the sampler")
    parser.add_argument("--strength", type=float, default=100.0, help="of a step of the guidance")
    parser.add_argument("--out", type=Path, default=Path("runs/guidance"), help="where the picture is written")
    args = parser.parse_args()
    known = torch.arange(len(PROMPTS)).repeat_interleave(30)
    reference = decode(draw_latents(known, torch.Generator().manual_seed(1)))
    target = Target.of(reference, bag_of_words([PROMPTS[i] for i in known]))
    model = train(args.train_steps)
    prompts = torch.arange(len(PROMPTS)).repeat_interleave(args.per_prompt)
    sides, energies = {}, {}
    for name, strength in (("unguided", 0.0), ("guided", args.strength)):
        sides[name], energies[name] = sample(model, prompts, target, strength, steps=args.steps)
        images, words = sides[name], bag_of_words([PROMPTS[i] for i in prompts])
        energy, likeness = float(target.energy(images, words)), float(target.likeness(images, words))
        right = f"{100 * right_colors(images, prompts):.0f} % in the color of the prompt"
        print(f"{name:<9} energy {energy:.5f}, joint diversity {likeness:.5f} (small is varied), {right}")
    args.out.mkdir(parents=True, exist_ok=True)
    picture(sides, energies).savefig(args.out / "guidance.png")
    print(f"Picture: {args.out / 'guidance.png'}")


if __name__ == "__main__":
    main()

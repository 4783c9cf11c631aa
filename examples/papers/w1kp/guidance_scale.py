# SPDX-License-Identifier: Apache-2.0
"""How varied images are under stronger guidance: W1KP and the trace of the covariance by the scale of the guidance.

python examples/papers/w1kp/guidance_scale.py       # two minutes; a table over three trainings

After Tang et al. 2024, Appendix D.2. The diffusion model is that of drawn scenes in `papers/promptsplit/guidance.py`,
trained with the right colors and, for one in seven, without a prompt, so that it can be guided away from what it draws
without one (classifier-free guidance). The calibration is of scenes drawn by the rules.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

sys.path.append(str(Path(__file__).resolve().parents[1] / "promptsplit"))
from guidance import LATENT, PROMPTS, Denoiser, bag_of_words, decode, draw_latents, make_scheduler

from genmonitor.functional import W1KPCalibration, calibrate, w1kp_score

SCALES = (0.0, 1.0, 2.0, 4.0, 8.0)
"""0 draws without a prompt, 1 as the model has learned it."""
DROPPED = 1 / 7


def train(steps: int, seed: int) -> Denoiser:
    """Train the model on scenes that answer their prompts, some of them without the prompt."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Denoiser()
    scheduler, words = make_scheduler(), bag_of_words(PROMPTS)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        prompts = torch.randint(len(PROMPTS), (256,), generator=generator)
        latents = draw_latents(prompts, generator)
        given = words[prompts] * (torch.rand(256, 1, generator=generator) >= DROPPED)
        noise = torch.randn(latents.shape, generator=generator)
        t = torch.randint(1000, (256,), generator=generator)
        loss = mse_loss(model(scheduler.add_noise(latents, noise, t), given, t / 1000), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    return model.requires_grad_(False)


def sample(model: Denoiser, prompts: Tensor, scale: float, steps: int, seed: int) -> Tensor:
    """Draw images [n, 3, 32, 32] of prompts, guided by so much, from the same noise at every scale."""
    scheduler, words = make_scheduler(), bag_of_words(PROMPTS)[prompts]
    scheduler.set_timesteps(steps)
    z = torch.randn(len(prompts), LATENT, generator=torch.Generator().manual_seed(seed))
    for t in scheduler.timesteps:
        level = torch.full((len(z),), float(t) / 1000)
        without, given = model(z, torch.zeros_like(words), level), model(z, words, level)
        z = scheduler.step(without + scale * (given - without), t, z).prev_sample
    return decode(z)


def measure(images: Tensor, prompts: Tensor, calibration: W1KPCalibration) -> tuple[float, float]:
    """Return W1KP, and the trace of the covariance of the images of a prompt, the means over prompts."""
    found = w1kp_score(images.flatten(1), prompts, calibration=calibration)["w1kp"]
    traces = [float(images[prompts == p].flatten(1).var(0).sum()) for p in prompts.unique()]
    return float(found), sum(traces) / len(traces)


def main() -> None:
    """Train, sample at each scale, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-steps", type=int, default=4000)
    parser.add_argument("--per-prompt", type=int, default=30, help="samples of each prompt")
    parser.add_argument("--steps", type=int, default=50, help="of the sampler")
    parser.add_argument("--seeds", type=int, default=3, help="trainings")
    args = parser.parse_args()
    prompts = torch.arange(len(PROMPTS)).repeat_interleave(args.per_prompt)
    real = decode(draw_latents(prompts, torch.Generator().manual_seed(1)))
    calibration = calibrate(real.flatten(1), prompts)
    score, usual = measure(decode(draw_latents(prompts, torch.Generator().manual_seed(2))), prompts, calibration)
    models = [train(args.train_steps, seed) for seed in range(args.seeds)]
    print(f"scenes drawn by the rules: W1KP {score:.3f}; mean and standard deviation over {args.seeds} trainings")
    print("scale     W1KP            trace of the covariance, in parts of the scenes'")
    for scale in SCALES:
        rows = torch.tensor([measure(sample(x, prompts, scale, args.steps, 0), prompts, calibration) for x in models])
        (w1kp, trace), spread = rows.mean(0).tolist(), rows.std(0, correction=min(1, len(models) - 1)).tolist()
        print(f"{scale:>5g}     {w1kp:.3f} ± {spread[0]:.3f}   {trace / usual:.2f} ± {spread[1] / usual:.2f}")


if __name__ == "__main__":
    main()

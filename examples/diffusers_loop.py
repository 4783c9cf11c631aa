# SPDX-License-Identifier: Apache-2.0
"""A monitor in a training loop without a Trainer, of the shape that diffusers' own examples have: accelerate drives it.

python examples/diffusers_loop.py                                    # about five minutes on two cores
accelerate launch --num_processes 2 examples/diffusers_loop.py       # or torchrun --nproc-per-node 2
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from data import Images, digits
from ddpm import BETAS, STEPS, make_unet
from diffusers import DDIMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

from genmonitor import LoopMonitor
from genmonitor.evaluation import RegionEvaluator, RegionSettings


def train(unet: UNet2DModel, images: Images, monitor: LoopMonitor, accelerator: Accelerator, epochs: int) -> None:
    """Train a U-Net to predict the noise in images, and evaluate what it draws eight times or so.

    Args:
        unet: the model.
        images: in [-1, 1].
        monitor: evaluates it.
        accelerator: made before the monitor, so that there are as many processes as it knows of.
        epochs: passes over the images.
    """
    schedule = DDPMScheduler(num_train_timesteps=STEPS, beta_start=BETAS[0], beta_end=BETAS[1])
    loader = DataLoader(images, batch_size=64, shuffle=True)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
    warmed_up = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=50, num_training_steps=epochs * len(loader))
    model, optimizer, loader, warmed_up = accelerator.prepare(unet, optimizer, loader, warmed_up)
    accelerator.register_for_checkpointing(monitor)  # its curves go on where accelerator.save_state() left them
    step = 0
    for epoch in range(epochs):
        model.train()
        for clean in loader:
            noise = torch.randn_like(clean)
            times = torch.randint(STEPS, (len(clean),), device=clean.device)
            with accelerator.accumulate(model):
                predicted = model(schedule.add_noise(clean, noise, times), times).sample
                loss = mse_loss(predicted, noise)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                warmed_up.step()
                optimizer.zero_grad()
            accelerator.log({"loss": loss.item()}, step=step)
            step += 1
        if epoch % max(1, epochs // 8) == 0 or epoch == epochs - 1:
            inside = accelerator.unwrap_model(model)
            monitor.evaluate(lambda n, unet=inside: draw(unet, schedule, n), inside, step=step, epoch=epoch)
    accelerator.end_training()


def draw(unet: nn.Module, schedule: DDPMScheduler, n: int) -> Tensor:
    """Draw n images [n, c, h, w] in [-1, 1] by diffusers' pipeline."""
    pipeline = DDIMPipeline(unet, schedule)
    pipeline.set_progress_bar_config(disable=True)
    drawn = pipeline(batch_size=n, num_inference_steps=50, output_type="np").images  # [n, h, w, c] in [0, 1]
    return torch.from_numpy(drawn).permute(0, 3, 1, 2) * 2 - 1


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=81)
    parser.add_argument("--n-samples", type=int, default=500, help="images generated at each evaluation")
    parser.add_argument("--out", type=Path, default=Path("runs/diffusers-loop"), help="where the run is written")
    return parser.parse_args()


def main() -> None:
    """Train on digits, and say what is wrong with what it draws."""
    args = arguments()
    set_seed(0)
    accelerator = Accelerator(log_with="tensorboard", project_dir=args.out)
    accelerator.init_trackers("tensorboard")
    training, held_out = digits()
    monitor = LoopMonitor(
        RegionEvaluator(RegionSettings(n_clusters=5, n_samples=args.n_samples)),
        folder=args.out,
        real_images=training,
        validation_images=held_out,
        loggers=accelerator.trackers,
    )
    train(make_unet((1, 8, 8), (32, 64), 1, False, None), training, monitor, accelerator, args.epochs)
    accelerator.print(monitor.summary())


if __name__ == "__main__":
    main()

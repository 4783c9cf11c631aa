# SPDX-License-Identifier: Apache-2.0
"""Train any of the examples' models, or your own, from a file that says everything: Lightning's command line.

python examples/train.py fit --config examples/configs/ddpm-digits.yaml
python examples/train.py fit --config examples/configs/dcgan-celeba64.yaml --data.path img_align_celeba
python examples/train.py fit --config examples/configs/ddpm-digits.yaml --trainer.max_epochs 10 --print_config
"""

from __future__ import annotations

from lightning import LightningDataModule, LightningModule
from lightning.pytorch.cli import ArgsType, LightningCLI


def command_line(args: ArgsType = None, run: bool = True) -> LightningCLI:
    """Do what the command line says.

    Args:
        args: its words; None for those that the program was started with.
        run: False to make model, data and Trainer only; there is no `fit` among the words then.
    """
    return LightningCLI(
        LightningModule,
        LightningDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        seed_everything_default=0,
        save_config_kwargs={"overwrite": True},
        args=args,
        run=run,
    )


if __name__ == "__main__":
    command_line()

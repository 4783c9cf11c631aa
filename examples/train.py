# SPDX-License-Identifier: Apache-2.0
"""Train any of the examples' models, or your own, from a file that says everything: Lightning's command line.

python examples/train.py fit --config examples/configs/ddpm-digits.yaml
python examples/train.py fit --config examples/configs/dcgan-celeba64.yaml --data.path img_align_celeba
python examples/train.py fit --config examples/configs/ddpm-digits.yaml --trainer.max_epochs 10 --print_config
python examples/train.py fit --config examples/configs/dcgan-digits.yaml --metrics examples/configs/metrics/digits.yaml
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from lightning import LightningDataModule, LightningModule
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from torchmetrics import Metric


class CommandLine(LightningCLI):
    """Lightning's command line, and `--metrics`: a file of further metrics for every PixelClusterMonitor."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the argument."""
        told = "a file of `extra_metrics` for each PixelClusterMonitor"
        parser.add_argument("--metrics", type=dict[str, Metric] | None, default=None, enable_path=True, help=told)

    def before_instantiate_classes(self) -> None:
        """Give the metrics to the monitors."""
        config: Any = self.config[self.subcommand] if self.subcommand else self.config
        monitors = [of for of in config.trainer.callbacks or [] if of.class_path.endswith("PixelClusterMonitor")]
        for monitor in monitors if config.metrics else []:
            monitor.init_args.extra_metrics = deepcopy(config.metrics)
        config.metrics = None


def command_line(args: ArgsType = None, run: bool = True) -> LightningCLI:
    """Do what the command line says.

    Args:
        args: its words; None for those that the program was started with.
        run: False to make model, data and Trainer only; there is no `fit` among the words then.
    """
    return CommandLine(
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

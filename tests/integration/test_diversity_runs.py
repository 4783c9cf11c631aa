# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor in runs that are killed and resumed, and in several processes."""

import pytest
import torch
from _helpers.launched import launched
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader, measured
from _helpers.prompted import Killed, Shrinking, plain
from _helpers.two_processes_diversity import outcomes
from lightning.pytorch.callbacks import ModelCheckpoint

from genmonitor import GaussianKernel

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:Plain. this evaluation failed")]


def run(folder, monitor, *callbacks, **settings):
    keep = ModelCheckpoint(folder, monitor="diversity/scendi", save_last=True)
    train, val = loader(digits(0, 300)), loader(digits(300, 400))
    fit(folder, monitor, *callbacks, keep, module=Shrinking(), train=train, val=val, max_epochs=4, **settings)
    return folder / "last.ckpt"


def make(**settings):
    return plain(**({"kernel": GaussianKernel(), "num_features": 20} | settings))


def test_killed_run_gives_the_curves_of_one_undisturbed(tmp_path):
    whole, killed, resumed = make(), make(), make()
    run(tmp_path / "whole", whole)
    with pytest.raises(OSError, match="power"):
        run(tmp_path / "parts", killed, Killed())
    run(tmp_path / "parts", resumed, ckpt_path=tmp_path / "parts" / "last.ckpt")
    assert len(killed.history) == 2
    assert measured(resumed) == measured(whole)
    assert len({record["vendi"] for record in whole.history}) == 4


def test_state_is_plain_and_its_width_is_taken_over(tmp_path):
    checkpoint = run(tmp_path, make())
    (state,) = (s for k, s in torch.load(checkpoint, weights_only=True)["callbacks"].items() if k.startswith("Plain"))
    resumed, evaluator = make(), state["evaluator"]
    other = state | {"evaluator": evaluator | {"fit": evaluator["fit"] | {"gamma": 0.125}}}
    resumed.load_state_dict(other)
    assert resumed.kernel == GaussianKernel(0.125)
    assert resumed.state_dict() == other


@pytest.mark.parametrize("other", [{"n_samples": 59}, {"kernel": GaussianKernel(1.0)}], ids=str)
def test_other_settings_start_the_curves_anew(tmp_path, other):
    first, resumed = make(), make(**other)
    run(tmp_path, first)
    with pytest.warns(UserWarning, match=f"resumed with {next(iter(other))} changed, so everything is fitted again"):
        resumed.load_state_dict(first.state_dict())
    assert resumed.history == []
    assert resumed.kernel.gamma != first.kernel.gamma


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The prompts' features have rank", "ignore:.*are not measured")
@pytest.mark.parametrize(("processes", "n"), [(2, 61), pytest.param(3, 2, marks=pytest.mark.nightly)])
def test_several_processes_find_and_show_what_one_does(tmp_path, processes, n):
    said, ranks = launched(outcomes, tmp_path, processes, n)
    expected = outcomes(tmp_path, 1, n)
    assert [record["epoch"] for record in expected["cosine"]["history"]] == [0, 2]
    for found in ranks:
        for name, one in expected.items():
            for record, reference in zip(found[name]["history"], one["history"], strict=True):
                assert record == pytest.approx(reference | {"step": record["step"]}, rel=1e-5, abs=1e-6)
            assert found[name]["gamma"] == one["gamma"]
            assert found[name]["indices"] == one["indices"] or n == 2
            assert n == 2 or found[name]["sums"] == [pytest.approx(row, abs=1e-3) for row in one["sums"]]
    assert said.count("RuntimeError: no features today") == 1

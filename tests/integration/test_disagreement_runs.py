# SPDX-License-Identifier: Apache-2.0
"""DisagreementMonitor in runs that are killed and resumed, and in several processes."""

import pytest
import torch
from _helpers.launched import launched
from _helpers.modules import LIGHTNING_SAYS, fit, measured
from _helpers.prompted import Killed, Shrinking, disagreeing, evaluations, labelled
from _helpers.traces import same
from _helpers.two_processes_disagreement import outcomes
from lightning.pytorch.callbacks import ModelCheckpoint

from genmonitor import GaussianKernel

pytestmark = LIGHTNING_SAYS


def run(folder, monitor, *callbacks, epochs=4, **settings):
    keep = ModelCheckpoint(folder, monitor="disagreement/total", save_last=True)
    train, val = labelled(0, 300), labelled(300, 500)
    fit(folder, monitor, *callbacks, keep, module=Shrinking(), train=train, val=val, max_epochs=epochs, **settings)
    return folder / "last.ckpt"


@pytest.mark.parametrize("reference", ["data", "start", "previous"])
def test_killed_run_gives_the_curves_of_one_undisturbed(tmp_path, reference):
    whole, killed, resumed = (disagreeing(reference=reference) for _ in range(3))
    kept = [evaluations(monitor) for monitor in (whole, resumed)]
    run(tmp_path / "whole", whole)
    with pytest.raises(OSError, match="power"):
        run(tmp_path / "parts", killed, Killed())
    run(tmp_path / "parts", resumed, ckpt_path=tmp_path / "parts" / "last.ckpt")
    assert len(killed.history) == 2
    assert measured(resumed) == measured(whole)
    last, same = (found[-1] for found in kept)
    assert last.found.changed == same.found.changed
    assert len({record["total"] for record in whole.history}) == 4
    assert torch.allclose(last.reference.shown, same.reference.shown, atol=1e-3)


def test_state_is_plain_and_holds_the_reference(tmp_path):
    checkpoint = run(tmp_path, disagreeing(reference="start"))
    found = torch.load(checkpoint, weights_only=True)["callbacks"]
    (state,) = (s for name, s in found.items() if name.startswith("PlainDisagreement"))
    found = state["evaluator"]["fit"]
    reference = found["reference"]
    assert reference["features"].shape == (60, 64)
    assert (reference["shown"].shape, reference["shown"].dtype) == ((15, 1, 8, 8), torch.float16)
    resumed = disagreeing(reference="start")
    resumed.load_state_dict(state | {"evaluator": state["evaluator"] | {"fit": found | {"gamma": 0.125}}})
    assert resumed.kernel == GaussianKernel(0.125)
    again = resumed.evaluator.fit_state()
    assert same(again.pop("reference"), found.pop("reference"))
    assert again == found | {"gamma": 0.125}


@pytest.mark.parametrize(
    "other",
    [{"reference": "previous"}, {"num_modes": 4}, {"output_encoder": len}],
    ids=str,
)
def test_other_settings_start_the_curves_anew(tmp_path, other):
    first, resumed = disagreeing(reference="start"), disagreeing(**({"reference": "start"} | other))
    run(tmp_path, first)
    with pytest.warns(UserWarning, match=f"resumed with {next(iter(other))} changed, so everything is fitted again"):
        resumed.load_state_dict(first.state_dict())
    assert resumed.history == []
    assert resumed.evaluator.needs_first_samples


def test_encoder_of_another_size_is_refused_on_resuming(tmp_path):
    def make(size):
        return disagreeing(reference="start", output_encoder=lambda images: images.flatten(1)[:, :size])

    checkpoint = run(tmp_path, make(64))
    with pytest.raises(ValueError, match="`output_encoder` to return 64 values like the features of the reference"):
        run(tmp_path, make(32), epochs=5, ckpt_path=checkpoint)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*real images available for comparison")
@pytest.mark.parametrize(("processes", "n"), [(2, 36), pytest.param(3, 2, marks=pytest.mark.nightly)])
def test_several_processes_find_and_show_what_one_does(tmp_path, processes, n):
    _, ranks = launched(outcomes, tmp_path, processes, n)
    expected = outcomes(tmp_path, 1, n)
    assert expected["start"]["history"][1]["top_1"] > 0.01
    for found in ranks:
        for name, one in expected.items():
            for record, reference in zip(found[name]["history"], one["history"], strict=True):
                assert record == pytest.approx(reference | {"step": record["step"]}, rel=1e-5, abs=1e-5)
            assert found[name]["gamma"] == one["gamma"]
            assert found[name]["shown"] == [pytest.approx(sums, abs=1e-3) for sums in one["shown"]]
            parts, same = dict(map(tuple, found[name]["changed"])), dict(map(tuple, one["changed"]))
            assert parts == pytest.approx(same, abs=1e-3)

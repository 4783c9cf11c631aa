# SPDX-License-Identifier: Apache-2.0
"""Each script of the papers runs once by its command, at a small size, and prints what the paper says."""

import re

import pytest
from _helpers.scripts import printed

pytestmark = pytest.mark.slow
TWO_BATCHES = (
    "--trainer.max_epochs=2 --trainer.limit_train_batches=1 --trainer.accelerator=cpu"
    " --model.init_args.generator_features=4 --model.init_args.discriminator_features=4"
)

SCRIPTS = {
    "cms/cluster_recovery.py --counts 200 --draws 1 --out OUT/a.png": (
        r"4 regions +200 +1\.00  1\.00 \(4: 1\) +1\.00  1\.00 \(4: 1\)\n"
        r"like faces, 3 regions +200 +1\.00  1\.00 \(3: 1\) +1\.00  1\.00 \(3: 1\)\n"
    ),
    f"cms/compare_seeds.py --config configs/dcgan-digits.yaml --seeds 2 --out OUT {TWO_BATCHES}": (
        r"collapsed seeds: none\n(.|\n)*seeds +all: 2\nimage +0\.\d+ \(0\.\d+ to 0\.\d+\)\n"
    ),
    "cms/number_of_clusters.py --counts 2 5 --epochs 2 --features 4 --n-cluster-images 60 --n-samples 20 --out OUT": (
        r"image +of_2 +of_5\n +0 +0\.\d+ +0\.\d+ +0\.\d+\n +1 "
    ),
    "cms/theorem_1.py --counts 50 500 --draws 2 --out OUT/a.png": (
        r"plug-in\n.*\n +50 .*\n +500 +\d\.\d+ +\d\.\d+ +0\.001\d+ +\d\.\d+ +0\.00[3-9].* 0 of 2 +0\.[45]\d\n"
    ),
    "diversity/digits_modes.py --n 300 --frequencies 60 --out OUT/a.png": r"\n +100% +0\.000 +150 of 150\n",
    "promptsplit/ablations.py --frequencies 50 800 --per-component 5 20 --many 40 --draws 2 --out OUT": (
        r"Theorem 1\n +50 +0\.0[4-7].*\n +800 +0\.0[01].*(.|\n)*90 % below\n +40 +0\.0[3-6].*\n +160 +0\.0[0-2]"
    ),
    "promptsplit/gaussian_mixture.py --per-component 25 --out OUT": r"\n3 +3 +3 .*(.|\n)*\n8 +8 +8 ",
    "promptsplit/guidance.py --train-steps 20 --per-prompt 2 --steps 4 --out OUT": (
        r"unguided  energy 0\.09.*\nguided    energy 0\.0[1-8]"
    ),
    "promptsplit/planted_differences.py --per-prompt 20 --draws 2": (
        r"another style +100 % .*\nmore varied +100 % .*\none fixed answer +100 % .*\nnothing +[0-7]\d? %"
    ),
    "promptsplit/prompt_map.py --per-prompt 5 --out OUT": r"of them 9\d of the 100 on which the models differ",
    "scendi/captions.py --steps 300 -n 100": r"\n3 +2\.\d+ +1\.0\d +1\.[2-9]\d +[89]\d % +[5-7]\d %\n",
    "scendi/class_sweep.py --steps 300 -n 60 --num-features 20 --out OUT": r"3 colors .* 1\.9\d \| 4\.0\d ",
    "scendi/concept_removal.py --steps 300 -n 250 --out OUT": (
        r"x - Γ\* t, shape named +\d\d +100 +[23]\d +100 +[23]\d +100 +\n"
    ),
    "scendi/open_modes.py --steps 300 -n 100 --out OUT": (
        r"thing\" +6\.\d+ +4\.\d+ .*\n\"a square\" +6\.\d+ +2\.\d+ .*\n\"a red square\" +6\.\d+ +1\.\d+ "
    ),
    "scendi/typographic_attack.py --steps 300 -n 100 --out OUT": (
        r"attacked: x +\d .*\nword removed: .* [5-7]\d +[89]\d "
    ),
    "w1kp/digits_calibration.py --triplets 200 --out OUT": (
        r"fitted +0\.20\d +0\.[34]\d+ +0\.8\d+ \n(.|\n)*a class is good for 4 images"
    ),
    "w1kp/guidance_scale.py --train-steps 5 --per-prompt 3 --steps 3 --seeds 2": r"W1KP 0\.5\d+;(.*\n){7}$",
    "w1kp/prompt_specificity.py --images 12 --out OUT": r"properties named  Spearman's rho 0\.8\d",
}
"""What the output of a command contains."""


@pytest.mark.parametrize("command", SCRIPTS)
def test_script_prints_what_the_paper_says(command, tmp_path):
    assert re.search(SCRIPTS[command], printed(f"papers/{command}", tmp_path))
    if "OUT" in command:
        assert any(path.stat().st_size > 5_000 for path in tmp_path.glob("*.png"))

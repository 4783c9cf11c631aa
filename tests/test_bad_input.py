# SPDX-License-Identifier: Apache-2.0
"""Wrong uses of the public API: each is refused at once, by genmonitor itself, naming argument, value and remedy."""

import traceback
from pathlib import Path

import pytest
import torch
from _helpers.citizens import images

import genmonitor
from genmonitor import (
    PRDC,
    ConditionalVendiScore,
    CosineKernel,
    CosineMeanSimilarity,
    DiscrepancyMap,
    GaussianKernel,
    LaplacianKernel,
    LoopMonitor,
    MaximumMeanDiscrepancy,
    PixelCKA,
    PixelPartition,
    PromptSplit,
    RKEScore,
    ScendiScore,
    TwoSampleTest,
    VendiScore,
    W1KPScore,
)
from genmonitor import functional as F
from genmonitor.callbacks import DisagreementMonitor, DiversityMonitor, PixelClusterMonitor
from genmonitor.encoders import image_encoder

generator = torch.Generator().manual_seed(0)
x, y = torch.rand(8, 5, generator=generator), torch.rand(8, 3, generator=generator)
real, fake = images(6, 1), images(6, 2)
with_nan = x.clone()
with_nan[0, 0] = float("nan")
index = torch.arange(8) % 2
grid = PixelPartition.grid((3, 4), 1, 2)
calibration = F.calibrate(torch.rand(40, 5, generator=generator))
eye, zeros = torch.eye(4), torch.zeros(4, 4)
gaussian = GaussianKernel(1.0)
HERE = Path(__file__)

# a call, then what the message must hold: the argument, what came, and what is allowed or what to do
KERNELS = [
    (lambda: GaussianKernel(-1.0), "`gamma`", "-1.0", "a positive finite number"),
    (lambda: GaussianKernel("auto"), "`gamma`", "'auto'", "a positive finite number"),
    (lambda: GaussianKernel(float("nan")), "`gamma`", "nan", "a positive finite number"),
    (lambda: GaussianKernel(torch.tensor(1.0)), "`gamma`", "tensor(1.)", "a positive finite number"),
    (lambda: LaplacianKernel(0), "`gamma`", "got 0", "a positive finite number"),
    (lambda: GaussianKernel.from_sigma(0), "`sigma`", "got 0", "a positive finite number"),
    (lambda: gaussian(x, y), "`x` [N, D] and `y` [M, D]", "[8, 5]", "of one D"),
    (lambda: gaussian(x, x.double()), "`x` [N, D] and `y` [M, D]", "torch.float64", "convert one"),
    (lambda: gaussian(real, real), "`x` of shape [N, D]", "[6, 1, 3, 4]", "x.flatten(1)"),
    (lambda: gaussian(x.numpy(), x), "`x`", "ndarray", "Convert it first"),
    (lambda: gaussian(x, with_nan), "`y`", "1 of its 40", "where they come from"),
    (lambda: GaussianKernel()(x, x), "`gamma`", "None", "Give a number or call `resolved`"),
]
PARTITIONS = [
    (lambda: PixelPartition([[1, 2]]), "`labels`", "list", "Convert it first"),
    (lambda: PixelPartition(torch.tensor([[1, 3]])), "`labels`", "[1, 3]", "PixelPartition.from_mask"),
    (lambda: PixelPartition(torch.tensor([[0, 0]])), "`labels`", "[0]", "use each of 1..C"),
    (lambda: PixelPartition(torch.tensor([[-1, 1]])), "`labels`", "[-1, 1]", "from_mask numbers any mask"),
    (lambda: PixelPartition(torch.zeros(0, 2).long()), "`labels`", "[0, 2]", "integers of shape [h, w]"),
    (lambda: PixelPartition(torch.ones(2, 2)), "`labels`", "torch.float32 [2, 2]", "integers of shape [h, w]"),
    (lambda: PixelPartition.grid((4, 4), 5, 1), "`rows`", "5", "at most 4"),
    (lambda: PixelPartition.grid((4, 4), 1, 0), "`columns`", "0", "a whole number >= 1"),
    (lambda: PixelPartition.grid(4, 2, 2), "`shape`", "got 4", "(height, width)"),
    (lambda: PixelPartition.grid((4.0, 4), 2, 2), "`shape`", "(4.0, 4)", "whole numbers >= 1"),
    (lambda: PixelPartition.grid((4, 4), 2, 2, patch_size=0), "`patch_size`", "0", ">= 1"),
    (lambda: PixelPartition.from_mask(torch.rand(4, 4)), "`mask`", "torch.float32", "integers or booleans"),
    (lambda: PixelPartition.from_mask([[1]]), "`mask`", "list", "integers or booleans"),
    (lambda: PixelPartition.from_cka(eye, (3, 3)), "`matrix`", "[4, 4]", "[9, 9] for `shape`=(3, 3)"),
    (lambda: PixelPartition.from_cka(eye, 4), "`shape`", "got 4", "(height, width)"),
    (lambda: PixelPartition.from_cka(eye, (2, 2), 9), "`n_clusters`", "9", "at most 4"),
    (lambda: PixelPartition.from_cka(eye / 0, (2, 2)), "`matrix`", "16 of its 16", "finite"),
    (lambda: PixelPartition.from_cka(torch.diag(index[:4].double()), (2, 2), 3), "`n_clusters`", "3", "at most 2"),
    (lambda: PixelPartition.from_cka(eye, (2, 2), 2.5), "`n_clusters`", "2.5", "a whole number"),
    (lambda: PixelPartition.from_cka(zeros, (2, 2)), "sites that vary", "every site is constant", "Give images"),
    (lambda: PixelPartition.load("nowhere.npz"), "`path`", "nowhere.npz", "that `save` wrote"),
    (lambda: PixelPartition.load(HERE), "`path`", HERE.name, "save the partition again"),
]
PIXELS = [
    (lambda: F.pixel_cka(real, batch_estimator=7), "`batch_estimator`=7", "got 6", "at least"),
    (lambda: F.pixel_cka(real[:1]), "`images`", "got 1", "at least 2 samples"),
    (lambda: F.cosine_mean_similarity(fake[:1], real), "`fake`", "got 1", "at least 2 samples"),
    (lambda: F.cosine_mean_similarity(fake, real[..., :2]), "`fake` of shape [N, 1, 3, 2]", "[6, 1, 3, 4]", "Resize"),
    (lambda: F.maximum_mean_discrepancy(fake[:5], real, block_size=2), "fake samples", "got 5", "Use 4 samples"),
    (lambda: F.maximum_mean_discrepancy(fake, real[:5], block_size=2), "real samples", "got 5", "Use 4 samples"),
    (lambda: CosineMeanSimilarity(block_size=0), "`block_size`", "got 0", "a whole number"),
    (lambda: F.pixel_cka(real.numpy()), "`images`", "ndarray", "Convert it first"),
    (lambda: F.pixel_cka(real[0]), "`images`", "[1, 3, 4]", "x[:, None]"),
    (lambda: F.pixel_cka(real / 0), "`images`", "72 of its 72", "where they come from"),
    (lambda: F.pixel_cka(real, kernel="gaussian"), "`kernel`", "'gaussian'", "such as GaussianKernel()"),
    (lambda: F.pixel_cka(real, patch_size=2), "`patch_size`", "2", "divide the size 3×4"),
    (lambda: F.pixel_cka(real, patch_size=1.0), "`patch_size`", "1.0", "a whole number"),
    (lambda: F.pixel_cka(real, tolerance=-1), "`tolerance`", "-1", "a positive finite number"),
    (lambda: F.pixel_cka(real, batch_estimator=1), "`batch_estimator`", "1", ">= 2"),
    (
        lambda: F.pixel_cka(torch.ones(6, 1, 3, 4)),
        "samples that differ",
        "distances are 0",
        "Give the kernel a `gamma`",
    ),
    (lambda: F.centered_kernel_alignment(x, y[:4]), "`x` and `y`", "8 and 4", "equally many samples"),
    (lambda: F.centered_kernel_alignment(x, y, kernel=3), "`kernel`", "got 3", "such as GaussianKernel()"),
    (lambda: F.cosine_mean_similarity(fake, real[:1]), "`real`", "got 1", "at least 2 samples"),
    (lambda: F.cosine_mean_similarity(fake, real, partition="auto"), "`partition`", "str", "a PixelPartition"),
    (lambda: F.cosine_mean_similarity(x, x, partition=grid), "`fake`", "[8, 5]", "Leave the partition out"),
    (
        lambda: F.cosine_mean_similarity(real[..., 1:], real[..., 1:], partition=grid),
        "`fake`",
        "3×3",
        "a partition made for them",
    ),
    (lambda: F.cosine_mean_similarity(fake, x), "`fake`", "[6, 1, 3, 4]", "[N, 5]"),
    (lambda: F.cosine_mean_similarity(fake, real, block_size=4), "fake samples", "6", "Use 4 samples"),
    (lambda: F.cosine_mean_similarity(fake, real, block_size=0), "`block_size`", "0", ">= 2"),
    (
        lambda: F.cosine_mean_similarity(fake, real, kernel=CosineKernel(), partition=grid),
        "`kernel`",
        "CosineKernel",
        "GaussianKernel or LaplacianKernel",
    ),
    (lambda: F.maximum_mean_discrepancy(x, y), "`fake`", "[8, 5]", "Use one encoder throughout"),
    (lambda: F.maximum_mean_discrepancy(x, list(x)), "`real`", "list", "Convert it first"),
    (lambda: F.maximum_mean_discrepancy(x, with_nan), "`real`", "1 of its 40", "where they come from"),
    (lambda: F.maximum_mean_discrepancy(x, x, block_size="all"), "`block_size`", "'all'", "a whole number"),
    (lambda: CosineMeanSimilarity(kernel="rbf"), "`kernel`", "'rbf'", "such as GaussianKernel()"),
    (lambda: CosineMeanSimilarity(partition=3), "`partition`", "int", "a PixelPartition"),
    (lambda: CosineMeanSimilarity().update(real, real="yes"), "`real`", "'yes'", "True or False"),
    (lambda: CosineMeanSimilarity().update(list(real), real=True), "`real samples`", "list", "Convert it first"),
    (lambda: MaximumMeanDiscrepancy(block_size=1), "`block_size`", "1", ">= 2"),
    (lambda: MaximumMeanDiscrepancy(unbiased="no"), "`unbiased`", "'no'", "True or False"),
    (lambda: MaximumMeanDiscrepancy(reset_real_features=3), "`reset_real_features`", "3", "True or False"),
    (lambda: F.two_sample_test(x, x[:7]), "`real`", "got 7", "at least 8 samples"),
    (lambda: F.two_sample_test(x, with_nan), "`real`", "1 of its 40", "where they come from"),
    (lambda: F.two_sample_test(x, y), "`fake`", "[8, 5]", "Use one encoder throughout"),
    (lambda: F.two_sample_test(x, x, partition=grid), "`fake`", "[8, 5]", "[N, C, H, W]"),
    (lambda: F.discrepancy_map(real, real), "`fake`", "got 6", "at least 8 samples"),
    (lambda: F.discrepancy_map(x, real), "`fake`", "[8, 5]", "[N, C, H, W]"),
    (lambda: F.significant_areas({"map": x, "p_map": y}), "`p_map`", "[8, 3]", "`discrepancy_map` returned"),
    (lambda: DiscrepancyMap(sides=()), "`sides`", "()", "one or more whole numbers"),
    (lambda: DiscrepancyMap(sides=4), "`sides`", "4", "one or more whole numbers"),
    (lambda: DiscrepancyMap(sides=(4, 0)), "`sides`", "0", ">= 1"),
    (lambda: DiscrepancyMap(num_permutations=18), "`num_permutations`", "18", "at least 19"),
    (lambda: DiscrepancyMap(seed=-1), "`seed`", "-1", ">= 0"),
    (lambda: TwoSampleTest(num_permutations=18), "`num_permutations`", "18", "at least 19"),
    (lambda: TwoSampleTest(num_permutations=19.5), "`num_permutations`", "19.5", "a whole number"),
    (lambda: TwoSampleTest(gammas=None), "`gammas`", "None", "one or more numbers"),
    (lambda: TwoSampleTest(gammas=()), "`gammas`", "()", "one or more numbers"),
    (lambda: TwoSampleTest(gammas=(1, -2)), "`gammas`", "-2", "a positive finite number"),
    (lambda: TwoSampleTest(views=()), "`views`", "()", "'structure', 'texture'"),
    (lambda: TwoSampleTest(views="texture"), "`views`", "'texture'", "one or more of"),
    (lambda: TwoSampleTest(seed=-1), "`seed`", "-1", ">= 0"),
    (lambda: TwoSampleTest(partition=3), "`partition`", "int", "a PixelPartition"),
    (lambda: PixelCKA(patch_size=0), "`patch_size`", "0", ">= 1"),
    (lambda: PixelCKA().update(x), "`images`", "[8, 5]", "[N, C, H, W]"),
    (lambda: PixelCKA()(real[:1]), "at least 2 images", "got 1", "Call `update(images)`"),
]
VARIETY = [
    (lambda: F.vendi_score(real[0]), "`features`", "[1, 3, 4]", "x.flatten(1)"),
    (lambda: F.vendi_score(x, order=-1), "`order`", "-1", "a positive number or math.inf"),
    (lambda: F.vendi_score(x, order="two"), "`order`", "'two'", "1 is Shannon's entropy"),
    (lambda: F.vendi_score(x[:0]), "`features`", "got 0", "at least 2 samples"),
    (lambda: F.vendi_score(x, num_features=4), "`num_features`=4", "CosineKernel", "GaussianKernel"),
    (lambda: F.vendi_score(zeros), "`features`", "4 of 4 rows are zero", "use a GaussianKernel"),
    (lambda: F.vendi_score(x, kernel=gaussian, num_features=0), "`num_features`", "0", ">= 1"),
    (lambda: F.vendi_score(x > 0), "`features`", "torch.bool", "real numbers"),
    (lambda: F.vendi_from_gram(x), "`gram`", "[8, 5]", "a square matrix"),
    (lambda: F.vendi_from_gram(x[:5]), "`gram`", "differs from its transpose", "symmetric"),
    (lambda: F.vendi_from_gram(2 * eye), "`gram`", "off by 1", "Normalize it"),
    (lambda: F.vendi_from_gram(eye[:1, :1]), "`gram`", "got 1", "at least 2 samples"),
    (lambda: F.vendi_from_gram(eye / 0), "`gram`", "16 of its 16", "finite"),
    (lambda: F.vendi_from_covariance(eye), "`covariance`", "off by 3", "C / trace(C)"),
    (lambda: F.rke_score(x, kernel=int), "`kernel`", "int", "such as CosineKernel()"),
    (lambda: F.rke_score(zeros), "`features`", "4 of 4 rows are zero", "use a GaussianKernel"),
    (lambda: F.rke_score(x[:1]), "`features`", "got 1", "at least 2 samples"),
    (lambda: F.rke_score(with_nan), "`features`", "1 of its 40", "where they come from"),
    (lambda: F.scendi_score(x, y[:3]), "`outputs` and `prompts`", "8 and 3", "row i of one"),
    (lambda: F.scendi_score(x, y, rcond=2), "`rcond`", "2", "between 0 and 1"),
    (lambda: F.scendi_score(x, ["a"] * 8), "`prompts`", "list", "Convert it first"),
    (lambda: F.scendi_score(x, 0 * y), "`prompts`", "8 of 8 rows are zero", "Leave them out"),
    (lambda: F.scendi_score(0 * x, y), "`outputs`", "8 of 8 rows are zero", "Leave them out"),
    (lambda: F.scendi_score(x, y / 0), "`prompts`", "24 of its 24", "finite"),
    (lambda: F.scendi_score(x, y, num_features=3), "`num_features`=3", "CosineKernel", "GaussianKernel"),
    (lambda: F.scendi_score(x[:1], y[:1]), "`outputs`", "got 1", "at least 2 samples"),
    (lambda: F.conditional_vendi_score(x, 0 * y), "`prompts`", "8 of 8 rows are zero", "Leave them out"),
    (lambda: F.conditional_vendi_score(x, y[:2]), "`outputs` and `prompts`", "8 and 2", "row i of one"),
    (lambda: F.conditional_vendi_score(x, y, order=0), "`order`", "0", "a positive number or math.inf"),
    (lambda: F.conditional_vendi_score(x, y, truncation=0), "`truncation`", "0", ">= 1"),
    (lambda: F.precision_recall_density_coverage(x, x[:3]), "`k`=5", "got 3", "Add samples or lower `k`"),
    (lambda: F.precision_recall_density_coverage(x, with_nan), "`real`", "1 of its 40", "finite"),
    (lambda: F.precision_recall_density_coverage(x, y), "`fake`", "[8, 5]", "Use one encoder throughout"),
    (lambda: F.precision_recall_density_coverage(x, x, k=0), "`k`", "0", ">= 1"),
    (lambda: VendiScore(order=None), "`order`", "None", "a positive number or math.inf"),
    (lambda: VendiScore(truncation=0), "`truncation`", "0", ">= 1"),
    (lambda: VendiScore(num_features=1.5), "`num_features`", "1.5", "a whole number"),
    (lambda: VendiScore(seed=-1), "`seed`", "-1", ">= 0"),
    (lambda: VendiScore(kernel=GaussianKernel), "`kernel`", "<class", "such as CosineKernel()"),
    (lambda: RKEScore(seed="a"), "`seed`", "'a'", "a whole number"),
    (lambda: ScendiScore(rcond=0), "`rcond`", "0", "None takes the default"),
    (lambda: ScendiScore(prompt_kernel="cosine"), "`prompt_kernel`", "'cosine'", "such as CosineKernel()"),
    (lambda: ScendiScore().update(x, y[:3]), "`outputs` and `prompts`", "8 and 3", "equally many samples"),
    (lambda: ConditionalVendiScore(order=0), "`order`", "0", "a positive number or math.inf"),
    (lambda: ConditionalVendiScore(truncation=1.5), "`truncation`", "1.5", "a whole number"),
    (lambda: ConditionalVendiScore().update(x, y[:3]), "`outputs` and `prompts`", "8 and 3", "equally many samples"),
    (lambda: PRDC(k=2.0), "`k`", "2.0", "a whole number"),
    (lambda: PRDC().update(real[0], real=True), "`real samples`", "[1, 3, 4]", "features [N, D]"),
]
PROMPTS = [
    (lambda: F.prompt_split(x, y, x, y[:2]), "`reference_outputs` and `reference_prompts`", "8 and 2", "row i"),
    (lambda: F.prompt_split(x, y, x, y, eta=0), "`eta`", "0", "a positive finite number"),
    (lambda: F.prompt_split(x, y, y, x), "`reference_outputs`", "[8, 3]", "Use one encoder throughout"),
    (lambda: F.prompt_split_energy(x, y, x[:1], y[:1]), "`reference_outputs`", "got 1", "at least 2 samples"),
    (lambda: F.rank_prompts(torch.rand(4), ["a"]), "`prompts`", "got 1", "each of 4 samples"),
    (lambda: F.joint_diversity(x, y[:2]), "`outputs` and `prompts`", "8 and 2", "equally many samples"),
    (lambda: PromptSplit(num_modes=0), "`num_modes`", "0", ">= 1"),
    (lambda: PromptSplit(num_features=0), "`num_features`", "0", ">= 1"),
    (lambda: PromptSplit(eta=0.0), "`eta`", "0.0", "a positive finite number"),
    (lambda: PromptSplit(num_features=9000), "`num_features`", "9000", "at most 8192 to stay within 4 GiB"),
    (
        lambda: PromptSplit(num_features=5, output_kernel=CosineKernel()),
        "Gaussian",
        "CosineKernel",
        "two cosine kernels",
    ),
    (lambda: PromptSplit(seed=1.5), "`seed`", "1.5", "a whole number"),
    (lambda: PromptSplit().update(x, y, reference=None), "`reference`", "None", "True or False"),
    (lambda: F.calibrate(x[:1]), "prompt", "none", "Draw more outputs"),
    (lambda: F.w1kp_score(x, index), "`calibration`", "None", "W1KPCalibration.load"),
    (lambda: F.w1kp_score(y, index, calibration=calibration), "features", "3", "5"),
    (lambda: F.w1kp_score(x, index[:4], calibration=calibration), "`prompt_index`", "8 and 4", "equally many"),
    (lambda: F.w1kp_score(x, x[:, 0], calibration=calibration), "`prompt_index`", "torch.float32", "whole numbers"),
    (lambda: F.w1kp_score(x, torch.arange(8), calibration=calibration), "prompt", "none", "Draw more outputs"),
    (lambda: F.w1kp_score(x, index, calibration=calibration, k=1), "`k`", "1", ">= 2"),
    (lambda: F.similarity_level("high"), "`value`", "'high'", "a number"),
    (lambda: F.W1KPCalibration.load("nowhere.pt"), "`path`", "nowhere.pt", "a file of a calibration"),
    (lambda: F.W1KPCalibration.load(HERE), "two arrays", HERE.name, "does not load safely"),
    (lambda: W1KPScore("clip"), "`calibration`", "'clip'", "Fit one with calibrate"),
    (lambda: W1KPScore(calibration, k=0), "`k`", "0", ">= 2"),
    (lambda: W1KPScore(calibration).update(x, list(range(8))), "`prompt_index`", "list", "Convert it first"),
]
MONITORS = [
    (lambda: PixelClusterMonitor(n_clusters="5"), "`n_clusters`", "'5'", "a whole number"),
    (lambda: PixelClusterMonitor(n_samples=1), "`n_samples`", "1", ">= 2"),
    (lambda: PixelClusterMonitor(n_cluster_images=1), "`n_cluster_images`", "1", ">= 2"),
    (lambda: PixelClusterMonitor(partition=3), "`partition`", "int", "a PixelPartition"),
    (lambda: PixelClusterMonitor(2, grid), "`n_clusters` or `partition`", "got both", "Expected"),
    (lambda: PixelClusterMonitor(kernel=CosineKernel()), "`kernel`", "CosineKernel", "GaussianKernel or Laplacian"),
    (lambda: PixelClusterMonitor(block_size=7), "`block_size`=7", "1200", "Use 1197 samples"),
    (lambda: PixelClusterMonitor(patch_size=-1), "`patch_size`", "-1", ">= 1"),
    (lambda: PixelClusterMonitor(site_encoder=3), "`site_encoder`", "3", "from images to maps [n, c, h, w]"),
    (lambda: PixelClusterMonitor(on_alert="print"), "`on_alert`", "'print'", "that takes a line of text"),
    (lambda: PixelClusterMonitor(extra_metrics=3), "`extra_metrics`", "int", "Wrap them: MetricCollection"),
    (lambda: PixelClusterMonitor(extra_metrics=[1]), "`extra_metrics`", "list", "a dictionary of metrics"),
    (lambda: PixelClusterMonitor(extra_metrics={"fid": 3}), "`extra_metrics`", "dict of int", "MetricCollection"),
    (lambda: PixelClusterMonitor(sample_fn=3), "`sample_fn`", "got 3", "a callable of (module, n)"),
    (lambda: PixelClusterMonitor(on_error="ignore"), "`on_error`", "'ignore'", "one of 'warn', 'raise'"),
    (lambda: PixelClusterMonitor(seed=1.5), "`seed`", "1.5", "a whole number"),
    (lambda: PixelClusterMonitor(weights=None), "`weights`", "None", "'averaged'"),
    (lambda: PixelClusterMonitor(every_n_epochs=0), "`every_n_epochs`", "0", ">= 1"),
    (lambda: PixelClusterMonitor(every_n_train_steps=2.0), "`every_n_train_steps`", "2.0", "a whole number"),
    (lambda: PixelClusterMonitor(sample_batch_size=-1), "`sample_batch_size`", "-1", ">= 1"),
    (lambda: DiversityMonitor("a cat"), "`prompts`", "'a cat'", "a list of strings or of integer class labels"),
    (lambda: DiversityMonitor(10), "`prompts`", "got 10", "give list(range(10))"),
    (lambda: DiversityMonitor([]), "`prompts`", "list of nothing", "a list of strings"),
    (lambda: DiversityMonitor([1, "a"]), "`prompts`", "int, str", "a list of strings"),
    (lambda: DiversityMonitor([0.5, 1.0]), "`prompts`", "list of float", "integer class labels"),
    (lambda: DiversityMonitor(["a", "b"]), "`prompt_encoder`", "None", 'such as "clip"'),
    (lambda: DiversityMonitor(range(10), 5), "`n_samples`", "5", "Give fewer prompts or more samples"),
    (lambda: DiversityMonitor(range(5), output_encoder="clip"), "`output_encoder`", "str", "image_encoder("),
    (lambda: DiversityMonitor(range(5), prompt_encoder="clip"), "`prompts`", "class labels", "the classes' names"),
    (lambda: DiversityMonitor(range(5), prompt_encoder=1), "`prompt_encoder`", "int", "a callable or Module"),
    (lambda: DiversityMonitor(range(5), kernel=gaussian), "`num_features`", "None", "num_features=500"),
    (lambda: DiversityMonitor(range(5), kernel="rbf"), "`kernel`", "'rbf'", "such as CosineKernel()"),
    (lambda: DiversityMonitor(range(5), num_features=0), "`num_features`", "0", ">= 1"),
    (lambda: DiversityMonitor(range(5), prompt_kernel=gaussian), "`num_features`", "None", "num_features=500"),
    (lambda: DiversityMonitor(range(5), 9, calibration=calibration), "W1KP", "one of 9", "at least 2 samples of each"),
    (lambda: DiversityMonitor(range(5), rcond=3), "`rcond`", "3", "between 0 and 1"),
    (lambda: DiversityMonitor(range(5), calibration="c.pt"), "`calibration`", "'c.pt'", "W1KPCalibration.load"),
    (lambda: DisagreementMonitor(["a", "b"]), "`prompt_encoder`", "None", 'such as "clip"'),
    (lambda: DisagreementMonitor(range(5), 12), "`n_samples`", "12", "Give 10 or 15"),
    (lambda: DisagreementMonitor(range(10), 5), "`n_samples`", "5", "Give fewer prompts or more samples"),
    (lambda: DisagreementMonitor(range(5), reference="real"), "`reference`", "'real'", "'start', 'previous'"),
    (lambda: DisagreementMonitor(range(5), num_modes=0), "`num_modes`", "0", ">= 1"),
    (lambda: DisagreementMonitor(range(5), kernel="rbf"), "`kernel`", "'rbf'", "such as GaussianKernel()"),
    (
        lambda: DisagreementMonitor(range(5), kernel=CosineKernel(), prompt_kernel=gaussian, num_features=9),
        "two cosine kernels",
        "CosineKernel",
        "such as Gaussian ones",
    ),
    (lambda: DisagreementMonitor(range(5), prompt_kernel=3), "`prompt_kernel`", "3", "such as GaussianKernel()"),
    (lambda: DisagreementMonitor(range(5), num_features=-1), "`num_features`", "-1", ">= 1"),
    (lambda: image_encoder("x", 3), "`value_range`", "3", "(low, high)"),
    (lambda: image_encoder("x", (1, -1)), "`value_range`", "(1, -1)", "low < high"),
]
sparse, meta = torch.eye(4).to_sparse(), torch.ones(4, 4, device="meta")
NO_VALUES = [
    (lambda: GaussianKernel().resolved(sparse), "`x`", "torch.sparse_coo", "Use x.to_dense()"),
    (lambda: GaussianKernel().resolved(meta), "`x`", "device meta", "Make it on the CPU"),
    (lambda: PixelPartition.from_mask(sparse.int()), "`mask`", "torch.sparse_coo", "Use x.to_dense()"),
    (lambda: PixelPartition.from_mask(meta > 0), "`mask`", "device meta", "Make it on the CPU"),
    (lambda: DiversityMonitor(sparse[0].int()), "`prompts`", "torch.sparse_coo", "Use x.to_dense()"),
    (lambda: DiversityMonitor(meta[0].int()), "`prompts`", "device meta", "Make it on the CPU"),
    (
        lambda: LoopMonitor(folder="x", real_images=real.to_sparse()),
        "`real_images`",
        "torch.sparse_coo",
        "x.to_dense()",
    ),
    (
        lambda: LoopMonitor(folder="x", real_images=real.to("meta")),
        "`real_images`",
        "device meta",
        "Make it on the CPU",
    ),
]
WRONG = [*KERNELS, *PARTITIONS, *PIXELS, *VARIETY, *PROMPTS, *MONITORS, *NO_VALUES]
OURS = [Path(genmonitor.__file__).parent, Path(genmonitor.callbacks.__file__).parent]


@pytest.mark.parametrize("case", range(len(WRONG)), ids=[f"{i} {parts[0]}" for i, (_, *parts) in enumerate(WRONG)])
def test_wrong_use_is_refused_by_us_saying_what_to_change(case, record_property):
    call, *parts = WRONG[case]
    with pytest.raises((TypeError, ValueError, FileNotFoundError)) as caught:
        call()
    message = str(caught.value)
    assert [part for part in parts if part not in message] == [], message
    assert message.startswith("Expected ")
    where = Path(traceback.extract_tb(caught.value.__traceback__)[-1].filename)
    assert any(place in where.parents for place in OURS), where  # not from inside torch, numpy or scipy
    record_property("wrong uses refused", 1)


def test_wrong_uses_are_many():
    assert len(WRONG) >= 60

# SPDX-License-Identifier: Apache-2.0
"""Compute the golden numbers of the tests again, from the papers' formulas and in NumPy, without genmonitor.

python tests/_helpers/make_golden.py            # prints them as they stand in the modules beside this one
python tests/_helpers/make_golden.py --check    # compares: exit status 1 if one differs

The data are scikit-learn's digits, scaled to [-1, 1]. Nothing here cares for speed: it takes half a minute.
"""

import argparse
import ast
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import load_digits

Array = NDArray[np.float64]

INPUTS = {"PAIRS"}
"""Numbers beside the golden ones that are chosen, not computed."""
PAIRS = [(20, 21), (20, 28), (10, 53), (36, 37), (2, 61)]


def digits() -> tuple[Array, NDArray[np.int64]]:
    """Return all digits (1797, 64) in [-1, 1] and what they show."""
    data = load_digits()
    return data.images.reshape(-1, 64) / 8 - 1, data.target


def gaussian(x: Array, y: Array, gamma: float) -> Array:
    return np.exp(-gamma * cdist(x, y, "sqeuclidean"))


def cosine(x: Array) -> Array:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit @ unit.T


# Mean embeddings: Gruber et al. 2024


def hsic(k: Array, m: Array) -> float:
    """tr(K H L H) / n² with H = I - 11ᵀ/n."""
    n = len(k)
    h = np.eye(n) - np.ones((n, n)) / n
    return float(np.trace(k @ h @ m @ h)) / n**2


def cka(x: Array, i: int, j: int, gamma: float) -> float:
    """Eq. 11-13, of two pixels; nan where one of them is constant."""
    k, m = (gaussian(x[:, [pixel]], x[:, [pixel]], gamma) for pixel in (i, j))
    if min(np.ptp(x[:, i]), np.ptp(x[:, j])) == 0:
        return float("nan")
    return hsic(k, m) / float(np.sqrt(hsic(k, k) * hsic(m, m)))


def cka_matrix(x: Array, gamma: float) -> Array:
    """The same for all pairs: tr(K H L H) is the inner product of the centered matrices H K H and H L H."""
    n = len(x)
    h = np.eye(n) - np.ones((n, n)) / n
    centered = [h @ gaussian(x[:, [i]], x[:, [i]], gamma) @ h for i in range(x.shape[1])]
    products = np.array([[np.vdot(a, b) for a in centered] for b in centered])
    return products / np.sqrt(np.outer(products.diagonal(), products.diagonal()))


def clusters(matrix: Array, varying: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Average linkage of the rows; labels from 1 by falling size, ties by the first pixel, 0 for constant pixels."""
    found = fcluster(linkage(pdist(matrix), "average"), count, "maxclust")
    members = [np.flatnonzero(found == name) for name in np.unique(found)]
    labels = np.zeros(64, dtype=np.int64)
    for label, where in enumerate(sorted(members, key=lambda where: (-len(where), where[0])), start=1):
        labels[varying[where]] = label
    return labels


def cms(fake: Array, real: Array, gamma: float) -> float:
    """Eq. 3, 4, 17 with plug-in norms."""
    norms = gaussian(fake, fake, gamma).mean() * gaussian(real, real, gamma).mean()
    return float(gaussian(fake, real, gamma).mean() / np.sqrt(norms))


def mean_embeddings() -> dict[str, Any]:
    x, _ = digits()
    train, fake, real = x[:1000], x[1000:1300], x[1300:1600]
    gamma = float(1 / np.median(pdist(train, "sqeuclidean")))
    varying = np.flatnonzero(np.ptp(train, axis=0) > 0)
    matrix = cka_matrix(train[:, varying], gamma)
    labels = {count: clusters(matrix, varying, count) for count in (5, 3)}
    regions = {"constant": 0, **{f"cluster_{c}": c for c in range(1, 6)}}
    values = {name: cms(fake[:, labels[5] == c], real[:, labels[5] == c], gamma) for name, c in regions.items()}
    k, m, across = gaussian(fake, fake, gamma), gaussian(real, real, gamma), gaussian(fake, real, gamma)
    off_diagonal = ~np.eye(300, dtype=bool)
    return {
        "GAMMA": gamma,
        "CONSTANT": [i for i in range(64) if i not in varying],
        "CKA": [cka(train, i, j, gamma) for i, j in PAIRS],
        "CKA_BATCHES_OF_100": [
            float(np.nanmean([cka(batch, i, j, gamma) for batch in np.split(train, 10)])) for i, j in PAIRS
        ],
        "SIZES_5": np.bincount(labels[5]).tolist(),
        "SIZES_3": np.bincount(labels[3]).tolist(),
        "ROWS": ["".join(map(str, row)) for row in labels[5].reshape(8, 8)],
        "CMS": {"image": cms(fake, real, gamma), "product": float(np.prod(list(values.values()))), **values},
        "CMS_BLOCKS_OF_150": float(
            np.mean([cms(a, b, gamma) for a, b in product(np.split(fake, 2), np.split(real, 2))])
        ),
        "MMD_UNBIASED": float(k[off_diagonal].mean() + m[off_diagonal].mean() - 2 * across.mean()),
        "MMD_BIASED": float(k.mean() + m.mean() - 2 * across.mean()),
    }


# Kernel entropy: Friedman and Dieng 2023, Jalali et al. 2023, Ospanov et al. 2025


def exp_entropy(matrix: Array) -> float:
    """exp(Σ λ log(S / λ)) with S = Σ λ, over the eigenvalues λ > 0."""
    values = np.linalg.eigvalsh(matrix)
    values = values[values > 1e-12]
    return float(np.exp((values * np.log(values.sum() / values)).sum()))


def kernel_entropy() -> dict[str, Any]:
    x, label = (side[:500] for side in digits())
    k, exact = cosine(x + 1) / 500, gaussian(x, x, 1 / (2 * 2**2)) / 500
    outputs = (x + 1) / np.linalg.norm(x + 1, axis=1, keepdims=True)
    prompts = np.eye(10)[label]
    c_ii, c_it, c_tt = outputs.T @ outputs / 500, outputs.T @ prompts / 500, prompts.T @ prompts / 500
    driven = c_it @ np.linalg.inv(c_tt) @ c_it.T
    return {
        "VENDI": exp_entropy(k),
        "RKE": float(1 / (k**2).sum()),
        "VENDI_INFINITE": float(1 / np.linalg.eigvalsh(k).max()),
        "EXACT_VENDI": exp_entropy(exact),
        "EXACT_RKE": float(1 / (exact**2).sum()),
        "SCENDI": {
            "scendi": exp_entropy(c_ii - driven),
            "scendi_prompt": exp_entropy(driven),
            "prompt_share": float(np.trace(driven)),
        },
    }


# PromptSplit: Lotfian et al. 2026


def prompt_disagreement() -> dict[str, Any]:
    x, label = digits()
    t, u = np.eye(10)[label[:500]], np.eye(10)[label[500:1000]]
    negated = np.isin(label[500:1000], (3, 7))[:, None]
    y, x = np.where(negated, -x[500:1000], x[500:1000]), x[:500]

    def joint(a: Array, b: Array, c: Array, d: Array) -> Array:
        return gaussian(a, b, 1 / (2 * 3**2)) * gaussian(c, d, 1 / (2 * 0.5**2))

    test, across, reference = joint(x, x, t, t), joint(x, y, t, u), joint(y, y, u, u)
    difference = np.block([[test, across], [-across.T, -reference]]) / 500  # Eq. 3 with n = m = 500 and eta = 1
    values = np.sort(np.linalg.eigvals(difference).real)
    positive = values[values > 1e-12]
    return {
        "TOP": values[:-5:-1].tolist(),
        "BOTTOM": values[2::-1].tolist(),
        "TOTAL": float((positive * np.log(positive.sum() / positive)).sum()),
        "ENERGY": float((test**2).mean() - 2 * (across**2).mean() + (reference**2).mean()),
    }


GOLDEN = {"golden": mean_embeddings, "entropy_references": kernel_entropy, "joint_spectra": prompt_disagreement}
"""The modules beside this one, and what computes the numbers in them."""


def written(module: str) -> dict[str, Any]:
    """Return the constants of a module as they stand in its source."""
    found = {}
    for statement in ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign):
            (target,) = statement.targets
            try:
                value = ast.literal_eval(statement.value)
            except ValueError:  # made by a call
                continue
            names, values = (target.elts, value) if isinstance(target, ast.Tuple) else ([target], [value])
            found |= {name.id: one for name, one in zip(names, values, strict=True)}
    return found


def same(computed: Any, stands: Any) -> bool:
    """Return True if a computed value is the written one, as far as that goes."""
    if isinstance(computed, dict):
        return computed.keys() == stands.keys() and all(same(computed[key], stands[key]) for key in computed)
    if isinstance(computed, float):
        return abs(computed - stands) < 1e-8
    if isinstance(computed, list):
        return len(computed) == len(stands) and all(map(same, computed, stands))
    return computed == stands


def check() -> list[str]:
    """Return the names of what is written but not computed so."""
    wrong = []
    for module, compute in GOLDEN.items():
        numbers, stands = compute(), written(module)
        for name in sorted(numbers.keys() | stands.keys() - INPUTS):
            if name not in numbers or name not in stands or not same(numbers[name], stands[name]):
                wrong.append(f"{module}.py: {name}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with what is written instead of printing")
    if parser.parse_args().check:
        wrong = check()
        print("\n".join(wrong) or "All golden numbers are what the formulas give.")
        return 1 if wrong else 0
    for module, compute in GOLDEN.items():
        print(f"# {module}.py", *(f"{name} = {value!r}" for name, value in compute().items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

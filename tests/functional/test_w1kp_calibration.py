# SPDX-License-Identifier: Apache-2.0
import zipfile
from itertools import combinations

import numpy as np
import pytest
import torch

from genmonitor.functional import W1KPCalibration, calibrate


def outputs(n: int = 12, dim: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_fitted_knots_and_heights():
    x, index = outputs(), torch.arange(12) % 4
    found = calibrate(x, index)
    pairs = [(a, b) for a, b in combinations(range(12), 2) if index[a] == index[b]]
    distances = sorted(float((x[a] - x[b]).square().sum()) for a, b in pairs)
    largest = 4 * float(x.square().sum(1).max())
    np.testing.assert_allclose(found.distances, [0, *distances, largest], atol=1e-12)
    np.testing.assert_allclose(found.heights, np.arange(len(pairs) + 2) / (len(pairs) + 2), atol=1e-15)
    assert found.dim == 3


def test_without_an_index_all_pairs_are_of_one_prompt():
    assert len(calibrate(outputs()).distances) == 2 + 12 * 11 // 2


def test_it_is_numpy_interp():
    calibration = W1KPCalibration.of(torch.tensor([0.0, 1, 1, 3, 4]), torch.tensor([0.0, 0.2, 0.5, 0.5, 0.9]), dim=2)
    queries = torch.tensor([-1.0, 0, 0.3, 1, 1.5, 3, 3.7, 4, 9])
    expected = np.interp(queries, calibration.distances, calibration.heights)
    np.testing.assert_allclose(calibration(queries), expected, atol=1e-12)
    assert calibration(queries.reshape(3, 3)).shape == (3, 3)


GIVEN = {
    "tensors": lambda x: (x, x),
    "NumPy's memory": lambda x: (x.numpy(), torch.from_numpy(x.numpy())),
    "rows of a table": lambda x: (table := torch.stack([x, x]), table[1]),
}


@pytest.mark.parametrize("given", GIVEN)
def test_writing_into_the_knots_that_were_given_changes_nothing(given):
    held, distances = GIVEN[given](torch.linspace(0, 4, 5, dtype=torch.float64))
    heights = torch.linspace(0, 1, 5, dtype=torch.float64)
    calibration = W1KPCalibration.of(distances, heights, dim=2)
    held *= 2
    heights.zero_()
    assert calibration(torch.tensor([1.0])).item() == pytest.approx(0.25)


def test_distances_like_those_fitted_are_uniform():
    calibration = calibrate(outputs(200, seed=1))
    x = outputs(200, seed=2)
    found = calibration((x[::2] - x[1::2]).square().sum(1))
    assert float(found.mean()) == pytest.approx(0.5, abs=0.1)
    assert float(found.std()) == pytest.approx(12**-0.5, abs=0.05)


def test_saved_and_loaded(tmp_path):
    calibration = calibrate(outputs())
    calibration.save(tmp_path / "calibration.pt")
    for dim in (None, 4):
        again = W1KPCalibration.load(tmp_path / "calibration.pt", dim)
        assert torch.equal(again.distances, calibration.distances)
        assert torch.equal(again.heights, calibration.heights)
        assert again.dim == 3


X, Y = np.array([0.0, 0.5, 2.0, 4.0]), np.arange(4) / 4
FORMS = [(X, Y), [X.astype("f"), Y], (torch.tensor(X), torch.tensor(Y)), (X.tolist(), Y.tolist())]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_two_arrays_loads(tmp_path, form):
    torch.save(form, tmp_path / "xy.pt")
    found = W1KPCalibration.load(tmp_path / "xy.pt", dim=768)
    np.testing.assert_array_equal(found.distances, X)
    np.testing.assert_array_equal(found.heights, Y)
    assert found.dim == 768
    with pytest.raises(ValueError, match=r"`dim` for .* does not name its embedding"):
        W1KPCalibration.load(tmp_path / "xy.pt")


def test_arrays_of_an_older_numpy_load(tmp_path):
    torch.save((X, Y), tmp_path / "new.pt")
    with zipfile.ZipFile(tmp_path / "new.pt") as new, zipfile.ZipFile(tmp_path / "old.pt", "w") as old:
        for name in new.namelist():
            old.writestr(name, new.read(name).replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    np.testing.assert_array_equal(W1KPCalibration.load(tmp_path / "old.pt", dim=3).distances, X)


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_cut_short_is_refused(tmp_path, part, zipped):
    torch.save((X, Y), tmp_path / "xy.pt", _use_new_zipfile_serialization=zipped)
    content = (tmp_path / "xy.pt").read_bytes()
    (tmp_path / "xy.pt").write_bytes(content[: int(part * len(content))])
    with pytest.raises(ValueError, match="does not load safely"):
        W1KPCalibration.load(tmp_path / "xy.pt", dim=3)


@pytest.mark.parametrize("form", [X, (X, Y, Y), {"x": torch.tensor(X)}, 3.0])
def test_other_files_are_refused(tmp_path, form):
    torch.save(form, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="to hold two arrays, but got"):
        W1KPCalibration.load(tmp_path / "other.pt", dim=3)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([0.0, 2, 1], [0.0, 0.5, 1], "`distances` to rise.*falls 1 times"),
        ([0.0, 1, 2], [0.0, 0.5, 0.4], "`heights` to rise"),
        ([0.0, 1], [0.0, 1.5], "`heights` to rise from 0 or more to 1 or less, but it goes from 0 to 1.5"),
        ([0.0, 1], [-0.1, 1], "`heights` to rise from 0 or more"),
        ([0.0, 1, 2], [0.0, 1], "equally many samples"),
        ([0.0], [0.0], r"`distances` of shape \[K\] with K >= 2, but got \[1\]"),
        ([0.0, float("nan")], [0.0, 1], "`distances` to be finite"),
    ],
)
def test_what_is_no_distribution_function(x, y, message):
    with pytest.raises(ValueError, match=message):
        W1KPCalibration.of(torch.tensor(x), torch.tensor(y), dim=2)


def test_bad_input_of_calibrate():
    with pytest.raises(ValueError, match="a prompt with at least 2 outputs"):
        calibrate(outputs(), torch.arange(12))
    with pytest.raises(ValueError, match="equally many samples"):
        calibrate(outputs(), torch.arange(11))
    with pytest.raises(ValueError, match="`dim` to be a whole number >= 1"):
        W1KPCalibration.of(torch.tensor([0.0, 1]), torch.tensor([0.0, 1]), dim=0)

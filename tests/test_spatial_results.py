"""Everything a result can do, with the spatial estimator that makes it by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import sigmacube as sc
from sigmacube import io
from sigmacube.tiles.run import denoise_file

SHAPE, NOISE = (44, 37, 30), 0.05
COVARIANCE = NOISE**2 * 0.4 ** np.abs(np.subtract.outer(range(30), range(30)))
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "estimated": {"noise": None},
    "covariance": {"noise": COVARIANCE},
    "robust": {"solver": "robust"},
}


def observed(*, impulses: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    truth = sc.synthetic.scene(SHAPE, rng=1).values
    noisy = sc.synthetic.add_noise(truth, NOISE, impulses=impulses, rng=2)
    return truth, np.asarray(getattr(noisy, "values", noisy))


def holed(*, impulses: float = 0.0) -> np.ndarray:
    """A scene with a foreign pixel, missing elements, a dead line and a pixel without values."""
    cube = observed(impulses=impulses)[1].copy()
    cube[30, 20] += np.random.default_rng(3).normal(size=SHAPE[2]) * 2 * NOISE
    cube[3, 3, 5:8] = np.nan
    cube[4, :, 9] = np.nan
    cube[40, 30] = np.nan
    return cube


@pytest.mark.parametrize("case", CASES)
def test_tiles_and_dask_have_the_bits_of_the_whole(case: str, tmp_path: Path) -> None:
    options = {"noise": NOISE, "window": 8, "step": 4, **CASES[case]}
    cube = holed(impulses=0.05 if case == "robust" else 0.0)
    whole = sc.denoise(cube, **options)
    np.save(tmp_path / "in.npy", cube)
    denoise_file(tmp_path / "in.npy", tmp_path / "a.zarr", **options, tile="25x20", workers=1,
                 mode="threads", dtype="float64", keep_factors=True)  # fmt: skip
    tiled = io.read_result(tmp_path / "a.zarr")
    lazy = sc.denoise(xr.DataArray(da.from_array(cube, chunks=(20, 19, 30))), **options)
    for name in ("estimate", "std", "ranks", "residual_ratio", "unexplained"):
        expected = np.asarray(getattr(whole, name))
        np.testing.assert_array_equal(getattr(tiled, name), expected)
        np.testing.assert_array_equal(np.asarray(getattr(lazy, name)), expected)
    if case == "robust":
        np.testing.assert_array_equal(tiled.rejected, whole.rejected)
    # A mean over four tiles, from the stored error models of all of them.
    weights = np.zeros(SHAPE)
    weights[15:35, 10:30, 4:6] = 1 / 800
    weights[~np.isfinite(whole.estimate)] = 0
    assert tiled.functional_std(weights) == pytest.approx(whole.functional_std(weights), rel=1e-5)


@pytest.mark.parametrize("name", ["a.nc", "a.zarr", "a.hdr", "a.tif"])
def test_files_keep_what_no_window_explains(name: str, tmp_path: Path) -> None:
    result = sc.denoise(holed(), NOISE, window=8)
    assert [30, 20] in result.unexplained.tolist()
    assert result.std[30, 20].mean() > 1.5 * np.nanmedian(result.std)
    result.save(tmp_path / name)
    again = io.read_result(tmp_path / name)
    np.testing.assert_array_equal(again.unexplained, result.unexplained)
    assert again.noise_power is None
    assert "unexplained" in repr(result)


def test_low_rank_windows_do_not_look_for_unexplained_pixels(tmp_path: Path) -> None:
    result = sc.denoise(observed()[1], NOISE, prior=None, uncertainty=False)
    assert result.unexplained is None
    result.save(tmp_path / "a.nc")
    assert io.read_result(tmp_path / "a.nc").unexplained is None


def test_noise_correlated_in_space_is_kept_in_the_result(tmp_path: Path) -> None:
    truth = sc.synthetic.scene((70, 66, 40), rng=1).values
    white = np.random.default_rng(5).normal(size=(71, 66, 40))
    noisy = truth + NOISE * (white[1:] + 0.8 * white[:-1]) / np.sqrt(1.64)
    result = sc.denoise(noisy, NOISE)
    assert result.noise_power is not None
    # Neighbouring rows share noise: low frequencies along rows have more of it.
    assert result.noise_power[:5].mean() > 2 * result.noise_power[-5:].mean()
    for name in ("a.nc", "a.hdr"):
        result.save(tmp_path / name)
        np.testing.assert_allclose(io.read_result(tmp_path / name).noise_power, result.noise_power)


@pytest.mark.statistical
def test_impulses_are_set_aside() -> None:
    truth, noisy = observed(impulses=0.1)
    clean = observed()[1]
    result = sc.denoise(noisy, NOISE, solver="robust")
    plain = sc.denoise(noisy, NOISE)
    hit = noisy != clean
    assert result.rejected is not None
    assert np.mean(result.rejected[hit]) > 0.9
    assert np.mean(result.rejected[~hit]) < 0.02
    assert np.std(result.estimate - truth) < 0.5 * np.std(plain.estimate - truth)
    assert np.mean(np.abs(result.estimate - truth) <= 1.96 * result.std) > 0.93


@pytest.mark.statistical
def test_the_robust_solver_does_no_harm_without_impulses() -> None:
    truth, noisy = observed()
    error = [
        sc.denoise(noisy, NOISE, solver=solver).estimate - truth for solver in ("svd", "robust")
    ]
    assert np.std(error[1]) < 1.05 * np.std(error[0])
    assert np.abs(error[1]).max() < 6 * NOISE


@pytest.mark.statistical
def test_missing_values_in_correlated_noise() -> None:
    truth = observed()[0]
    rng = np.random.default_rng(4)
    noisy = truth + rng.normal(size=SHAPE) @ np.linalg.cholesky(COVARIANCE).T
    noisy[rng.random(SHAPE) < 0.05] = np.nan
    result = sc.denoise(noisy, COVARIANCE)
    gone = np.isnan(noisy)
    for where in (gone, ~gone):
        inside = np.abs(result.estimate - truth)[where] <= 1.96 * result.std[where]
        assert 0.9 < inside.mean() < 0.995

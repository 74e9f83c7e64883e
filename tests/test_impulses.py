"""Impulses, dead lines and stripes through the whole path."""

from __future__ import annotations

import numpy as np
import pytest

import sigmacube as sc
from conftest import scale_bands
from sigmacube.core.lowrank.solvers import SemiSoftGoDecSolver

NOISE = 0.04


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return np.asarray(sc.synthetic.scene((40, 46, 50), rng=4).values)


def run(cube: np.ndarray, **options: object) -> sc.DenoisedCube:
    return sc.denoise(cube, NOISE, window=14, step=7, **options, prior=None)


def covered(result: sc.DenoisedCube, truth: np.ndarray) -> float:
    return float(np.mean(np.abs(result.estimate - truth) <= 1.96 * result.std))


@pytest.mark.statistical
def test_truth_is_covered_under_impulses(truth: np.ndarray) -> None:
    noisy = sc.synthetic.add_noise(truth, NOISE, impulses=0.2, rng=5)
    result = run(noisy, solver="robust")
    clean = run(sc.synthetic.add_noise(truth, NOISE, rng=5))
    assert covered(result, truth) == pytest.approx(covered(clean, truth), abs=0.02)
    error = result.estimate - truth
    assert np.std(error) < 1.35 * np.std(clean.estimate - truth)
    # Control: the solver that knows no impulses is far off.
    assert np.std(run(noisy, solver="svd").estimate - truth) > 3 * np.std(error)


def test_rejected_are_the_impulses(truth: np.ndarray) -> None:
    plain = sc.synthetic.add_noise(truth, NOISE, rng=6)
    noisy = sc.synthetic.add_noise(truth, NOISE, impulses=0.1, rng=6)
    impulses = noisy != plain
    result = run(noisy, solver="robust")
    assert result.rejected.shape == truth.shape
    assert result.rejected[impulses].mean() > 0.97
    assert result.rejected[~impulses].mean() < 0.01
    # One line of 46 may pass for a stripe in a band that is unlike its neighbours.
    np.testing.assert_allclose(
        result.rejected_share("band"), impulses.mean(axis=(0, 1)), atol=0.025
    )
    np.testing.assert_allclose(result.rejected_share("pixel").mean(), impulses.mean(), atol=0.01)
    assert result.settings["rejected_share"] == pytest.approx(result.rejected.mean())


def test_rejected_share_of_svd_is_zero(truth: np.ndarray) -> None:
    result = run(truth + np.random.default_rng(1).normal(scale=NOISE, size=truth.shape))
    assert not result.rejected_share("band").any()
    with pytest.raises(ValueError, match=r"Invalid axis 'row'. It must be 'band' or 'pixel'."):
        result.rejected_share("row")


def test_svd_suggests_robust_where_there_are_impulses(truth: np.ndarray) -> None:
    plain = sc.synthetic.add_noise(truth, NOISE, rng=7)
    assert "advice" not in run(plain).settings
    for share in (0.005, 0.02, 0.15):
        wild = sc.synthetic.add_noise(truth, NOISE, impulses=share, rng=7)
        assert "solver='robust'" in run(wild).settings["advice"]


def test_dead_lines_are_removed(truth: np.ndarray) -> None:
    plain = sc.synthetic.add_noise(truth, NOISE, rng=8)
    noisy = sc.synthetic.add_noise(truth, NOISE, dead_lines=2, rng=8)
    dead = noisy != plain
    result = run(noisy, solver="robust")
    assert result.rejected[dead].all()
    error = result.estimate - truth
    assert np.std(error[dead]) < 0.5 * NOISE
    assert np.mean(np.abs(error[dead]) <= 1.96 * result.std[dead]) > 0.85
    assert result.std[dead].mean() > 1.1 * result.std[~dead].mean()
    # Control: least squares takes a dead line for signal.
    assert np.std((run(noisy).estimate - truth)[dead]) > 2 * NOISE


def test_stripes_are_removed(truth: np.ndarray) -> None:
    plain = sc.synthetic.add_noise(truth, NOISE, rng=9)
    noisy = sc.synthetic.add_noise(truth, NOISE, stripes=0.08, rng=9)
    striped = np.abs(noisy - plain) > 2 * NOISE
    result = run(noisy, solver="robust")
    assert result.rejected[striped].mean() > 0.8
    error = np.std((result.estimate - truth)[striped])
    assert error < 0.3 * np.std((noisy - truth)[striped])
    # Least squares does not suffer either: offsets along the track are taken out before windows.
    assert np.std((run(noisy).estimate - truth)[striped]) < np.std((noisy - truth)[striped]) / 3


@pytest.mark.parametrize("solver", ["robust", "godec", "ssgodec"])
def test_scale_of_the_data_does_not_matter(truth: np.ndarray, solver: str) -> None:
    part = sc.synthetic.add_noise(truth[:20, :24], NOISE, impulses=0.1, rng=3)
    one = sc.denoise(part, NOISE, window=12, step=6, solver=solver, prior=None)
    two = sc.denoise(8 * part, 8 * NOISE, window=12, step=6, solver=solver, prior=None)
    np.testing.assert_allclose(two.estimate, 8 * one.estimate, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(two.std, 8 * one.std, rtol=1e-5)


@pytest.mark.data
def test_public_code_is_reproduced(indian_crop: np.ndarray) -> None:
    """Semi-soft GoDec with the settings of the public LRMR code: RMSE .161 σ₀ ± .004."""
    noisy = sc.synthetic.add_noise(indian_crop, 0.05, rng=1)
    solver = SemiSoftGoDecSolver(7, 0.15 / 0.05, "random")
    result = sc.denoise(
        noisy, 0.05, solver=solver, weights="uniform", uncertainty=False, prior=None
    )
    error = np.sqrt(np.mean((result.estimate - indian_crop) ** 2)) / 0.05
    assert error == pytest.approx(0.161, abs=0.004)


@pytest.mark.data
@pytest.mark.statistical
def test_robust_on_the_simulated_scene(indian_pines: np.ndarray) -> None:
    truth = np.ascontiguousarray(scale_bands(indian_pines)[84:116, 78:114])
    inside = []
    for trial in range(3):
        noisy = sc.synthetic.add_noise(truth, 0.1, impulses=0.3, rng=trial)
        inside.append(covered(sc.denoise(noisy, 0.1, solver="robust", prior=None), truth))
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)

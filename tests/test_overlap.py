"""The fast variance of overlapping windows against plain pair loops and against functionals."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
import sigmacube as sc
from conftest import low_rank_cube
from sigmacube.core import windows
from sigmacube.core.lowrank.combine import pool_noise_correlation
from sigmacube.core.parallel import parallel

GRIDS = {
    "divides": ((12, 16, 7), 8, 4),
    "does not divide": ((13, 17, 7), 8, 3),
    "not square": ((14, 11, 6), (9, 5), (4, 2)),
    "one window": ((8, 9, 5), (8, 9), (8, 9)),
    "cuts the bands": ((11, 13, 10), (7, 6, 5), (3, 4, 2)),
    "step one": ((9, 10, 5), 6, 1),
}
NOISES = ("scalar", "per band", "covariance")


def noise_of(kind: str, n_bands: int, rng: np.random.Generator) -> float | np.ndarray:
    if kind == "scalar":
        return 0.05
    std = rng.uniform(0.02, 0.08, n_bands)
    if kind == "per band":
        return std
    lag = np.abs(np.subtract.outer(np.arange(n_bands), np.arange(n_bands)))
    return 0.7**lag * np.outer(std, std)


def solve(grid: str, kind: str, **options: object) -> sc.DenoisedCube:
    shape, window, step = GRIDS[grid]
    rng = np.random.default_rng(3)
    truth = low_rank_cube(shape, 2, rng)
    noise = noise_of(kind, shape[2], rng)
    noisy = sc.synthetic.add_noise(truth, noise, rng=rng)
    return sc.denoise(noisy, noise, window=window, step=step, **options, prior=None)


def combinations() -> list[tuple[str, str]]:
    cuts = "cuts the bands"
    return [(g, n) for g in GRIDS for n in NOISES if not (g == cuts and n == "covariance")]


@pytest.mark.parametrize(("grid", "kind"), combinations())
@pytest.mark.parametrize("weights", ["precision", "uniform"])
def test_std_equals_pair_loop(grid: str, kind: str, weights: str) -> None:
    result = solve(grid, kind, weights=weights)
    expected = oracles.exact_std(result.error_model.factors)
    np.testing.assert_allclose(result.std, expected, rtol=1e-6)


@pytest.mark.parametrize("step", [(4, 3), (3, 3), (5, 2), (9, 5)])
@pytest.mark.parametrize("block", [1, 2, 8])
def test_std_equals_pair_loop_for_any_size_of_blocks(
    step: tuple[int, int], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "BLOCK", block)
    rng = np.random.default_rng(5)
    noisy = sc.synthetic.add_noise(low_rank_cube((61, 12, 5), 2, rng), 0.05, rng=rng)
    result = sc.denoise(noisy, 0.05, window=(10, 6), step=step, prior=None)
    expected = oracles.exact_std(result.error_model.factors)
    np.testing.assert_allclose(result.std, expected, rtol=1e-6)


@pytest.mark.parametrize(("grid", "kind"), combinations())
def test_std_equals_functional_of_unit_weights(grid: str, kind: str) -> None:
    result = solve(grid, kind)
    rng = np.random.default_rng(0)
    for _ in range(12):
        where = tuple(int(rng.integers(n)) for n in result.std.shape)
        assert result.functional_std({where: 1.0}) == pytest.approx(result.std[where], rel=1e-6)


@pytest.mark.parametrize(("grid", "kind"), combinations())
def test_spectral_covariance_agrees_with_functionals(grid: str, kind: str) -> None:
    result = solve(grid, kind)
    row, col = 5, 3
    covariance = result.spectral_cov(row, col)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), result.std[row, col], rtol=1e-6)
    difference = {(row, col, 1): 1.0, (row, col, 4): -1.0}
    expected = covariance[1, 1] + covariance[4, 4] - 2 * covariance[1, 4]
    assert result.functional_std(difference) ** 2 == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("grid", list(GRIDS))
@pytest.mark.parametrize("weights", ["precision", "uniform"])
def test_ratio_form_equals_unordered_pair_loop(grid: str, weights: str) -> None:
    result = solve(grid, "per band", overlap="ratio", weights=weights)
    expected = oracles.ratio_std(result.error_model.factors)
    np.testing.assert_allclose(result.std, expected, rtol=1e-6)


@pytest.mark.parametrize(("grid", "kind"), combinations())
def test_estimate_is_weighted_mean_of_windows(grid: str, kind: str) -> None:
    result = solve(grid, kind)
    expected = oracles.mean_estimate(result.error_model.factors)
    np.testing.assert_allclose(result.estimate, expected, rtol=0, atol=1e-12)


def test_identical_windows_have_the_variance_of_one() -> None:
    """Two windows that see the same noise: neither form may fall below, or rise above, one."""
    result = solve("one window", "scalar", overlap="ratio")
    factors = result.error_model.factors
    a = np.sum(factors.left[0, 0, 0] ** 2, axis=0)[..., None]
    b = np.sum(factors.right[0, 0, 0] ** 2, axis=0)
    np.testing.assert_allclose(result.std, 0.05 * np.sqrt(a + b), rtol=1e-6)


def test_pooled_noise_correlation_equals_direct_sums() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(26, 23, 12))
    result = sc.denoise(noise, 1.0, rank=3, window=8, step=4, weights="uniform", prior=None)
    factors = result.error_model.factors
    with parallel(1) as run:
        table = pool_noise_correlation([factors], run)
    grid, q = factors.grid, factors.noise_power
    direct, power = np.zeros_like(table), np.zeros_like(table)
    field = {}
    for i, k, j in oracles.windows_of(factors):
        kept = np.arange(factors.left.shape[3]) >= factors.n_signal[i, k, j]
        d = factors.singular_values[i, k, j] * kept
        field[i, k, j] = np.zeros(grid.cube_shape)
        field[i, k, j][grid.slices(i, j, k)] = np.einsum(
            "rhw,r,rb->hwb", factors.left[i, k, j], d, factors.right[i, k, j]
        )
    for a in field:
        for b in field:
            dr = abs(int(grid.rows.starts[a[0]] - grid.rows.starts[b[0]]))
            dc = abs(int(grid.cols.starts[a[2]] - grid.cols.starts[b[2]]))
            if dr >= 8 or dc >= 8:
                continue
            direct[dr, 0, dc] += np.sum(field[a] * field[b])
            power[dr, 0, dc] += (8 - dr) * (8 - dc) * 12 * np.sqrt(q[a] * q[b])
    known = power > 0
    np.testing.assert_allclose(table[known], (direct[known] / power[known]), rtol=1e-4, atol=1e-5)


@pytest.mark.statistical
def test_pure_noise_components_are_calibrated() -> None:
    """Rank 4 of pure noise has the claimed variance; the first order claims too little."""
    noise = np.random.default_rng(0).normal(size=(61, 57, 60))
    corrected = sc.denoise(noise, 1.0, rank=4, window=16, prior=None)
    plain = sc.denoise(noise, 1.0, rank=4, window=16, finite_noise=False, prior=None)
    z = corrected.estimate / corrected.std
    # About (61·57·60)/(16·16·4) independent patches of four components each: 3 % is generous.
    assert np.std(z) == pytest.approx(1.0, abs=0.03)
    assert np.std(plain.estimate / plain.std) > 1.15


def test_same_bits_for_any_number_of_workers() -> None:
    rng = np.random.default_rng(5)
    noisy = low_rank_cube((40, 33, 30), 3, rng) + rng.normal(scale=0.1, size=(40, 33, 30))
    reference = sc.denoise(noisy, 0.1, window=10, step=3, workers=1, prior=None)
    for workers in (2, 3, 5):
        other = sc.denoise(noisy, 0.1, window=10, step=3, workers=workers, prior=None)
        assert np.array_equal(other.estimate, reference.estimate)
        assert np.array_equal(other.std, reference.std)


def test_estimate_does_not_depend_on_uncertainty() -> None:
    rng = np.random.default_rng(5)
    noisy = low_rank_cube((22, 25, 9), 2, rng) + rng.normal(scale=0.1, size=(22, 25, 9))
    alone = sc.denoise(noisy, 0.1, window=8, uncertainty=False, prior=None)
    assert alone.std is None
    assert np.array_equal(alone.estimate, sc.denoise(noisy, 0.1, window=8, prior=None).estimate)

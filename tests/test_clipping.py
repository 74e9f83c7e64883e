"""Bounds of clipped values, and what a clipped value was before."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import truncnorm

from sigmacube.noise.clipping import censored, find_bounds, repeated_values
from sigmacube.noise.estimation import estimate_noise
from sigmacube.synthetic import rare_materials


def noise(n: int = 3000, bands: int = 6) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, bands))


def test_bounds_are_found_by_band_and_continuous_values_have_none() -> None:
    values = noise()
    assert not find_bounds(values).any
    values[:, 2] = np.minimum(values[:, 2], 1.5)
    values[:, 4] = np.clip(values[:, 4], -1, 2)
    found = find_bounds(values)
    assert found.high[[2, 4]] == pytest.approx([1.5, 2])
    assert found.low[4] == -1
    assert np.isinf(found.low[[0, 1, 2, 3, 5]]).all()
    assert np.array_equal(found.at(values)[:, 4], (values[:, 4] == -1) | (values[:, 4] == 2))
    assert found.share_high[2] == pytest.approx(np.mean(values[:, 2] == 1.5))


def test_a_bound_of_some_bands_is_one_of_others() -> None:
    values = noise(8000)
    values[:, 0] = np.maximum(values[:, 0], -3.2)  # a handful of values
    assert not find_bounds(values[:, :1]).any
    values[:, 1:] = np.maximum(values[:, 1:] - 2, -3.2)
    assert find_bounds(values).low == pytest.approx(-3.2)


def test_steps_are_no_bounds() -> None:
    steps = np.round(noise() / 0.8) * 0.8
    assert not find_bounds(steps, np.full(6, 0.8)).any
    whole = np.clip(np.round(100 * noise()), -120, 4095).astype(np.int16)
    found = find_bounds(whole, np.ones(6))
    assert found.low == pytest.approx(-120)
    assert np.isinf(found.high).all()


def test_missing_values_and_constant_bands_have_no_bounds() -> None:
    values = noise()
    values[::7] = np.nan
    values[:, 3] = 5.0
    assert not find_bounds(values).any


def test_repeated_values_are_told_from_a_lattice() -> None:
    values = noise()
    values[::100, 1] = 7.0
    values[::90] = -9.0
    assert repeated_values(values).tolist() == [-9.0]  # seven makes up less than a share
    steps = np.round(values)
    assert repeated_values(steps, np.ones(6)).size == 0


@pytest.mark.parametrize("mean", [-0.4, 0.0, 0.3, 2.0])
def test_censored_values_are_those_of_a_truncated_normal(mean: float) -> None:
    std = 0.5
    for value, ends in ((0.0, (-np.inf, -mean / std)), (1.0, ((1 - mean) / std, np.inf))):
        imputed, variance = censored(np.array([value]), mean, std, (0.0, 1.0))
        law = truncnorm(*ends, loc=mean, scale=std)
        assert imputed[0] == pytest.approx(law.mean(), rel=1e-6)
        assert variance[0] == pytest.approx(law.var(), rel=1e-4)


def test_censoring_far_inside_stays_finite_and_leaves_inputs_alone() -> None:
    values = np.array([0.0, 0.5, 1.0])
    kept = values.copy()
    imputed, variance = censored(values, np.array([0.9, 0.5, 0.1]), 1e-3, (0.0, 1.0))
    assert np.isfinite(imputed).all()
    assert imputed == pytest.approx(kept, abs=1e-4)
    assert np.all((variance >= 0) & (variance <= 1e-6))
    assert np.array_equal(values, kept)


def test_imputing_in_rounds_finds_the_mean_of_clipped_noise() -> None:
    """Expectation–maximisation on one level; the mean of values as they are is the control."""
    rng = np.random.default_rng(1)
    mean, std = 0.05, 0.2
    values = np.clip(rng.normal(mean, std, 20_000), 0, 1)
    estimate = values.mean()
    for _ in range(60):
        estimate = censored(values, estimate, std, (0.0, 1.0))[0].mean()
    assert estimate == pytest.approx(mean, abs=4 * std / np.sqrt(20_000) * 1.5)
    assert abs(values.mean() - mean) > 0.04


def test_noise_of_clipped_scenes_in_single_precision() -> None:
    """A value on a bound is on it, however it is rounded: else noise came out 2 % too small."""
    truth = np.clip(rare_materials((64, 60, 40), rng=5), 0.0, 1.0)
    noisy = np.clip(truth + 0.06 * np.random.default_rng(7).standard_normal(truth.shape), 0, 1)
    assert np.median(estimate_noise(noisy, workers=1)) == pytest.approx(0.06, rel=0.012)

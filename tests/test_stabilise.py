"""Noise that grows with the signal: the scale on which it is alike, and what follows from it."""

import numpy as np
import pytest

import sigmacube as sc
from sigmacube.noise.stabilise import Stabiliser

GAIN, OFFSET = 2e-3, 1e-4


def scene(rows: int = 48, cols: int = 56, bands: int = 40) -> np.ndarray:
    """Return sharp fields, some of them dark and some bright."""
    truth = np.asarray(sc.synthetic.rare_materials((rows, cols, bands), rng=3))
    return truth**2


def observed(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    truth = scene()
    rng = np.random.default_rng(seed)
    return truth, truth + np.sqrt(GAIN * truth + OFFSET) * rng.standard_normal(truth.shape)


def scale_of(truth: np.ndarray) -> Stabiliser:
    reference = truth.mean(axis=(0, 1))
    noise = sc.SignalNoise(GAIN, OFFSET).at(reference)
    spectra = (truth / np.sqrt(GAIN * reference + OFFSET)).reshape(-1, truth.shape[2])
    vectors = np.linalg.svd(spectra, full_matrices=False)[2]
    return Stabiliser(noise, vectors[:6].T)


def test_there_and_back_for_any_line() -> None:
    rng = np.random.default_rng(1)
    for gain, offset in ((0.0, 1.0), (1e-12, 1e-3), (0.5, 0.0), (2.0, 3.0)):
        noise = sc.SignalNoise(gain, offset).at(rng.uniform(0.5, 2, 7))
        scale = Stabiliser(noise, np.eye(7))
        x = rng.uniform(-1, 5, (6, 5, 7))
        np.testing.assert_allclose(scale.inverse(scale.scale(x)), x, atol=1e-9)
        # The slope of the scale is the noise at the reference over that at x.
        step = 1e-6
        slope = (scale.scale(x + step) - scale.scale(x - step)) / (2 * step)
        np.testing.assert_allclose(slope * scale.slope(x), 1, rtol=1e-5)


@pytest.mark.statistical
def test_noise_is_alike_on_the_scale() -> None:
    truth, noisy = observed()
    scale = scale_of(truth)
    unit = np.sqrt(GAIN * truth.mean(axis=(0, 1)) + OFFSET)
    error = (scale.forward(noisy, 0) - scale.scale(truth)) / unit
    bright = truth > np.quantile(truth, 0.8)
    dark = truth < np.quantile(truth, 0.2)
    for part in (bright, dark):
        # Standard error √(2/n) of a variance, n about 20,000; the tangent's own error on top.
        assert np.var(error[part]) == pytest.approx(1, abs=0.05)
    raw = (noisy - truth) / unit
    assert np.var(raw[bright]) > 1.3  # control: values as they are
    assert np.var(raw[dark]) < 0.7


def test_gaps_tell_nothing() -> None:
    truth, noisy = observed()
    scale = scale_of(truth)
    missing = np.random.default_rng(2).random(truth.shape) < 0.1
    whole = scale.forward(noisy, 0)
    gaps = scale.forward(np.where(missing, 50.0, noisy), 0, missing=missing)
    unit = np.sqrt(GAIN * truth.mean(axis=(0, 1)) + OFFSET)
    assert np.abs((gaps - whole) / unit)[~missing].max() < 1
    wild = scale.forward(np.where(missing, 50.0, noisy), 0)
    off = np.median(np.abs((wild - whole) / unit)[~missing])
    assert off > 1  # control: gaps not told


@pytest.mark.statistical
@pytest.mark.parametrize("told", [True, False])
def test_intervals_hold_in_dark_and_in_bright_fields(told: bool) -> None:
    truth, noisy = observed(seed=5)
    result = sc.denoise(noisy, sc.SignalNoise(GAIN, OFFSET) if told else None)
    order = np.argsort(truth.mean(axis=2).ravel())
    for part in (order[: len(order) // 3], order[-len(order) // 3 :]):
        error = (result.estimate - truth).reshape(-1, truth.shape[2])[part]
        std = result.std.reshape(-1, truth.shape[2])[part]
        # Errors of a field go together: some thirty independent ones, ± .08 at two standard errors.
        assert np.mean(np.abs(error) <= 1.96 * std) == pytest.approx(0.95, abs=0.05)
    level = float(np.sqrt(GAIN * truth.mean() + OFFSET))
    alike = sc.denoise(noisy, level)
    ratio = alike.std.reshape(-1, truth.shape[2]) / np.abs(result.std.reshape(-1, truth.shape[2]))
    dark, bright = (np.median(ratio[p]) for p in (order[:300], order[-300:]))
    assert dark > 1.2 * bright  # control: one level for all


def test_functionals_follow_the_slope() -> None:
    _, noisy = observed()
    result = sc.denoise(noisy, sc.SignalNoise(GAIN, OFFSET))
    for at in ((3, 4, 5), (20, 30, 12)):
        assert result.functional_std({at: 1.0}) == pytest.approx(result.std[at], rel=1e-3)
        own = np.sqrt(np.diag(result.spectral_cov(*at[:2])))
        np.testing.assert_allclose(own, result.std[at[:2]], rtol=1e-3)


def test_kept_errors_of_a_file_are_those_of_the_result(tmp_path) -> None:
    _, noisy = observed()
    result = sc.denoise(noisy, sc.SignalNoise(GAIN, OFFSET))
    result.save(tmp_path / "a.nc", keep_factors=True)
    again = sc.read_result(tmp_path / "a.nc")
    weights = {(3, 4, 5): 1.0, (9, 30, 12): -1.0}
    assert again.functional_std(weights) == pytest.approx(result.functional_std(weights), rel=1e-3)

"""Noise estimated on the scene: known truth, real scenes, and scenes that resist.

Standard deviations come from windows of some 6000 pixels: each is good to 1/√(2·6000) = 0.9 %, the
median error over bands to 0.6 %. The goal of 5 % leaves room for texture taken as noise.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import correlate1d, gaussian_filter1d
from scipy.special import ndtri

import sigmacube as sc
from conftest import low_rank_cube, scale_bands
from sigmacube.core.errors import PixelSets
from sigmacube.noise.band_correlation import correlation_matrix, fit_correlation
from sigmacube.noise.band_screen import screen_bands, smallest_step
from sigmacube.noise.caveats import caveats
from sigmacube.noise.differences import second_differences
from sigmacube.noise.estimation import estimate_noise, fit_noise
from sigmacube.noise.level import noise_share
from sigmacube.noise.report import noise_report, stripe_strength
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.signal_noise import SignalNoise

KINDS = ("scalar", "per band", "correlated", "signal")


def add_kind(
    truth: np.ndarray, kind: str, rng: np.random.Generator, level: float = 0.02
) -> tuple[np.ndarray, np.ndarray]:
    """Return a noisy scene and the root mean square of its noise per band."""
    n_bands = truth.shape[2]
    white = rng.normal(size=truth.shape)
    if kind == "scalar":
        std = np.full(n_bands, level)
    elif kind == "per band":
        std = level / 4 * 10 ** rng.uniform(0, 1, n_bands)
    elif kind == "correlated":
        std = np.full(n_bands, level)
        white = white @ np.linalg.cholesky(ar1(n_bands, 0.6)).T
    else:
        std = signal_std(truth, level)
    return truth + std * white, np.sqrt(np.mean(np.square(std + 0 * truth), axis=(0, 1)))


def signal_std(truth: np.ndarray, level: float = 0.02) -> np.ndarray:
    return level * np.sqrt(2 * truth + 0.08)


def ar1(n: int, rho: float) -> np.ndarray:
    return rho ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def coverage(z: np.ndarray, level: float = 0.95) -> float:
    return float(np.mean(np.abs(z) <= ndtri((1 + level) / 2)))


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return sc.synthetic.scene((72, 66, 60), rng=3).values


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
def test_known_noise_is_found_and_covers_the_truth(truth: np.ndarray, kind: str) -> None:
    noisy, std = add_kind(truth, kind, np.random.default_rng(5))
    result = sc.denoise(noisy, prior=None if kind == "signal" else "spatial")
    found = np.sqrt(np.diag(result.noise)) if result.noise.ndim == 2 else result.noise
    assert np.median(np.abs(found / std - 1)) < 0.05
    # The coverage of one smoothed scene has a standard deviation of .016 over draws of the noise.
    allowed = 0.015 if kind == "signal" else 0.048
    assert coverage((result.estimate - truth) / result.std) == pytest.approx(0.95, abs=allowed)
    assert (result.noise.ndim == 2) == (kind == "correlated")
    assert (result.noise_scale is not None) == (kind == "signal")


@pytest.mark.statistical
def test_one_level_per_band_fails_on_correlated_noise(truth: np.ndarray) -> None:
    """The control of the test above: what the correlation is for."""
    noisy, _ = add_kind(truth, "correlated", np.random.default_rng(5))
    result = sc.denoise(noisy, "regression")
    assert coverage((result.estimate - truth) / result.std) < 0.9


@pytest.mark.data
@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
def test_simulated_indian_pines(indian_pines: np.ndarray, kind: str) -> None:
    truth = scale_bands(indian_pines)
    noisy, std = add_kind(truth, kind, np.random.default_rng(7), 0.05)
    found = fit_noise(noisy)
    assert np.median(np.abs(found.std / std - 1)) < 0.05
    assert found.signal_dependent == (kind == "signal")
    if kind == "correlated":
        assert found.by_lag[1:4] == pytest.approx(0.6 ** np.arange(1, 4), abs=0.03)


@pytest.mark.parametrize("method", ["regression", "differences", "residual"])
def test_every_estimator_finds_white_noise(truth: np.ndarray, method: str) -> None:
    noisy = truth + np.random.default_rng(1).normal(scale=0.02, size=truth.shape)
    std = estimate_noise(noisy, method)
    assert std.shape == (60,)
    assert np.median(np.abs(std / 0.02 - 1)) < 0.05


def test_differences_return_a_covariance(truth: np.ndarray) -> None:
    noisy, _ = add_kind(truth, "correlated", np.random.default_rng(2))
    covariance = estimate_noise(noisy, "differences")
    std = np.sqrt(np.diag(covariance))
    assert np.mean(np.diag(covariance / np.outer(std, std), 1)) == pytest.approx(0.6, abs=0.05)


def test_signal_dependence_is_fitted(truth: np.ndarray) -> None:
    noisy, _ = add_kind(truth, "signal", np.random.default_rng(2))
    model = fit_noise(noisy).model
    assert isinstance(model, SignalNoise)
    assert np.median(model.gain) == pytest.approx(2 * 0.02**2, rel=0.2)
    dark, bright = noisy.mean(axis=2) < 0.1, noisy.mean(axis=2) > 0.3
    variance = signal_std(truth) ** 2
    actual = np.sqrt(np.mean(variance / variance.mean(axis=(0, 1)), axis=2))
    scale = model.pixel_scale(noisy)
    found = scale[bright].mean() / scale[dark].mean()
    assert found == pytest.approx(actual[bright].mean() / actual[dark].mean(), rel=0.08)


@pytest.mark.statistical
def test_given_signal_noise_is_propagated(truth: np.ndarray) -> None:
    noisy, _ = add_kind(truth, "signal", np.random.default_rng(8))
    given = SignalNoise(2 * 0.02**2, 0.08 * 0.02**2)
    result = sc.denoise(noisy, given, prior=None)
    error = result.estimate - truth
    assert coverage(error / result.std) == pytest.approx(0.95, abs=0.015)
    smooth = sc.denoise(noisy, given)
    assert np.std(smooth.estimate - truth) < 0.7 * np.std(error)
    # Errors of neighbouring pixels go together: few are independent.
    assert coverage((smooth.estimate - truth) / smooth.std) == pytest.approx(0.95, abs=0.03)
    dark = truth.mean(axis=2) < np.quantile(truth.mean(axis=2), 0.2)
    plain = sc.denoise(noisy, np.sqrt(np.mean(signal_std(truth) ** 2, axis=(0, 1))))
    # Control: one level for all pixels is far too wide in dark ones.
    wide = np.sqrt(np.mean(np.square((plain.estimate - truth) / plain.std)[dark]))
    right = np.sqrt(np.mean(np.square(error / result.std)[dark]))
    assert abs(right - 1) < abs(wide - 1)


@pytest.fixture(scope="module")
def scaled(truth: np.ndarray) -> sc.DenoisedCube:
    """A result with a factor per pixel and a calibration per band."""
    noisy, _ = add_kind(truth, "signal", np.random.default_rng(8))
    result = sc.denoise(noisy[:30, :26], SignalNoise(2 * 0.02**2, 0.08 * 0.02**2))
    assert np.ptp(result.noise_scale) > 0.3
    return result.calibrated(np.linspace(0.7, 1.4, truth.shape[2]))


def test_errors_of_all_kinds_follow_pixel_and_band_scales(scaled: sc.DenoisedCube) -> None:
    errors = scaled.error_model
    weights = np.zeros(scaled.estimate.shape[:2])
    weights[3:9, 5:12] = np.random.default_rng(0).uniform(size=(6, 7))
    row = np.zeros((1, scaled.estimate.shape[2]))
    row[0, [11, 40]] = 1.0, -0.5
    expected = scaled.functional_std(weights[..., None] * row) ** 2
    # The noise of an element is that of its pixel times a factor; sums take the factor's mean.
    assert errors.region_covariance(weights).of(row)[0, 0] == pytest.approx(expected, rel=1e-2)
    labels = np.where(weights > 0, 0, -1)
    support = errors.support_covariance(PixelSets(labels, weights, 1), row, row)
    assert support[0, 0] == pytest.approx(expected, rel=1e-2)
    variance = errors.band_covariance(row, row)[..., 0]
    for pixel in ((4, 7), (21, 13)):
        assert scaled.functional_std({(*pixel, 11): 1.0}) == pytest.approx(
            scaled.std[(*pixel, 11)], rel=1e-3
        )
        covariance = scaled.spectral_cov(*pixel)
        assert np.sqrt(covariance[11, 11]) == pytest.approx(scaled.std[(*pixel, 11)], rel=1e-3)
        assert variance[pixel] == pytest.approx((row @ covariance @ row.T).item(), rel=5e-2)


@pytest.mark.statistical
def test_draws_follow_pixel_and_band_scales(scaled: sc.DenoisedCube) -> None:
    """300 draws: a standard deviation is good to 4 %, its mean over elements to far less."""
    part = np.s_[0:8, 3:12]
    drawn = np.stack(list(scaled.error_model.draws(300, np.random.default_rng(0), *part)))
    ratio = drawn.std(axis=0) / scaled.std[part]
    assert ratio.mean() == pytest.approx(1, abs=0.03)
    assert ratio.std() < 0.08


def test_scales_survive_a_file(scaled: sc.DenoisedCube, tmp_path: Path) -> None:
    scaled.save(tmp_path / "result.nc", keep_factors=True, dtype="float64")
    again = sc.io.read_result(tmp_path / "result.nc")
    np.testing.assert_allclose(again.noise_scale, scaled.noise_scale, rtol=1e-6)
    weights = {(4, 7, 11): 1.0, (9, 2, 30): -2.0}
    assert again.functional_std(weights) == pytest.approx(scaled.functional_std(weights), rel=1e-4)


def test_the_log_and_the_result_say_what_was_used(
    truth: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    noisy = truth + np.random.default_rng(1).normal(scale=0.02, size=truth.shape)
    with caplog.at_level(logging.INFO, logger="sigmacube"):
        result = sc.denoise(noisy[:40, :40])
    assert "estimated by differences+residual" in caplog.text
    assert result.settings["noise_source"] == "differences+residual"
    assert result.settings["noise_model"]["kind"] == "per band"
    assert sc.denoise(noisy[:40, :40], 0.02).settings["noise_source"] == "given"


def test_inputs_are_not_written_to_and_workers_do_not_matter(truth: np.ndarray) -> None:
    noisy = truth + np.random.default_rng(1).normal(scale=0.02, size=truth.shape)
    copy = noisy.copy()
    one, two = (estimate_noise(noisy, workers=n) for n in (1, 2))
    np.testing.assert_array_equal(noisy, copy)
    np.testing.assert_array_equal(one, two)


def test_scaling_the_scene_scales_the_noise(truth: np.ndarray) -> None:
    noisy = truth + np.random.default_rng(1).normal(scale=0.02, size=truth.shape)
    np.testing.assert_allclose(
        estimate_noise(1000 * noisy), 1000 * estimate_noise(noisy), rtol=1e-6
    )


class TestBandsThatNeedCare:
    @pytest.fixture
    def noisy(self, truth: np.ndarray) -> np.ndarray:
        return truth + np.random.default_rng(1).normal(scale=0.02, size=truth.shape)

    def test_constant_and_empty_bands(self, noisy: np.ndarray) -> None:
        noisy[..., 4], noisy[..., 9], noisy[..., 20] = 0.0, 0.7, np.nan
        result = sc.denoise(noisy)
        assert result.settings["noise_model"]["constant_bands"] == [4, 9, 20]
        # A band that is the same everywhere was never measured.
        assert np.isnan(result.estimate[..., [4, 9, 20]]).all()
        others = np.setdiff1d(np.arange(60), (4, 9, 20))
        assert np.median(np.abs(result.noise[others] / 0.02 - 1)) < 0.05

    def test_duplicated_bands_share_their_noise(self, noisy: np.ndarray, truth: np.ndarray) -> None:
        noisy[..., 30], truth = noisy[..., 12], truth.copy()
        truth[..., 30] = truth[..., 12]
        result = sc.denoise(noisy)
        assert result.settings["noise_model"]["duplicated_bands"] == [30]
        assert result.noise[12, 30] / np.sqrt(result.noise[12, 12] * result.noise[30, 30]) > 0.9
        z = ((result.estimate - truth) / result.std)[..., [12, 30]]
        assert coverage(z) == pytest.approx(0.95, abs=0.03)

    def test_saturated_pixels_do_not_count(self, noisy: np.ndarray) -> None:
        top = np.quantile(noisy[..., 10], 0.9)
        noisy[..., 10] = np.minimum(noisy[..., 10], top)
        found = fit_noise(noisy)
        assert np.flatnonzero(np.isfinite(found.screen.bounds.high)).tolist() == [10]
        assert found.std[10] == pytest.approx(0.02, rel=0.1)

    @pytest.mark.parametrize("step", [0.05, 0.2])
    def test_coarse_quantisation_counts(self, truth: np.ndarray, step: float) -> None:
        rng = np.random.default_rng(1)
        noisy = truth + rng.normal(scale=0.02, size=truth.shape)
        integers = np.round(noisy / step).astype(np.int16)
        std = estimate_noise(integers) * step
        error = np.std(integers * step - truth)
        assert np.median(std) == pytest.approx(error, rel=0.1)
        assert np.all(std >= 0.98 * step / np.sqrt(12))

    def test_impulses_do_not_blow_up_the_noise(self, noisy: np.ndarray) -> None:
        where = np.random.default_rng(3).random(noisy.shape) < 2e-4
        noisy[where] = 1.0
        assert np.median(estimate_noise(noisy)) == pytest.approx(0.02, rel=0.15)


def test_masked_areas(truth: np.ndarray) -> None:
    noisy = truth + np.random.default_rng(1).normal(scale=0.02, size=truth.shape)
    mask = np.ones(truth.shape[:2], dtype=bool)
    mask[10:40, 5:50] = False
    noisy[~mask] = -9999.0
    assert np.median(estimate_noise(noisy, mask=mask)) == pytest.approx(0.02, rel=0.05)
    noisy[~mask] = np.nan
    assert np.median(estimate_noise(noisy)) == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("method", [None, "residual", "differences"])
def test_fewer_pixels_than_bands(method: str | None) -> None:
    rng = np.random.default_rng(0)
    truth = low_rank_cube((12, 11, 180), 3, rng, strength=1.0)
    std = estimate_noise(truth + 0.05 * rng.normal(size=truth.shape), method)
    assert np.median(std) == pytest.approx(0.05, rel=0.12)


@pytest.mark.parametrize(
    ("cube", "method", "message"),
    [
        (np.random.default_rng(0).normal(size=(5, 6, 40)), "regression", "twice as many pixels"),
        (np.full((20, 20, 5), 3.0), None, "every band is constant"),
        (np.random.default_rng(0).normal(size=(1, 9, 8)), None, "at least 2×2"),
        (low_rank_cube((30, 25, 20), 3, np.random.default_rng(1)), None, "noise-free"),
        (np.random.default_rng(0).normal(size=(9, 9, 4)), "median", "one of 'regression'"),
    ],
)
def test_what_cannot_be_estimated_says_why(cube: np.ndarray, method: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_noise(cube, method)


def test_windows_that_cut_the_bands_leave_the_correlation_out(
    truth: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    noisy, _ = add_kind(truth, "correlated", np.random.default_rng(2))
    result = sc.denoise(noisy[:40, :40], window=(20, 20, 30), step=(10, 10, 15), prior=None)
    assert result.noise.shape == (60,)
    assert "windows cut the bands" in caplog.text


def test_structured_fit_ignores_the_signal_space() -> None:
    rng = np.random.default_rng(0)
    positions = np.delete(np.arange(90), slice(40, 55))
    noise = 9 * 0.5 ** np.abs(np.subtract.outer(positions, positions))
    signal = np.linalg.qr(rng.normal(size=(len(positions), 6)))[0]
    found = fit_correlation(noise + 1e5 * signal @ signal.T, signal, positions)
    assert found.std == pytest.approx(3, rel=0.05)
    assert found.by_lag[[1, 2, 60]] == pytest.approx([0.5, 0.25, 0], abs=0.02)
    assert found.sure
    # Control: with the signal's directions not left out it is far away.
    none = np.linalg.qr(rng.normal(size=(len(positions), 1)))[0]
    assert fit_correlation(noise + 1e5 * signal @ signal.T, none, positions).std.min() > 10


def test_free_correlations_are_fitted_where_they_end() -> None:
    """Resampling mixes neighbours only; a correlation that falls by a factor would go on."""
    positions = np.arange(80)
    distance = np.abs(np.subtract.outer(positions, positions))
    signal = np.linalg.qr(np.random.default_rng(0).normal(size=(80, 4)))[0]
    noise = np.where(distance == 0, 1.0, np.where(distance == 1, 0.45, 0.0))
    # In units of what other bands do not predict.
    found = fit_correlation(noise * np.median(np.diag(np.linalg.inv(noise))), signal, positions)
    assert found.by_lag[1:4] == pytest.approx([0.45, 0, 0], abs=0.01)
    independent = fit_correlation(np.eye(80), signal, positions)
    assert not independent.clear or abs(independent.by_lag[1]) < 0.01


def test_correlation_matrices_are_positive_definite() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        by_lag = np.concatenate([[1.0], rng.uniform(-0.9, 0.9, 8)])
        positions = np.sort(rng.choice(80, 40, replace=False))
        matrix = correlation_matrix(by_lag, positions)
        np.testing.assert_allclose(np.diag(matrix), 1)
        assert np.linalg.eigvalsh(matrix)[0] > 1e-4


def test_second_differences_keep_the_noise_and_drop_planes() -> None:
    rows, cols = np.mgrid[:60, :70]
    plane = (3 * rows - 2 * cols)[..., None] * np.ones(5)
    noise = np.random.default_rng(0).normal(size=plane.shape)
    found = second_differences(plane + noise, np.ones((60, 70), dtype=bool))
    assert np.std(found) == pytest.approx(1, abs=0.02)  # 20 000 correlated values


def test_screening_ignores_ordinary_bands() -> None:
    spectra = np.random.default_rng(0).normal(size=(800, 6))
    screen = screen_bands(spectra)
    assert screen.usable.all()
    assert not screen.bounds.any
    assert not smallest_step(spectra).any()


def test_report_names_what_stands_out(truth: np.ndarray) -> None:
    rng = np.random.default_rng(4)
    noisy = truth + rng.normal(scale=0.01, size=truth.shape)
    noisy[..., 6] += 0.05 * rng.normal(size=truth.shape[1])
    noisy[..., 8] = rng.normal(size=truth.shape[:2])
    noisy[..., 12] = 0.25
    report = noise_report(noisy)
    assert 6 in report["striped_bands"]
    assert len(report["striped_bands"]) < 10
    assert 8 in report["noisy_bands"]
    assert report["constant_bands"] == [12]
    assert report["snr"][12] is None


def test_stripes_of_rows_are_not_stripes_of_columns() -> None:
    rng = np.random.default_rng(0)
    cube = rng.normal(size=(70, 60, 3)) + rng.normal(size=(70, 1, 3))
    valid = np.ones((70, 60), dtype=bool)
    assert np.all(stripe_strength(cube, valid, np.ones(3)) < 1.5)
    assert np.all(stripe_strength(np.swapaxes(cube, 0, 1), valid.T, np.ones(3)) > 3)


@pytest.mark.data
def test_spatially_correlated_noise_is_told(data_dir: Path) -> None:
    """Low-rank windows take pixels as independent, and say so; the spatial prior does not."""
    from scipy.io import loadmat

    cube = loadmat(data_dir / "scenes" / "aviris_90x90x224.mat")["hsi_img"]
    found = fit_noise(cube)
    assert 0.05 < found.spatial_lag1 < 0.12
    told = {
        prior: any("correlated between neighbouring pixels" in text for text in caveats(facts))
        for prior in ("spatial", None)
        for facts in [{"spatial_lag1": found.spatial_lag1, "prior": prior}]
    }
    assert told == {"spatial": False, None: True}


@pytest.mark.data
def test_correlated_noise_is_not_taken_for_signal(data_dir: Path) -> None:
    from scipy.io import loadmat

    cube = loadmat(data_dir / "scenes" / "pavia_centre_100x100x102.mat")["data"]
    options = {"step": 20, "uncertainty": False}
    assert np.median(sc.denoise(cube, **options).ranks) <= 12
    # Control: one σ per band keeps the noise that bands share.
    assert np.median(sc.denoise(cube, "regression", **options).ranks) >= 50


# ---------------------------------------------------------------------------- hostile scenes

STD = 0.02


@pytest.fixture(scope="module")
def fields() -> np.ndarray:
    return sc.synthetic.rare_materials((64, 60, 50), rng=5)


def off(found: np.ndarray, std: float = STD) -> float:
    """Return by which share the median standard deviation is off."""
    found = np.sqrt(np.diag(found)) if found.ndim == 2 else found
    return float(np.median(found) / std - 1)


def with_gaps(noisy: np.ndarray, share: float) -> np.ndarray:
    gone = np.random.default_rng(6).random(noisy.shape) < share
    return np.where(gone, np.nan, noisy)


def with_impulses(noisy: np.ndarray, share: float) -> np.ndarray:
    draw = np.random.default_rng(7).random(noisy.shape)
    return np.where(draw < share / 2, 0.0, np.where(draw < share, 1.0, noisy))


@pytest.fixture(scope="module")
def noisy(fields: np.ndarray) -> np.ndarray:
    return fields + np.random.default_rng(2).normal(scale=STD, size=fields.shape)


@pytest.mark.statistical
@pytest.mark.parametrize("share", [0.02, 0.2, 0.6])
def test_gaps_do_not_change_the_noise(noisy: np.ndarray, share: float) -> None:
    found = estimate_noise(with_gaps(noisy, share))
    assert abs(off(found)) < 0.05
    assert np.quantile(found if found.ndim == 1 else np.sqrt(np.diag(found)), 0.95) < 1.2 * STD


@pytest.mark.statistical
@pytest.mark.parametrize("share", [0.05, 0.4])
def test_impulses_that_are_set_aside_are_no_noise(noisy: np.ndarray, share: float) -> None:
    spoilt = with_impulses(noisy, share)
    assert abs(off(fit_noise(spoilt, impulses=True).value)) < 0.05
    # Control: a solver that sets nothing aside has them in its estimates.
    assert off(fit_noise(spoilt).value) > 0.5


@pytest.mark.statistical
def test_heavy_tails_count_with_all_their_variance(fields: np.ndarray) -> None:
    tailed = fields + STD * np.random.default_rng(3).standard_t(3, fields.shape) / np.sqrt(3)
    found = fit_noise(tailed)
    assert abs(off(found.value)) < 0.08  # the variance of t(3) converges slowly
    assert found.wild_share > 0.003
    # Control: the core, which is what a robust solver keeps, is narrower.
    assert off(fit_noise(tailed, impulses=True).value) < -0.15


@pytest.mark.statistical
@pytest.mark.parametrize("std", [0.06, 0.15])
def test_clipped_values_tell_the_noise_before(fields: np.ndarray, std: float) -> None:
    noisy = fields + np.random.default_rng(2).normal(scale=std, size=fields.shape)
    low, high = np.quantile(noisy, (0.05, 0.95))
    found = fit_noise(np.clip(noisy, low, high))
    assert abs(off(found.value, std)) < 0.05
    assert found.screen.clipped_share(found.std) == pytest.approx(0.1, abs=0.02)
    # Control: taken as measured, clipped values make the noise look smaller.
    clipped = np.clip(noisy, low, high) + 1e-9 * np.random.default_rng(0).random(noisy.shape)
    assert off(fit_noise(clipped).value, std) < -0.03


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [0.5, 0.8])
def test_correlation_that_reaches_over_many_bands(fields: np.ndarray, factor: float) -> None:
    white = np.random.default_rng(2).normal(size=fields.shape)
    colour = np.linalg.cholesky(ar1(50, factor)).T
    found = fit_noise(fields + STD * white @ colour)
    assert abs(off(found.value)) < 0.1
    assert found.value[20, 21] / STD**2 == pytest.approx(factor, abs=0.1)
    assert fit_noise(fields + STD * white).value.ndim == 1


def test_noise_that_is_mostly_inferred_is_a_caveat() -> None:
    assert "almost the same" in caveats({"band_correlation": [1.0, 0.93, 0.86]})[0]
    assert not caveats({"band_correlation": [1.0, 0.5, 0.25]})


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["common mode", "gain"])
def test_noise_that_bands_share_shows_outside_the_signal(
    fields: np.ndarray, noisy: np.ndarray, kind: str
) -> None:
    factor = np.random.default_rng(4).normal(size=(*fields.shape[:2], 1))
    more = factor * (2 * STD if kind == "common mode" else 0.1 * fields) + np.zeros(fields.shape)
    truth = more.reshape(-1, 50).T @ more.reshape(-1, 50) / factor.size + STD**2 * np.eye(50)
    found = fit_noise(noisy + more)
    # Along the direction in which bands share most of it.
    along = np.linalg.eigh(truth)[1][:, -1]
    assert along @ found.value @ along / (along @ truth @ along) == pytest.approx(1, abs=0.25)
    assert fit_noise(noisy).shared == 0


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 3.0, 20.0])
def test_common_mode_is_told_from_rough_texture(factor: float) -> None:
    """Some 600 coefficients at high frequencies tell its size to 3 %; what is not there is not."""
    rng = np.random.default_rng(2)
    texture = sc.synthetic.fractal_texture((64, 60, 50), rng=5)
    noisy = texture + rng.normal(scale=STD, size=texture.shape)
    noisy += factor * STD * rng.normal(size=(64, 60, 1))
    assert fit_noise(noisy).shared == pytest.approx(factor, rel=0.12)


@pytest.mark.data
@pytest.mark.statistical
def test_signal_of_a_beach_is_no_shared_noise(data_dir: Path) -> None:
    """Its strongest directions are as rough as noise, but along no spectrum that noise has."""
    with np.load(data_dir / "scenes" / "beach2.npz") as kept:
        beach = scale_bands(kept["cube"][..., ::2])
    std = fit_noise(beach).std
    clean = sc.denoise(beach, std, prior=None, step=5, uncertainty=False).estimate
    rng = np.random.default_rng(4)
    noisy = clean + std * rng.normal(size=clean.shape)
    assert fit_noise(noisy).shared == 0
    noisy += std * rng.normal(size=(*clean.shape[:2], 1))
    assert fit_noise(noisy).shared == pytest.approx(1, abs=0.1)


@pytest.mark.statistical
@pytest.mark.parametrize("share", [0.96, 1.0, 1.04])
@pytest.mark.parametrize("alike", [0.0, 0.35])
def test_level_of_the_whole_scene_goes_up_and_down(share: float, alike: float) -> None:
    """300 000 values tell a variance to .3 %, correlated in space to .5 %."""
    fields = sc.synthetic.smooth_fields((80, 76, 50), rng=5)
    noise = np.random.default_rng(2).normal(size=fields.shape)
    side = np.array([alike / 1.7, 1, alike / 1.7]) / np.sqrt(1 + 2 * (alike / 1.7) ** 2)
    noise = correlate1d(correlate1d(noise, side, axis=0), side, axis=1)
    every = np.ones(fields.shape[:2], dtype=bool)
    sample = NoiseSample.create(fields + STD * noise, np.arange(50), every)
    found = noise_share(sample, np.full(50, STD / np.sqrt(share)))
    assert found == pytest.approx(share * np.mean(noise**2), rel=0.012)


@pytest.mark.statistical
def test_bands_of_one_pixel_may_differ_in_brightness() -> None:
    """Noise over what the model says of every element has unit variance; 6000 pixels tell 2 %."""
    truth = np.asarray(sc.synthetic.rare_materials((80, 76, 60), rng=9))
    truth = (truth - truth.min(axis=(0, 1))) / np.ptp(truth, axis=(0, 1))
    std = STD * np.sqrt(0.05 + 0.95 * truth / truth.mean(axis=(0, 1)))
    noise = std * np.random.default_rng(2).normal(size=truth.shape)
    model = fit_noise(truth + noise).model
    assert isinstance(model, SignalNoise)
    over = noise / np.sqrt(model.gain * truth + model.offset)
    power = np.mean(np.square(over), axis=(0, 1))
    assert np.quantile(power, [0.05, 0.95]) == pytest.approx(1, abs=0.08)


@pytest.mark.statistical
def test_faint_signal_is_no_noise_at_any_frequency() -> None:
    """Signal in many directions; most of it where rows or columns are even."""
    rng = np.random.default_rng(7)
    power = 1 / (0.03 + np.hypot(*np.meshgrid(np.fft.fftfreq(80), np.fft.fftfreq(80)))) ** 1.5
    fields = np.fft.ifft2(
        np.fft.fft2(rng.standard_normal((60, 80, 80))) * power, axes=(1, 2)
    ).real.transpose(1, 2, 0)
    fields *= (12 * np.arange(1, 61) ** -1.3) / fields.std(axis=(0, 1))
    turn = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    noisy = (fields + rng.standard_normal(fields.shape)) @ turn
    sample = NoiseSample.create(noisy, np.arange(60), np.ones((80, 80), dtype=bool))
    share = noise_share(sample, np.full(60, np.sqrt(1.05)))
    assert 1.05 * share == pytest.approx(1, abs=0.008)
    # Control: what is left outside of the directions that are seen is noise and more.
    left = np.linalg.eigvalsh(np.cov(sample.spectra.T))[:46]
    assert left.mean() > 1.012


@pytest.mark.parametrize("shape", [(24, 24, 120), (28, 45, 40), (4, 2, 124), (60, 50, 40)])
def test_white_noise_keeps_its_level(shape: tuple[int, int, int]) -> None:
    """Windows that overlap, or hold fewer pixels than bands, tell no more than they are."""
    noisy = 5 + np.random.default_rng(2).standard_normal(shape)
    every = np.ones(shape[:2], dtype=bool)
    sample = NoiseSample.create(noisy - 5, np.arange(shape[2]), every)
    assert 0.98 < noise_share(sample, np.ones(shape[2])) <= 1


@pytest.mark.parametrize("width", [0.5, 0.9])
def test_noise_of_any_correlation_keeps_its_level(width: float) -> None:
    """What a wrong correlation leaves between bands is no signal: else noise came out 30 % less."""
    truth = sc.synthetic.scene((60, 60, 60), rng=1).values
    noise = gaussian_filter1d(np.random.default_rng(3).standard_normal(truth.shape), width, axis=2)
    noise *= 0.02 / noise.std(axis=(0, 1))
    assert np.median(fit_noise(truth + noise, workers=1).std) == pytest.approx(0.02, rel=0.03)

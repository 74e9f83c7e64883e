"""Missing values: estimated, with a standard deviation that says so."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

import sigmacube as sc
from conftest import low_rank_cube
from sigmacube.core.parallel import in_turn
from sigmacube.core.spatial.incomplete import learnt_directions, regressed
from sigmacube.core.spatial.subspace import gram, strong

NAMES = ("svd", "robust", "godec", "ssgodec", "rpca")
NOISE = 0.1


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return 3 + low_rank_cube((26, 31, 40), 2, np.random.default_rng(1))


@pytest.fixture(scope="module")
def noisy(truth: np.ndarray) -> np.ndarray:
    return truth + np.random.default_rng(2).normal(scale=NOISE, size=truth.shape)


@pytest.fixture(scope="module")
def holes(truth: np.ndarray) -> np.ndarray:
    return np.random.default_rng(3).random(truth.shape) < 0.1


def run(cube: np.ndarray, **options: object) -> sc.DenoisedCube:
    return sc.denoise(cube, options.pop("noise", NOISE), window=12, step=6, **options, prior=None)


@pytest.mark.statistical
@pytest.mark.parametrize("solver", NAMES)
def test_missing_values_are_covered(
    truth: np.ndarray, noisy: np.ndarray, holes: np.ndarray, solver: str
) -> None:
    result = run(np.where(holes, np.nan, noisy), solver=solver)
    error = np.abs(result.estimate - truth)
    if solver == "rpca":  # its form is approximate
        assert np.mean(error[holes] <= 1.96 * result.std[holes]) > 0.85
        return
    # Some 3000 missing elements share their errors with a few hundred independent ones.
    assert np.mean(error[holes] <= 1.96 * result.std[holes]) == pytest.approx(0.95, abs=0.025)
    assert result.std[holes].mean() > 1.02 * result.std[~holes].mean()


@pytest.mark.statistical
def test_dead_run_has_a_larger_std(truth: np.ndarray) -> None:
    dead = np.zeros(truth.shape, dtype=bool)
    dead[:, 14, 5:30] = True
    inside, claimed, ratio = [], [], []
    for trial in range(8):
        noise = np.random.default_rng(100 + trial).normal(scale=NOISE, size=truth.shape)
        result = run(np.where(dead, np.nan, truth + noise))
        error = np.abs(result.estimate - truth)[dead]
        plain = result.std / result.error_model.gap_factor
        inside.append(np.mean(error <= 1.96 * result.std[dead]))
        claimed.append(np.mean(error <= 1.96 * plain[dead]))
        ratio.append(result.std[dead].mean() / result.std[:, 13].mean())
    # One trial spreads by .022, as its elements share few independent errors.
    assert np.mean(inside) == pytest.approx(0.95, abs=0.025)
    assert np.mean(ratio) > 1.2
    # Control: the form for complete windows claims too little there.
    assert np.mean(claimed) < 0.85


def test_complete_cube_takes_the_plain_path(noisy: np.ndarray) -> None:
    result = run(noisy)
    assert result.error_model.gap_factor is None
    assert result.error_model.factors.kept == {}
    assert result.rejected is None


def test_far_away_windows_do_not_notice(noisy: np.ndarray) -> None:
    holed = noisy.copy()
    holed[2, 3, 5] = np.nan
    plain, other = run(noisy), run(holed)
    # The eigensolver starts from directions of the whole scene, good to 1e-8.
    np.testing.assert_allclose(plain.estimate[20:, 24:], other.estimate[20:, 24:], atol=1e-7)
    np.testing.assert_allclose(plain.std[20:, 24:], other.std[20:, 24:], rtol=1e-6)


def test_mask_and_nan_are_the_same(noisy: np.ndarray, holes: np.ndarray) -> None:
    one, two = run(np.where(holes, np.nan, noisy)), run(noisy, mask=~holes)
    np.testing.assert_array_equal(one.estimate, two.estimate)
    np.testing.assert_array_equal(one.std, two.std)


@pytest.mark.parametrize("solver", ["svd", "robust"])
def test_missing_altogether_stays_nan(noisy: np.ndarray, holes: np.ndarray, solver: str) -> None:
    cube = np.where(holes, np.nan, noisy)
    cube[4, 6] = np.nan
    cube[..., 11] = np.nan
    result = run(cube, solver=solver)
    gone = np.isnan(result.estimate)
    np.testing.assert_array_equal(gone, np.isnan(result.std))
    assert gone[4, 6].all()
    assert gone[..., 11].all()
    gone[4, 6] = False
    gone[..., 11] = False
    assert not gone.any()


def test_band_that_no_window_over_a_pixel_has_seen(noisy: np.ndarray) -> None:
    cube = noisy.copy()
    cube[:18, :, 7] = np.nan
    result = run(cube)
    gone = np.isnan(result.estimate)
    assert gone[:6, :, 7].all()  # only windows 0:12 and 6:18 cover these rows
    assert not gone[18:, :, 7].any()
    gone[:18, :, 7] = False
    assert not gone.any()


@pytest.mark.parametrize("solver", ["svd", "robust"])
def test_std_is_that_of_functionals(noisy: np.ndarray, holes: np.ndarray, solver: str) -> None:
    result = run(np.where(holes, np.nan, noisy), solver=solver)
    row, col, band = np.argwhere(holes)[40]
    one = result.functional_std({(row, col, band): 1.0})
    assert one == pytest.approx(result.std[row, col, band], rel=1e-4)
    diagonal = np.diag(result.spectral_cov(row, col))
    np.testing.assert_allclose(np.sqrt(diagonal), result.std[row, col], rtol=1e-4)


def test_windows_that_cut_the_bands(truth: np.ndarray, noisy: np.ndarray) -> None:
    cube = noisy.copy()
    cube[5, 8, :30] = np.nan
    result = sc.denoise(cube, NOISE, window=(12, 12, 20), step=(6, 6, 10), prior=None)
    error = np.abs(result.estimate - truth)
    assert np.isnan(result.estimate[5, 8, :10]).all()  # no band window over them has seen it
    known = np.isfinite(result.estimate)
    assert np.mean(error[known] < 5 * result.std[known]) > 0.999


def test_own_solver_gets_filled_patches(noisy: np.ndarray, holes: np.ndarray) -> None:
    def own(patch: np.ndarray) -> sc.PatchSolution:
        assert np.isfinite(patch).all()
        left, d, right = np.linalg.svd(patch, full_matrices=False)
        return sc.PatchSolution(left[:, :3], d[:3], right[:3].T)

    mine = run(np.where(holes, np.nan, noisy), solver=own)
    ours = run(np.where(holes, np.nan, noisy), rank=3)
    assert np.sqrt(np.mean((mine.estimate - ours.estimate) ** 2)) < 0.1 * NOISE


@pytest.mark.parametrize("solver", ["svd", "robust"])
def test_correlated_noise(truth: np.ndarray, solver: str) -> None:
    bands = np.arange(truth.shape[2])
    covariance = NOISE**2 * 0.6 ** np.abs(bands[:, None] - bands)
    observed = sc.synthetic.add_noise(truth, covariance, rng=5)
    holes = np.random.default_rng(6).random(truth.shape) < 0.05
    observed[holes] = np.nan
    result = run(observed, noise=covariance, solver=solver)
    error = np.abs(result.estimate - truth)
    assert np.mean(error[~holes] <= 1.96 * result.std[~holes]) == pytest.approx(0.95, abs=0.03)
    assert np.mean(error[holes] <= 1.96 * result.std[holes]) > 0.88


def strong_signal(
    noise: float, holes: np.ndarray, uneven: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return truth of rank two, an observation with holes, and its noise covariance."""
    rng = np.random.default_rng(0)
    bands = np.arange(holes.shape[2])
    spectra = rng.uniform(0.1, 1, (2, len(bands))) + np.sin(np.outer([1, 2], bands) / 3)
    truth = rng.uniform(0.2, 1.5, (*holes.shape[:2], 2)) @ spectra
    std = noise * (rng.uniform(0.5, 2, len(bands)) if uneven else np.ones(len(bands)))
    covariance = np.outer(std, std) * 0.6 ** np.abs(bands[:, None] - bands)
    observed = sc.synthetic.add_noise(truth, covariance, rng=rng)
    return truth, np.where(holes, np.nan, observed), covariance


@pytest.mark.parametrize("solver", ["svd", "robust"])
@pytest.mark.parametrize("noise", [0.03, 0.01, 0.001])
def test_correlated_noise_far_below_the_signal(noise: float, solver: str) -> None:
    """A first fill off by signal, not noise, must not be kept as components of its own."""
    holes = np.random.default_rng(1).random((30, 30, 24)) < 0.03
    truth, observed, covariance = strong_signal(noise, holes)
    result = sc.denoise(observed, covariance, window=12, step=6, solver=solver, prior=None)
    z = (result.estimate - truth) / result.std
    assert np.median(result.ranks) == 2
    for which in (holes, ~holes):
        assert np.sqrt(np.mean(z[which] ** 2)) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("noise", [0.01, 1e-4])
def test_correlated_uneven_noise_settles_at_a_fixed_rank(noise: float) -> None:
    holes = np.random.default_rng(1).random((22, 25, 12)) < 0.2
    truth, observed, covariance = strong_signal(noise, holes, uneven=True)
    result = sc.denoise(observed, covariance, window=8, step=3, rank=2, prior=None)
    z = (result.estimate - truth) / result.std
    for which in (holes, ~holes):
        assert np.sqrt(np.mean(z[which] ** 2)) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("rank", [2, "auto"])
def test_bands_that_whole_windows_miss_leave_the_others_alone(rank: int | str) -> None:
    holes = np.zeros((24, 26, 12), dtype=bool)
    holes[5:17, 6:18, 3:5] = True
    truth, observed, covariance = strong_signal(0.01, holes)
    result = sc.denoise(observed, covariance, window=8, step=4, rank=rank, prior=None)
    z = ((result.estimate - truth) / result.std)[5:17, 6:18]
    assert np.all(np.sqrt(np.mean(z**2, axis=(0, 1))) < 1.5)  # 40 where bands were mixed up


@pytest.mark.parametrize(("bands", "left"), [(20, 3), (80, 3), (80, 0)])
def test_a_window_may_have_fewer_pixels_than_the_rank(bands: int, left: int) -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.2, 1.5, (24, 24, 3)) @ rng.uniform(0.1, 1, (3, bands))
    observed = truth + rng.normal(scale=0.02, size=truth.shape)
    mask = np.ones((24, 24), dtype=bool)
    mask[:8, :8] = False
    mask[0, :left] = True
    result = sc.denoise(observed, 0.02, window=8, step=4, rank=4, mask=mask, prior=None)
    z = (result.estimate - truth) / result.std
    np.testing.assert_array_equal(np.isfinite(z).all(axis=2), mask)
    assert np.sqrt(np.nanmean(z**2)) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("solver", ["svd", "robust"])
def test_workers_do_not_change_the_result(
    noisy: np.ndarray, holes: np.ndarray, solver: str
) -> None:
    cube = np.where(holes, np.nan, noisy)
    one, two = (run(cube, solver=solver, workers=n) for n in (1, 2))
    np.testing.assert_array_equal(one.estimate, two.estimate)
    np.testing.assert_array_equal(one.std, two.std)


def test_noise_is_estimated_around_holes_and_impulses(truth: np.ndarray) -> None:
    clean = np.tile(truth, (2, 2, 1))
    holed = clean + np.random.default_rng(7).normal(scale=NOISE, size=clean.shape)
    rng = np.random.default_rng(8)
    holed[rng.random(holed.shape) < 0.05] = np.nan
    plain = sc.denoise(holed, "regression", window=12, step=6, prior=None)
    assert np.median(plain.noise) == pytest.approx(NOISE, rel=0.15)
    holed[rng.random(holed.shape) < 0.05] = 9.0
    robust = sc.denoise(holed, "regression", window=12, step=6, solver="robust", prior=None)
    # Values taken from two pixels away differ by signal, too.
    assert np.median(robust.noise) == pytest.approx(NOISE, rel=0.3)


def test_bands_combined_at_a_pixel(noisy: np.ndarray, holes: np.ndarray) -> None:
    """The quick form for whole maps takes the gap factor apart into pixels and bands."""
    model = run(np.where(holes, np.nan, noisy)).error_model
    weights = np.zeros((1, noisy.shape[2]))
    weights[0, 10:20] = 0.1
    quick = model.band_covariance(weights, weights)[8, 9, 0]
    cube = np.zeros(noisy.shape)
    cube[8, 9] = weights[0]
    assert quick == pytest.approx(model.functional_covariance([cube])[0, 0], rel=0.1)
    plain = run(noisy).error_model.band_covariance(weights, weights)[8, 9, 0]
    assert quick > 1.03 * plain


def test_files_know_what_was_left_out(noisy: np.ndarray, holes: np.ndarray, tmp_path: Path) -> None:
    result = run(np.where(holes, np.nan, noisy), solver="robust")
    result.save(tmp_path / "out.nc", keep_factors=True)
    again = sc.read_result(tmp_path / "out.nc").error_model
    row, col, band = np.argwhere(holes)[40]
    one = again.functional_covariance([{(row, col, band): 1.0}])[0, 0]
    assert np.sqrt(one) == pytest.approx(result.std[row, col, band], rel=1e-3)


@pytest.mark.statistical
def test_most_elements_missing_at_random() -> None:
    """Of 60 % missing elements none makes a direction up, and σ is that of what was observed."""
    truth = sc.synthetic.smooth_fields((48, 44, 40), rng=5)
    noisy = truth + np.random.default_rng(6).normal(scale=0.03, size=truth.shape)
    gone = np.random.default_rng(7).random(truth.shape) < 0.6
    result = sc.denoise(np.where(gone, np.nan, noisy), 0.03)
    error = result.estimate - truth
    whole = np.std(sc.denoise(noisy, 0.03).estimate - truth)
    # A whole scene over the root of the share that is left, and what filling costs.
    assert np.std(error) < 2 * whole / np.sqrt(0.4)
    for where in (gone, ~gone):
        assert 0.92 < np.mean(np.abs(error)[where] <= 1.96 * result.std[where]) < 0.98
        assert np.mean(np.abs(error)[where] <= 0.98 * result.std[where]) < 0.9  # the control


def test_missing_elements_of_dense_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where half of all directions hold signal, other bands tell less of a missing one."""
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((32, 32)))[0][:, :16]
    field = ndimage.gaussian_filter(rng.standard_normal((60, 60, 16)), (1, 1, 0))
    truth = field / field.std(axis=(0, 1)) * np.geomspace(20, 2, 16) @ basis.T
    noisy = truth + rng.standard_normal(truth.shape)
    hidden = rng.random(truth.shape) < 0.02  # 2,300 elements: coverage is known to .005
    noisy[hidden] = np.nan

    def covered() -> float:
        result = sc.denoise(noisy, 1.0, workers=1)
        return float(np.mean(np.abs(result.estimate - truth)[hidden] <= 1.96 * result.std[hidden]))

    assert 0.94 < covered() < 0.975
    # Control: what is missing of a pixel taken for that of all around, as if no noise were its own.
    monkeypatch.setattr(
        sys.modules["sigmacube.core.spatial.region"],
        "growth_by_band",
        lambda kept, box, core, basis, own, run: np.ones((*core.shape, len(basis)), np.float32),
    )
    assert covered() < 0.91


def few_bands_seen() -> tuple[np.ndarray, np.ndarray]:
    """Fields of six spectra, and which elements of them are missing: 60 % at random."""
    rng = np.random.default_rng(31)
    spectra = np.cumsum(rng.standard_normal((6, 60)), axis=1)
    fields = np.argmax(ndimage.gaussian_filter(rng.standard_normal((64, 60, 6)), (4, 4, 0)), 2)
    return 5 * spectra[fields], rng.random((64, 60, 60)) < 0.6


def error_of_60_percent(truth: np.ndarray, gone: np.ndarray) -> tuple[float, float]:
    """Return the error, in noise std, and how often 95 % intervals hold the truth."""
    noisy = truth + np.random.default_rng(32).standard_normal(truth.shape)
    result = sc.denoise(np.where(gone, np.nan, noisy), 1.0, workers=1)
    error = result.estimate - truth
    return float(np.std(error)), float(np.mean(np.abs(error) <= 1.96 * result.std))


@pytest.mark.statistical
def test_gaps_are_filled_by_what_surroundings_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 60 % missing the error is that of 2.5 times the noise, not of what a pixel has alone."""
    truth, gone = few_bands_seen()
    size, covered = error_of_60_percent(truth, gone)
    assert size < 0.35
    assert 0.92 < covered < 0.98  # some thirty fields: known to .02
    # Control: each pixel is told by its own bands as much as they do, as if it had no neighbours.
    monkeypatch.setattr(sys.modules["sigmacube.core.spatial.missing"], "NEIGHBOURS", 0.0)
    monkeypatch.setattr(sys.modules["sigmacube.core.spatial.missing"], "TRUST", 0.003)
    assert error_of_60_percent(truth, gone)[0] > 1.3 * size


def test_directions_of_incomplete_spectra() -> None:
    """Regressions on what is there find the subspace that pairs of bands tell only roughly."""
    rng = np.random.default_rng(33)
    basis = np.linalg.qr(rng.standard_normal((30, 6)))[0]
    truth = rng.standard_normal((60, 60, 6)) * np.geomspace(100, 2, 6) @ basis.T
    kept = rng.random(truth.shape) > 0.6
    y = np.where(kept, truth + rng.standard_normal(truth.shape), 0.0)

    def block(rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray]:
        return y[rows, cols], kept[rows, cols]

    def lost(found: np.ndarray) -> float:
        return float(np.sqrt(np.mean((truth - truth @ found @ found.T) ** 2)))

    total, count, share = gram(block, truth.shape, in_turn)
    start = strong(total, count)[:, :6]
    found, _, total = learnt_directions(block, truth.shape, start, total, count, share, in_turn)
    # The most likely directions are those that regressions from the true ones end at.
    best, power = basis, np.square(np.geomspace(100, 2, 6)) + 1
    for _ in range(20):
        best, power = regressed(block, truth.shape, best, power, in_turn)
    found, power = found[:, :6], np.einsum("pk,pq,qk->k", found, total, found)[:6] / count
    for _ in range(2):
        found, power = regressed(block, truth.shape, found, power, in_turn)
    assert lost(found) < 2 * lost(best)
    assert lost(start) > 5 * lost(best)  # the control: pairs of bands scatter by the signal

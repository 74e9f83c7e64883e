"""Inputs as they come, and what the pipeline promises about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sigmacube as sc
from conftest import low_rank_cube
from sigmacube import pipeline
from sigmacube.core.parallel import parallel
from sigmacube.settings import Settings

SHAPE = (19, 23, 11)


@pytest.fixture
def noisy() -> np.ndarray:
    rng = np.random.default_rng(7)
    return low_rank_cube(SHAPE, 2, rng) + rng.normal(scale=0.1, size=SHAPE)


def denoise(cube: object, noise: object = 0.1, **options: object) -> sc.DenoisedCube:
    return sc.denoise(cube, noise, **{"window": 8, "step": 3, **options})


@pytest.mark.parametrize(
    "dtype", ["uint8", "int16", "uint16", "int32", "float32", "float64", ">f4"]
)
def test_any_real_type(noisy: np.ndarray, dtype: str) -> None:
    cube = (noisy * 20 + 100).astype(dtype)
    before = cube.copy()
    result = denoise(cube, 2.0)
    expected = np.float32 if dtype == "float32" else np.float64
    assert result.estimate.dtype == result.std.dtype == expected
    reference = denoise(cube.astype(np.float64), 2.0)
    np.testing.assert_allclose(result.estimate, reference.estimate, rtol=1e-5)
    np.testing.assert_array_equal(cube, before)


def test_input_may_be_read_only(noisy: np.ndarray) -> None:
    noisy.flags.writeable = False
    denoise(noisy)


def test_cube_and_array_give_the_same(noisy: np.ndarray) -> None:
    cube = sc.Cube(noisy, wavelengths=np.linspace(400, 900, SHAPE[2]), metadata={"name": "x"})
    result = denoise(cube)
    assert np.array_equal(result.estimate, denoise(noisy).estimate)
    assert result.metadata == {"name": "x"}
    assert np.array_equal(result.wavelengths, cube.wavelengths)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_pixel_with_missing_values_does_not_touch_others(noisy: np.ndarray, bad: float) -> None:
    holed = noisy.copy()
    holed[4, 5] = bad
    mask = np.ones(SHAPE[:2], dtype=bool)
    mask[4, 5] = False
    result = denoise(holed)
    assert np.isnan(result.estimate[4, 5]).all()
    assert np.isnan(result.std[4, 5]).all()
    assert np.isfinite(np.delete(result.estimate.reshape(-1, 11), 4 * 23 + 5, axis=0)).all()
    other = noisy.copy()
    other[4, 5] = 1e6
    np.testing.assert_array_equal(result.estimate, denoise(other, mask=mask).estimate)


def test_masked_rows_leave_the_window(noisy: np.ndarray) -> None:
    """A window with masked pixels gives what the SVD of the rest gives."""
    mask = np.ones(SHAPE[:2], dtype=bool)
    mask[2:4, 3:9] = False
    result = denoise(noisy, window=SHAPE[:2], step=SHAPE[:2], mask=mask, prior=None)
    rest = noisy[mask]
    u, d, vt = np.linalg.svd(rest, full_matrices=False)
    r = int(result.ranks[0, 0])
    np.testing.assert_allclose(result.estimate[mask], (u[:, :r] * d[:r]) @ vt[:r], atol=1e-9)
    a, b = np.sum(u[:, :r] ** 2, axis=1)[:, None], np.sum(vt[:r] ** 2, axis=0)
    expected = 0.1 * np.sqrt(a + b - a * b)
    np.testing.assert_allclose(result.std[mask], expected, rtol=0.05)


def test_band_without_data_is_set_aside(noisy: np.ndarray) -> None:
    holed = noisy.copy()
    holed[..., 3] = np.nan
    result = denoise(holed)
    assert np.isnan(result.estimate[..., 3]).all()
    others = np.delete(np.arange(11), 3)
    np.testing.assert_array_equal(
        result.estimate[..., others], denoise(noisy[..., others]).estimate
    )
    weights = np.zeros(SHAPE)
    weights[5, 6, 7] = 1
    assert result.functional_std(weights) == pytest.approx(result.std[5, 6, 7], rel=1e-6)
    assert np.isnan(result.spectral_cov(5, 6)[3]).all()


def test_constant_band_holds_no_data(noisy: np.ndarray) -> None:
    noisy[..., 2] = 5.0
    result = denoise(noisy)
    assert np.isnan(result.estimate[..., 2]).all()
    assert np.isnan(result.std[..., 2]).all()
    others = np.delete(np.arange(noisy.shape[2]), 2)
    expected = denoise(noisy[..., others])
    np.testing.assert_array_equal(result.estimate[..., others], expected.estimate)


def test_all_zero_cube() -> None:
    result = denoise(np.zeros(SHAPE))
    assert np.all(result.estimate == 0)
    assert np.all(result.ranks == 0)
    assert np.isfinite(result.std).all()


def test_one_band() -> None:
    rng = np.random.default_rng(0)
    cube = 5 + rng.normal(scale=0.1, size=(12, 14, 1))
    result = denoise(cube, prior=None)
    assert result.estimate.shape == (12, 14, 1)
    # One column is its own best rank-one approximation: nothing is removed, σ is the noise.
    np.testing.assert_allclose(result.estimate, cube, atol=1e-9)
    np.testing.assert_allclose(result.std, 0.1, rtol=1e-4)
    # Frequencies in space remove most of it.
    smooth = denoise(cube)
    assert np.std(smooth.estimate - 5) < 0.04
    assert np.median(smooth.std) < 0.05


def test_scene_as_small_as_one_window(noisy: np.ndarray) -> None:
    result = sc.denoise(noisy, 0.1, window=SHAPE[:2], step=4, prior=None)
    assert result.ranks.shape == (1, 1)


@pytest.mark.parametrize("shape", [(7, 23, 11), (19, 3, 11), (2, 2, 4), (5, 40, 1), (30, 6, 2)])
def test_scene_smaller_than_the_windows(shape: tuple[int, int, int]) -> None:
    cube = 3 + np.random.default_rng(1).normal(scale=0.1, size=shape)
    result = sc.denoise(cube, 0.1)
    assert result.ranks.shape == result.residual_ratio.shape
    assert np.isfinite(result.estimate).all()
    assert np.all(result.std > 0)
    assert np.mean(np.abs(result.estimate - 3) < 4 * result.std) > 0.9
    with pytest.raises(ValueError, match="Invalid window 21"):
        sc.denoise(cube, 0.1, window=21, prior=None)


def test_more_bands_than_pixels() -> None:
    rng = np.random.default_rng(1)
    cube = low_rank_cube((9, 10, 150), 2, rng) + rng.normal(scale=0.1, size=(9, 10, 150))
    result = sc.denoise(cube, 0.1, window=6, step=2)
    assert np.all(result.ranks >= 1)


def test_noise_free_scene_comes_back() -> None:
    truth = low_rank_cube(SHAPE, 2, np.random.default_rng(3))
    result = denoise(truth, 1e-7)
    np.testing.assert_allclose(result.estimate, truth, atol=1e-6)


# Single precision inside, and an error that is measured with random probes.
EXACT = {None: (1e-9, 1e-5, 1e-5), "spatial": (1e-5, 1e-3, 0.3)}


@pytest.mark.parametrize("prior", EXACT)
def test_scaling_data_and_noise_scales_the_result(noisy: np.ndarray, prior: str | None) -> None:
    one, many = denoise(noisy, prior=prior), denoise(noisy * 1000, 100.0, prior=prior)
    near, alike, _ = EXACT[prior]
    np.testing.assert_allclose(many.estimate, one.estimate * 1000, rtol=near, atol=1000 * near)
    np.testing.assert_allclose(many.std, one.std * 1000, rtol=alike)


@pytest.mark.parametrize("prior", EXACT)
def test_permuting_bands_permutes_the_result(noisy: np.ndarray, prior: str | None) -> None:
    order = np.random.default_rng(0).permutation(SHAPE[2])
    one, other = denoise(noisy, prior=prior), denoise(noisy[..., order], prior=prior)
    near, alike, _ = EXACT[prior]
    np.testing.assert_allclose(other.estimate, one.estimate[..., order], atol=near)
    np.testing.assert_allclose(other.std, one.std[..., order], rtol=alike)


@pytest.mark.parametrize("prior", EXACT)
def test_transposing_the_scene_transposes_the_result(noisy: np.ndarray, prior: str | None) -> None:
    one, other = denoise(noisy, prior=prior), denoise(noisy.transpose(1, 0, 2), prior=prior)
    np.testing.assert_allclose(np.median(other.std), np.median(one.std), rtol=EXACT[prior][2])
    if prior is None:
        np.testing.assert_allclose(other.std, one.std.transpose(1, 0, 2), rtol=1e-5)


def test_residual_ratio_finds_where_the_model_does_not_fit() -> None:
    rng = np.random.default_rng(2)
    truth = low_rank_cube((40, 30, 25), 2, rng)
    noisy = truth + rng.normal(scale=0.1, size=truth.shape)
    noisy[:10, :10] += rng.normal(scale=0.2, size=(10, 10, 25))  # noise the model does not know of
    ratio = sc.denoise(noisy, 0.1, window=10, step=10).residual_ratio
    assert ratio[0, 0] > 2
    # 100 × 25 residuals minus those of the fit: standard deviation about 3 %.
    others = np.delete(ratio.ravel(), 0)
    assert np.all(np.abs(others - 1) < 0.15)


def test_callable_solver_gets_its_sigma(noisy: np.ndarray) -> None:
    seen = []

    def mean_spectrum(patch: np.ndarray) -> sc.PatchSolution:
        seen.append(patch.shape)
        return sc.PatchSolution.from_estimate(np.tile(patch.mean(axis=0), (len(patch), 1)))

    result = denoise(noisy, solver=mean_spectrum, prior=None)
    assert set(seen) == {(64, 11)}
    assert result.std.shape == SHAPE
    assert result.settings["solver"] == "mean_spectrum"
    assert np.isfinite(result.residual_ratio).all()


def test_callable_solver_with_wrong_shapes_is_refused(noisy: np.ndarray) -> None:
    wrong = sc.PatchSolution(np.zeros((3, 1)), np.ones(1), np.zeros((11, 1)))
    with pytest.raises(ValueError, match="Invalid solution with factors of shapes"):
        denoise(noisy, solver=lambda patch: wrong, prior=None)


def test_progress_counts_windows(noisy: np.ndarray) -> None:
    calls = []
    result = denoise(noisy, progress=lambda done, total: calls.append((done, total)))
    total = result.ranks.size
    assert calls[-1] == (total, total)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_interval_has_the_asked_level(noisy: np.ndarray) -> None:
    result = denoise(noisy)
    low, high = result.interval(0.95)
    np.testing.assert_allclose((high - low) / result.std, 2 * 1.959964, rtol=1e-6)
    with pytest.raises(ValueError, match="Invalid level 95"):
        result.interval(95)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": None, "window": 24}, "Invalid window 24 along rows. .* at most the 19 rows"),
        ({"prior": None, "rank": 0}, "Invalid rank 0. It must be 'auto' or an int from 1 to 11"),
        ({"rank": 12}, "Invalid rank 12"),
        ({"rank": 2.5}, "Invalid rank 2.5"),
        ({"rank": "many"}, "Invalid rank 'many'"),
        ({"noise": 0}, "Invalid noise 0"),
        ({"noise": -1}, "above zero"),
        ({"noise": np.ones(5)}, r"Invalid noise of shape \(5,\)"),
        ({"noise": "magic"}, "Invalid noise 'magic'"),
        ({"solver": "magic"}, "Invalid solver 'magic'"),
        ({"overlap": "magic"}, "Invalid overlap 'magic'. It must be one of 'exact', 'ratio'"),
        ({"weights": "magic"}, "Invalid weights 'magic'"),
        ({"workers": 0}, "Invalid workers 0"),
        ({"mask": np.ones((3, 3), dtype=bool)}, "Invalid mask of shape"),
        ({"mask": np.ones(SHAPE[:2])}, "Invalid mask of type float64"),
        ({"mask": np.zeros(SHAPE[:2], dtype=bool)}, "no value is finite and unmasked"),
        (
            {"prior": None, "window": (8, 8, 5), "noise": np.eye(11)},
            "Windows must hold all bands",
        ),
        ({"prior": "magic"}, "Invalid prior 'magic'. It must be one of 'spatial', None"),
        ({"window": (8, 8, 5), "step": (4, 4, 5)}, "a whole number; .* belong to prior=None"),
        ({"solver": "godec"}, "Invalid solver 'godec' with prior='spatial'.* belong to prior=None"),
        ({"rank": 3}, "Invalid rank 3 with prior='spatial'. It belongs to prior=None"),
        ({"overlap": "ratio"}, "Invalid overlap 'ratio' with prior='spatial'"),
        ({"weights": "uniform"}, "Invalid weights 'uniform' with prior='spatial'"),
        ({"finite_noise": False}, "Invalid finite_noise False with prior='spatial'"),
    ],
)
def test_bad_options_are_refused_with_the_rule(
    noisy: np.ndarray, options: dict, message: str
) -> None:
    noise = options.pop("noise", 0.1)
    with pytest.raises(ValueError, match=message):
        denoise(noisy, noise, **options)


@pytest.mark.parametrize(
    ("cube", "message"),
    [
        (np.zeros((4, 5)), "Invalid cube of 2 dimensions"),
        (np.zeros((19, 23, 11), dtype=complex), "Invalid cube of type complex128"),
        (np.zeros((19, 23, 11), dtype=bool), "Invalid cube of type bool"),
        (np.full((19, 23, 11), np.nan), "no value is finite"),
    ],
)
def test_bad_cubes_are_refused_with_the_rule(cube: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        denoise(cube)


def test_without_uncertainty_there_is_no_interval(noisy: np.ndarray) -> None:
    result = denoise(noisy, uncertainty=False)
    for call in (result.interval, lambda: result.spectral_cov(0, 0)):
        with pytest.raises(ValueError, match="uncertainty=False"):
            call()


@pytest.mark.parametrize(
    ("bands", "workers", "solver", "threads"),
    [(10, None, "svd", 1), (10, 2, "svd", 2), (10, None, "robust", None), (40, None, "svd", None)],
)
def test_small_windows_get_one_thread_unless_asked_for(
    bands: int,
    workers: int | None,
    solver: str,
    threads: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int | None] = []

    def noted(count: int | None) -> Any:
        asked.append(count)
        return parallel(1)

    monkeypatch.setattr(pipeline, "parallel", noted)
    cube = sc.Cube(np.random.default_rng(1).normal(size=(21, 22, bands)))
    settings = Settings(prior=None, solver=solver)
    pipeline.denoise_cube(cube, 1.0, settings, workers=workers)
    assert asked == [threads]

"""Cubes that are tiny, sparse, flat or of odd sizes: finite values with σ, or one line."""

from __future__ import annotations

import numpy as np
import pytest

import sigmacube as sc

PRIORS = [None, "spatial"]


def noisy(shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spectra = rng.normal(size=(2, shape[2]))
    return 5 + rng.normal(size=(*shape[:2], 2)) @ spectra + 0.1 * rng.normal(size=shape)


def check(result: sc.DenoisedCube, valid: np.ndarray) -> None:
    assert np.isfinite(result.estimate[valid]).all()
    assert result.std is not None
    assert (result.std[valid] > 0).all()


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("shape", [(3, 2, 7), (2, 8, 3), (2, 2, 2), (9, 3, 5)])
def test_short_sides(shape, prior):
    check(sc.denoise(noisy(shape), 0.1, prior=prior, window=2, step=1), np.ones(shape, bool))


@pytest.mark.parametrize("shape", [(3, 2, 7), (2, 8, 3)])
@pytest.mark.parametrize("solver", ["svd", "robust"])
def test_short_sides_and_missing_values_whose_noise_is_asked_for(shape, solver):
    """Neighbours two pixels away are looked for where there are none."""
    cube = noisy(shape)
    cube[0, 0, 0] = np.nan
    told = None
    try:
        result = sc.denoise(cube, prior=None, window=2, step=1, solver=solver)
    except ValueError as error:  # too small to tell
        told = str(error)
    assert told is None or "noise estimate" in told
    if told is None:
        check(result, np.isfinite(cube))


@pytest.mark.parametrize("prior", PRIORS)
def test_one_valid_pixel(prior):
    mask = np.zeros((7, 6), bool)
    mask[3, 2] = True
    cube = noisy((7, 6, 5))
    result = sc.denoise(cube, 0.1, mask=mask, prior=prior, window=4, step=2)
    check(result, np.broadcast_to(mask[..., None], cube.shape))
    with pytest.raises(ValueError, match="noise estimate"):
        sc.denoise(cube, mask=mask, prior=prior, window=4, step=2)


def test_windows_of_which_nothing_is_kept():
    cube = np.full((2, 2, 2), 5.0, dtype=np.float32)
    cube[0, 0, 0] = 6.0
    mask = np.array([[False, True], [False, True]])
    result = sc.denoise(cube, 0.1, mask=mask, prior=None, window=2, step=1, solver="robust")
    assert np.isfinite(result.estimate[mask]).all()


@pytest.mark.parametrize("solver", ["robust", "godec", "ssgodec", "rpca"])
def test_pixels_that_are_set_aside_keep_their_values(solver):
    rng = np.random.default_rng(1)
    cube = 40 + rng.normal(size=(6, 7, 4))
    cube[2, 3] += 1e4 * rng.normal(size=4)
    cube[0, :5] = 1e3 * rng.normal(size=(5, 4))
    result = sc.denoise(cube, 1.0, prior=None, solver=solver, window=3, step=2)
    assert np.isfinite(result.estimate).all()
    assert np.isfinite(result.std).all()


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e60, 1e-60])
def test_units_do_not_matter(prior, scale):
    cube = noisy((9, 8, 6))
    factor = 2.0 ** np.round(np.log2(scale))  # rounds nothing
    one = sc.denoise(cube, 0.125, prior=prior, window=5, step=2)
    other = sc.denoise(cube * factor, 0.125 * factor, prior=prior, window=5, step=2)
    np.testing.assert_array_equal(one.estimate * factor, other.estimate)
    np.testing.assert_allclose(one.std * factor, other.std, rtol=1e-12)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(("scale", "noise"), [(1e160, 1e159), (1e-160, 1e-161), (1.0, 1e-320)])
def test_sizes_beyond_numbers_are_refused(prior, scale, noise):
    with pytest.raises(ValueError, match=r"Invalid (values|noise) "):
        sc.denoise(noisy((6, 7, 4)) * scale, noise, prior=prior, window=4)


@pytest.mark.parametrize("prior", PRIORS)
def test_flat_scenes(prior):
    cube = np.ones((9, 8, 6), dtype=np.float32)
    check(sc.denoise(cube, 0.1, prior=prior, window=4, step=2), np.ones(cube.shape, bool))


def test_masks_must_be_numbers():
    with pytest.raises(ValueError, match="mask"):
        sc.denoise(noisy((6, 7, 4)), 0.1, mask=np.full((6, 7), "yes"), prior=None, window=4)


@pytest.mark.parametrize("seed", range(12))
def test_windows_of_which_most_is_missing(seed):
    """Steps of the average element are too long for pixels that have all of theirs."""
    shape = (4, 5, 10)
    mask = np.random.default_rng(seed).random(shape) < 0.2
    cube = 5 + 0.1 * np.random.default_rng([1, seed]).normal(size=shape)
    result = sc.denoise(cube, 0.1, mask=mask, prior=None, window=2, step=1)
    known = mask & (mask.sum(axis=(0, 1)) > 1)  # a band of one value holds no data
    check(result, known)
    assert np.abs(result.estimate[known] - 5).max() < 5


@pytest.mark.parametrize("seed", range(6))
def test_components_do_not_run_away_into_what_is_missing(seed):
    rng = np.random.default_rng(seed)
    cube = 5 + rng.normal(size=(96, 3)) @ rng.normal(size=(3, 14))
    cube = (cube + 0.1 * rng.normal(size=cube.shape)).reshape(12, 8, 14)
    mask = rng.random(cube.shape) < 0.2
    result = sc.denoise(cube, 0.1, mask=mask, prior=None, window=3, step=1, rank=2)
    check(result, mask)
    assert np.abs(result.estimate[mask] - cube[mask]).max() < 2


def test_nothing_that_outliers_could_be_told_from():
    cube = np.ones((4, 5, 1), dtype=np.float32)
    check(sc.denoise(cube, 0.1, solver="robust"), np.ones(cube.shape, bool))


def test_values_of_which_some_are_far_beyond_others():
    """Squares of damaged values need more than single precision."""
    cube = noisy((7, 6, 5))
    cube[3, 2, 1], cube[5, 4, 0] = 1e30, np.nan
    result = sc.denoise(cube, 0.1, prior=None, window=2, step=1)
    check(result, np.isfinite(cube))


@pytest.mark.parametrize("method", ["differences", "residual", "regression", None])
@pytest.mark.parametrize("kind", ["few", "steps"])
def test_noise_that_no_values_show(method, kind):
    """It is estimated, or refused in one line: never zero or NaN."""
    cube = noisy((2, 3, 1))
    if kind == "steps":
        cube = np.full((4, 5, 5), 100)
        cube[0, 0, 0] = 120
    told = "Invalid scene for a noise estimate"
    try:
        result = sc.denoise(cube, method, prior=None, window=2, step=2)
    except ValueError as error:
        told = str(error)
    else:
        assert (np.asarray(result.noise) > 0).all()
    assert told.startswith("Invalid scene for a noise estimate")


@pytest.mark.parametrize("method", ["regression", None])
def test_noise_where_all_that_differs_is_masked_or_an_impulse(method):
    cube = np.array([[[100, 101, 100], [97, 101, 100]], [[98, 101, 100], [100, 100, 101]]])
    mask = np.zeros((2, 3, 3), bool)
    mask[0, 0, 2] = mask[0, 1, 0] = mask[1, 1, 2] = True
    for scene in ({"cube": cube}, {"cube": noisy((2, 3, 3)), "mask": mask}):
        with pytest.raises(ValueError, match="Invalid scene for"):
            sc.denoise(**scene, noise=method, solver="robust")


def test_one_valid_pixel_of_one_band_under_robust() -> None:
    """Its power about its own mean is zero, or a little less by rounding."""
    cube = np.array([[5.0125732, 4.9867897], [5.064042, 5.01049], [4.946433, 5.0361595]], ">f4")
    mask = np.zeros((3, 2), dtype=bool)
    mask[1, 1] = True
    result = sc.denoise(cube[..., None], 0.1, mask=mask, solver="robust")
    assert np.isfinite(result.estimate[1, 1]).all()
    assert result.std[1, 1, 0] > 0


def test_values_beyond_single_precision_and_scenes_of_which_nothing_is_left() -> None:
    huge = np.array([5.01e60, 4.98e60, 5.06e60, 5.02e60]).reshape(2, 2, 1)
    assert np.isfinite(sc.denoise(huge, workers=1).std).all()
    cube = np.array([[[6.0], [5.0]], [[5.0], [5.0]], [[5.0], [5.0]]], dtype=np.float32)
    mask = np.array([[False, True]] * 3)
    result = sc.denoise(cube, 0.1, mask=mask, solver="robust", workers=1)
    assert np.isfinite(result.std[mask]).all()

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

"""Windows of low rank give the estimate and the σ of the first release, to rounding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sigmacube as sc
from conftest import scale_bands

# Stripes are looked for otherwise today: the robust values are those of the first release that was
# given the three stripes found now.
STORED = Path(__file__).parent / "data" / "first_release.npz"
# Elements that were stored.
THIN = np.s_[::14, ::18, ::22]


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    """Estimates and σ of the first release at a few elements, and the noise of one scene."""
    with np.load(STORED) as file:
        return dict(file)


def check(name: str, result: sc.DenoisedCube, stored: dict[str, np.ndarray]) -> None:
    """Compare a result with what was stored: to 1e-6 of the value, and of σ where it is zero."""
    std, estimate = stored[f"{name}_std"], stored[f"{name}_estimate"]
    np.testing.assert_allclose(result.std[THIN], std, rtol=1e-6)
    close = np.abs(result.estimate[THIN] - estimate) <= 1e-6 * (np.abs(estimate) + std)
    assert np.array_equal(np.isnan(result.estimate[THIN]), np.isnan(estimate))
    assert np.all(close | np.isnan(estimate))


INDIAN: dict[str, dict[str, Any]] = {
    "indian_auto": {},
    "indian_rank7": {"rank": 7},
    "indian_ratio": {
        "rank": 7, "overlap": "ratio", "weights": "uniform", "finite_noise": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", INDIAN)
def test_simulated_scene(
    name: str, indian_pines: np.ndarray, stored: dict[str, np.ndarray]
) -> None:
    truth = scale_bands(indian_pines)
    noisy = truth + np.random.default_rng(15).normal(scale=0.05, size=truth.shape)
    check(name, sc.denoise(noisy, 0.05, prior=None, **INDIAN[name]), stored)


@pytest.fixture(scope="module")
def aviris(data_dir: Path) -> np.ndarray:
    """AVIRIS crop, 90 × 90, without its dead bands: they are no longer taken for data."""
    from scipy.io import loadmat

    cube = loadmat(data_dir / "scenes" / "aviris_90x90x224.mat")["hsi_img"].astype(float)
    return cube[..., cube.min(axis=(0, 1)) < cube.max(axis=(0, 1))]


def correlated(std: np.ndarray) -> np.ndarray:
    """Covariance of noise whose correlation falls by .4 from band to band."""
    lag = np.abs(np.subtract.outer(np.arange(len(std)), np.arange(len(std))))
    return np.outer(std, std) * 0.4**lag


def kept_values(n_bands: int) -> np.ndarray:
    """True for 97 % of the values of a corner."""
    return np.random.default_rng(3).random((40, 44, n_bands)) > 0.03


AVIRIS: dict[str, Callable[[np.ndarray, np.ndarray], sc.DenoisedCube]] = {
    "aviris_bands": lambda cube, std: sc.denoise(cube, std, prior=None),
    "aviris_cov": lambda cube, std: sc.denoise(cube, correlated(std), prior=None),
    "aviris_robust": lambda cube, std: sc.denoise(cube[:40, :44], std, prior=None, solver="robust"),
    "aviris_missing": lambda cube, std: sc.denoise(
        cube[:40, :44], std, prior=None, mask=kept_values(len(std))
    ),
}


@pytest.mark.parametrize("name", AVIRIS)
def test_real_scene(name: str, aviris: np.ndarray, stored: dict[str, np.ndarray]) -> None:
    check(name, AVIRIS[name](aviris, stored["aviris_noise"]), stored)

"""What σ claims against what errors are: one observation, and Monte Carlo.

Elements of one observation share their errors (a scene has some thousands of independent ones), so
tolerances are those of the claims themselves; each test has a control that must fail.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

import sigmacube as sc
from conftest import scale_bands

LEVELS = (0.5, 0.68, 0.9, 0.95, 0.99)


def coverage(error: np.ndarray, std: np.ndarray, level: float) -> float:
    return float(np.mean(np.abs(error) <= ndtri((1 + level) / 2) * std))


@pytest.mark.data
@pytest.mark.statistical
@pytest.mark.parametrize("noise", [0.001, 0.05, 0.125])
def test_full_scene_covers_the_truth(indian_pines: np.ndarray, noise: float) -> None:
    truth = scale_bands(indian_pines)
    noisy = sc.synthetic.add_noise(truth, noise, rng=11)
    result = sc.denoise(noisy, noise, prior=None)
    error = result.estimate - truth
    for level in LEVELS:
        assert coverage(error, result.std, level) == pytest.approx(level, abs=0.004)
    assert np.sqrt(np.mean(error**2)) <= 0.122 * noise
    # Control: windows taken as independent would claim far too little.
    alone = np.sqrt(np.mean(result.std**2)) / 2
    assert coverage(error, np.full_like(result.std, alone), 0.95) < 0.75


@pytest.mark.data
@pytest.mark.statistical
def test_correlated_noise_covers_the_truth(indian_crop: np.ndarray) -> None:
    n_bands = indian_crop.shape[2]
    std = np.linspace(0.02, 0.08, n_bands)
    lag = np.abs(np.subtract.outer(np.arange(n_bands), np.arange(n_bands)))
    covariance = 0.7**lag * np.outer(std, std)
    noisy = sc.synthetic.add_noise(indian_crop, covariance, rng=3)
    result = sc.denoise(noisy, covariance, prior=None)
    error = result.estimate - indian_crop
    assert coverage(error, result.std, 0.95) == pytest.approx(0.95, abs=0.01)
    # Control: the same σ per band without the correlation takes noise for signal.
    naive = sc.denoise(noisy, std, prior=None)
    assert coverage(naive.estimate - indian_crop, naive.std, 0.95) < 0.85


@pytest.mark.statistical
def test_functionals_agree_with_monte_carlo() -> None:
    """400 trials: a Monte Carlo standard deviation is good to 3.5 %; 5 % is asked of ours."""
    truth = sc.synthetic.scene((30, 28, 40), rng=4).values
    noise, trials = 0.03, 400
    weights = {
        "mean of 5×5 pixels and 4 bands": np.zeros(truth.shape),
        "difference of two bands": np.zeros(truth.shape),
    }
    weights["mean of 5×5 pixels and 4 bands"][10:15, 12:17, 20:24] = 1 / 100
    weights["difference of two bands"][14, 9, (8, 30)] = (1.0, -1.0)
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {name: [] for name in weights}
    predicted: dict[str, list[float]] = {name: [] for name in weights}
    naive = []
    for trial in range(trials):
        noisy = truth + rng.normal(scale=noise, size=truth.shape)
        result = sc.denoise(noisy, noise, window=14, uncertainty=trial < 3, prior=None)
        for name, w in weights.items():
            found[name].append(float(np.sum(w * result.estimate)))
            if trial < 3:
                predicted[name].append(result.functional_std(w))
        if trial < 3:
            naive.append(
                np.sqrt(np.sum(weights["mean of 5×5 pixels and 4 bands"] ** 2 * result.std**2))
            )
    for name in weights:
        ratio = np.mean(predicted[name]) / np.std(found[name], ddof=1)
        assert ratio == pytest.approx(1.0, abs=0.05 + 3.5e-2)
    independent = np.mean(naive) / np.std(found["mean of 5×5 pixels and 4 bands"], ddof=1)
    assert independent < 0.7

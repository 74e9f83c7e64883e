"""The whole product in one small test: noisy scene in, calibrated error bars out."""

import numpy as np

import sigmacube as sc


def test_minimal() -> None:
    truth = sc.synthetic.scene((48, 56, 60), rng=0)
    noisy = sc.synthetic.add_noise(truth, 0.03, rng=1)
    result = sc.denoise(noisy, 0.03)
    error = result.estimate - truth.values
    assert np.std(error) < 0.3 * 0.03
    low, high = result.interval(0.95)
    inside = (low <= truth.values) & (truth.values <= high)
    assert abs(inside.mean() - 0.95) < 0.02

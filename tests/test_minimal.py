"""The whole product in one small test: noisy scene in, calibrated error bars out."""

import numpy as np

import sigmacube as sc


def test_minimal() -> None:
    truth = sc.synthetic.scene((48, 56, 60), rng=0)
    covered = []
    for seed in (1, 2, 3):  # one draw on so small a scene scatters by .017
        noisy = sc.synthetic.add_noise(truth, 0.03, rng=seed)
        result = sc.denoise(noisy, 0.03)
        error = result.estimate - truth.values
        assert np.std(error) < 0.2 * 0.03
        low, high = result.interval(0.95)
        covered.append(np.mean((low <= truth.values) & (truth.values <= high)))
    assert abs(np.mean(covered) - 0.95) < 0.03

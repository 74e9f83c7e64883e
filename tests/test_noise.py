"""Noise: whitening and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from sigmacube.core.whitening import Noise
from sigmacube.noise import line_offsets

COVARIANCE = np.array([[4.0, 1.0, 0.5], [1.0, 2.0, 0.3], [0.5, 0.3, 1.0]])


@pytest.mark.parametrize("value", [0.5, np.array([1.0, 2.0, 3.0]), COVARIANCE])
def test_whitening_gives_unit_white_noise_and_back(value: float | np.ndarray) -> None:
    noise = Noise.create(value, 3)
    spectra = np.random.default_rng(0).normal(size=(4, 5, 3))
    white = noise.whiten(spectra)
    np.testing.assert_allclose(noise.unwhiten(white), spectra, atol=1e-12)
    c = noise.factor @ noise.factor.T
    inverse = noise.whiten(np.eye(3))  # rows are L⁻¹e
    np.testing.assert_allclose(inverse.T @ c @ inverse, np.eye(3), atol=1e-12)
    weights = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(
        spectra @ weights, white @ noise.weights_to_white(weights), atol=1e-12
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.0, "Invalid noise 0. A standard deviation must be above zero"),
        (-1.0, "above zero"),
        (np.array([1.0, 0.0, 1.0]), "above zero"),
        (np.ones(4), r"Invalid noise of shape \(4,\). It must be .* 3 of them"),
        (np.ones((3, 2)), r"Invalid noise of shape \(3, 2\)"),
        (np.nan, "NaN or infinity"),
        (np.array([[1.0, 2.0, 0], [0.0, 1.0, 0], [0, 0, 1]]), "not symmetric"),
        (np.ones((3, 3)) - 2 * np.eye(3), "not positive definite"),
    ],
)
def test_bad_noise_is_refused_with_the_rule(value: float | np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Noise.create(value, 3)


def test_given_array_is_not_kept() -> None:
    value = np.ones(3)
    noise = Noise.create(value, 3)
    value[:] = 7
    assert np.all(noise.std == 1)


def test_pixels_without_a_claim_do_not_jump() -> None:
    """Masked pixels have no σ: in single precision nothing may be divided by less than it has."""
    values, claimed = np.ones((2, 3, 4), np.float32), np.ones((2, 3, 4), np.float32)
    values[0, 0], claimed[0, 0] = 0, np.nan
    np.testing.assert_array_equal(line_offsets._no_jumps(values, claimed), values)

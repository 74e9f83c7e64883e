"""Lost signal is claimed where it was lost, and gaps as far as they err: each with a control."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import maximum_filter, minimum_filter

import sigmacube.core.spatial.risk as risk
from sigmacube import denoise, synthetic
from sigmacube.core.spatial.gap_errors import _error_there
from sigmacube.core.spatial.lost import contrast, placed


def _drawn(rng: np.random.Generator, lost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an estimate with a border in its middle, and errors that scatter by the noise."""
    rows, cols, k = 60, 64, 6
    estimate = 0.1 * rng.standard_normal((rows, cols, k))
    estimate[:, cols // 2 :] += 5.0
    errors = lost[:, :, None] / k + np.sqrt(2) * rng.standard_normal((rows, cols, k))
    return estimate, errors


def test_lost_signal_is_placed_at_borders_only_if_it_lies_there() -> None:
    """A class of 100 border pixels scatters by √(12/128) = .3; even loss must stay even."""
    rng, at_border = np.random.default_rng(3), np.zeros((60, 64))
    at_border[:, 31:33] = 4.0
    zero = np.zeros_like(at_border)
    for lost, near, far in ((at_border, (2.8, 5.2), (0, 0.1)), (zero + 0.125, (0, 0.5), (0, 0.25))):
        estimate, errors = _drawn(rng, lost)
        bounds, found = placed(
            [estimate], [errors], [zero], [zero + 30], 0.5, lost.mean(), 12.0, 0.0
        )
        by_pixel = found[np.searchsorted(bounds, contrast(estimate))]
        assert near[0] <= by_pixel[:, 31:33].mean() <= near[1]
        assert far[0] <= np.delete(by_pixel, (31, 32), axis=1).mean() <= far[1]


def test_noise_of_a_pixel_does_not_choose_its_class() -> None:
    """Estimates that follow their noise differ where the identity is large: halves do not care."""
    rng = np.random.default_rng(4)
    noise = rng.standard_normal((60, 64, 6))
    zero = np.zeros((60, 64))
    bounds, found = placed([noise], [noise**2 - 1], [zero], [zero + 30], 0.5, 0.5, 12.0, 0.0)
    np.testing.assert_allclose(found, 0.5, atol=0.35)
    label = np.searchsorted(bounds, contrast(noise))  # control: the same by all directions at once
    assert (noise**2 - 1).sum(axis=2)[label == label.max()].mean() > 3.0


def test_noise_that_differs_between_classes_is_not_lost_signal() -> None:
    """Where noise is larger than assumed, the identity has that too much; told, it does not."""
    rng, zero = np.random.default_rng(6), np.zeros((60, 64))
    estimate, errors = _drawn(rng, zero)
    large = contrast(estimate) > np.quantile(contrast(estimate), 0.75)
    errors += 0.4 * large[:, :, None]
    for outside, least, most in ((zero + 30, 0.5, 3.0), (30 * (1 + 0.4 * large), 0.0, 0.3)):
        _, found = placed([estimate], [errors], [zero], [outside], 0.5, 0.1, 12.0, 0.0)
        assert least <= found[-1] <= most


def test_std_follows_lost_signal_to_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under much noise errors lie at borders; spread evenly, σ² of fields is several times theirs.

    Two draws; σ² of fields is known to some 20 %, and the shares of Stein leave some of it there.
    """
    truth = synthetic.rare_materials((120, 112, 40), rng=5)
    std = truth.std(axis=(0, 1))
    far = (maximum_filter(truth, (5, 5, 1)) - minimum_filter(truth, (5, 5, 1))).max(axis=2) < 0.2

    def over(pixels: np.ndarray) -> float:
        found = []
        for seed in (1, 2):
            y = truth + std * np.random.default_rng(seed).standard_normal(truth.shape)
            result = denoise(y, std, workers=1)
            error = ((result.estimate - truth) / std)[pixels]
            found.append(np.mean((result.std / std)[pixels] ** 2) / np.mean(error**2))
        return float(np.mean(found))

    assert over(far) < 2.0
    assert 0.75 < over(~far) < 1.35

    def even(*args: object) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0), np.array([args[5]])

    monkeypatch.setattr(risk, "placed", even)
    assert over(far) > 3.0
    assert over(~far) < 0.7


def test_kept_noise_responds_by_more_than_it_errs() -> None:
    """Of noise twice that of the windows, what is above their edge is kept: the identity knows."""
    rng, shape = np.random.default_rng(5), (60, 64, 8)
    z, probe = np.sqrt(2.5) * rng.standard_normal((2, *shape))
    size = np.maximum(z**2, 1e-9)
    share = np.maximum(1 - 4 / size, 0)  # the truth is zero, so the estimate is the error
    response = probe * np.where(size > 4, 1 + 4 / size, 0)
    actual = np.square(share * z).sum(axis=2).mean()
    where, claim = np.ones(shape[:2], dtype=bool), np.ones(shape[:2])
    found = _error_there(share * z - z, probe, response, claim, where)
    assert found == pytest.approx(actual, rel=0.15)
    by_response = risk.BIAS * np.square(risk.capped(response, claim)).sum(axis=2).mean()
    assert by_response > 2 * actual  # control

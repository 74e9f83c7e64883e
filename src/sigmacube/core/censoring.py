"""What a value on a bound says: that it lay there or beyond."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr


def expected_beyond(
    mean: np.ndarray, limit: np.ndarray, side: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of values of unit noise that lie beyond a limit.

    With α = side (limit − mean) and λ = φ(α)/Φ(α): mean − side λ and 1 − λ(λ + α).

    Parameters
    ----------
    mean
        Mean of the values before they were clipped.
    limit
        The bound.
    side
        1 for a lower bound, −1 for an upper one.

    Examples
    --------
    >>> mean, variance = expected_beyond(np.zeros(1), np.zeros(1), 1)
    >>> mean.round(4), variance.round(3)
    (array([-0.7979]), array([0.363]))
    """
    alpha = side * (limit - mean)
    # φ/Φ by logarithms: both vanish where the mean lies far inside the bounds.
    ratio = np.exp(-0.5 * alpha**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(alpha))
    return mean - side * ratio, np.clip(1 - ratio * (ratio + alpha), 0, 1)

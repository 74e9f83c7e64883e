"""Rank of a window: the noise edge decides.

A patch of pure unit noise, n pixels by P bands, has its largest singular value near √n + √P, with
fluctuations that follow the Tracy–Widom law. What rises above that edge is signal.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["count_signal", "noise_edge"]

# Upper 0.2 % point of the Tracy–Widom law of order 1: one pure-noise window in 500 passes the edge.
# For a 20 × 20 window of 224 bands it lies 2 % above √n + √P.
TRACY_WIDOM = 2.87


def noise_edge(n_pixels: int, n_bands: int) -> float:
    """Return the largest singular value to expect of unit noise, n pixels by P bands.

    The centre and scale of the largest eigenvalue of the Gram matrix are
    μ = (√(n−1) + √P)² and s = √μ (1/√(n−1) + 1/√P)^(1/3); the edge is √(μ + 2.87 s).

    Examples
    --------
    >>> round(noise_edge(400, 224) / (400**0.5 + 224**0.5), 3)
    1.019
    """
    n, p = math.sqrt(max(n_pixels - 1, 1)), math.sqrt(max(n_bands, 1))
    centre = (n + p) ** 2
    scale = (n + p) * (1 / n + 1 / p) ** (1 / 3)
    return math.sqrt(centre + TRACY_WIDOM * scale)


def count_signal(singular_values: np.ndarray, edge: float) -> int:
    """Return how many singular values lie above the noise edge.

    Examples
    --------
    >>> import numpy as np
    >>> count_signal(np.array([90.0, 40.0, 33.0]), noise_edge(400, 224))
    2
    """
    return int(np.count_nonzero(singular_values > edge))

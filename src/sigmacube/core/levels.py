"""Levels at which intervals are judged, and how wide an interval is."""

from __future__ import annotations

from statistics import NormalDist

LEVELS = (0.50, 0.68, 0.90, 0.95, 0.99)
"""Nominal levels at which coverage is reported."""


def half_width(level: float) -> float:
    """Return how many standard deviations the central interval at ``level`` reaches.

    Examples
    --------
    >>> round(half_width(0.95), 4)
    1.96
    """
    if not 0 < level < 1:
        raise ValueError(f"Invalid level {level}. It must lie between 0 and 1.")
    return NormalDist().inv_cdf((1 + level) / 2)

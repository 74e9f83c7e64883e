"""Noise of a scene: models, estimators, bands to look at, stripes."""

from typing import Any

__all__ = ["ESTIMATORS"]

ESTIMATORS: dict[str, Any] = {
    "regression": "sigmacube.noise.estimation:by_regression",
    "differences": "sigmacube.noise.estimation:by_differences",
    "residual": "sigmacube.noise.estimation:by_residual",
}
"""Called with a `NoiseSample` and a parallel map; gives (bands,) standard deviations, a (bands,
bands) covariance or a `SignalNoise`, and what differences of neighbours say or None."""

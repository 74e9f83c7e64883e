"""Weights of overlapping windows in their mean: one function for each way to choose them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sigmacube.core.lowrank.factors import Factors

__all__ = ["precision", "uniform"]


def precision(factors: Factors) -> np.ndarray:
    """Lean on the windows with the smallest variance, misfit included.

    Windows overlap so much that their errors are nearly the same noise seen through different
    subspaces; the best mean leans on the best windows, more than inverse variances would. The
    fourth power of the precision was the best of those tried (decision record 0003).
    """
    a = factors.signal_leverage
    b = np.maximum(factors.n_signal, 1)[..., None, None] / factors.grid.bands.size
    variance = a + b - a * b + factors.noise_power[..., None, None]
    variance += factors.misfit
    return 1 / np.square(np.square(variance))  # the power of a float takes ten times as long


def uniform(factors: Factors) -> np.ndarray:
    """Take all windows alike, as the paper does."""
    return np.ones((*factors.left.shape[:3], *factors.left.shape[4:]))

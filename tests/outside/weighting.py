"""A weighting: windows count at their middle more than at their border."""

from __future__ import annotations

import numpy as np

from sigmacube.core.lowrank.factors import Factors


def tent(factors: Factors) -> np.ndarray:
    """Return (I, K, J, rows, cols) weights; they need not sum to one."""
    rows, cols, _ = factors.grid.window
    y, x = (1 - np.abs(np.linspace(-1, 1, n + 2)[1:-1]) for n in (rows, cols))
    return np.broadcast_to(np.outer(y, x), (*factors.left.shape[:3], rows, cols))

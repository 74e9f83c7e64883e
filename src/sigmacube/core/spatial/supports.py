"""What supports of pixels and functionals see of the error, window by window."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.transform import forward
from sigmacube.core.spatial.views import View

__all__ = ["functional_features", "support_shares"]

# Elements of the stacks that supports and functionals are handled in.
MOST = 4_000_000

Shares = tuple[View, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _padded(image: np.ndarray, side: tuple[int, int], fill: float) -> np.ndarray:
    r, c = side
    shape = (image.shape[0] + 2 * r, image.shape[1] + 2 * c, *image.shape[2:])
    out = np.full(shape, fill, dtype=image.dtype)
    out[r:-r, c:-c] = image
    return out


def _windows(image: np.ndarray, box: Box, view: View, fill: float) -> np.ndarray:
    """Return (windows, rows, cols) parts of an image (row, col) of a region."""
    r, c = view.side
    at = view.corner - (box.top, box.left) + (r, c)
    inside = np.lib.stride_tricks.sliding_window_view(_padded(image, view.side, fill), (r, c))
    return inside[at[:, 0], at[:, 1]]


def support_shares(
    views: list[View], box: Box, labels: np.ndarray, weights: np.ndarray
) -> Iterator[Shares]:
    """Yield for pairs of window and support what the support's weights see of S_a.

    With α the transform of √ω · weights on the window's part of the support, a pair has
    κ_i = Σ_f ρ_i(f) α(f)² along the kept directions and δ = Σ_f d(f) α(f)² along the others.

    Yields
    ------
    tuple
        View, (pairs,) window, (pairs,) support, (pairs, R) κ, (pairs,) δ.
    """
    weights = np.asarray(weights, dtype=np.float32)
    for view in views:
        count, r, c = view.weight.shape
        near = _windows(labels.astype(np.int64), box, view, -1).reshape(count, -1)
        image = _windows(weights, box, view, 0.0) * np.sqrt(view.weight)
        touched = np.where((image != 0).reshape(count, -1), near, -1)
        span = int(labels.max()) + 2
        pairs = np.unique(touched + 1 + span * np.arange(count)[:, None])
        pairs = pairs[pairs % span > 0]
        per = max(MOST // (r * c * max(view.kept.shape[1], 2)), 1)
        for start in range(0, len(pairs), per):
            window, label = np.divmod(pairs[start : start + per], span)
            label -= 1
            mine = touched[window] == label[:, None]
            alpha = forward((image.reshape(count, -1)[window] * mine).reshape(-1, 1, r, c))
            power = np.square(alpha).reshape(len(window), r * c)
            kept = view.kept.reshape(count, -1, r * c)
            along = np.einsum("pn,prn->pr", power, kept[window]).astype(np.float64)
            flat = np.einsum("pn,pn->p", power, view.dropped.reshape(count, -1)[window])
            yield view, window, label, along, flat.astype(np.float64)


def functional_features(views: list[View], box: Box, weights: np.ndarray) -> np.ndarray:
    """Return Σ_a c_aᵀ S_a c_b (n, n) for weights (n, row, col, k) inside the subspace.

    Each window turns the functionals that touch it into vectors whose products are their
    covariance: the matrix is positive semi-definite.
    """
    n = len(weights)
    cov = np.zeros((n, n))
    extent = [_extent(w) for w in weights]
    for view in views:
        r, c = view.side
        for a, (y, x) in enumerate((view.corner - (box.top, box.left)).tolist()):
            mine = [i for i, e in enumerate(extent) if e is not None and e[0] < y + r
                    and e[1] > y and e[2] < x + c and e[3] > x]  # fmt: skip
            if mine:
                vectors = _vectors(view, a, (y, x), weights[mine])
                cov[np.ix_(mine, mine)] += vectors @ vectors.T
    return cov


def _extent(weight: np.ndarray) -> tuple[int, int, int, int] | None:
    rows, cols = np.nonzero(weight.any(axis=2))
    if not len(rows):
        return None
    return int(rows.min()), int(rows.max()) + 1, int(cols.min()), int(cols.max()) + 1


def _vectors(view: View, a: int, at: tuple[int, int], weights: np.ndarray) -> np.ndarray:
    """Return (n, ·) S_a^½ √ω c of functionals (n, row, col, k) on window ``a``."""
    r, c = view.side
    n, rows, cols, k = weights.shape
    top, left = max(at[0], 0), max(at[1], 0)
    bottom, right = min(at[0] + r, rows), min(at[1] + c, cols)
    here = np.zeros((n, r, c, k), dtype=np.float32)
    inner = (slice(top - at[0], bottom - at[0]), slice(left - at[1], right - at[1]))
    here[:, inner[0], inner[1]] = weights[:, top:bottom, left:right]
    here *= np.sqrt(view.weight[a])[None, :, :, None]
    V = view.directions[a]
    along = here @ V
    rest = here - along @ V.T
    kept = forward(np.ascontiguousarray(np.moveaxis(along, 3, 1))) * np.sqrt(view.kept[a])
    flat = forward(np.ascontiguousarray(np.moveaxis(rest, 3, 1))) * np.sqrt(view.dropped[a])
    return np.concatenate([kept.reshape(n, -1), flat.reshape(n, -1)], axis=1).astype(np.float64)

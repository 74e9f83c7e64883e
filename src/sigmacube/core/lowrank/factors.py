"""The factors of every window of a scene, stacked: what estimate and variance are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.rank import near_edge_inflation, noise_edge
from sigmacube.core.tables import WEIGHTINGS, load
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import Span, WindowGrid

Window = tuple[int, int, int]
"""Row, band window and column of a window."""

# Sums of squares that windows leave of a spectrum differ by so much without a reason.
MISFIT_MARGIN = 15.0
# Fewer kept elements of a band than this multiple of the rank do not tell what the band is.
ELEMENTS_PER_COMPONENT = 1.5


@dataclass(frozen=True, eq=False)
class Kept:
    """What a window rests on, and what leaving out the rest does to its noise."""

    bits: np.ndarray | None
    """(pixels, bands / 8) the kept elements; None for all of them."""
    rank: int
    n_bands: int
    sandwich: float
    """κ: variance over that of least squares on the kept elements."""
    level: float
    """Noise std of the matrix that was decomposed."""
    loss: np.ndarray | None
    """(pixels,) bounded sum of squares left of every spectrum; None takes it from the factors."""

    @classmethod
    def of(cls, solution: PatchSolution) -> Kept | None:
        """Return what a solution rests on; None for all elements, by least squares."""
        kept, plain = solution.kept, solution.sandwich == 1 and solution.loss is None
        if kept is None and plain:
            return None
        bits = None if kept is None else np.packbits(kept, axis=1)
        # A window of which nothing was kept has no level; the noise of the scene is one.
        level = solution.level if solution.level > 0 else 1.0
        parts = (solution.rank, len(solution.right), solution.sandwich, level, solution.loss)
        return cls(bits, *parts)

    def elements(self) -> np.ndarray | None:
        """Return (pixels, bands) True for the kept elements; None for all of them."""
        if self.bits is None:
            return None
        return np.unpackbits(self.bits, axis=1, count=self.n_bands).view(bool)

    def known_bands(self) -> np.ndarray:
        """Return (bands,) whether enough elements of a band were kept to know it."""
        kept = self.elements()
        if kept is None:
            return np.ones(self.n_bands, dtype=bool)
        return np.count_nonzero(kept, axis=0) >= max(ELEMENTS_PER_COMPONENT * self.rank, 1)


@dataclass(frozen=True, eq=False)
class Factors:
    """Truncated SVDs of all windows, padded with zeros to the largest rank.

    Axes are (window row, band window, window col, component, ...): windows of one row are
    neighbours in memory.
    """

    grid: WindowGrid
    noise: Noise
    left: np.ndarray
    """(I, K, J, rank, rows, cols) U of the whitened patches."""
    right: np.ndarray
    """(I, K, J, rank, bands) V of the whitened patches."""
    singular_values: np.ndarray
    """(I, K, J, rank) d, zero beyond a window's rank."""
    residual: np.ndarray
    """(I, K, J) sum of squares of whitened patch minus estimate."""
    energy: np.ndarray
    """(rows, cols, K) sum of squares of every whitened spectrum, per band window."""
    n_valid: np.ndarray
    """(I, J) pixels of each window that are not masked."""
    finite_noise: bool = True
    """Whether components near and below the noise edge are corrected for."""
    weighting: str = "precision"
    """A row of `WEIGHTINGS`."""
    stored_weights: np.ndarray | None = None
    """Weights that were saved with a result, which then need not be derived again."""
    kept: Mapping[Window, Kept] = field(default_factory=dict)
    """What windows rest on that do not rest on all of their elements."""
    ranks: np.ndarray = field(init=False)
    """(I, K, J) number of components of every window."""
    n_signal: np.ndarray = field(init=False)
    """(I, K, J) number of those above the noise edge; all of them without finite_noise."""
    is_signal: np.ndarray = field(init=False)
    """(I, K, J, rank) one for components above the noise edge, zero for the others."""
    influence: np.ndarray = field(init=False)
    """(I, K, J, rank) scale of each component in the first-order error: one for a strong component,
    zero for pure noise; the fourth root of the near-edge inflation in between, because a variance
    holds U and V each twice."""
    noise_power: np.ndarray = field(init=False)
    """(I, K, J) variance per element of the components that are pure noise, q in theory."""

    def __post_init__(self) -> None:
        values, bands = self.singular_values, self.grid.bands.size
        over_noise, ranks = values.copy(), np.count_nonzero(values, axis=-1)
        for window, own in self.kept.items():
            over_noise[window] /= own.level
        n_valid = np.broadcast_to(self.n_valid[:, None, :], ranks.shape)
        n_signal = ranks.copy()
        inflation = np.ones_like(values)
        for n in np.unique(n_valid) if self.finite_noise else ():
            here = n_valid == n
            n_signal[here] = np.count_nonzero(over_noise[here] > noise_edge(int(n), bands), axis=-1)
            inflation[here] = near_edge_inflation(over_noise[here], int(max(n, 1)), bands)
        is_signal = (np.arange(values.shape[-1]) < n_signal[..., None]).astype(np.float64)
        power = np.square(values) * (1 - is_signal)
        power = np.cumsum(power, axis=-1)[..., -1]  # one by one: padding must not change the bits
        found = {"ranks": ranks, "n_signal": n_signal, "is_signal": is_signal}
        found["influence"] = is_signal * inflation**0.25
        found["noise_power"] = power / np.maximum(n_valid * bands, 1)
        for name, array in found.items():
            object.__setattr__(self, name, array)

    def select(self, rows: Span, cols: Span) -> Factors:
        """Return window rows and columns (first, stop), padded to the largest rank among them.

        What is computed from it depends on these windows alone, to the last bit: BLAS rounds
        differently for matrices of different shapes.
        """
        i, j = slice(*rows), slice(*cols)
        most = max(int(self.ranks[i, :, j].max(initial=0)), 1)
        whole = (0, self.left.shape[0]), (0, self.left.shape[2])
        if (rows, cols) == whole and most == self.left.shape[3]:
            return self
        grid = self.grid.part(rows, cols)
        top, side = int(self.grid.rows.starts[rows[0]]), int(self.grid.cols.starts[cols[0]])
        energy = self.energy[top : top + grid.rows.length, side : side + grid.cols.length]
        return replace(
            self,
            grid=grid,
            left=np.ascontiguousarray(self.left[i, :, j, :most]),
            right=np.ascontiguousarray(self.right[i, :, j, :most]),
            singular_values=np.ascontiguousarray(self.singular_values[i, :, j, :most]),
            residual=np.ascontiguousarray(self.residual[i, :, j]),
            energy=np.ascontiguousarray(energy),
            n_valid=np.ascontiguousarray(self.n_valid[i, j]),
            stored_weights=None if self.stored_weights is None else self.stored_weights[i, :, j],
            kept={
                (a - rows[0], k, b - cols[0]): own
                for (a, k, b), own in self.kept.items()
                if rows[0] <= a < rows[1] and cols[0] <= b < cols[1]
            },
        )

    @cached_property
    def output_rows(self) -> np.ndarray:
        """(I, K, J, rank, bands) rows of V on the bands, over their noise std.

        Zero for bands that a window does not know. Whitening mixes the bands, so that V itself has
        no rows of single bands where the noise is correlated.
        """
        if self.noise.is_diagonal:
            return self.right
        rows = np.swapaxes(self.noise.output_rows(np.swapaxes(self.right, -1, -2)), -1, -2)
        for window, own in self.kept.items():
            rows[window][:, ~own.known_bands()] = 0
        return rows

    @cached_property
    def signal_leverage(self) -> np.ndarray:
        """(I, K, J, rows, cols) a_u of the components above the noise edge.

        Weights rest on it. Components of pure noise must not count: weights that follow the noise
        would bias it.
        """
        return np.einsum("ikjr,ikjrhw,ikjrhw->ikjhw", self.is_signal, self.left, self.left)

    @cached_property
    def residual_ratio(self) -> np.ndarray:
        """(I, K, J) residual variance over what the noise predicts; near one where the model fits.

        What is left after r signal components has (n − r)(P − r) degrees of freedom. NaN for a
        window without valid pixels.
        """
        n, p = self.n_valid[:, None, :], self.grid.bands.size
        removed = self.residual + self.noise_power * n * p
        freedom = (n - self.n_signal) * (p - self.n_signal)
        for (i, k, j), own in self.kept.items():
            kept = own.elements()
            if kept is not None:
                freedom[i, k, j] -= n[i, 0, j] * p - np.count_nonzero(kept)
        return np.divide(removed, freedom, out=np.full(removed.shape, np.nan), where=freedom > 0)

    @cached_property
    def misfit(self) -> np.ndarray:
        """(I, K, J, rows, cols) squared error per band that a window's model makes at a pixel.

        The sum of squares left of a spectrum exceeds its degrees of freedom (P − r)(1 − a_u) by
        noise that is common to all windows over the pixel; what a window has above the best of
        them, beyond MISFIT_MARGIN, is signal that it missed.
        """
        grid, bands = self.grid, self.grid.bands.size
        power = np.square(self.singular_values) * self.is_signal
        fitted = np.einsum("ikjr,ikjrhw,ikjrhw->ikjhw", power, self.left, self.left)
        freedom = (bands - self.n_signal[..., None, None]) * (1 - self.signal_leverage)
        best = np.full((*grid.cube_shape[:2], grid.shape[2]), np.inf)
        excess = np.empty_like(fitted)
        for i, k, j in np.ndindex(excess.shape[:3]):
            rows, cols, _ = grid.slices(i, j, k)
            left_over = self.energy[rows, cols, k] - fitted[i, k, j]
            own = self.kept.get((i, k, j))
            if own is not None and own.loss is not None:
                left_over = own.loss.reshape(left_over.shape)
            excess[i, k, j] = left_over - freedom[i, k, j]
            here = best[rows, cols, k]
            np.minimum(here, excess[i, k, j], out=here)
        for i, k, j in np.ndindex(excess.shape[:3]):
            rows, cols, _ = grid.slices(i, j, k)
            excess[i, k, j] -= best[rows, cols, k]
        return np.maximum(excess - MISFIT_MARGIN, 0) / bands

    @cached_property
    def pixel_weights(self) -> np.ndarray:
        """(I, K, J, rows, cols) weight of every window at each of its pixels, not normalised."""
        if self.stored_weights is not None:
            return self.stored_weights
        weights: np.ndarray = load(WEIGHTINGS[self.weighting])(self)
        return weights

    @cached_property
    def shares(self) -> np.ndarray:
        """(band cell, I, K, J, rows, cols) weights that sum to one over the windows at a pixel.

        Zero for windows that lack the band cell. They are right at pixels all of whose windows are
        here.
        """
        grid, weights = self.grid, self.pixel_weights
        cells = grid.bands.cells()
        shares = np.zeros((len(cells), *weights.shape))
        for share, cell in zip(shares, cells, strict=True):
            total = np.zeros(grid.cube_shape[:2])
            over = [(i, k, j) for i, k, j in np.ndindex(weights.shape[:3])
                    if cell.windows.start <= k < cell.windows.stop]  # fmt: skip
            for i, k, j in over:
                total[grid.slices(i, j)[:2]] += weights[i, k, j]
            for i, k, j in over:
                share[i, k, j] = weights[i, k, j] / total[grid.slices(i, j)[:2]]
        return shares

    def share_of_elements(self, window: Window) -> np.ndarray:
        """Return (rows, cols, bands) the share of a window in the mean at its elements."""
        axis = self.grid.bands
        by_cell = np.moveaxis(self.shares[(slice(None), *window)], 0, 2)
        return np.repeat(by_cell, np.diff(axis.edges), axis=2)[..., axis.slice(window[1])]


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

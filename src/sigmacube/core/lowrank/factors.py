"""The factors of every window of a scene, stacked: what estimate and variance are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sigmacube.core.lowrank.patch_variance import near_edge_inflation
from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.rank import count_signal, noise_edge
from sigmacube.core.tables import WEIGHTINGS, load
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import WindowGrid

__all__ = ["Factors", "Selection", "known_bands"]

# Sums of squares that windows leave of a spectrum differ by so much without a reason.
MISFIT_MARGIN = 15.0
# Fewer kept elements of a band than this multiple of the rank do not tell what the band is.
ELEMENTS_PER_COMPONENT = 1.5


def known_bands(kept: np.ndarray, rank: int) -> np.ndarray:
    """Return the bands that a window has kept enough elements (pixels, bands) of to know them."""
    return np.count_nonzero(kept, axis=0) >= max(ELEMENTS_PER_COMPONENT * rank, 1)


@dataclass(frozen=True, eq=False)
class Selection:
    """Which elements the windows rest on, and what leaving out the others does to the noise.

    Windows that rest on all of their elements have no entry.
    """

    grid: WindowGrid
    packed: Mapping[tuple[int, int, int], np.ndarray]
    """Kept elements (pixels, bands / 8) as bits, by window (i, k, j)."""
    loss: Mapping[tuple[int, int, int], np.ndarray]
    """(rows, cols) bounded sum of squares left of every spectrum, by window."""
    sandwich: np.ndarray
    """(I, K, J) κ: variance over that of least squares on the kept elements."""
    level: np.ndarray
    """(I, K, J) noise std of the matrix that was decomposed."""
    counts: np.ndarray
    """(I, K, J) number of kept elements, -1 for all."""

    @classmethod
    def stack(
        cls, grid: WindowGrid, solutions: Sequence[Sequence[Sequence[PatchSolution]]]
    ) -> Selection | None:
        """Collect the selections of all windows; None if no window left anything out."""
        rows, cols, _ = grid.window
        shape = (grid.shape[0], grid.shape[2], grid.shape[1])
        sandwich, level, counts = np.ones(shape), np.ones(shape), np.full(shape, -1)
        packed, loss = {}, {}
        for i, k, j in np.ndindex(shape):
            solution = solutions[i][k][j]
            sandwich[i, k, j], level[i, k, j] = solution.sandwich, solution.level
            if solution.kept is not None:
                packed[i, k, j] = np.packbits(solution.kept, axis=1)
                counts[i, k, j] = np.count_nonzero(solution.kept)
            if solution.loss is not None:
                loss[i, k, j] = solution.loss.reshape(rows, cols)
        if not packed and not loss and np.all(sandwich == 1):
            return None
        return cls(grid, packed, loss, sandwich, level, counts)

    def select(
        self, grid: WindowGrid, rows: tuple[int, int], cols: tuple[int, int]
    ) -> Selection | None:
        """Return the part for window rows and columns (first, stop); None if they kept all."""

        def part(entries: Mapping[tuple[int, int, int], np.ndarray]) -> dict:
            return {
                (i - rows[0], k, j - cols[0]): value
                for (i, k, j), value in entries.items()
                if rows[0] <= i < rows[1] and cols[0] <= j < cols[1]
            }

        here = np.s_[rows[0] : rows[1], :, cols[0] : cols[1]]
        packed, loss = part(self.packed), part(self.loss)
        if not packed and not loss and np.all(self.sandwich[here] == 1):
            return None
        arrays = (self.sandwich[here], self.level[here], self.counts[here])
        return Selection(grid, packed, loss, *arrays)

    def kept(self, window: tuple[int, int, int]) -> np.ndarray | None:
        """Return the kept elements (pixels, bands) of a window; None if it kept them all."""
        if window not in self.packed:
            return None
        bits = np.unpackbits(self.packed[window], axis=1, count=self.grid.bands.size)
        return bits.view(bool)

    def n_kept(self, otherwise: np.ndarray) -> np.ndarray:
        """(I, K, J) number of kept elements, ``otherwise`` for windows that kept all."""
        return np.where(self.counts >= 0, self.counts, otherwise)


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
    selection: Selection | None = None
    """What the windows left out; None where they all rest on all of their elements."""

    @classmethod
    def stack(
        cls,
        grid: WindowGrid,
        noise: Noise,
        solutions: Sequence[Sequence[Sequence[PatchSolution]]],
        energy: np.ndarray,
        n_valid: np.ndarray,
        *,
        finite_noise: bool,
        weighting: str,
        run: ParallelMap,
    ) -> Factors:
        """Stack the solutions of all windows, given as [window row][band window][window col]."""
        rows, cols, bands = grid.window
        shape = (grid.shape[0], grid.shape[2], grid.shape[1])
        most = max((s.rank for row in solutions for line in row for s in line), default=0)
        most = max(most, 1)
        left = np.zeros((*shape, most, rows, cols))
        right = np.zeros((*shape, most, bands))
        values = np.zeros((*shape, most))
        residual = np.empty(shape)

        def fill(i: int) -> None:
            for k, line in enumerate(solutions[i]):
                for j, solution in enumerate(line):
                    r = solution.rank
                    left[i, k, j, :r] = solution.left.T.reshape(r, rows, cols)
                    right[i, k, j, :r] = solution.right.T
                    if solution.kept is not None and noise.is_diagonal:
                        right[i, k, j, :r, ~known_bands(solution.kept, r)] = 0
                    values[i, k, j, :r] = solution.singular_values
                    residual[i, k, j] = solution.residual

        run(fill, range(len(solutions)))
        return cls(
            grid, noise, left, right, values, residual, energy, n_valid, finite_noise, weighting,
            selection=Selection.stack(grid, solutions),
        )  # fmt: skip

    def select(self, rows: tuple[int, int], cols: tuple[int, int]) -> Factors:
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
        return Factors(
            grid,
            self.noise,
            np.ascontiguousarray(self.left[i, :, j, :most]),
            np.ascontiguousarray(self.right[i, :, j, :most]),
            np.ascontiguousarray(self.singular_values[i, :, j, :most]),
            np.ascontiguousarray(self.residual[i, :, j]),
            np.ascontiguousarray(energy),
            np.ascontiguousarray(self.n_valid[i, j]),
            self.finite_noise,
            self.weighting,
            None if self.stored_weights is None else self.stored_weights[i, :, j],
            None if self.selection is None else self.selection.select(grid, rows, cols),
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
        if self.selection is not None:
            for window in self.selection.packed:
                kept = self.selection.kept(window)
                if kept is not None:
                    rows[window][:, ~known_bands(kept, int(self.ranks[window]))] = 0
        return rows

    @cached_property
    def ranks(self) -> np.ndarray:
        """(I, K, J) number of components of every window."""
        return np.count_nonzero(self.singular_values, axis=-1)

    @cached_property
    def n_signal(self) -> np.ndarray:
        """(I, K, J) number of components above the noise edge; all of them without finite_noise."""
        if not self.finite_noise:
            return self.ranks
        bands = self.grid.bands.size
        edges = {n: noise_edge(int(n), bands) for n in np.unique(self.n_valid)}
        signal = np.empty_like(self.ranks)
        values = self._values_over_noise
        for i, k, j in np.ndindex(signal.shape):
            signal[i, k, j] = count_signal(values[i, k, j], edges[self.n_valid[i, j]])
        return signal

    @property
    def _values_over_noise(self) -> np.ndarray:
        """(I, K, J, rank) d over the noise level of the matrix that was decomposed."""
        if self.selection is None:
            return self.singular_values
        # A window of which nothing was kept has no level; the noise of the scene is one.
        level = np.where(self.selection.level > 0, self.selection.level, 1.0)
        return self.singular_values / level[..., None]

    @cached_property
    def is_signal(self) -> np.ndarray:
        """(I, K, J, rank) one for components above the noise edge, zero for the others."""
        components = np.arange(self.singular_values.shape[-1])
        return (components < self.n_signal[..., None]).astype(np.float64)

    @cached_property
    def signal_leverage(self) -> np.ndarray:
        """(I, K, J, rows, cols) a_u of the components above the noise edge.

        Weights rest on it. Components of pure noise must not count: weights that follow the noise
        would bias it.
        """
        return np.einsum("ikjr,ikjrhw,ikjrhw->ikjhw", self.is_signal, self.left, self.left)

    @cached_property
    def influence(self) -> np.ndarray:
        """(I, K, J, rank) scale of each component in the first-order error.

        One for a strong component, zero for pure noise; the fourth root of the near-edge inflation
        in between, because a variance holds U and V each twice.
        """
        if not self.finite_noise:
            return self.is_signal
        scale = np.zeros_like(self.singular_values)
        bands = self.grid.bands.size
        for n in np.unique(self.n_valid):
            here = (self.is_signal > 0) & (self.n_valid == n)[:, None, :, None]
            values = self._values_over_noise[here]
            scale[here] = near_edge_inflation(values, int(max(n, 1)), bands) ** 0.25
        return scale

    @cached_property
    def noise_power(self) -> np.ndarray:
        """(I, K, J) variance per element of the components that are pure noise, q in theory."""
        power = np.square(self.singular_values) * (1 - self.is_signal)
        power = np.cumsum(power, axis=-1)[..., -1]  # one by one: padding must not change the bits
        return power / np.maximum(self.n_valid[:, None, :] * self.grid.bands.size, 1)

    @cached_property
    def residual_ratio(self) -> np.ndarray:
        """(I, K, J) residual variance over what the noise predicts; near one where the model fits.

        What is left after r signal components has (n − r)(P − r) degrees of freedom. NaN for a
        window without valid pixels.
        """
        n, p = self.n_valid[:, None, :], self.grid.bands.size
        removed = self.residual + self.noise_power * n * p
        freedom = (n - self.n_signal) * (p - self.n_signal)
        if self.selection is not None:
            freedom = freedom - (n * p - self.selection.n_kept(n * p))
        return np.divide(removed, freedom, out=np.full(removed.shape, np.nan), where=freedom > 0)

    @cached_property
    def misfit(self) -> np.ndarray:
        """(I, K, J, rows, cols) squared error per band that a window's model makes at a pixel.

        The sum of squares left of a spectrum exceeds its degrees of freedom (P − r)(1 − a_u) by
        noise that is common to all windows over the pixel; what a window has above the best of
        them, beyond MISFIT_MARGIN, is signal that it missed.
        """
        grid, bands = self.grid, self.grid.bands.size
        excess = np.empty((*self.left.shape[:3], *self.left.shape[4:]))
        best = np.full((*grid.cube_shape[:2], grid.shape[2]), np.inf)
        power = np.square(self.singular_values) * self.is_signal
        fitted = np.einsum("ikjr,ikjrhw,ikjrhw->ikjhw", power, self.left, self.left)
        freedom = (bands - self.n_signal[..., None, None]) * (1 - self.signal_leverage)
        for i, k, j in np.ndindex(excess.shape[:3]):
            rows, cols, _ = grid.slices(i, j, k)
            left_over = self.energy[rows, cols, k] - fitted[i, k, j]
            if self.selection is not None and (i, k, j) in self.selection.loss:
                left_over = self.selection.loss[i, k, j]
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
    def shares(self) -> list[np.ndarray]:
        """Weights of the windows in the mean, summing to one over the windows at every pixel.

        One array (I, K, J, rows, cols) per cell of the band axis, K the band windows over it.
        They are right at pixels all of whose windows are here.
        """
        grid, shares = self.grid, []
        for cell in grid.bands.cells():
            weights = self.pixel_weights[:, cell.windows]
            total = np.zeros(grid.cube_shape[:2])
            for i, k, j in np.ndindex(weights.shape[:3]):
                total[grid.slices(i, j)[:2]] += weights[i, k, j]
            share = np.empty_like(weights)
            for i, j in np.ndindex(weights.shape[0], weights.shape[2]):
                share[i, :, j] = weights[i, :, j] / total[grid.slices(i, j)[:2]]
            shares.append(share)
        return shares

    def share_of_elements(self, window: tuple[int, int, int]) -> np.ndarray:
        """Return (rows, cols, bands) the share of a window in the mean at its elements."""
        i, k, j = window
        parts = []
        for cell, shares in zip(self.grid.bands.cells(), self.shares, strict=True):
            if cell.windows.start <= k < cell.windows.stop:
                own = shares[i, k - cell.windows.start, j][..., None]
                parts.append(np.repeat(own, cell.elements.stop - cell.elements.start, axis=2))
        return np.concatenate(parts, axis=2)

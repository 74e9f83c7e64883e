"""Error covariance of the mean spectrum of one region, a multiple of the noise plus low rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.factors import Factors

__all__ = ["SpectralCovariance", "region_covariance"]

# Directions whose eigenvalue is below this share of the largest are left out of the low-rank form.
NEGLIGIBLE = 1e-10


@dataclass(frozen=True, eq=False)
class SpectralCovariance:
    """Error covariance of a spectrum as a share of the noise plus a part of low rank.

    Σ = √sᵀ C √s + F diag(d) Fᵀ, with C the noise covariance of a spectrum.

    Examples
    --------
    >>> import numpy as np
    >>> cov = SpectralCovariance(np.full(3, 0.5), np.eye(3), np.ones((3, 1)), np.array([2.0]))
    >>> cov.dense()
    array([[2.5, 2. , 2. ],
           [2. , 2.5, 2. ],
           [2. , 2. , 2.5]])
    >>> cov.of(np.array([[1.0, -1.0, 0.0]]))
    array([[1.]])
    """

    noise_share: np.ndarray
    """(band,) s, the share of the noise variance that every direction keeps; NaN without data."""
    noise: np.ndarray
    """(band, band) C, or (band,) variances where bands are independent."""
    vectors: np.ndarray
    """(band, k) F, in the units of the data."""
    values: np.ndarray
    """(k,) d, by falling size."""

    def dense(self) -> np.ndarray:
        """Return the (band, band) covariance; NaN for bands without data."""
        return self.of(np.eye(len(self.noise_share)), missing=True)

    def std(self) -> np.ndarray:
        """Return the (band,) standard deviations; NaN for bands without data."""
        variance = self.noise if self.noise.ndim == 1 else np.diag(self.noise)
        return np.sqrt(self.noise_share * variance + self.vectors**2 @ self.values)

    def expand(self, bands: np.ndarray, n_bands: int) -> SpectralCovariance:
        """Return the same for a cube of which these are some of the bands."""
        if len(bands) == n_bands:
            return self
        share = np.full(n_bands, np.nan)
        share[bands] = self.noise_share
        vectors = np.zeros((n_bands, self.vectors.shape[1]))
        vectors[bands] = self.vectors
        noise = np.zeros((n_bands,) * self.noise.ndim)
        noise[np.ix_(*[bands] * self.noise.ndim)] = self.noise
        return SpectralCovariance(share, noise, vectors, self.values)

    def scaled(self, bands: np.ndarray) -> SpectralCovariance:
        """Return the covariance of the spectrum with every band multiplied by a factor."""
        outer = np.square(bands) if self.noise.ndim == 1 else np.outer(bands, bands)
        return SpectralCovariance(
            self.noise_share, self.noise * outer, self.vectors * bands[:, None], self.values
        )

    def of(self, combinations: np.ndarray, *, missing: bool = False) -> np.ndarray:
        """Return the (n, n) covariance of combinations (n, bands) of the bands.

        Bands without data must have no weight; with ``missing`` they give NaN.
        """
        combinations = np.asarray(combinations, dtype=np.float64)
        absent = np.isnan(self.noise_share)
        bad = np.any(combinations[:, absent] != 0, axis=1)
        if np.any(bad) and not missing:
            raise ValueError("Invalid combination: it has a weight on a band without data.")
        root = combinations * np.sqrt(np.where(absent, 0, self.noise_share))
        noise = (root * self.noise) @ root.T if self.noise.ndim == 1 else root @ self.noise @ root.T
        part = combinations @ np.where(absent[:, None], 0, self.vectors)
        covariance = noise + (part * self.values) @ part.T
        covariance[bad] = np.nan
        covariance[:, bad] = np.nan
        return covariance

    def pairs(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the (n,) covariances of first[i] with second[i], combinations (n, bands)."""
        both, index = np.unique(np.concatenate([first, second]), axis=0, return_inverse=True)
        index = index.ravel()
        return self.of(both)[index[: len(first)], index[len(first) :]]


def region_covariance(
    factors: Factors, weights: np.ndarray, noise_variance: np.ndarray | None = None
) -> SpectralCovariance:
    """Return the error covariance of Σ_u weights_u · spectrum_u.

    Parameters
    ----------
    factors
        Factors of all windows.
    weights
        (row, col) weights; 1 / count over a region for its mean.
    noise_variance
        (row, col, band cell) variance of kept components of pure noise.

    Notes
    -----
    With x_a = w_a c, p_a = U_a U_aᵀ x_a, q_a = x_a − p_a and p = Σ p_a (see
    `sigmacube.core.lowrank.covariance`) the covariance in whitened space is

        |p|² + Σ_a (p·q_a) 2 P_a + Σ_ab (q_a·q_b) P_a P_b.
    """
    axis, noise = factors.grid.bands, factors.noise
    cells = range(len(axis.count))
    strips = [_Strips.create(factors, weights, cell) for cell in cells]
    n_bands = axis.length
    share = np.empty(n_bands)
    low_rank = np.zeros((n_bands, n_bands))
    for c in cells:
        own = slice(int(axis.edges[c]), int(axis.edges[c + 1]))
        share[own] = np.vdot(strips[c].p, strips[c].p)
        if noise_variance is not None:
            share[own] += np.sum(weights**2 * noise_variance[..., c])
        for d in cells:
            other = slice(int(axis.edges[d]), int(axis.edges[d + 1]))
            low_rank[own, other] = _between(strips[c], strips[d], n_bands)[own, other]
    mixed = noise.unwhiten(noise.unwhiten(low_rank).T)
    values, vectors = np.linalg.eigh((mixed + mixed.T) / 2)
    order = np.argsort(-np.abs(values))
    order = order[np.abs(values[order]) > NEGLIGIBLE * max(np.abs(values).max(), 1e-300)]
    covariance = np.square(noise.std) if noise.is_diagonal else np.asarray(noise.value)
    return SpectralCovariance(share, covariance, vectors[:, order], values[order])


@dataclass(frozen=True, eq=False)
class _Strips:
    """Shares of the windows in a region's weights, one strip per line of windows that touch it."""

    corners: list[tuple[int, int]]
    """First row and column of each strip."""
    q: list[np.ndarray]
    """(windows, rows, cols) q_a on each strip."""
    v: list[np.ndarray]
    """(windows, rank, bands) V scaled by influence, per strip."""
    p: np.ndarray
    """(row, col) Σ p_a."""

    @classmethod
    def create(cls, factors: Factors, weights: np.ndarray, cell: int) -> _Strips:
        grid = factors.grid
        total = _cell_total(factors, cell)
        p = np.zeros(grid.cube_shape[:2])
        made = cls([], [], [], p)
        first, count = int(grid.bands.first[cell]), int(grid.bands.count[cell])
        rows, cols = (np.flatnonzero(weights.any(axis=axis)) for axis in (1, 0))
        if not len(rows):
            return made
        lines, touched = (
            np.flatnonzero((axis.starts <= used[-1]) & (axis.starts + axis.size > used[0]))
            for axis, used in ((grid.rows, rows), (grid.cols, cols))
        )
        for i in lines:
            for k in range(first, first + count):
                made._add(factors, weights / total, (int(i), k), touched)
        return made

    def _add(
        self, factors: Factors, weights: np.ndarray, line: tuple[int, int], cols: np.ndarray
    ) -> None:
        """Add the windows ``cols`` of one line."""
        grid, (i, k) = factors.grid, line
        side, end = int(grid.cols.starts[cols[0]]), int(grid.cols.starts[cols[-1]] + grid.cols.size)
        q = np.zeros((len(cols), grid.rows.size, end - side))
        v = np.zeros((len(cols), factors.right.shape[3], grid.cube_shape[2]))
        top = int(grid.rows.starts[i])
        for n, j in enumerate(cols):
            rows, span, bands = grid.slices(i, int(j), k)
            scale = factors.influence[i, k, j]
            u = factors.left[i, k, j] * scale[:, None, None]
            x = weights[rows, span] * factors.pixel_weights[i, k, j]
            p = np.tensordot(np.einsum("rhw,hw->r", u, x), u, axes=1)
            q[n, :, span.start - side : span.stop - side] = x - p
            v[n, :, bands] = factors.right[i, k, j] * scale[:, None]
            self.p[rows, span] += p
        self.corners.append((top, side))
        self.q.append(q)
        self.v.append(v)


def _cell_total(factors: Factors, cell: int) -> np.ndarray:
    """Return (row, col) the sum of weights of all windows over the bands of a cell."""
    axis = factors.grid.bands
    first, count = int(axis.first[cell]), int(axis.count[cell])
    return factors.weight_sum[..., first : first + count].sum(axis=-1)


def _between(first: _Strips, second: _Strips, n_bands: int) -> np.ndarray:
    """Return (bands, bands) the low-rank part between the windows of two band cells."""
    covariance = np.zeros((n_bands, n_bands))
    for strips, other in ((first, second), (second, first)):
        for (top, side), q, v in zip(strips.corners, strips.q, strips.v, strict=True):
            shared = other.p[top : top + q.shape[1], side : side + q.shape[2]]
            level = np.einsum("whc,hc->w", q, shared)
            flat = (v * np.sqrt(np.abs(level))[:, None, None]).reshape(-1, n_bands)
            sign = np.repeat(np.sign(level), v.shape[1])
            covariance += (flat.T * sign) @ flat
    # All strips of a region span the same columns.
    for (top_a, _), q_a, v_a in zip(first.corners, first.q, first.v, strict=True):
        for (top_b, _), q_b, v_b in zip(second.corners, second.q, second.v, strict=True):
            low, high = max(top_a, top_b), min(top_a, top_b) + q_a.shape[1]
            if low >= high:
                continue
            a = q_a[:, low - top_a : high - top_a].reshape(len(q_a), -1)
            b = q_b[:, low - top_b : high - top_b].reshape(len(q_b), -1)
            rank = v_a.shape[1]
            flat_a, flat_b = v_a.reshape(-1, n_bands), v_b.reshape(-1, n_bands)
            kernel = np.repeat(np.repeat(a @ b.T, rank, axis=0), rank, axis=1)
            kernel *= flat_a @ flat_b.T
            covariance += flat_a.T @ kernel @ flat_b
    return covariance

r"""The error of a region: covariances of anything linear, and samples.

.. math:: \mathrm{cov} = \sum_a E_a^T S_a E_a + W W^T ⊗ (I - B B^T) + \text{own noise}

S_a as seen by window a (see `views`), W (pixels, k) the error of the subspace at each pixel, and
the pixel's own noise where a pixel that no window explains was given back. Everything is in units
of the noise, on whitened bands. Each part is positive semi-definite by construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.smoothing import Run
from sigmacube.core.spatial.views import (
    View,
    error_sample,
    functional_features,
    merged,
    support_shares,
    variance_along,
    white_draws,
)

__all__ = ["SpatialErrors", "Weights"]

Weights = np.ndarray | Mapping[tuple[int, int, int], float]


def _of_unit_size(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (n, P) rows over the power of two nearest to their largest element, and these."""
    rows = np.asarray(rows, dtype=np.float64)
    size = np.ldexp(1.0, np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1])
    return rows / size[:, None], size


def _in_turn(function: object, items: object) -> list:
    return [function(item) for item in items]  # type: ignore[operator,attr-defined]


@dataclass(frozen=True, eq=False)
class SpatialErrors:
    """Error model of one region; rows and columns count from the region's first pixel."""

    box: Box
    """Where the region lies in the scene."""
    basis: np.ndarray
    """(P, k) B."""
    gain: np.ndarray
    """(k,) what the variance along each direction of B is multiplied by."""
    views: list[View]
    """Windows that the error is seen through."""
    loading: np.ndarray
    """(row, col, k) W, the error of the subspace."""
    own_inside: np.ndarray
    """(row, col) share of the pixel's own noise inside the subspace, mostly zero."""
    own_leading: np.ndarray
    """(row, col) how much more of it there is along the leading directions."""
    leading: int
    """How many of the first directions are leading."""
    own_outside: np.ndarray
    """(row, col) the same outside the subspace."""
    restored: np.ndarray
    """(n, 3) row, col, band of elements that are the observation itself."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and bands."""
        return (*self.box.shape, len(self.basis))

    def functional_covariance(self, weights: Sequence[Weights]) -> np.ndarray:
        """Return the (n, n) covariance of Σ weights · estimate for several sets of weights.

        Parameters
        ----------
        weights
            Dense (row, col, P) arrays, or dicts {(row, col, band): weight}.
        """
        n, k = len(weights), self.basis.shape[1]
        inside = np.zeros((n, *self.box.shape, k), dtype=np.float32)
        loads = np.zeros((n, k, len(self.basis)))
        own = np.zeros((n, n))
        sparse = []
        for i, weight in enumerate(weights):
            pixels, spectra, alone = self._rows_of(weight)
            inside[i][pixels] = (spectra @ self.basis) * np.sqrt(self.gain)
            beyond = spectra - (spectra @ self.basis) @ self.basis.T
            loads[i] = self.loading[pixels].T @ beyond
            sparse.append((pixels, spectra @ self.basis, beyond, alone))
        features = functional_features(self.views, self.box, inside)
        flat = loads.reshape(n, -1)
        own = self._own_covariance(sparse)
        return features + flat @ flat.T + own

    def _rows_of(
        self, weight: Weights
    ) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, dict[tuple[int, int, int], float]]:
        """Return the pixels that a functional touches, its spectra there, and restored elements."""
        if isinstance(weight, Mapping):
            where = np.array([key[:2] for key in weight], dtype=np.intp).reshape(-1, 2)
            pixels, inverse_ = np.unique(where, axis=0, return_inverse=True)
            spectra = np.zeros((len(pixels), len(self.basis)))
            bands = np.array([key[2] for key in weight], dtype=np.intp)
            np.add.at(spectra, (inverse_.ravel(), bands), list(weight.values()))
        else:
            dense = np.asarray(weight, dtype=np.float64)
            pixels = np.argwhere(dense.any(axis=2))
            spectra = dense[pixels[:, 0], pixels[:, 1]]
        alone: dict[tuple[int, int, int], float] = {}
        if len(self.restored):
            spectra, alone = self._apart(pixels, spectra)
        return (pixels[:, 0], pixels[:, 1]), spectra, alone

    def _apart(
        self, pixels: np.ndarray, spectra: np.ndarray
    ) -> tuple[np.ndarray, dict[tuple[int, int, int], float]]:
        position = {(int(r), int(c)): i for i, (r, c) in enumerate(pixels)}
        spectra = spectra.copy()
        alone = {}
        for r, c, v in self.restored.tolist():
            i = position.get((r, c))
            if i is not None and spectra[i, v] != 0:
                alone[(r, c, v)] = float(spectra[i, v])
                spectra[i, v] = 0.0
        return spectra, alone

    def _own_covariance(self, parts: list) -> np.ndarray:
        n = len(parts)
        cov = np.zeros((n, n))
        inside = self.own_inside + self.own_leading
        if not (inside.any() or self.own_outside.any() or len(self.restored)):
            return cov
        maps = [self._own_map(part) for part in parts]
        for i in range(n):
            for j in range(i, n):
                common = maps[i].keys() & maps[j].keys()
                cov[i, j] = cov[j, i] = sum(float(maps[i][key] @ maps[j][key]) for key in common)
        return cov

    def _own_map(self, part: tuple) -> dict:
        """Return vectors whose products are own-noise covariances, by pixel or restored element."""
        (rows, cols), z, beyond, alone = part
        inside, outside = self._own_along((rows, cols)), self.own_outside[rows, cols]
        result = {}
        for i in np.flatnonzero(inside.any(axis=1) | (outside > 0)).tolist():
            both = [np.sqrt(inside[i]) * z[i], np.sqrt(outside[i]) * beyond[i]]
            result[(int(rows[i]), int(cols[i]))] = np.concatenate(both)
        for key, weight in alone.items():
            result[key] = np.array([weight])
        return result

    def _own_along(self, pixels: tuple[np.ndarray, ...] | slice) -> np.ndarray:
        """Return (..., k) the share of its own noise that a pixel has along every direction."""
        leading = np.arange(self.basis.shape[1]) < self.leading
        return np.asarray(
            self.own_inside[pixels][..., None] + self.own_leading[pixels][..., None] * leading
        )

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        """Return the (P, P) error covariance of a pixel."""
        weights = np.zeros(self.box.shape)
        weights[row, col] = 1.0
        return self.region_covariance(weights)

    def region_covariance(self, weights: np.ndarray) -> np.ndarray:
        """Return the (P, P) error covariance of Σ weights · spectrum, weights (row, col)."""
        weights = np.asarray(weights, dtype=np.float64)
        k, bands = self.basis.shape[1], len(self.basis)
        labels = np.where(weights != 0, 0, -1)
        inside = np.zeros((k, k))
        for view, window, _, along, flat in support_shares(self.views, self.box, labels, weights):
            V = view.directions[window].astype(np.float64)
            part = (along - flat[:, None])[:, None, :] * V
            inside += np.einsum("pkr,plr->kl", part, V) + flat.sum() * np.eye(k)
        inside *= np.sqrt(np.outer(self.gain, self.gain))
        touched = np.nonzero(weights)
        inside += np.diag(weights[touched] ** 2 @ self._own_along(touched))
        beyond = np.sum(np.einsum("yx,yxk->k", weights, self.loading) ** 2)
        beyond += np.sum(weights**2 * self.own_outside)
        rest = np.eye(bands) - self.basis @ self.basis.T
        return self._with_restored(self.basis @ inside @ self.basis.T + beyond * rest, weights)

    def _with_restored(self, cov: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the covariance where a pixel alone is asked for and some of it is observation."""
        touched = np.flatnonzero(weights)
        if len(touched) != 1 or not len(self.restored):
            return cov
        row, col = np.unravel_index(touched[0], weights.shape)
        mine = self.restored[(self.restored[:, 0] == row) & (self.restored[:, 1] == col), 2]
        cov = cov.copy()
        cov[mine], cov[:, mine] = 0.0, 0.0
        cov[mine, mine] = weights[row, col] ** 2
        return cov

    def band_covariance(
        self, first: np.ndarray, second: np.ndarray, run: Run = _in_turn
    ) -> np.ndarray:
        """Return (row, col, n) covariances of combinations (n, P) of bands at every pixel."""
        # Powers of two are taken out, which rounds nothing: the windows' part is single precision.
        (a, a_size), (b, b_size) = (_of_unit_size(rows) for rows in (first, second))
        a_in, b_in = a @ self.basis, b @ self.basis
        root = np.sqrt(self.gain)
        cov = variance_along(self.views, self.box, a_in * root, b_in * root, run).astype(np.float64)
        both = np.einsum("nk,nk->n", a_in, b_in)
        beyond = np.einsum("np,np->n", a, b) - both
        rest = np.einsum("yxk,yxk->yx", self.loading, self.loading) + self.own_outside
        leading = np.einsum("nk,nk->n", a_in[:, : self.leading], b_in[:, : self.leading])
        cov += self.own_inside[..., None] * both + self.own_leading[..., None] * leading
        cov += rest[..., None] * beyond
        for r, c in np.unique(self.restored[:, :2], axis=0).tolist():
            pixel = self.spectral_covariance(r, c)
            cov[r, c] = np.einsum("np,pq,nq->n", a, pixel, b)
        return cov * (a_size * b_size)

    def support_covariance(
        self,
        labels: np.ndarray,
        count: int,
        weights: np.ndarray,
        first: np.ndarray,
        second: np.ndarray,
    ) -> np.ndarray:
        """Return (count, n) covariances of combinations (n, P) of bands, summed over supports.

        Parameters
        ----------
        labels
            (row, col) number of the support of each pixel, −1 for none.
        weights
            (row, col) weight of each pixel in its support.
        """
        # Powers of two are taken out, which rounds nothing: the windows' part is single precision.
        (a, a_size), (b, b_size) = (_of_unit_size(rows) for rows in (first, second))
        a_in, b_in = (rows @ self.basis for rows in (a, b))
        both = np.einsum("nk,nk->n", a_in, b_in)
        leading = np.einsum("nk,nk->n", a_in[:, : self.leading], b_in[:, : self.leading])
        seen = np.einsum("nk,nk,k->n", a_in, b_in, self.gain)
        a_seen, b_seen = (rows * np.sqrt(self.gain) for rows in (a_in, b_in))
        out = np.zeros((count, len(a)))
        for view, window, label, along, flat in support_shares(
            self.views, self.box, labels, weights
        ):
            used, where = np.unique(window, return_inverse=True)
            product = np.matmul(a_seen, view.directions[used])
            product = product * np.matmul(b_seen, view.directions[used])
            part = np.einsum("pr,pnr->pn", along - flat[:, None], product[where])
            np.add.at(out, label, part + flat[:, None] * seen)
        valid = labels >= 0
        index, w = labels[valid], np.asarray(weights, dtype=np.float64)[valid]
        loads = np.zeros((count, self.loading.shape[2]))
        np.add.at(loads, index, w[:, None] * self.loading[valid])
        rest = np.sum(loads**2, axis=1)
        rest += np.bincount(index, w**2 * self.own_outside[valid], minlength=count)
        for share, part in ((self.own_inside, both), (self.own_leading, leading)):
            own = np.bincount(index, w**2 * share[valid], minlength=count)
            out += own[:, None] * part
        out += rest[:, None] * (np.einsum("np,np->n", a, b) - both)
        return out * (a_size * b_size)

    def draws(
        self, count: int, rng: np.random.Generator, rows: slice, cols: slice
    ) -> Iterator[np.ndarray]:
        """Yield ``count`` samples (rows, cols, P) of the error."""
        k, bands = self.basis.shape[1], len(self.basis)
        own = np.sqrt(self._own_along(slice(None)))
        for _ in range(count):
            drawn = white_draws(self.views, rng)
            inside = error_sample(self.views, self.box, k, drawn).astype(np.float64)
            inside *= np.sqrt(self.gain)
            inside += own * rng.standard_normal(inside.shape)
            beyond = self.loading @ rng.standard_normal((k, bands))
            if self.own_outside.any():
                white = rng.standard_normal((*self.box.shape, bands))
                beyond = beyond + np.sqrt(self.own_outside)[..., None] * white
            beyond = beyond - (beyond @ self.basis) @ self.basis.T
            sample = inside @ self.basis.T + beyond
            r, c, v = self.restored.T
            sample[r, c, v] = rng.standard_normal(len(r))
            yield sample[rows, cols]

    @classmethod
    def merged(cls, parts: Sequence[SpatialErrors]) -> SpatialErrors:
        """Return the error model of several regions that do not overlap as that of their union.

        A window over two regions is one window: its weights are joined.
        """
        box = parts[0].box
        for part in parts[1:]:
            box = box.union(part.box)
        k = parts[0].basis.shape[1]
        maps = [np.zeros((*box.shape, k)), *np.zeros((3, *box.shape))]
        restored = []
        for part in parts:
            at = part.box.within(box)
            own = part.own_inside, part.own_leading, part.own_outside
            for whole, piece in zip(maps, (part.loading, *own), strict=True):
                whole[at] = piece
            shift = (part.box.top - box.top, part.box.left - box.left, 0)
            restored.append(part.restored + np.array(shift))
        views = merged([view for part in parts for view in part.views])
        loading, inside, more, outside = maps
        first = parts[0]
        return cls(
            box, first.basis, first.gain, views, loading, inside, more, first.leading, outside,
            np.concatenate(restored),
        )  # fmt: skip

"""What was removed from a region of a scene, and how far off hidden elements are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from sigmacube.check.hiding import Veiled
from sigmacube.core.validity import broadcast_mask, valid_elements
from sigmacube.core.windows import Span
from sigmacube.correction import corrected
from sigmacube.estimators import Region, estimator
from sigmacube.survey import Survey

__all__ = ["Looked", "shared"]

# Pixels along a side of the cells that standard errors rest on.
CELL = 20
# Hidden elements so many σ off are impulses where a solver sets such aside.
IMPULSE = 4.0


@dataclass(frozen=True, eq=False)
class Looked:
    """A region that was denoised without its hidden elements, beside what was measured there."""

    veiled: Veiled
    survey: Survey
    region: Region
    rows: Span
    cols: Span
    size: tuple[int, int]
    """Rows and columns of it that count; the rest are neighbours."""
    values: np.ndarray
    """(row, col, band) what was measured."""
    mask: np.ndarray | None
    """Which values are valid; None where all are."""

    @classmethod
    def at(
        cls,
        veiled: Veiled,
        survey: Survey,
        region: Region,
        spans: tuple[Span, Span],
        size: tuple[int, int],
    ) -> Looked:
        """Read what was measured."""
        place = slice(*spans[0]), slice(*spans[1])
        values, mask = corrected(veiled.source, survey.offsets).block(*place)
        mask = None if mask is None else broadcast_mask(mask, values.shape)
        return cls(veiled, survey, region, *spans, size, values, mask)

    def compared(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Compare some rows of the region.

        Returns
        -------
        tuple
            (6, n) place, cell, band, brightness, z and σ over the noise of hidden elements, and
            (row, col, band) what was removed over the noise, NaN where it was hidden.
        """
        survey, region, values = self.survey, self.region, self.values[part]
        assert region.std is not None
        rows = slice(self.rows[0] + part.start, self.rows[0] + part.stop)
        place, estimate = (rows, slice(*self.cols)), region.estimate[part]
        mask = None if self.mask is None else self.mask[part]
        there = valid_elements(values, mask) & np.isfinite(estimate)
        hidden = self.veiled.hidden(*place) & there
        noise = np.broadcast_to(region.noise_std, region.estimate.shape)[part]
        residual = np.where(there, values - estimate, np.nan)
        spread = np.hypot(_without_offsets(survey, region.std[part], place), noise)
        if estimator(survey.settings).sets_aside or survey.wild:
            impulse = np.abs(residual) > IMPULSE * spread
            hidden &= ~impulse
            gone = impulse if region.left_out is None else impulse | region.left_out[part]
            residual[gone] = np.nan
        residual = _unclipped(survey, values, residual, spread, place)
        removed = residual / noise
        removed[hidden] = np.nan
        hidden[max(self.size[0] - part.start, 0) :] = False
        hidden[:, self.size[1] :] = False
        z = (_tested(survey, residual) / spread)[hidden]
        ratio = region.std[part][hidden] / noise[hidden]
        light = np.mean(np.nan_to_num(estimate[..., survey.bands]), axis=2)
        u, v, band = np.nonzero(hidden)
        seen = light[u, v]
        u, v = u + rows.start, v + self.cols[0]
        number = np.ravel_multi_index((u, v, band), survey.shape)
        cell = u // CELL * -(-survey.shape[1] // CELL) + v // CELL
        return np.stack([number, cell, band, seen, z, ratio]), removed


def shared(
    removed: np.ndarray, size: tuple[int, int], part: slice
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums (band,) of products in what was removed of pixels with the next, and of squares.

    Of some rows, as far as they count; unknown values are NaN.
    """
    stop, cols = min(part.stop, size[0]), size[1]
    here = removed[part.start : max(stop, part.start) + 1, : cols + 1]
    known = np.isfinite(here)
    values, counts = np.where(known, here, 0.0), known.astype(np.float64)
    squares = values * values
    own = max(stop - part.start, 0)
    products, powers = np.zeros((2, removed.shape[2]))
    below = min(own, len(here) - 1)  # nothing is next to the border of the scene
    beside = min(cols, here.shape[1] - 1)
    for one, other in (
        (np.s_[:own, :beside], np.s_[:own, 1 : beside + 1]),
        (np.s_[:below, :cols], np.s_[1 : below + 1, :cols]),
    ):
        products += np.einsum("yxp,yxp->p", values[one], values[other])
        powers += np.einsum("yxp,yxp->p", squares[one], counts[other]) / 2
        powers += np.einsum("yxp,yxp->p", counts[one], squares[other]) / 2
    return products, powers


def _without_offsets(survey: Survey, std: np.ndarray, place: tuple[slice, slice]) -> np.ndarray:
    """Return σ without what offsets of lines add: a value and its estimate have the same."""
    return std if survey.offsets is None else survey.offsets.without_left(std, *place)


def _unclipped(
    survey: Survey,
    values: np.ndarray,
    residual: np.ndarray,
    std: np.ndarray,
    place: tuple[slice, slice],
) -> np.ndarray:
    """Return residuals in which those of clipped values are drawn from beyond the bound.

    If σ is right, a value that would have lain beyond with probability p lies at the quantile pU
    of its distribution, U uniform.
    """
    if survey.bounds_over_noise is None or survey.bounds is None:
        return residual
    low, high = (_of_all_bands(b, survey, far) for b, far in
                 zip(survey.bounds, (-np.inf, np.inf), strict=True))  # fmt: skip
    for side, on in ((1.0, values <= low), (-1.0, values >= high)):
        share = ndtr(side * residual[on] / std[on]) * _uniform(np.nonzero(on), place, survey.shape)
        residual[on] = side * ndtri(np.maximum(share, 1e-300)) * std[on]
    return residual


def _uniform(
    at: tuple[np.ndarray, ...], place: tuple[slice, slice], shape: tuple[int, int, int]
) -> np.ndarray:
    """Return numbers between 0 and 1 for elements of a block, by their place in the scene alone."""
    row, col, band = at
    where = (row + place[0].start, col + place[1].start, band)
    number = np.ravel_multi_index(where, shape).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        number = (number + np.uint64(0x9E3779B97F4A7C15)) if shift == 30 else number
        number = (number ^ (number >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(number >> np.uint64(11), dtype=np.float64) / 2.0**53


def _of_all_bands(values: np.ndarray, survey: Survey, other: float) -> np.ndarray:
    whole = np.full(survey.shape[2], other)
    whole[survey.bands] = values
    return whole


def _tested(survey: Survey, residual: np.ndarray) -> np.ndarray:
    """Return residuals whose noise the estimate knows nothing of.

    Where the noise is correlated between bands, a hidden value shares noise with bands that were
    not hidden, and so with the estimate. The part of it that no other band shares is [Qe]_v / Q_vv,
    Q the inverse of the noise's covariance; its variance is 1 / Q_vv. It is told in units of the
    band's own noise.
    """
    if survey.model.is_diagonal:
        return residual
    inverse = survey.model.inverse_factor.T @ survey.model.inverse_factor
    own = (residual[..., survey.bands] @ inverse) / np.sqrt(np.diag(inverse))
    whole = np.full(residual.shape, np.nan)
    whole[..., survey.bands] = own * survey.model.std
    return whole

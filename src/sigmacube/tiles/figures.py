"""The few figures of a result that its summary tells, tile by tile or of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

#: Quantiles that a tile keeps of its σ: the median of all tiles follows from them.
SHARES = np.linspace(0, 1, 129)
#: Values of a tile that they are taken from, about.
LOOKED_AT = 400_000


@dataclass(frozen=True)
class Figures:
    """What a summary tells of σ, gaps and outliers."""

    sigma: float
    """Median σ; NaN without any."""
    sigma_share: float
    """Median σ over the noise of its element."""
    known: float
    """Share of the values that are known."""
    set_aside: tuple[float, float, float] | None = None
    """Share of the values set aside, of the worst band and of the worst pixel; None without."""


def tile_figures(
    estimate: np.ndarray,
    std: np.ndarray | None,
    noise_std: np.ndarray,
    left_out: np.ndarray | None,
) -> dict[str, np.ndarray]:
    """Return what one tile keeps for the summary, as small arrays.

    Parameters
    ----------
    noise_std
        (band,) or (row, col, band) noise of the tile.
    left_out
        (row, col, band) elements that were set aside; None where that is not looked for.
    """
    known = np.isfinite(estimate)
    found = {"known": np.array([np.count_nonzero(known), estimate.size])}
    if std is not None and known.any():
        found["sigma"] = _sigma(std, noise_std, known)
    if left_out is not None:
        pixels = left_out.shape[0] * left_out.shape[1]
        found["aside_bands"] = np.append(np.count_nonzero(left_out, axis=(0, 1)), pixels)
        found["aside_pixel"] = np.asarray(left_out.mean(axis=2).max())
    return found


def gathered(records: Iterable[Mapping[str, np.ndarray]]) -> Figures:
    """Return the figures of all tiles together.

    Examples
    --------
    >>> import numpy as np
    >>> tiles = [tile_figures(np.zeros((2, 3, 4)), np.full((2, 3, 4), s), np.ones(4), None)
    ...          for s in (0.1, 0.2, 0.4)]
    >>> figures = gathered(tiles)
    >>> round(figures.sigma, 6), figures.known
    (0.2, 1.0)
    """
    tiles = list(records)
    known, size = np.sum([tile["known"] for tile in tiles], axis=0)
    with_sigma = [tile for tile in tiles if "sigma" in tile]
    sigma = share = np.nan
    if with_sigma:
        weights = np.repeat([tile["known"][0] for tile in with_sigma], len(SHARES))
        sigma, share = (
            _weighted_median(np.concatenate([tile["sigma"][n] for tile in with_sigma]), weights)
            for n in (0, 1)
        )
    aside = None
    if tiles and "aside_bands" in tiles[0]:
        *bands, pixels = np.sum([tile["aside_bands"] for tile in tiles], axis=0)
        by_band = np.array(bands) / max(pixels, 1)
        worst = max(float(tile["aside_pixel"]) for tile in tiles)
        aside = (float(by_band.mean()), float(by_band.max()), worst)
    return Figures(float(sigma), float(share), float(known / max(size, 1)), aside)


def _sigma(std: np.ndarray, noise_std: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return (2, n) quantiles of σ and of σ over the noise, from some pixels of a large tile."""
    every = int(np.ceil(np.sqrt(std.size / LOOKED_AT)))
    here = (slice(None, None, every), slice(None, None, every))
    if not known[here].any():
        here = (slice(None), slice(None))
    part = np.where(known[here], std[here], np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        over = part / (noise_std if noise_std.ndim == 1 else noise_std[here])
        return np.stack([np.nanquantile(part, SHARES), np.nanquantile(over, SHARES)])


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])

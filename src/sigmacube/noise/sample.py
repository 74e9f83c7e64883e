"""The part of a scene that noise is estimated on: windows spread evenly over it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sigmacube.core.parallel import ParallelMap, in_turn
from sigmacube.core.validity import of_bands, valid_elements
from sigmacube.core.windows import WindowGrid
from sigmacube.noise.clipping import Bounds, repeated_values
from sigmacube.noise.gaps import filled, stands_out
from sigmacube.noise.products import Products

__all__ = ["NoiseSample", "precision"]

WINDOW = 20
# Windows looked at: enough for one per cent on every band's standard deviation; more of a large
# scene, whose denoising takes longer as well.
FEWEST, MORE, MOST, SHARE = 16, 36, 64, 0.1
# A pixel counts if so much of its spectrum is there.
LEAST_KEPT = 0.1
# Values up to so many noise std are held in single precision, to a thousandth of the noise.
SINGLE = 2e4
# Numbers that single precision holds with room to spare.
HUGE = 1e30


@dataclass(frozen=True, eq=False)
class NoiseSample:
    """Windows of a scene, as blocks of pixels with their validity."""

    blocks: list[np.ndarray]
    """(rows, cols, bands) float64 values of every window, zero where pixels do not count; gaps
    hold a guess, with noise."""
    valid: list[np.ndarray]
    """(rows, cols) True for pixels that count, one array per window."""
    positions: np.ndarray
    """(bands,) index of the bands in the cube."""
    kept: list[np.ndarray] | None = None
    """(rows, cols, bands) True for elements that were measured and do not look like impulses; None
    where all do of the pixels that count."""
    raw: list[np.ndarray] | None = None
    """(rows, cols, bands) values as they were measured, NaN where there are none; None where
    ``blocks`` holds them all."""
    own: list[tuple[slice, slice]] | None = None
    """Rows and columns of every window that no window before it has; None where none overlap."""

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        mask: np.ndarray | None,
        bands: np.ndarray,
        *,
        impulses: bool = False,
        bounds: Bounds | None = None,
    ) -> NoiseSample:
        """Take windows of a cube that may have gaps, and fill these.

        Parameters
        ----------
        values, mask
            (row, col, band) cube; True where values are valid.
        bands
            Indices of the bands to use.
        impulses
            Whether what stands out from its neighbours, or repeats a value exactly, is a gap.
        bounds
            What the bands were clipped to; a value there is not lost.
        """
        there = of_bands(valid_elements(values, mask), bands)
        valid = np.asarray(there.any(axis=2))
        kept = None if there[valid].all() else there
        return cls.create(values, bands, valid, kept=kept, impulses=impulses, bounds=bounds)

    @classmethod
    def create(
        cls,
        values: np.ndarray,
        bands: np.ndarray,
        valid: np.ndarray,
        *,
        kept: np.ndarray | None = None,
        impulses: bool = False,
        bounds: Bounds | None = None,
        more: bool = False,
    ) -> NoiseSample:
        """Take windows evenly from those that have enough valid pixels.

        Parameters
        ----------
        values
            (row, col, band) cube.
        bands
            Indices of the bands to use.
        valid
            (row, col) True for pixels to use.
        kept
            (row, col, used bands) True for values that are there; all of valid pixels by default.
        impulses, bounds
            As for `of`.
        more
            Whether to take more of a small scene.
        """
        rows, cols = valid.shape
        if min(rows, cols) < 2:
            raise ValueError(
                f"Invalid scene for a noise estimate: {rows}×{cols} pixels. There must be at least "
                "2×2; give the noise instead."
            )
        if kept is not None:
            valid = valid & (np.count_nonzero(kept, axis=2) >= max(1, LEAST_KEPT * len(bands)))
        places = _places(valid, MORE if more else FEWEST)
        own = own_parts(places)
        masks = [valid[place] for place in places]
        parts = [of_bands(values[place], bands) for place in places]
        blocks = [part.astype(np.float64, order="C", copy=False) for part in parts]
        if kept is None and not impulses and all(mask.all() for mask in masks):
            return cls(blocks, masks, bands, own=own)
        there = [
            np.broadcast_to(m[..., None], b.shape) if kept is None else kept[place] & m[..., None]
            for place, m, b in zip(places, masks, blocks, strict=True)
        ]
        blocks = [np.where(t, b, 0.0) for t, b in zip(there, blocks, strict=True)]
        if kept is None and not impulses:
            return cls(blocks, masks, bands, own=own)
        raw = [np.where(t, b, np.nan) for t, b in zip(there, blocks, strict=True)]
        if impulses:
            raw, there = _without_impulses(raw, there, bounds)
        return cls(filled(blocks, masks, there), masks, bands, there, raw, own)

    @property
    def n_bands(self) -> int:
        """Number of bands."""
        return len(self.positions)

    @property
    def n_pixels(self) -> int:
        """Number of pixels that count."""
        return int(sum(np.count_nonzero(valid) for valid in self.valid))

    @property
    def kept_share(self) -> float:
        """Share of the values of pixels that count that were measured."""
        if self.kept is None:
            return 1.0
        return sum(np.count_nonzero(k) for k in self.kept) / max(self.n_pixels * self.n_bands, 1)

    @cached_property
    def spectra(self) -> np.ndarray:
        """(pixels, bands) the valid spectra of all windows."""
        return np.concatenate(self.by_window)

    def products(self, run: ParallelMap = in_turn) -> Products:
        """Return sums of products of spectra, which are made when they are first asked for."""
        known = self.__dict__
        if "_products" not in known:
            known["_products"] = Products.of(self.blocks, self.valid, run)
        found: Products = known["_products"]
        return found

    @cached_property
    def by_window(self) -> list[np.ndarray]:
        """(pixels, bands) the valid spectra of every window."""
        return [
            block.reshape(-1, self.n_bands) if valid.all() else block[valid]
            for block, valid in zip(self.blocks, self.valid, strict=True)
        ]

    def scaled(self, std: np.ndarray) -> NoiseSample:
        """Return the sample in units of some standard deviations."""
        raw = None if self.raw is None else [block / std for block in self.raw]
        return replace(self, blocks=[block / std for block in self.blocks], raw=raw)


def precision(parts: list[np.ndarray], std: np.ndarray | float = 1.0) -> type[np.floating]:
    """Return the type of numbers that holds values (..., bands) beside their noise.

    Examples
    --------
    >>> precision([np.full((2, 3), 1e3)]), precision([np.full((2, 3), 1e3)], 1e-3)
    (<class 'numpy.float32'>, <class 'numpy.float64'>)
    """
    ends = [np.maximum(part.max(axis=0), -part.min(axis=0)) for part in parts if part.size]
    largest = max((float(np.max(end / std)) for end in ends), default=0.0)
    # Values and noise are cast before they are divided.
    plain = max((float(np.max(end)) for end in ends), default=0.0)
    fits = plain < HUGE and float(np.min(std)) > 1 / HUGE
    return np.float32 if largest < SINGLE and fits else np.float64


def own_parts(places: list[tuple[slice, ...]]) -> list[tuple[slice, slice]]:
    """Return the rows and columns of every window, from its own corner, that no earlier one has.

    Examples
    --------
    >>> own_parts([(slice(0, 20), slice(0, 20)), (slice(0, 20), slice(8, 28))])
    [(slice(0, None, None), slice(0, None, None)), (slice(0, None, None), slice(12, None, None))]
    """
    found = []
    for number, (rows, cols, *_) in enumerate(places):
        top, left = rows.start, cols.start
        for above, before, *_ in places[:number]:  # they begin further up or to the left
            if above.stop <= top or before.stop <= left or before.start >= cols.stop:
                continue
            if above.stop < rows.stop:
                top = above.stop
            else:
                left = before.stop
        found.append((slice(top - rows.start, None), slice(left - cols.start, None)))
    return found


def _places(valid: np.ndarray, fewest: int) -> list[tuple[slice, ...]]:
    """Return the rows and columns of the windows to look at, so many at least if there are."""
    rows, cols = valid.shape
    window = (min(WINDOW, rows), min(WINDOW, cols))
    grid = WindowGrid.create((rows, cols, 1), window=window, step=window)
    places = [grid.slices(i, j)[:2] for i in range(grid.shape[0]) for j in range(grid.shape[1])]
    counts = np.array([np.count_nonzero(valid[place]) for place in places])
    good = np.flatnonzero(counts >= max(counts.max() / 2, 1))
    wanted = int(np.clip(SHARE * len(places), fewest, MOST))
    return [places[good[c]] for c in _spread(len(good), wanted)]


def _spread(total: int, wanted: int) -> np.ndarray:
    """Return ``wanted`` of ``total`` indices, spread so that no regular grid is met in step.

    Multiples of the golden ratio never line up with the rows and columns of windows.
    """
    if total <= wanted:
        return np.arange(total)
    order = np.argsort((np.arange(total) * 0.6180339887498949) % 1.0)
    return np.sort(order[:wanted])


def _without_impulses(
    raw: list[np.ndarray], there: list[np.ndarray], bounds: Bounds | None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return values without those that repeat, unless on a bound, and what is no impulse."""
    repeated = repeated_values(np.concatenate([block.reshape(-1, block.shape[2]) for block in raw]))
    same = [np.isin(block, repeated) for block in raw]
    lost = same if bounds is None else [
        s & ~bounds.at(b) for s, b in zip(same, raw, strict=True)]  # fmt: skip
    kept = [t & ~s & ~stands_out(b, t) for t, s, b in zip(there, same, raw, strict=True)]
    return [np.where(gone, np.nan, b) for gone, b in zip(lost, raw, strict=True)], kept

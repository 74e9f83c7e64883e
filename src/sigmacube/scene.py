"""A cube made ready for the windows: validity settled, dead bands set aside, noise known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.parallel import ParallelMap
from sigmacube.core.validity import valid_elements
from sigmacube.core.whitening import SEGMENT, Noise
from sigmacube.noise.signal_noise import SignalNoise
from sigmacube.survey import Source, Survey

__all__ = ["Scene", "SceneBlock"]

# Rows that are whitened at a time.
STRIP = 8


@dataclass(frozen=True, eq=False)
class Scene:
    """A cube as the windows see it: in the bands that hold data, with its noise, by block."""

    source: Source
    survey: Survey

    def load(self, rows: slice, cols: slice) -> SceneBlock:
        """Read a block, with whole segments of columns where whitening must round alike."""
        wide = self.extent(rows, cols)[1]
        values, mask = self.source.block(rows, wide)
        side = cols.start - wide.start
        return SceneBlock.create(
            values,
            mask,
            bands=self.survey.bands,
            noise=self.survey.model,
            cols=slice(side, side + cols.stop - cols.start),
            signal_noise=self.survey.signal_noise,
            striped=self.survey.striped(rows, wide),
        )

    def over_noise(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return values over their noise std, and which of them are there, of a block."""
        block = self.load(rows, cols)
        there = block.valid[..., None]
        return block.scaled(), there if block.missing is None else there & ~block.missing

    def extent(self, rows: slice, cols: slice) -> tuple[slice, slice]:
        """Return the rows and columns that `load` reads for a block."""
        if self.survey.model.is_diagonal and self.survey.signal_noise is None:
            return rows, cols
        left = cols.start - cols.start % SEGMENT
        return rows, slice(left, min(cols.stop + -cols.stop % SEGMENT, self.survey.shape[1]))


@dataclass(frozen=True, eq=False)
class SceneBlock:
    """What is solved: the valid parts of some rows and columns, with their noise.

    Whitening works in segments of columns, so it may hold more columns than were asked for.
    """

    values: np.ndarray
    """(row, col, band) the values as given."""
    bands: np.ndarray
    """Indices of the bands that hold valid values."""
    all_valid: np.ndarray
    """(row, col) True for pixels that are valid in any of these bands; all columns."""
    all_missing: np.ndarray | None
    """(row, col, band) True for the missing values of valid pixels; None where there are none."""
    noise: Noise
    """Noise of these bands."""
    cols: slice
    """Columns that were asked for."""
    all_scale: np.ndarray | None = None
    """(row, col) factor of every pixel on its noise; None where all are alike."""
    all_lacking: np.ndarray | None = None
    """Like ``all_missing``, but only what the input lacks."""

    @classmethod
    def create(
        cls,
        values: np.ndarray,
        mask: np.ndarray | None,
        *,
        bands: np.ndarray,
        noise: Noise,
        cols: slice = slice(None),
        signal_noise: SignalNoise | None = None,
        striped: np.ndarray | None = None,
    ) -> SceneBlock:
        """Settle what is valid; ``striped`` elements (row, col, band) count as missing."""
        kept = valid_elements(values, mask)
        if len(bands) < values.shape[2]:
            kept = kept[..., bands]
        valid, missing = np.asarray(kept.any(axis=2)), None
        if not kept.all():
            missing = ~kept & valid[..., None]
            missing = missing if missing.any() else None
        scale = None
        if signal_noise is not None:
            scale = _pixel_scale(_zero_masked(values, bands, valid, None), missing, signal_noise)
        lacking = missing
        if striped is not None:
            striped = striped & valid[..., None]
            missing = striped if missing is None else striped | missing
        return cls(values, bands, valid, missing, noise, cols, scale, lacking)

    @property
    def valid(self) -> np.ndarray:
        """(row, col) True for pixels that are valid in any of these bands."""
        return self.all_valid[:, self.cols]

    @property
    def missing(self) -> np.ndarray | None:
        """(row, col, band) True for the missing values of valid pixels; None if there are none."""
        return None if self.all_missing is None else self.all_missing[:, self.cols]

    @property
    def lacking(self) -> np.ndarray | None:
        """Like ``missing``, but only what the input lacks, without striped lines."""
        return None if self.all_lacking is None else self.all_lacking[:, self.cols]

    @property
    def pixel_scale(self) -> np.ndarray | None:
        """(row, col) factor of every pixel on its noise; None where all are alike."""
        return None if self.all_scale is None else self.all_scale[:, self.cols]

    def whitened(self, run: ParallelMap) -> np.ndarray:
        """Return the valid bands as float64 with unit noise, zero where values are masked."""
        known = self._known()
        white = np.empty((len(known), len(range(known.shape[1])[self.cols]), known.shape[2]))

        def fill(rows: slice) -> None:
            white[rows] = self.noise.whiten(known[rows])[:, self.cols]

        run(fill, [slice(start, start + STRIP) for start in range(0, len(known), STRIP)])
        return white

    def bridged(self) -> SceneBlock:
        """Return the block with missing values on the line between kept bands of their pixel.

        Whitening mixes bands, so a gap must not be zero before it.
        """
        if self.all_missing is None:
            return self
        values = _zero_masked(self.values, self.bands, self.all_valid, None)
        whole = np.array(self.values, dtype=np.float64)
        whole[..., self.bands] = _bridged(values, self.all_missing)
        return replace(self, values=whole, all_missing=None)

    def scaled(self) -> np.ndarray:
        """Return the valid bands over their noise, without regard to its correlation."""
        return np.divide(self._known()[:, self.cols], self.noise.std, dtype=np.float64)

    def _known(self) -> np.ndarray:
        """Return the valid bands, zero where values are masked, over the pixels' scale."""
        values = _zero_masked(self.values, self.bands, self.all_valid, self.all_missing)
        return values if self.all_scale is None else values / self.all_scale[..., None]

    def std_of_elements(self) -> np.ndarray:
        """Return (band,) or (row, col, band) noise std on all bands, NaN for those without data."""
        std = np.full(self.values.shape[2], np.nan)
        std[self.bands] = self.noise.std
        return std if self.pixel_scale is None else self.pixel_scale[..., None] * std

    @property
    def output_dtype(self) -> np.dtype:
        """Type of results: that of the input if it is a float."""
        own = self.values.dtype
        return own if own in (np.float32, np.float64) else np.dtype(np.float64)

    def to_output(
        self, array: np.ndarray, part: tuple[slice, ...] = (slice(None), slice(None))
    ) -> np.ndarray:
        """Return an array of the valid bands as one like the input, NaN where it is masked.

        ``part`` are the rows and columns of the block that the array holds.
        """
        if self.pixel_scale is not None:
            array = array * self.pixel_scale[part][..., None]
        if len(self.bands) == self.values.shape[2]:
            output = array.astype(self.output_dtype, copy=False)
        else:
            shape = (*array.shape[:2], self.values.shape[2])
            output = np.full(shape, np.nan, dtype=self.output_dtype)
            output[..., self.bands] = array
        valid = self.valid[part]
        if not valid.all():
            output[~valid] = np.nan
        return output


def _bridged(values: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return values (row, col, band) interpolated over the bands that are missing."""
    last = values.shape[2] - 1
    index = np.where(missing, -1, np.arange(last + 1))
    before = np.maximum.accumulate(index, axis=2)
    after = np.where(missing, last + 1, index)
    after = np.minimum.accumulate(after[..., ::-1], axis=2)[..., ::-1]
    before, after = np.where(before < 0, after, before), np.where(after > last, before, after)
    before, after = np.clip(before, 0, last), np.clip(after, 0, last)
    share = (np.arange(last + 1) - before) / np.maximum(after - before, 1)
    low, high = (np.take_along_axis(values, at, axis=2) for at in (before, after))
    return np.where(missing, low + share * (high - low), values)


def _pixel_scale(spectra: np.ndarray, missing: np.ndarray | None, noise: SignalNoise) -> np.ndarray:
    """Return (row, col) factors on the noise, segment by segment so that all parts round alike."""
    if missing is not None:  # zero would make a pixel darker than it is
        spectra = np.where(missing, np.asarray(noise.reference), spectra)
    starts = range(0, spectra.shape[1], SEGMENT)
    return np.concatenate(
        [noise.pixel_scale(spectra[:, start : start + SEGMENT]) for start in starts], axis=1
    )


def _zero_masked(
    values: np.ndarray, bands: np.ndarray, valid: np.ndarray, missing: np.ndarray | None
) -> np.ndarray:
    """Return the bands with data, zero where masked; the input itself if nothing changes."""
    if len(bands) < values.shape[2]:
        values = values[..., bands]
    if not valid.all():
        values = np.where(valid[..., None], values, 0)
    return values if missing is None else np.where(missing, 0, values)

"""The part of a scene that noise is estimated on: windows spread evenly over it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sigmacube.core.windows import WindowGrid

__all__ = ["NoiseSample"]

WINDOW = 20
# Windows looked at: enough for one per cent on every band's standard deviation; more of a large
# scene, whose denoising takes longer as well.
FEWEST, MOST, SHARE = 16, 64, 0.1


@dataclass(frozen=True, eq=False)
class NoiseSample:
    """Windows of a scene, as blocks of pixels with their validity."""

    blocks: list[np.ndarray]
    """(rows, cols, bands) float64 values of every window, zero where they do not count."""
    valid: list[np.ndarray]
    """(rows, cols) True for pixels that count, one array per window."""
    positions: np.ndarray
    """(bands,) index of the bands in the cube."""

    @classmethod
    def create(cls, values: np.ndarray, bands: np.ndarray, valid: np.ndarray) -> NoiseSample:
        """Take windows evenly from those that have enough valid pixels.

        Parameters
        ----------
        values
            (row, col, band) cube.
        bands
            Indices of the bands to use.
        valid
            (row, col) True for pixels to use.
        """
        rows, cols = valid.shape
        if min(rows, cols) < 2:
            raise ValueError(
                f"Invalid scene for a noise estimate: {rows}×{cols} pixels. There must be at least "
                "2×2; give the noise instead."
            )
        window = (min(WINDOW, rows), min(WINDOW, cols), None)
        grid = WindowGrid.create((rows, cols, len(bands)), window=window, step=window)
        places = [grid.slices(i, j)[:2] for i in range(grid.shape[0]) for j in range(grid.shape[1])]
        counts = np.array([np.count_nonzero(valid[place]) for place in places])
        good = np.flatnonzero(counts >= max(counts.max() / 2, 1))
        wanted = int(np.clip(SHARE * len(places), FEWEST, MOST))
        chosen = good[_spread(len(good), wanted)]
        masks = [valid[places[c]] for c in chosen]
        blocks = [values[places[c]][..., bands].astype(np.float64) for c in chosen]
        blocks = [np.where(m[..., None], b, 0.0) for b, m in zip(blocks, masks, strict=True)]
        return cls(blocks, masks, bands)

    @property
    def n_bands(self) -> int:
        """Number of bands."""
        return len(self.positions)

    @property
    def n_pixels(self) -> int:
        """Number of pixels that count."""
        return int(sum(np.count_nonzero(valid) for valid in self.valid))

    @cached_property
    def spectra(self) -> np.ndarray:
        """(pixels, bands) the valid spectra of all windows."""
        return np.concatenate([b[v] for b, v in zip(self.blocks, self.valid, strict=True)])

    def scaled(self, std: np.ndarray) -> NoiseSample:
        """Return the sample in units of some standard deviations."""
        return NoiseSample([block / std for block in self.blocks], self.valid, self.positions)


def _spread(total: int, wanted: int) -> np.ndarray:
    """Return ``wanted`` of ``total`` indices, spread so that no regular grid is met in step.

    Multiples of the golden ratio never line up with the rows and columns of windows.
    """
    if total <= wanted:
        return np.arange(total)
    order = np.argsort((np.arange(total) * 0.6180339887498949) % 1.0)
    return np.sort(order[:wanted])

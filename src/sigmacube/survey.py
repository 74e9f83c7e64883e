"""What must be known of the whole scene before a part of it can be solved.

Windows are local; three things are not: which bands hold data, the noise, and how the noise in kept
components is correlated between windows. A `Survey` holds them. It comes from one pass over the
scene, piece by piece, and is the same whether the scene lies in memory or in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import numpy as np

from sigmacube.core.lowrank.kept_noise import NoiseCorrelation
from sigmacube.core.validity import NO_VALUE, check_values, valid_elements
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import WindowGrid, WindowSpec
from sigmacube.noise.signal_noise import SignalNoise

__all__ = [
    "Coverage",
    "Read",
    "SettledNoise",
    "Survey",
    "find_coverage",
    "noise_sample",
    "reader",
]

Read = Callable[[slice, slice], tuple[np.ndarray, np.ndarray | None]]
"""Returns values (row, col, band) of a block, and their mask: True where valid, or None."""

# Elements that are looked at together when the whole scene is streamed: 32 MB of float64.
STREAMED = 4_000_000
# Noise is estimated on the whole scene up to so many pixels along a side, and beyond that on a
# mosaic of 4 × 4 regions: any estimator then works in bounded memory, with 160,000 spectra. Sides
# of regions are multiples of the windows that estimators look at.
MOSAIC = 400
REGIONS = 4


@dataclass(frozen=True, eq=False)
class SettledNoise:
    """The noise to use and where it comes from."""

    model: float | np.ndarray | SignalNoise
    """What `denoise` takes as ``noise``; a signal-dependent one with its reference spectrum."""
    source: str
    """``"given"`` or the estimator's name."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """JSON-like: kind of noise, and what was found along the way."""


@dataclass(frozen=True, eq=False)
class Survey:
    """What the parts of a scene need to know of the whole."""

    shape: tuple[int, int, int]
    """Shape of the cube (rows, cols, bands)."""
    coverage: Coverage
    """Which values are there."""
    settled: SettledNoise
    """Noise of all bands."""
    window: WindowSpec
    step: WindowSpec
    stripes: tuple[np.ndarray, np.ndarray] | None = None
    """(cols, bands with data) and (rows, bands with data) True for striped columns and rows."""
    correlation: NoiseCorrelation | None = None
    """How kept components of pure noise are correlated; None where none are kept."""

    def expected_rank(self, rank: int | str) -> int:
        """Return the rank that most windows will not exceed, to plan memory with."""
        if isinstance(rank, int):
            return rank
        smaller = min(self.grid.rows.size * self.grid.cols.size, self.grid.bands.size)
        return max(smaller // 8, min(smaller, 10))

    @cached_property
    def bands(self) -> np.ndarray:
        """Indices of the bands that hold valid values."""
        return self.coverage.bands

    @property
    def incomplete(self) -> bool:
        """Whether values are missing, or are set aside as striped."""
        return self.coverage.incomplete or self.stripes is not None

    def striped(self, rows: slice, cols: slice) -> np.ndarray | None:
        """Return (row, col, band with data) True for elements of striped lines in a block."""
        if self.stripes is None:
            return None
        return self.stripes[0][None, cols] | self.stripes[1][rows, None]

    @property
    def signal_noise(self) -> SignalNoise | None:
        """Noise of the bands that hold data, where it depends on the signal."""
        model = self.settled.model
        return model.select(self.bands) if isinstance(model, SignalNoise) else None

    @property
    def noise(self) -> float | np.ndarray:
        """Noise of all bands: standard deviations or a covariance, at the reference spectrum."""
        model = self.settled.model
        return model.value if isinstance(model, SignalNoise) else model

    @cached_property
    def model(self) -> Noise:
        """Noise of the bands that hold data."""
        return Noise.create(self.noise, self.shape[2]).select(self.bands)

    @cached_property
    def grid(self) -> WindowGrid:
        """All windows of the scene."""
        grid = WindowGrid.create(
            (*self.shape[:2], len(self.bands)), window=self.window, step=self.step
        )
        if not self.model.is_diagonal and len(grid.bands) > 1:
            raise ValueError(
                f"Invalid window of {grid.bands.size} bands with a noise covariance. Windows must "
                "hold all bands where the noise is correlated between bands."
            )
        return grid


def reader(values: np.ndarray, mask: np.ndarray | None) -> Read:
    """Return what reads blocks of an array.

    Examples
    --------
    >>> import numpy as np
    >>> block, mask = reader(np.zeros((4, 5, 2)), None)(slice(1, 3), slice(0, 5))
    >>> block.shape, mask
    ((2, 5, 2), None)
    """

    def read(rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        if mask is None:
            return values[rows, cols], None
        own = [slice(None) if size == 1 else part
               for size, part in zip(mask.shape, (rows, cols), strict=False)]  # fmt: skip
        return values[rows, cols], mask[tuple(own)]

    return read


@dataclass(frozen=True, eq=False)
class Coverage:
    """Which values of a scene, or of a part of it, are there."""

    alive: np.ndarray
    """(band,) True for bands with any valid value."""
    fewest: int
    """Valid values of the valid pixel that has the fewest."""

    @classmethod
    def look(cls, values: np.ndarray, mask: np.ndarray | None) -> Coverage:
        """Look at a block."""
        check_values(values)
        valid = valid_elements(values, mask)
        counts = np.count_nonzero(valid, axis=2)
        fewest = int(counts.min(initial=values.shape[2], where=counts > 0))
        return cls(np.asarray(valid.any(axis=(0, 1))), fewest)

    def joined(self, other: Coverage) -> Coverage:
        """Return the coverage of two parts."""
        return Coverage(self.alive | other.alive, min(self.fewest, other.fewest))

    @property
    def bands(self) -> np.ndarray:
        """Indices of the bands that hold data; there must be some."""
        bands = np.flatnonzero(self.alive)
        if len(bands) == 0:
            raise ValueError(NO_VALUE)
        return bands

    @property
    def incomplete(self) -> bool:
        """Whether valid pixels miss values in bands that hold data."""
        return self.fewest < int(np.count_nonzero(self.alive))


def find_coverage(read: Read, shape: tuple[int, int, int]) -> Coverage:
    """Look at a whole scene, strip by strip.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.ones((2, 2, 3))
    >>> values[..., 1] = np.nan
    >>> found = find_coverage(reader(values, None), values.shape)
    >>> found.bands, found.incomplete
    (array([0, 2]), False)
    """
    found = [Coverage.look(*read(rows, slice(0, shape[1]))) for rows in strips(shape)]
    return reduce(Coverage.joined, found)


def strips(shape: tuple[int, int, int]) -> Iterator[slice]:
    """Yield rows that are streamed together."""
    height = max(1, STREAMED // (shape[1] * shape[2]))
    for start in range(0, shape[0], height):
        yield slice(start, min(start + height, shape[0]))


def noise_regions(shape: tuple[int, int, int]) -> list[list[tuple[slice, slice]]]:
    """Return the blocks that the noise is estimated on, as rows of a mosaic; one if all fits."""
    if shape[0] * shape[1] <= MOSAIC**2:
        return [[(slice(0, shape[0]), slice(0, shape[1]))]]
    rows, cols = (_regions(length) for length in shape[:2])
    return [[(r, c) for c in cols] for r in rows]


def noise_sample(read: Read, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return values and mask of what the noise is estimated on: all, or a mosaic of regions."""
    regions = noise_regions(shape)
    if len(regions) == len(regions[0]) == 1:
        return read(*regions[0][0])
    blocks = [[_with_mask(*read(*region)) for region in line] for line in regions]
    values = np.concatenate([np.concatenate([b[0] for b in line], axis=1) for line in blocks])
    mask = np.concatenate([np.concatenate([b[1] for b in line], axis=1) for line in blocks])
    return values, None if mask.all() else mask


def _regions(length: int) -> list[slice]:
    """Return up to four parts of an axis, spread evenly; the whole axis where it is short."""
    side = MOSAIC // REGIONS
    if length <= MOSAIC:
        return [slice(0, length)]
    starts = np.linspace(0, length - side, REGIONS).astype(int)
    return [slice(int(start), int(start) + side) for start in starts]


def _with_mask(values: np.ndarray, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    return values, valid_elements(values, mask)

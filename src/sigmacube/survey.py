"""What must be known of the whole scene before a part of it can be solved.

Windows are local; some things are not: which bands hold data, the noise, striped lines, and what
the estimator learns of the whole scene. A `Survey` holds them. It comes from passes over the scene,
block by block, and is the same whether the scene lies in memory or in a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Protocol

import numpy as np

from sigmacube._version import __version__
from sigmacube.core.validity import NO_VALUE, check_values, mean_spectrum, valid_elements
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import WindowGrid
from sigmacube.noise.line_offsets import LineOffsets
from sigmacube.noise.signal_noise import SignalNoise
from sigmacube.settings import Settings

__all__ = [
    "Presence", "SettledNoise", "Source", "Survey", "corrected", "find_line_offsets",
    "find_presence", "settle_noise",
]  # fmt: skip

# Elements that are looked at together when the whole scene is streamed: 32 MB of float64.
STREAMED = 4_000_000
# Noise is estimated on the whole scene up to so many pixels along a side, and beyond that on a
# mosaic of 4 × 4 regions: any estimator then works in bounded memory, with 160,000 spectra. Sides
# of regions are multiples of the windows that estimators look at.
MOSAIC = 400
REGIONS = 4
_NOISE_PARTS = ("gain", "offset", "reference", "correlation")


class Source(Protocol):
    """A cube that can be read by block: `sigmacube.Cube` in memory, or one in a file."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, cols, bands)."""
        ...

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values (row, col, band) and their mask: True where valid, None where all are."""
        ...


@dataclass(frozen=True, eq=False)
class Corrected:
    """A source without the offsets of its lines."""

    source: Source
    offsets: LineOffsets

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, cols, bands)."""
        return self.source.shape

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values without their offsets, and their mask."""
        values, mask = self.source.block(rows, cols)
        return self.offsets.removed(values, rows, cols), mask


def corrected(source: Source, offsets: LineOffsets | None) -> Source:
    """Return a source without the offsets of its lines; itself where there are none."""
    return source if offsets is None else Corrected(source, offsets)


@dataclass(frozen=True, eq=False)
class SettledNoise:
    """The noise to use and where it comes from."""

    model: float | np.ndarray | SignalNoise
    """What `denoise` takes as ``noise``; a signal-dependent one with its reference spectrum."""
    source: str
    """``"given"`` or the estimator's name."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """JSON-like: kind of noise, and what was found along the way."""

    def to_arrays(self) -> dict[str, Any]:
        """Return the noise as arrays."""
        arrays: dict[str, Any] = {
            "noise_source": self.source,
            "noise_model": json.dumps(dict(self.description)),
        }
        if not isinstance(self.model, SignalNoise):
            return {**arrays, "noise": self.model}
        parts = {part: getattr(self.model, part) for part in _NOISE_PARTS}
        return arrays | {f"noise_{k}": v for k, v in parts.items() if v is not None}

    @classmethod
    def from_arrays(cls, found: Mapping[str, np.ndarray]) -> SettledNoise:
        """Return the noise that `to_arrays` gave."""
        model: float | np.ndarray | SignalNoise
        if "noise" in found:
            model = float(found["noise"]) if found["noise"].ndim == 0 else found["noise"]
        else:
            parts: Any = {part: found.get(f"noise_{part}") for part in _NOISE_PARTS}
            model = SignalNoise(**parts)
        return cls(model, str(found["noise_source"]), json.loads(str(found["noise_model"])))


@dataclass(frozen=True, eq=False)
class Survey:
    """What the parts of a scene need to know of the whole."""

    shape: tuple[int, int, int]
    """Shape of the cube (rows, cols, bands)."""
    presence: Presence
    """Which values are there."""
    settled: SettledNoise
    """Noise of all bands."""
    settings: Settings
    """How the scene is solved."""
    stripes: tuple[np.ndarray, np.ndarray] | None = None
    """(cols, bands with data) and (rows, bands with data) True for striped columns and rows."""
    offsets: LineOffsets | None = None
    """Offsets of columns or rows that are taken out of the scene first."""
    learnt: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What the estimator has learnt of the whole scene, by name."""

    @cached_property
    def bands(self) -> np.ndarray:
        """Indices of the bands that hold valid values."""
        return self.presence.bands

    @property
    def incomplete(self) -> bool:
        """Whether values are missing, or are set aside as striped."""
        return self.presence.incomplete or self.stripes is not None

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
        window, step = self.settings.window, self.settings.step
        grid = WindowGrid.create((*self.shape[:2], len(self.bands)), window=window, step=step)
        if not self.model.is_diagonal and len(grid.bands) > 1:
            raise ValueError(
                f"Invalid window of {grid.bands.size} bands with a noise covariance. Windows must "
                "hold all bands where the noise is correlated between bands."
            )
        return grid

    def record(self) -> dict[str, Any]:
        """Return the settings that go with a result: those asked for, and what came of them."""
        axes = (self.grid.rows, self.grid.cols, self.grid.bands)
        asked = self.settings.to_dict()
        asked.pop("uncertainty")
        return asked | {
            "window": list(self.grid.window),
            "step": [axis.step for axis in axes],
            "noise_source": self.settled.source,
            "noise_model": dict(self.settled.description),
            "version": __version__,
        }

    def to_arrays(self) -> dict[str, Any]:
        """Return the survey as arrays, without its settings."""
        arrays = {"shape": self.shape, **self.presence.to_arrays(), **self.settled.to_arrays()}
        if self.stripes is not None:
            arrays["columns"], arrays["rows"] = self.stripes
        if self.offsets is not None:
            arrays |= self.offsets.to_arrays()
        return arrays | {f"learnt_{name}": value for name, value in self.learnt.items()}

    @classmethod
    def from_arrays(cls, found: Mapping[str, np.ndarray], settings: Settings) -> Survey:
        """Return the survey that `to_arrays` gave."""
        rows, cols, bands = (int(size) for size in found["shape"])
        return cls(
            (rows, cols, bands),
            Presence(found["low"], found["high"], int(found["fewest"])),
            SettledNoise.from_arrays(found),
            settings,
            (found["columns"], found["rows"]) if "columns" in found else None,
            LineOffsets.from_arrays(found) if "offsets" in found else None,
            {k.removeprefix("learnt_"): v for k, v in found.items() if k.startswith("learnt_")},
        )


@dataclass(frozen=True, eq=False)
class Presence:
    """Which values of a scene, or of a part of it, are there."""

    low: np.ndarray
    """(band,) least valid value; infinite for bands without any."""
    high: np.ndarray
    """(band,) largest valid value."""
    fewest: int
    """Valid values of the valid pixel that has the fewest."""

    @classmethod
    def look(cls, values: np.ndarray, mask: np.ndarray | None) -> Presence:
        """Look at a block."""
        check_values(values)
        valid = valid_elements(values, mask)
        counts = np.count_nonzero(valid, axis=2)
        fewest = int(counts.min(initial=values.shape[2], where=counts > 0))
        low = np.where(valid, values, np.inf).min(axis=(0, 1))
        high = np.where(valid, values, -np.inf).max(axis=(0, 1))
        return cls(low, high, fewest)

    def joined(self, other: Presence) -> Presence:
        """Return what is there in two parts."""
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Presence(low, high, min(self.fewest, other.fewest))

    @property
    def alive(self) -> np.ndarray:
        """(band,) True for bands with any valid value."""
        return np.asarray(self.low <= self.high)

    @property
    def bands(self) -> np.ndarray:
        """Indices of the bands that hold data; there must be some.

        A band that has the same value everywhere was never measured; it holds no data unless all
        bands are like that.
        """
        varied = np.flatnonzero(self.low < self.high)
        bands = varied if len(varied) else np.flatnonzero(self.alive)
        if len(bands) == 0:
            raise ValueError(NO_VALUE)
        return bands

    @property
    def incomplete(self) -> bool:
        """Whether valid pixels miss values in bands that hold data."""
        return self.fewest < int(np.count_nonzero(self.alive))

    def to_arrays(self) -> dict[str, Any]:
        """Return it as arrays."""
        return {"low": self.low, "high": self.high, "fewest": self.fewest}


def find_presence(source: Source) -> Presence:
    """Look at a whole scene, strip by strip.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> values = np.ones((2, 2, 3))
    >>> values[..., 1] = np.nan
    >>> found = find_presence(sc.Cube(values))
    >>> found.bands, found.incomplete
    (array([0, 2]), False)
    """
    whole = slice(0, source.shape[1])
    found = [Presence.look(*source.block(rows, whole)) for rows in strips(source.shape)]
    return reduce(Presence.joined, found)


def strips(shape: tuple[int, int, int]) -> Iterator[slice]:
    """Yield rows that are streamed together."""
    height = max(1, STREAMED // (shape[1] * shape[2]))
    for start in range(0, shape[0], height):
        yield slice(start, min(start + height, shape[0]))


def settle_noise(
    source: Source,
    noise: float | np.ndarray | str | SignalNoise | None,
    settings: Settings,
    *,
    impulses: bool = False,
    workers: int | None = None,
) -> SettledNoise:
    """Return the noise to use, estimating it where it is not given.

    Large scenes are looked at in part, see `noise_sample`. Estimators know whole spectra only:
    missing values, and with ``impulses`` whatever stands out from its neighbours, are filled with
    neighbouring values for them.
    """
    if noise is not None and not isinstance(noise, str | SignalNoise):
        value = np.asarray(noise, dtype=np.float64)
        return SettledNoise(float(value) if value.ndim == 0 else value.copy(), "given")
    values, mask = noise_sample(source)
    if isinstance(noise, SignalNoise):
        noise = noise.at(mean_spectrum(values, np.any(valid_elements(values, mask), axis=2)))
        return SettledNoise(noise, "given", {"kind": "signal-dependent"})
    from sigmacube.noise.estimation import fit_noise
    from sigmacube.noise.filling import whole_spectra

    values, mask = whole_spectra(values, mask, impulses=impulses)
    found = fit_noise(values, noise, mask=mask, workers=workers)
    window, bands = settings.window, source.shape[2]
    if isinstance(window, tuple) and len(window) == 3 and window[2] not in (None, bands):
        found = found.independent()
    return SettledNoise(found.model, found.source, found.summary())


def find_line_offsets(
    source: Source, presence: Presence, *, impulses: bool = False
) -> LineOffsets | None:
    """Return the offsets that columns or rows carry; None where the scene shows none."""
    from sigmacube.noise.filling import stands_out, whole_spectra
    from sigmacube.noise.line_offsets import FEWEST, find_offsets, profiles
    from sigmacube.noise.scales import scales, smooth_directions

    bands, (n_rows, n_cols, _) = presence.bands, source.shape
    if min(n_rows, n_cols) < FEWEST or len(bands) < FEWEST:
        return None
    height, lines = max(1, STREAMED // (n_cols * len(bands))), None
    for _ in range(2):  # what is signal shows better once most of the offsets are gone
        whole = whole_spectra(*noise_sample(corrected(source, lines)), impulses=impulses)
        found = scales(*whole, bands)
        if found is None:
            return None
        sample, std = found

        def block(rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray]:
            part, known = source.block(rows, cols)
            there = valid_elements(part, known)[..., bands]
            part = part[..., bands] / std  # noqa: B023
            return part, there & ~stands_out(part, there) if impulses else there

        signal = (smooth_directions(sample, 0), smooth_directions(sample, 1))
        shown = profiles(block, (n_rows, n_cols, len(bands)), signal, height)
        offsets = find_offsets(shown, signal)
        if offsets is None:
            return None
        lines = offsets.in_units(std, bands, source.shape[2])
    return lines


def noise_regions(shape: tuple[int, int, int]) -> list[list[tuple[slice, slice]]]:
    """Return the blocks that the noise is estimated on, as rows of a mosaic; one if all fits."""
    if shape[0] * shape[1] <= MOSAIC**2:
        return [[(slice(0, shape[0]), slice(0, shape[1]))]]
    rows, cols = (_regions(length) for length in shape[:2])
    return [[(r, c) for c in cols] for r in rows]


def noise_sample(source: Source) -> tuple[np.ndarray, np.ndarray | None]:
    """Return values and mask of what the noise is estimated on: all, or a mosaic of regions."""
    regions = noise_regions(source.shape)
    if len(regions) == len(regions[0]) == 1:
        return source.block(*regions[0][0])
    blocks = [[_with_mask(*source.block(*region)) for region in line] for line in regions]
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

"""A scene as estimators see it: what is known of the whole, and blocks made ready for windows.

Windows are local; some things are not: which bands hold data, the noise, striped lines, and what
the estimator learns of the whole scene. A `Survey` holds them. It comes from passes over the scene,
block by block, and is the same whether the scene lies in memory or in a file. A `Scene` reads
blocks in its light: validity settled, bands without data set aside, noise known.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from sigmacube._version import __version__
from sigmacube.core.parallel import ParallelMap, in_turn, strips
from sigmacube.core.progress import Progress
from sigmacube.core.validity import (
    NO_VALUE,
    check_values,
    mean_spectrum,
    of_bands,
    valid_elements,
)
from sigmacube.core.whitening import SEGMENT, Noise
from sigmacube.core.windows import WindowGrid
from sigmacube.noise.caveats import WILD, caveats
from sigmacube.noise.instrument import DarkNoise, InstrumentNoise, noise_of
from sigmacube.noise.line_offsets import LineOffsets
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.signal_noise import SignalNoise, like_mean, pixel_scales
from sigmacube.noise.stabilise import Stabiliser
from sigmacube.settings import Settings

# Elements that are looked at together when the whole scene is streamed: 8 MB of float64.
STREAMED = 1_000_000
# Noise is estimated on the whole scene up to so many pixels along a side, and beyond that on a
# mosaic of 5 × 5 regions, in bounded memory; their sides are multiples of estimators' windows.
MOSAIC = 200
REGIONS = 5
# Rows that are whitened at a time.
STRIP = 8
# What the directions of a stabiliser are called among what is learnt.
STABLE = "stable_directions"
# Pixels around one that the size of its noise is taken from, to each side, if they are like it.
AROUND = 3
# Distance of the largest windows of the spatial prior, in steps: small ones follow the detail.
APART = 1.5
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
    bounds: np.ndarray | None = None
    """(2, bands with data) what values were clipped to, infinite for none; None where none were."""
    learnt: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What the estimator has learnt of the whole scene, by name."""

    bands: np.ndarray = field(init=False)
    """Indices of the bands that hold valid values."""
    incomplete: bool = field(init=False)
    """Whether values are missing, or are set aside as striped."""
    noise: float | np.ndarray = field(init=False)
    """Noise of all bands: standard deviations or a covariance, at the reference spectrum."""
    model: Noise = field(init=False)
    """Noise of the bands that hold data."""
    signal_noise: SignalNoise | None = field(init=False)
    """Noise of the bands that hold data, where it depends on the signal."""
    grid: WindowGrid = field(init=False)
    """All windows of the scene."""

    def __post_init__(self) -> None:
        bands, given = self.presence.bands, self.settled.model
        varying = given if isinstance(given, SignalNoise) else None
        noise = given.value if isinstance(given, SignalNoise) else given
        window, step = self.settings.window, self.settings.step
        if self.settings.prior == "spatial" and isinstance(window, int) and isinstance(step, int):
            window = (min(window, self.shape[0]), min(window, self.shape[1]))
            apart = max(round(APART * step), 1)
            step = (min(apart, window[0]), min(apart, window[1]))
        derived = {
            "bands": bands,
            "incomplete": self.presence.incomplete or self.stripes is not None,
            "noise": noise,
            "model": Noise.create(noise, self.shape[2]).select(bands),
            "signal_noise": None if varying is None else varying.select(bands),
            "grid": WindowGrid.create((*self.shape[:2], len(bands)), window=window, step=step),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        if not self.model.is_diagonal and len(self.grid.bands) > 1:
            raise ValueError(
                f"Invalid window of {self.grid.bands.size} bands with a noise covariance. Windows "
                "must hold all bands where the noise is correlated between bands."
            )

    @property
    def wild(self) -> bool:
        """Whether so many values lie far outside the estimated noise that they are set aside."""
        spatial = self.settings.prior == "spatial"
        return spatial and self.settled.description.get("wild_share", 0.0) >= WILD

    @property
    def bounds_over_noise(self) -> np.ndarray | None:
        """(2, bands with data) the bounds over the noise; None where that differs in the scene."""
        if self.bounds is None or self.signal_noise is not None:
            return None
        return np.divide(self.bounds, self.model.std, dtype=np.float64)

    @property
    def stabiliser(self) -> Stabiliser | None:
        """Scale along which noise that grows with the signal is alike, once it is learnt."""
        if self.signal_noise is None or STABLE not in self.learnt:
            return None
        return Stabiliser(self.signal_noise, np.asarray(self.learnt[STABLE]))

    def record(self, advice: str | None = None) -> dict[str, Any]:
        """Return the settings that go with a result: those asked for, and what came of them."""
        axes = (self.grid.rows, self.grid.cols, self.grid.bands)
        asked = self.settings.to_dict()
        asked.pop("uncertainty")
        asked |= {} if advice is None else {"advice": advice}
        known = caveats(self.known())
        if advice is not None and not any("solver='robust'" in sentence for sentence in known):
            known.append(advice)
        return asked | {
            "caveats": known,
            "scene": self.presence.fingerprint,
            "window": list(self.grid.window),
            "step": [axis.step for axis in axes],
            "noise_source": self.settled.source,
            "noise_model": dict(self.settled.description),
            "version": __version__,
        }

    def known(self) -> dict[str, Any]:
        """Return what was found out about the scene and what it is solved with, by name."""
        facts = dict(self.settled.description) | {
            "bands": len(self.bands),
            "correlated": not self.model.is_diagonal,
            "grows_with_signal": self.signal_noise is not None,
            "prior": self.settings.prior,
            "solver": self.settings.solver,
            "source": self.settled.source,
            "wild_aside": self.wild,
        }
        if self.bounds_over_noise is not None and self.settings.prior == "spatial":
            facts["clipped_expected"] = True
        if "basis" in self.learnt:
            facts["directions"] = self.learnt["basis"].shape[1] / len(self.bands)
            facts["size_unsure"] = tuple(self.learnt["risk_unsure"].tolist())
        if self.offsets is not None:
            facts["offsets"] = (("rows", "columns")[self.offsets.axis], self.offsets.strength)
        return facts

    def to_arrays(self) -> dict[str, Any]:
        """Return the survey as arrays, without its settings."""
        there = {name: getattr(self.presence, name) for name in ("low", "high", "fewest")}
        arrays = {"shape": self.shape, **there, **self.settled.to_arrays()}
        if self.stripes is not None:
            arrays["columns"], arrays["rows"] = self.stripes
        if self.offsets is not None:
            arrays |= self.offsets.to_arrays()
        if self.bounds is not None:
            arrays["bounds"] = self.bounds
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
            found.get("bounds"),
            {k.removeprefix("learnt_"): v for k, v in found.items() if k.startswith("learnt_")},
        )


#: Sizes of values whose fourth powers (products of variances) are numbers.
SIZES = (1e-70, 1e70)


@dataclass(frozen=True, eq=False)
class Presence:
    """Which values of a scene, or of a part of it, are there."""

    low: np.ndarray
    """(band,) least valid value; infinite for bands without any."""
    high: np.ndarray
    """(band,) largest valid value."""
    fewest: int
    """Valid values of the valid pixel that has the fewest."""

    @property
    def bands(self) -> np.ndarray:
        """Indices of the bands that hold data; there must be some.

        A band that has the same value everywhere was never measured; it holds no data unless all
        bands are like that.
        """
        varied = np.flatnonzero(self.low < self.high)
        bands = varied if len(varied) else np.flatnonzero(self.low <= self.high)
        if len(bands) == 0:
            raise ValueError(NO_VALUE)
        return bands

    def check_sizes(self, noise_std: np.ndarray | None = None) -> None:
        """Refuse values, and a noise, whose squares or ratios no double can hold."""
        bands = self.bands
        largest = float(np.maximum(np.abs(self.low[bands]), np.abs(self.high[bands])).max())
        least, most = SIZES
        if largest > most or 0 < largest < least:
            raise ValueError(
                f"Invalid values of up to {largest:.3g}. They must lie between {least:g} and "
                f"{most:g}; other units help."
            )
        least_noise = most if noise_std is None else float(np.min(noise_std))
        if least_noise < max(least, least * largest):
            raise ValueError(
                f"Invalid noise {least_noise:.3g} for values of up to {largest:.3g}. It must be at "
                f"least {max(least, least * largest):.3g}."
            )

    @property
    def incomplete(self) -> bool:
        """Whether valid pixels miss values in bands that hold data."""
        return self.fewest < int(np.count_nonzero(self.low <= self.high))

    @property
    def fingerprint(self) -> str:
        """Tell scenes apart: a short hash of the range of every band."""
        with np.errstate(over="ignore"):  # beyond single precision other bands tell
            ranges = np.stack([self.low, self.high]).astype(np.float32)
        return hashlib.sha256(ranges.tobytes()).hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class Scene:
    """A cube as the windows see it: in the bands that hold data, with its noise, by block."""

    source: Source
    survey: Survey

    def load(self, rows: slice, cols: slice) -> SceneBlock:
        """Read a block and settle what is valid in it; elements of striped lines are missing."""
        survey, (rows, wide) = self.survey, self.extent(rows, cols)
        values, mask = self.source.block(rows, wide)
        kept, dtype, n_bands = valid_elements(values, mask), values.dtype, values.shape[2]
        if len(survey.bands) < n_bands:
            values, kept = of_bands(values, survey.bands), of_bands(kept, survey.bands)
        valid, lacking = np.asarray(kept.any(axis=2)), None
        if not kept.all():
            lacking = ~kept & valid[..., None]
            lacking = lacking if lacking.any() else None
        missing, scale = lacking, None
        if survey.stripes is not None:
            striped = survey.stripes[0][None, wide] | survey.stripes[1][rows, None]
            striped &= valid[..., None]
            missing = striped if lacking is None else striped | lacking
        if not valid.all():
            values = np.where(valid[..., None], values, 0)
        stable = None
        if survey.stabiliser is not None:
            there = valid[..., None] if missing is None else valid[..., None] & ~missing
            stable = survey.stabiliser.held(values, there, wide.start)
        elif survey.signal_noise is not None:
            scale = self._scale(values, valid, lacking, rows, wide)
        if missing is not None:
            values = np.where(missing, 0, values)
        here = slice(cols.start - wide.start, cols.stop - wide.start)
        missing_here, lacking_here, scale_here = (
            None if a is None else a[:, here] for a in (missing, lacking, scale)
        )
        return SceneBlock(
            values, here, survey.bands, n_bands, survey.model,
            dtype if dtype in (np.float32, np.float64) else np.dtype(np.float64),
            valid[:, here], missing_here, lacking_here, scale_here, wide_scale=scale,
            stable=stable,
        )  # fmt: skip

    def _scale(
        self, values: np.ndarray, valid: np.ndarray, lacking: np.ndarray | None,
        rows: slice, cols: slice,
    ) -> np.ndarray:  # fmt: skip
        """Return (row, col) factors of a block's pixels on their noise.

        What smooths over pixels needs them smooth, too: a factor that jitters with the noise of its
        own pixel would be taken out of the spectra and come back when they are scaled again.
        """
        noise = self.survey.signal_noise
        assert noise is not None
        if self.survey.settings.prior is None:
            return pixel_scales(values, lacking, noise)
        tall, wide = (
            slice(max(part.start - AROUND, 0), min(part.stop + AROUND, n))
            for part, n in zip((rows, cols), self.survey.shape, strict=False)
        )
        wide = self.extent(tall, wide)[1]
        spectra, mask = self.source.block(tall, wide)
        kept = of_bands(valid_elements(spectra, mask), self.survey.bands)
        spectra = of_bands(spectra, self.survey.bands)
        if not kept.all():
            spectra = np.where(kept, spectra, np.asarray(noise.reference))
        power = np.square(pixel_scales(spectra, None, noise))
        smooth = np.sqrt(like_mean(power, np.asarray(kept.any(axis=2)), noise.jitter(), AROUND))
        top, left = rows.start - tall.start, cols.start - wide.start
        return smooth[top : top + len(values), left : left + values.shape[1]]

    def over_noise(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return values over their noise std, and which of them are there, of a block."""
        block = self.load(rows, cols)
        there = block.valid[..., None]
        return block.scaled(), there if block.missing is None else there & ~block.missing

    def extent(self, rows: slice, cols: slice) -> tuple[slice, slice]:
        """Return what `load` reads: whole segments of columns where whitening must round alike."""
        if self.survey.model.is_diagonal and self.survey.signal_noise is None:
            return rows, cols
        left = cols.start - cols.start % SEGMENT
        return rows, slice(left, min(cols.stop + -cols.stop % SEGMENT, self.survey.shape[1]))


@dataclass(frozen=True, eq=False)
class SceneBlock:
    """What is solved: some rows and columns in the bands that hold data, with their noise."""

    spectra: np.ndarray
    """(row, col, band) values, zero where masked; columns are those that `Scene.load` reads."""
    cols: slice
    """Columns that were asked for."""
    bands: np.ndarray
    """Indices of the bands that hold data."""
    n_bands: int
    """Bands of the scene."""
    noise: Noise
    """Noise of these bands."""
    dtype: np.dtype
    """Type of results: that of the input if it is a float."""
    valid: np.ndarray
    """(row, col) True for pixels that are valid in any of these bands."""
    missing: np.ndarray | None
    """(row, col, band) True for the missing values of valid pixels; None if there are none."""
    lacking: np.ndarray | None
    """Like ``missing``, but only what the input lacks, without striped lines."""
    pixel_scale: np.ndarray | None
    """(row, col) factor of every pixel on its noise; None where all are alike."""
    wide_scale: np.ndarray | None
    """Like ``pixel_scale``, for all columns of ``spectra``."""
    stable: np.ndarray | None = None
    """Like ``spectra``, along the scale on which noise is alike; None for the values themselves."""

    def whitened(self, run: ParallelMap) -> np.ndarray:
        """Return the block as float64 with unit noise, zero where values are masked."""
        values, scale = self.spectra if self.stable is None else self.stable, self.wide_scale
        shape = values.shape
        white = np.empty((shape[0], self.cols.stop - self.cols.start, shape[2]))

        def fill(rows: slice) -> None:
            part = values[rows] if scale is None else values[rows] / scale[rows, :, None]
            white[rows] = self.noise.whiten(part)[:, self.cols]

        run(fill, [slice(start, start + STRIP) for start in range(0, shape[0], STRIP)])
        return white

    def scaled(self, by_pixel: bool = True) -> np.ndarray:
        """Return the block over its noise, or that of its bands alone, correlated as they are."""
        values = self.stable if by_pixel and self.stable is not None else self.spectra
        part = np.divide(values[:, self.cols], self.noise.std, dtype=np.float64)
        scale = self.pixel_scale if by_pixel else None
        return part if scale is None else part / scale[..., None]

    def std_of_elements(self) -> np.ndarray:
        """Return (band,) or (row, col, band) noise std on all bands, NaN for those without data."""
        std = np.full(self.n_bands, np.nan)
        std[self.bands] = self.noise.std
        return std if self.pixel_scale is None else self.pixel_scale[..., None] * std

    def to_output(
        self, array: np.ndarray, part: tuple[slice, ...] = (slice(None), slice(None))
    ) -> np.ndarray:
        """Return an array of the valid bands as one like the input, NaN where it is masked.

        ``part`` are the rows and columns of the block that the array holds.
        """
        if self.pixel_scale is not None:
            array = array * self.pixel_scale[part][..., None]
        if len(self.bands) == self.n_bands:
            output = array.astype(self.dtype, copy=False)
        else:
            output = np.full((*array.shape[:2], self.n_bands), np.nan, dtype=self.dtype)
            output[..., self.bands] = array
        valid = self.valid[part]
        if not valid.all():
            output[~valid] = np.nan
        return output


def find_presence(
    source: Source, progress: Progress | None = None, run: ParallelMap = in_turn
) -> Presence:
    """Look at a whole scene, strip by strip; ``progress(done, total)`` counts rows.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> values = np.ones((2, 2, 3))
    >>> values[..., 1] = np.nan
    >>> found = find_presence(sc.Cube(values))
    >>> found.bands, found.incomplete
    (array([0, 2]), False)
    """
    n_rows, n_cols, n_bands = source.shape
    height = max(1, STREAMED // (n_cols * n_bands))

    def look(rows: slice) -> tuple[np.ndarray, np.ndarray, int]:
        return _present(*source.block(rows, slice(0, n_cols)))

    def told(ready: int) -> None:
        if progress is not None:
            progress(min(ready * height, n_rows), n_rows)

    low, high, fewest = zip(*run(look, strips(0, n_rows, height), told), strict=True)
    return Presence(np.min(low, axis=0), np.max(high, axis=0), min(fewest))


def _present(values: np.ndarray, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Return least and largest values of bands, and how many the pixel has that has the fewest."""
    check_values(values)
    valid, n_bands = valid_elements(values, mask), values.shape[2]
    if valid.all():
        spectra = values.reshape(-1, n_bands)
        low, high = spectra.min(axis=0), spectra.max(axis=0)
        return np.minimum(low, np.inf), np.maximum(high, -np.inf), n_bands
    counts = np.count_nonzero(valid, axis=2)
    fewest = int(counts.min(initial=n_bands, where=counts > 0))
    low = np.where(valid, values, np.inf).min(axis=(0, 1))
    return low, np.where(valid, values, -np.inf).max(axis=(0, 1)), fewest


def settle_noise(
    source: Source,
    noise: float | np.ndarray | str | SignalNoise | DarkNoise | None,
    settings: Settings,
    *,
    workers: int | None = None,
    sample: NoiseSample | None = None,
) -> SettledNoise:
    """Return the noise to use, estimating it where it is not given.

    Large scenes are looked at in part, see `noise_sample`. What is set aside is no noise.
    ``sample`` holds windows of the source, if these have been taken.
    """
    about = getattr(source, "metadata", None) or {}
    noise = noise_of(noise, source.shape[2], getattr(source, "wavelengths", None), about)
    if noise is not None and not isinstance(noise, str | SignalNoise | DarkNoise):
        value = np.asarray(noise, dtype=np.float64)
        return SettledNoise(float(value) if value.ndim == 0 else value.copy(), "given")
    values, mask = noise_sample(source)
    mean = np.zeros(source.shape[2])
    if noise is not None and not isinstance(noise, str):  # models that are lines about it
        mean = mean_spectrum(values, np.any(valid_elements(values, mask), axis=2))
    if isinstance(noise, InstrumentNoise):
        return _instrument(noise, values, mask, mean)
    if isinstance(noise, SignalNoise):
        return SettledNoise(noise.at(mean), "given", {"kind": "signal-dependent"})
    from sigmacube.noise.estimation import fit_noise

    asked, robust = None if isinstance(noise, DarkNoise) else noise, settings.solver == "robust"
    many = WILD if settings.prior == "spatial" else np.inf
    found = fit_noise(
        values, asked, mask=mask, workers=workers, impulses=robust, many=many, sample=sample
    )
    if isinstance(noise, DarkNoise):
        name = f"dark frames and {found.source}"
        return SettledNoise(noise.completed(found, mean), name, found.summary())
    window, bands = settings.window, source.shape[2]
    if isinstance(window, tuple) and len(window) == 3 and window[2] not in (None, bands):
        found = found.independent()
    return SettledNoise(found.model, found.source, found.summary())


def _instrument(
    noise: InstrumentNoise, values: np.ndarray, mask: np.ndarray | None, mean: np.ndarray
) -> SettledNoise:
    """Return the line of an instrument's noise, and how far it departs from the curve."""
    shown = np.where(valid_elements(values, mask), values, np.nan).reshape(-1, values.shape[2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # bands without data
        low, high = np.nanpercentile(shown, [5, 95], axis=0)
    known = np.isfinite(low)
    mean = np.where(known, mean, np.nanmean(mean[known]) if known.any() else 0.0)
    error = noise.line_error(mean, np.where(known, low, mean), np.where(known, high, mean))
    about = {
        "kind": "signal-dependent",
        "file": noise.file,
        "curve": noise.curve,
        "line_error": round(float(error.max()), 5),
        "bands_off_by_0.1_percent": int(np.count_nonzero(error > 1e-3)),
    }
    return SettledNoise(noise.at(mean), "given", about)


def noise_sample(source: Source) -> tuple[np.ndarray, np.ndarray | None]:
    """Return values and mask of what the noise is estimated on: all, or a mosaic of regions."""
    n_rows, n_cols, _ = source.shape
    if n_rows * n_cols <= MOSAIC**2:
        return source.block(slice(0, n_rows), slice(0, n_cols))
    rows = _regions(n_rows, max(MOSAIC, MOSAIC**2 // min(n_cols, MOSAIC)))
    cols = _regions(n_cols, max(MOSAIC, MOSAIC**2 // min(n_rows, MOSAIC)))
    blocks = [[source.block(r, c) for c in cols] for r in rows]
    values = np.concatenate([np.concatenate([b[0] for b in line], axis=1) for line in blocks])
    there = [[valid_elements(*block) for block in line] for line in blocks]
    mask = np.concatenate([np.concatenate(line, axis=1) for line in there])
    return values, None if mask.all() else mask


def _regions(length: int, looked: int) -> list[slice]:
    """Return five parts of an axis of ``looked`` pixels in all; the whole axis if it is shorter."""
    side = looked // REGIONS // (MOSAIC // REGIONS) * (MOSAIC // REGIONS)
    if length <= looked:
        return [slice(0, length)]
    starts = np.linspace(0, length - side, REGIONS).astype(int)
    return [slice(int(start), int(start) + side) for start in starts]

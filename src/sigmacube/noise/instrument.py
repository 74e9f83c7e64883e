"""Noise of an instrument that is known as a curve over the signal, from a file.

Two kinds of curve are in use, one per band, both of radiance L:

    σ(L) = a √(b + L) + c                    ISOFIT and EMIT: wavelength, a, b, c
    σ(L) = L / (p₀ + p₁ L + p₂ L²)           EnMAP's signal to noise: wavelength, p₀, p₁, p₂

Windows are solved with a variance that is a line in the signal (`SignalNoise`). With c = 0 the
first curve is exactly that: σ² = a² L + a² b. Otherwise the line touches the curve's square at the
scene's mean spectrum: σ is exact there, and `InstrumentNoise.line_error` says by how much it
departs elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.noise import ESTIMATORS
from sigmacube.noise.signal_noise import SignalNoise

if TYPE_CHECKING:
    from sigmacube.noise.estimation import NoiseEstimate

__all__ = [
    "DarkNoise",
    "InstrumentNoise",
    "file_numbers",
    "file_wavelengths",
    "noise_of",
    "radiance_factor",
]

#: Step of the slope, as a share of the signal.
_STEP = 1e-4
#: Radiance in µW cm⁻² nm⁻¹ sr⁻¹ of one unit, by what units are called without signs between.
_UNITS = {
    "uwcm2srnm": 1.0,
    "mwcm2srum": 1.0,
    "wm2srum": 0.1,
    "mwm2srnm": 0.1,
    "wm2srnm": 100.0,
}


@dataclass(frozen=True, eq=False)
class InstrumentNoise(SignalNoise):
    """Noise with a standard deviation per band that is a known curve over the signal.

    Made by `SignalNoise.from_file`. ``gain`` and ``offset`` are those of the curve without its
    constant (or at twice the reference for a ratio); `at` gives the line that is used.

    Examples
    --------
    >>> noise = InstrumentNoise.root([0.006], [3.0], [0.001])
    >>> noise.std(np.array([[4.0]])).round(5)
    array([[0.01687]])
    >>> line = noise.at(np.array([4.0]))
    >>> bool(abs(line.value[0] - 0.006 * 7**0.5 - 0.001) < 1e-12)
    True
    """

    curve: str = "root"
    """``"root"``: a √(b + L) + c. ``"ratio"``: L over a polynomial."""
    parameters: np.ndarray | None = None
    """(3, bands): a, b, c or p₀, p₁, p₂."""
    file: str = ""

    @classmethod
    def root(cls, a: Any, b: Any, c: Any, file: str = "") -> InstrumentNoise:
        """Return noise of σ = a √(b + L) + c."""
        table = np.stack([np.atleast_1d(np.asarray(v, dtype=float)) for v in (a, b, c)])
        square = table[0] ** 2
        gain, offset = square, square * np.maximum(table[1], 0)
        return cls(gain, offset, None, None, "root", table, file)

    @classmethod
    def ratio(cls, p0: Any, p1: Any, p2: Any, file: str = "") -> InstrumentNoise:
        """Return noise of σ = L / (p₀ + p₁ L + p₂ L²), a signal-to-noise ratio."""
        table = np.stack([np.atleast_1d(np.asarray(v, dtype=float)) for v in (p0, p1, p2)])
        zero = np.zeros(table.shape[1])
        return cls(zero, zero, None, None, "ratio", table, file)

    def std(self, signal: np.ndarray) -> np.ndarray:
        """Return σ at signals (…, bands)."""
        assert self.parameters is not None
        first, second, third = self.parameters
        level = np.asarray(signal, dtype=np.float64)
        if self.curve == "root":
            return np.abs(first * np.sqrt(np.maximum(second + level, 0)) + third)
        level = np.maximum(level, 0)
        quotient = first + second * level + third * level**2
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(quotient > 0, level / quotient, np.nan)

    def at(self, reference: np.ndarray) -> SignalNoise:
        """Return the line that touches the variance at a reference spectrum.

        A slope that would make the variance negative at no signal, or fall, is cut: the line then
        goes through the reference all the same.
        """
        mean = np.asarray(reference if self.reference is None else self.reference, dtype=float)
        variance = self.std(mean) ** 2
        if not np.all(np.isfinite(variance)) or np.any(variance <= 0):
            band = int(np.argmax(~(np.isfinite(variance) & (variance > 0))))
            raise ValueError(
                f"Invalid noise of {self.file or 'the instrument'}: no standard deviation in band "
                f"{band} at a mean of {mean[band]:.4g}. Is the cube radiance?"
            )
        step = _STEP * np.maximum(np.abs(mean), np.abs(mean).mean() * 1e-3)
        rise = (self.std(mean + step) ** 2 - self.std(mean - step) ** 2) / (2 * step)
        positive = np.maximum(mean, 0)
        most = np.divide(variance, positive, out=np.full_like(mean, np.inf), where=positive > 0)
        gain = np.clip(np.nan_to_num(rise), 0, most)
        offset = np.maximum(variance - gain * positive, 0)
        return SignalNoise(gain, offset, mean, self.correlation)

    def line_error(self, reference: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return by which share σ of the line departs from the curve, at most, from low to high.

        Parameters
        ----------
        reference, low, high
            (bands,) spectra: where the line touches, and the ends of what it is used for.
        """
        line = self.at(reference)
        shares = np.linspace(0, 1, 11)[:, None]
        signal = low + shares * (high - low)
        used = np.sqrt(np.asarray(line.gain) * np.maximum(signal, 0) + np.asarray(line.offset))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.abs(used / self.std(signal) - 1)
        return np.asarray(np.nanmax(np.where(np.isfinite(found), found, 0.0), axis=0))

    def in_units(self, factor: float) -> InstrumentNoise:
        """Return the noise of a cube whose values times ``factor`` are in the file's unit."""
        assert self.parameters is not None
        first, second, third = self.parameters
        if self.curve == "root":
            root = factor**0.5
            return self.root(first / root, second / factor, third / factor, self.file)
        return self.ratio(first, second * factor, third * factor**2, self.file)

    def select(self, bands: np.ndarray) -> InstrumentNoise:
        """Return the noise of some of the bands."""
        assert self.parameters is not None
        parts = self.parameters[:, bands]
        gain, offset = np.asarray(self.gain)[bands], np.asarray(self.offset)[bands]
        return replace(self, gain=gain, offset=offset, parameters=parts)

    @classmethod
    def read(cls, path: str | Path, wavelengths: np.ndarray | None) -> InstrumentNoise:
        """Read a noise file, interpolated to the wavelengths (nm) of a cube.

        Parameters
        ----------
        path
            Text with the columns wavelength, a, b, c (ISOFIT), or wavelength, p0, p1, p2 with a
            heading that names p0 or SNR.
        wavelengths
            (bands,) nm.
        """
        table, ratio = _table(Path(path))
        if wavelengths is None:
            raise ValueError(
                f"{path}: the noise is given by wavelength, but the cube has no wavelengths. They "
                "can be named with wavelengths (--wavelengths)."
            )
        order = np.argsort(table[:, 0])
        centres, rest = file_wavelengths(path), table[order, 1:4]
        wanted = np.asarray(wavelengths, dtype=float)
        gap = np.diff(centres).max(initial=0.0)
        outside = (wanted < centres[0] - gap) | (wanted > centres[-1] + gap)
        if outside.any():
            raise ValueError(
                f"{path}: noise from {centres[0]:.0f} to {centres[-1]:.0f} nm, but the cube has a "
                f"band at {wanted[outside][0]:.0f} nm. Every band must lie within."
            )
        columns = [np.interp(wanted, centres, column) for column in rest.T]
        a, b, c = columns
        return (cls.ratio if ratio else cls.root)(a, b, c, Path(path).name)


def file_wavelengths(path: str | Path) -> np.ndarray:
    """Return the wavelengths (nm) that a noise file is given at."""
    centres = np.sort(_table(Path(path))[0][:, 0])
    return np.asarray(centres * (1000 if centres.max() < 100 else 1))


def _table(path: Path) -> tuple[np.ndarray, bool]:
    """Return the numbers of a noise file, and whether they are those of a ratio."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    heading, rows = "", []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            words = line.split("#")[0].replace(",", " ").split()
            rows += [[float(word) for word in words]] if words else []
        except ValueError:
            words = []
        heading += "" if words else line.lower()
    if not rows:
        raise ValueError(f"{path}: not readable as numbers, one per band, a matrix or a table.")
    widths = {len(row) for row in rows}
    if len(widths) != 1 or min(widths) < 4 or len(rows) < 2:
        raise ValueError(
            f"{path}: {len(rows)} lines of {sorted(widths)} numbers. A noise file must have the "
            "columns wavelength, a, b and c, one line per band."
        )
    return np.array(rows), "snr" in heading or "p0" in heading


@dataclass(frozen=True, eq=False)
class DarkNoise:
    """The noise without light, from dark frames; the rest of it is estimated from the scene."""

    std: np.ndarray
    """(bands,)."""

    def completed(self, found: NoiseEstimate, mean: np.ndarray) -> SignalNoise:
        """Return the noise whose offset is that of the dark frames, and whose level is the scene's.

        Where the scene shows less noise than the dark frames, theirs is taken.
        """
        offset = np.asarray(self.std, dtype=float) ** 2
        more = np.maximum(found.std**2 - offset, 0)
        positive = mean > 0
        gain = np.divide(more, mean, out=np.zeros_like(mean), where=positive)
        offset = np.where(positive, offset, np.maximum(offset, found.std**2))
        value = found.value
        correlation = None
        if value.ndim == 2:
            correlation = value / np.outer(found.std, found.std)
        return SignalNoise(gain, np.maximum(offset, 1e-12 * found.std**2), mean, correlation)


def noise_of(
    noise: Any, bands: int, wavelengths: np.ndarray | None, metadata: Mapping[str, Any]
) -> Any:
    """Return a noise as settled upon: a file's name becomes what it holds.

    Parameters
    ----------
    noise
        What `sigmacube.denoise` takes.
    bands, wavelengths, metadata
        Those of the cube. With the spread of dark frames in the metadata, no noise given means
        theirs, completed from the scene.
    """
    if noise is None and metadata.get("dark_std") is not None:
        return DarkNoise(np.asarray(metadata["dark_std"], dtype=float))
    if isinstance(noise, InstrumentNoise):
        return _fitting(noise, bands)
    named = isinstance(noise, Path) or (isinstance(noise, str) and noise not in ESTIMATORS)
    if not named:
        return noise
    path = Path(noise)
    if not path.is_file():
        names = ", ".join(repr(name) for name in ESTIMATORS)
        raise ValueError(
            f"Invalid noise {str(noise)!r}. It must be an estimator, one of {names}, or a file; no "
            "such file exists."
        )
    values = file_numbers(path, bands)
    if values is not None:
        return values
    return InstrumentNoise.read(path, wavelengths).in_units(radiance_factor(str(path), metadata))


def _fitting(noise: InstrumentNoise, bands: int) -> InstrumentNoise:
    assert noise.parameters is not None
    if noise.parameters.shape[1] not in (1, bands):
        raise ValueError(
            f"Invalid noise of {noise.parameters.shape[1]} bands for a cube of {bands}. There must "
            "be as many."
        )
    return noise


def file_numbers(path: Path, bands: int) -> np.ndarray | None:
    """Return the level, the vector or the covariance in a file; None where it is a noise table."""
    try:
        if path.suffix == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            text = path.read_text(encoding="utf-8").replace(",", " ")
            lines = [line.split("#")[0].split() for line in text.splitlines()]
            values = np.array([line for line in lines if line], float)
    except (ValueError, OSError, EOFError):
        if path.suffix == ".npy":
            raise ValueError(f"{path}: not readable as numbers.") from None
        return None  # a heading of words, which a table may have
    if values.dtype.kind not in "iuf":
        raise ValueError(f"{path}: values of type {values.dtype}. They must be numbers.")
    squeezed = np.squeeze(values)
    if squeezed.shape in ((), (bands,), (bands, bands)):
        return squeezed.astype(float)
    if values.ndim == 2 and values.shape[1] in (4, 5) and values.shape[0] > 1:
        return None
    raise ValueError(
        f"{path}: noise of shape {squeezed.shape}. It must be ({bands},) standard deviations, a "
        f"({bands}, {bands}) covariance, or lines of wavelength, a, b and c."
    )


def radiance_factor(path: str, metadata: Mapping[str, Any]) -> float:
    """Return what makes the cube's values the radiance that noise files are about."""
    units = str(metadata.get("units") or "").strip()
    words = f"{metadata.get('standard_name', '')} {metadata.get('name', '')}".lower()
    if units in ("1", "unitless") or ("reflectance" in words and "radiance" not in words):
        raise ValueError(
            f"{path}: the noise of an instrument is one of radiance, but the cube holds "
            f"{metadata.get('name') or 'values'} (units {units or 'not stated'}). It must be "
            "radiance; without a noise file the noise is estimated."
        )
    if not units:
        return 1.0
    plain = units.lower().replace("µ", "u").replace("μ", "u")
    letters = "".join(c for c in plain if c.isalnum())
    ordered = "".join(sorted(letters))
    for name, factor in _UNITS.items():
        if ordered.replace("1", "") == "".join(sorted(name)):
            return factor
    raise ValueError(
        f"{path}: the cube's unit {units!r} is not known as one of radiance. It must be such as "
        "uW cm-2 nm-1 sr-1 or W m-2 um-1 sr-1."
    )

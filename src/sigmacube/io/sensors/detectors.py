"""Cubes of several detectors as one: bands by rising wavelength, the overlap given to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io.metadata import noted
from sigmacube.io.source import Source

#: Whose bands are kept where two detectors see the same wavelengths; "both" keeps all.
JOINS = ("swir", "vnir", "both")
Block = Callable[[slice, slice], np.ndarray]


@dataclass(frozen=True, eq=False)
class Detector:
    """The bands of one detector, in the order in which they are stored."""

    load: Block
    """Stored values (row, col, band)."""
    wavelengths: np.ndarray
    fwhm: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    flags: Block | None = None
    """(row, col, band) of stored flags, not 0 where a value was not measured."""

    def pick(self, index: np.ndarray) -> Detector:
        """Return some of the bands, in the order of ``index``."""
        load, flags = self.load, self.flags
        return Detector(
            lambda r, c: load(r, c)[..., index],
            self.wavelengths[index],
            self.fwhm[index],
            self.scale[index],
            self.offset[index],
            None if flags is None else lambda r, c: flags(r, c)[..., index],
        )

    def in_order(self) -> Detector:
        """Return the bands that exist (a wavelength of 0 marks others) by rising wavelength."""
        index = np.flatnonzero(self.wavelengths > 0)
        return self.pick(index[np.argsort(self.wavelengths[index], kind="stable")])


@dataclass(frozen=True, eq=False)
class Joined:
    """The bands of one or two detectors (VNIR, SWIR) as those of one cube."""

    parts: Sequence[Detector]
    note: str | None
    """What was done where they overlap."""

    @classmethod
    def create(cls, parts: Sequence[Detector], join: str | None = None) -> Joined:
        """Join detectors; in the overlap the bands of ``join`` stay, the SWIR's by default.

        Examples
        --------
        >>> def made(*centres):
        ...     bands = np.array(centres, dtype=float)
        ...     return Detector(lambda r, c: bands + np.zeros((1, 1, 1)), *[bands] * 4)
        >>> Joined.create([made(500, 950, 1000), made(940, 990, 1040)]).of("wavelengths").tolist()
        [500.0, 940.0, 990.0, 1040.0]
        """
        join = join or "swir"
        if join not in JOINS:
            raise ValueError(f"Invalid join {join!r}. It must be one of {', '.join(JOINS)}.")
        ordered = [part.in_order() for part in parts]
        if len(ordered) < 2 or join == "both":
            return cls(ordered, None)
        vnir, swir = ordered
        first, last = swir.wavelengths.min(), vnir.wavelengths.max()
        if first > last:
            return cls(ordered, None)
        if join == "swir":
            kept = np.flatnonzero(vnir.wavelengths < first)
            lost, ordered = len(vnir.wavelengths) - len(kept), [vnir.pick(kept), swir]
        else:
            kept = np.flatnonzero(swir.wavelengths > last)
            lost, ordered = len(swir.wavelengths) - len(kept), [vnir, swir.pick(kept)]
        other = "VNIR" if join == "swir" else "SWIR"
        note = (
            f"{lost} {other} bands are left out where the detectors overlap, {first:.0f} to "
            f"{last:.0f} nm; join (--join) 'vnir', 'swir' or 'both' chooses"
        )
        return cls(ordered, note)

    def of(self, name: str) -> np.ndarray:
        """Return a property of all bands."""
        return np.concatenate([getattr(part, name) for part in self.parts])

    def load(self, rows: slice, cols: slice) -> np.ndarray:
        """Return the stored values of a block."""
        return np.concatenate([part.load(rows, cols) for part in self.parts], axis=2)

    def source(
        self,
        path: Path,
        size: tuple[int, int],
        dtype: np.dtype,
        metadata: Mapping[str, Any],
        nodata: float | None,
        files: tuple[Path, ...] = (),
    ) -> Source:
        """Return the bands as the cube of a file."""
        told = dict(metadata)
        for key, name in (("fwhm", "fwhm"), ("scale_factor", "scale"), ("add_offset", "offset")):
            told[key] = self.of(name).tolist()
        told |= {} if nodata is None else {"nodata": nodata}
        centres = self.of("wavelengths")
        return Source(
            path=path, shape=(*size, len(centres)), stored_dtype=dtype, load=self.load,
            wavelengths=centres, nodata=nodata, scale=self.of("scale"), offset=self.of("offset"),
            metadata=noted(told, self.note) if self.note else told, quality=self.quality,
            files=files,
        )  # fmt: skip

    @property
    def quality(self) -> Block | None:
        """What tells where values were measured; None without flags."""
        flags = [part.flags for part in self.parts]
        if any(flag is None for flag in flags):
            return None
        known: list[Any] = list(flags)
        return lambda rows, cols: np.concatenate([f(rows, cols) == 0 for f in known], axis=2)

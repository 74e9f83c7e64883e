"""What the user says of a source: its wavelengths, and the reference frames of a camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io.source import Source
from sigmacube.io.wavelengths import to_nanometres


def with_wavelengths(source: Source, given: str | Path | Sequence[float]) -> Source:
    """Return a source with band centres of the user's.

    Parameters
    ----------
    source
        The cube.
    given
        One number per band, or a file: text with one line per band (the centre; centre and width;
        or number, centre and width, as ISOFIT has it), or an ENVI header. Micrometres are told
        from nanometres by their values.
    """
    what = str(given) if isinstance(given, str | Path) else "wavelengths"
    if isinstance(given, str | Path):
        centres, widths, units = _from_file(Path(given))
    else:
        centres, widths, units = list(given), None, None
    if len(centres) != source.shape[2]:
        raise ValueError(
            f"{what}: {len(centres)} wavelengths for {source.shape[2]} bands. There must be one "
            "per band."
        )
    found, fwhm, note = to_nanometres(centres, units, widths)
    if found is None:
        raise ValueError(f"{what}: {note}. They must be nanometres or micrometres.")
    metadata = {**source.metadata, "wavelength_units": "nm"}
    if fwhm is not None:
        metadata["fwhm"] = fwhm
    return replace(source, wavelengths=found, metadata=metadata)


def _from_file(path: Path) -> tuple[list[Any], list[Any] | None, str | None]:
    """Return centres, widths and unit from a file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    if path.suffix.lower() == ".hdr":
        return _from_header(path)
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split("#")[0].replace(",", " ").replace(";", " ").split()
        try:
            rows.append([float(word) for word in words])
        except ValueError:
            if rows:  # words before the first number are a heading
                raise ValueError(f"{path}: {line!r} holds words. It must hold numbers.") from None
    rows = [row for row in rows if row]
    columns = {len(row) for row in rows}
    if len(rows) == 1:
        return list(rows[0]), None, None
    if len(columns) != 1 or not columns <= {1, 2, 3}:
        raise ValueError(
            f"{path}: lines of {sorted(columns)} numbers. Every line must hold a centre, a centre "
            "and a width, or a number, a centre and a width."
        )
    table = np.array(rows)
    first = 1 if table.shape[1] == 3 else 0
    widths = list(table[:, first + 1]) if table.shape[1] > 1 else None
    return list(table[:, first]), widths, None


def _from_header(path: Path) -> tuple[list[Any], list[Any] | None, str | None]:
    from sigmacube.io.envi import read_header

    fields = read_header(path)
    if "wavelength" not in fields:
        raise ValueError(f"{path}: the header has no 'wavelength'. It must list one per band.")

    def items(key: str) -> list[str] | None:
        text = fields.get(key, "").strip().removeprefix("{").removesuffix("}")
        return [item.strip() for item in text.split(",") if item.strip()] or None

    return items("wavelength") or [], items("fwhm"), fields.get("wavelength units")


@dataclass(frozen=True, eq=False)
class _Frame:
    """The mean and the spread of a reference frame."""

    mean: np.ndarray
    """(cols, bands), or (1, bands) where it is not as wide as the scene."""
    std: np.ndarray
    """(bands,) standard deviation of one line from the next."""
    lines: int
    note: str | None

    @classmethod
    def read(cls, path: str | Path, source: Source, what: str) -> _Frame:
        """Read a frame and see whether it fits a scene."""
        from sigmacube.io import open_source

        frame = open_source(path)
        if frame.shape[2] != source.shape[2]:
            raise ValueError(
                f"{path}: {what} frame of {frame.shape[2]} bands for a scene of "
                f"{source.shape[2]}. There must be as many."
            )
        values = frame.read().values.astype(np.float64)
        std = (
            np.sqrt(values.var(axis=0, ddof=1).mean(axis=0))
            if len(values) > 1
            else np.zeros(values.shape[2])
        )
        mean, note = values.mean(axis=0), None
        if len(mean) != source.shape[1]:
            note = (
                f"the {what} frame has {len(mean)} columns, the scene {source.shape[1]}: its mean "
                "over columns is used, so differences between detector elements stay"
            )
            mean = mean.mean(axis=0, keepdims=True)
        return cls(mean, std, len(values), note)

    def of(self, cols: slice) -> np.ndarray:
        """Return the frame at some columns."""
        return self.mean if len(self.mean) == 1 else self.mean[cols]


def with_references(source: Source, dark: str | Path | None, white: str | Path | None) -> Source:
    """Return a source without its dark signal, and as reflectance where there is a white frame.

    The spread of the dark lines is kept in the metadata as ``dark_std`` (bands): it is the noise
    without light.
    """
    night = None if dark is None else _Frame.read(dark, source, "dark")
    day = None if white is None else _Frame.read(white, source, "white")
    zero = np.zeros((1, source.shape[2]))

    def gain(cols: slice) -> np.ndarray:
        if day is None:
            return np.ones((1, source.shape[2]))
        light = day.of(cols) - (zero if night is None else night.of(cols))
        with np.errstate(divide="ignore"):
            return np.where(light > 0, 1 / light, np.nan)

    kind = np.result_type(source.dtype, np.float32)

    def load(rows: slice, cols: slice) -> np.ndarray:
        values, mask = source.block(rows, cols)
        made = (values - (zero if night is None else night.of(cols))) * gain(cols)
        if mask is not None:
            made[~np.broadcast_to(mask, made.shape)] = np.nan
        return made.astype(kind)

    metadata = {k: v for k, v in source.metadata.items() if k not in ("nodata", "scale_factor")}
    frames = [frame for frame in (night, day) if frame is not None]
    notes = [*metadata.get("notes", []), *(frame.note for frame in frames if frame.note)]
    metadata |= {"notes": notes} if notes else {}
    if night is not None and night.lines > 1:
        level = np.nanmean(np.abs(gain(slice(None))), axis=0)
        metadata["dark_std"] = (night.std * level).tolist()
    if day is not None:
        metadata |= {"name": "reflectance", "units": "1", "long_name": "reflectance"}
    files = (*(source.files or (source.path,)), *(Path(p) for p in (dark, white) if p is not None))
    return replace(
        source, load=load, stored_dtype=np.dtype(kind), scale=None, offset=None, nodata=None,
        quality=None, lazy=False, metadata=metadata, files=files,
    )  # fmt: skip

"""ENVI and ESRI raw rasters: a text header beside a binary file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sigmacube.io import crs
from sigmacube.io.metadata import merged, read_sidecar, sidecar
from sigmacube.io.places import check_plain
from sigmacube.io.sensors import in_envi
from sigmacube.io.source import Source, planes
from sigmacube.io.wavelengths import numbers, to_nanometres

DATA_SUFFIXES = ("", ".img", ".dat", ".raw", ".bin", ".bsq", ".bil", ".bip", ".cube", ".hyspex",
                 ".cue")  # fmt: skip
_TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = {6: "complex64", 9: "complex128"}
#: Order of the axes on disk, and where (row, col, band) are found in it.
_LAYOUTS = {"bsq": ((2, 0, 1), (1, 2, 0)), "bil": ((0, 2, 1), (0, 2, 1)), "bip": ((0, 1, 2),) * 2}
#: Fields that are kept under a shared metadata key, or that describe this file alone.
_KNOWN = (
    "samples", "lines", "bands", "header offset", "file type", "data type", "interleave",
    "byte order", "wavelength", "wavelength units", "fwhm", "bbl", "band names",
    "data ignore value", "reflectance scale factor", "data gain values", "data offset values",
    "map info", "coordinate system string", "acquisition time", "file compression",
)  # fmt: skip
_MAX_HEADER = 64 * 2**20
#: Bytes unpacked at a time.
_UNPACKED = 16 * 2**20


def open_source(path: Path, *, data: Path | None = None) -> Source:
    """Open an ENVI or ESRI raster by its header or its binary file.

    Parameters
    ----------
    path
        The header (``.hdr``) or the binary file beside it.
    data
        The binary file, where its name does not follow from the header's.
    """
    header_path, data_path = pair(path, data)
    try:
        return in_envi(_source(header_path, data_path, read_header(header_path)))
    except ValueError as error:
        if str(error).startswith((f"{header_path}:", f"{data_path}:")):
            raise
        raise ValueError(f"{header_path}: {error}") from None


def read_header(path: Path) -> dict[str, str]:
    """Return the fields of a header, names in lower case, lists with their braces.

    ESRI headers (``NROWS 10``) come back under ENVI's names.
    """
    check_plain(path)
    if path.stat().st_size > _MAX_HEADER:
        raise ValueError(f"{path}: too large for a text header ({path.stat().st_size} bytes).")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    lines = text.splitlines()
    if not lines:
        raise ValueError(f"{path}: empty header. Its first line must be 'ENVI'.")
    if lines[0].strip().upper().startswith("ENVI"):
        return _envi_fields(path, lines[1:])
    words = {line.split()[0].upper() for line in lines if line.split()}
    if {"NROWS", "NCOLS"} <= words:
        return _esri_fields(path, lines)
    raise ValueError(f"{path}: no ENVI header. Its first line must be 'ENVI'.")


def _envi_fields(path: Path, lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    remaining = iter(lines)
    for line in remaining:
        if "=" not in line or line.lstrip().startswith(";"):
            continue
        key, value = (part.strip() for part in line.split("=", 1))
        if value.startswith("{"):
            parts = [value]
            while "}" not in parts[-1]:
                try:
                    parts.append(next(remaining).strip())
                except StopIteration:
                    raise ValueError(
                        f"{path}: the list {key!r} is not closed. It must end with '}}'."
                    ) from None
            value = "\n".join(parts)
        fields[" ".join(key.lower().split())] = value
    return fields


def _esri_fields(path: Path, lines: list[str]) -> dict[str, str]:
    """Return the fields of an ESRI header under ENVI's names."""
    found: dict[str, str] = {}
    centres: list[str] = []
    inside = False
    for line in lines:
        words = line.split()
        if not words:
            continue
        if words[0].upper() in ("WAVELENGTHS", "WAVELENGTHS_END"):
            inside = words[0].upper() == "WAVELENGTHS"
        elif inside:
            centres.append(words[0])
        else:
            found[words[0].upper()] = " ".join(words[1:])
    kind = found.get("PIXELTYPE", "UNSIGNEDINT").upper()
    letter = {"SIGNEDINT": "i", "FLOAT": "f"}.get(kind, "u")
    bits = found.get("NBITS", "8")
    if bits not in ("8", "16", "32", "64"):
        raise ValueError(f"{path}: invalid NBITS {bits!r}. It must be 8, 16, 32 or 64.")
    codes = {name: code for code, name in _TYPES.items()}
    name = f"{letter}{int(bits) // 8}"
    fields = {
        "samples": found["NCOLS"],
        "lines": found["NROWS"],
        "bands": found.get("NBANDS", "1"),
        "data type": str(codes.get(name, f"{kind} of {bits} bits")),
        "interleave": found.get("LAYOUT", "BIL"),
        "byte order": "1" if found.get("BYTEORDER", "I").upper().startswith("M") else "0",
        "header offset": found.get("SKIPBYTES", "0"),
    }
    if centres:
        fields["wavelength"] = "{" + ", ".join(centres) + "}"
    if "NODATA" in found:
        fields["data ignore value"] = found["NODATA"]
    if {"ULXMAP", "ULYMAP", "XDIM", "YDIM"} <= found.keys():
        corner = f"1.5, 1.5, {found['ULXMAP']}, {found['ULYMAP']}, {found['XDIM']}, {found['YDIM']}"
        fields["map info"] = "{Arbitrary, " + corner + "}"
    _check_no_padding(path, found, fields)
    return fields


def _check_no_padding(path: Path, found: Mapping[str, str], fields: Mapping[str, str]) -> None:
    centres = _items(fields, "wavelength")
    if centres is not None and len(centres) != _integer(fields, "bands"):
        return  # reported with the wavelengths
    row = _integer(fields, "samples") * (int(found.get("NBITS", "8")) // 8)
    given = found.get("BANDROWBYTES", str(row))
    gap = found.get("BANDGAPBYTES", "0")
    if given != str(row) or gap != "0":
        raise ValueError(
            f"{path}: BANDROWBYTES {given} and BANDGAPBYTES {gap} do not fit "
            f"{fields['samples']} columns of {row} bytes. Padded rows are not supported."
        )


def pair(path: Path, data: Path | None) -> tuple[Path, Path]:
    """Return (header, binary file)."""
    if path.suffix.lower() != ".hdr":
        for header in (path.with_name(path.name + ".hdr"), path.with_suffix(".hdr")):
            if header.is_file():
                return header, data or path
        raise ValueError(f"{path}: no header found. There must be a {path.name}.hdr beside it.")
    if data is not None:
        if not data.is_file():
            raise FileNotFoundError(f"{data}: no such file.")
        return path, data
    stem = path.with_suffix("")
    for suffix in DATA_SUFFIXES:
        for name in (stem.name + suffix, stem.name + suffix.upper()):
            candidate = stem.with_name(name)
            if candidate.is_file():
                return path, candidate
    known = " ".join(DATA_SUFFIXES[1:])
    raise ValueError(
        f"{path}: no data file found. There must be a {stem.name} beside it, with no suffix or one "
        f"of {known}; another one can be named with data (--data){_hint(path)}."
    )


def _hint(header: Path) -> str:
    """Name a neighbour that has just the size which the header describes, if there is one.

    It is not taken without being asked for: a wrong guess would read another scene's pixels.
    """
    try:
        shape, dtype, _, offset = _layout(read_header(header))
    except (ValueError, OSError):
        return ""
    needed = offset + int(np.prod(shape, dtype=object)) * dtype.itemsize
    fitting = sorted(
        file.name
        for file in header.parent.iterdir()
        if file.is_file() and file.suffix.lower() != ".hdr" and file.stat().st_size == needed
    )
    return f", such as {fitting[0]}, whose size fits" if fitting else ""


def _integer(fields: Mapping[str, str], key: str, default: int | None = None) -> int:
    if key not in fields:
        if default is None:
            raise ValueError(f"the header has no {key!r}. It must be given.")
        return default
    text = fields[key].strip("{} ")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"invalid {key!r} {text!r}. It must be a whole number.") from None


def _inner(value: str) -> str:
    return value.strip().removeprefix("{").removesuffix("}").strip()


def _items(fields: Mapping[str, str], key: str) -> list[str] | None:
    if key not in fields:
        return None
    items = [item.strip() for item in _inner(fields[key]).replace("\n", " ").split(",")]
    while items and not items[-1]:  # a comma after the last item
        items.pop()
    return items


def _per_band(fields: Mapping[str, str], key: str, bands: int) -> list[str] | None:
    items = _items(fields, key)
    if items is not None and len(items) != bands:
        raise ValueError(
            f"{key!r} lists {len(items)} values for {bands} bands. There must be one per band."
        )
    return items


def _layout(fields: Mapping[str, str]) -> tuple[tuple[int, int, int], np.dtype, str, int]:
    """Return (shape, type, interleave, offset), checked."""
    shape = (
        _integer(fields, "lines"),
        _integer(fields, "samples"),
        _integer(fields, "bands"),
    )
    if min(shape) < 1:
        raise ValueError(
            f"invalid size: lines {shape[0]}, samples {shape[1]}, bands {shape[2]}. "
            "Each must be at least 1."
        )
    code = _integer(fields, "data type")
    if code in _COMPLEX:
        raise ValueError(f"data type {code} ({_COMPLEX[code]}) is not supported. It must be real.")
    if code not in _TYPES:
        known = ", ".join(map(str, _TYPES))
        raise ValueError(f"unknown data type {code}. It must be one of {known}.")
    order = _integer(fields, "byte order", 0)
    if order not in (0, 1):
        raise ValueError(f"invalid byte order {order}. It must be 0 (little) or 1 (big endian).")
    interleave = fields.get("interleave", "").strip().lower()
    if interleave not in _LAYOUTS:
        raise ValueError(f"invalid interleave {interleave!r}. It must be bsq, bil or bip.")
    offset = _integer(fields, "header offset", 0)
    if offset < 0:
        raise ValueError(f"invalid header offset {offset}. It must not be negative.")
    kind = fields.get("file type", "").lower()
    if "library" in kind or "meta" in kind:
        raise ValueError(f"{fields['file type']!r} is no image cube.")
    for key in ("major frame offsets", "minor frame offsets"):
        if any(item not in ("0", "") for item in _items(fields, key) or []):
            raise ValueError(f"{key!r} other than 0 are not supported.")
    return shape, np.dtype("<>"[order] + _TYPES[code]), interleave, offset


def _source(header: Path, data: Path, fields: dict[str, str]) -> Source:
    shape, dtype, interleave, offset = _layout(fields)
    metadata, extra = _metadata(fields, shape[2])
    metadata |= {
        "source": data.name,
        "interleave": interleave,
        "byte_order": "big" if _integer(fields, "byte order", 0) else "little",
    }
    document = read_sidecar(header)
    if document:
        metadata = merged(metadata, document["metadata"], shape[2])
        metadata["denoised"] = document["settings"]
    mapped = _mapper(data, fields, shape, dtype, interleave, offset)
    return Source(
        path=header,
        shape=shape,
        stored_dtype=dtype,
        load=lambda rows, cols: mapped()[rows, cols],
        metadata=metadata,
        lazy=not _integer(fields, "file compression", 0),
        files=tuple(file for file in (header, data, sidecar(header)) if file.exists()),
        **extra,
    )


def _mapper(
    data: Path,
    fields: Mapping[str, str],
    shape: tuple[int, int, int],
    dtype: np.dtype,
    interleave: str,
    offset: int,
) -> Callable[[], np.ndarray]:
    """Return what gives the stored values (row, col, band) as a view of the file.

    A file is mapped anew each time: what a map has touched counts as memory until it is closed.
    """
    disk, back = _LAYOUTS[interleave]
    stored_shape = tuple(shape[axis] for axis in disk)
    needed = offset + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if _integer(fields, "file compression", 0):
        try:
            with gzip.open(data) as file:  # no more is unpacked than the header asks for
                content = _read_up_to(file, needed)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{data}: the compressed data cannot be read ({error}).") from None
        _check_size(data, len(content), needed, shape, dtype)
        flat = np.frombuffer(content, dtype, count=int(np.prod(shape)), offset=offset)
        unpacked = flat.reshape(stored_shape).transpose(back)
        return lambda: unpacked
    _check_size(data, data.stat().st_size, needed, shape, dtype)

    def mapped() -> np.ndarray:
        return np.memmap(data, dtype, mode="r", offset=offset, shape=stored_shape).transpose(back)

    return mapped


def _read_up_to(file: BinaryIO | gzip.GzipFile, most: int) -> bytes:
    """Read at most so many bytes, in steps: what a header asks for need not be there."""
    parts, left = [], most
    while left > 0 and (part := file.read(min(left, _UNPACKED))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _check_size(
    data: Path, size: int, needed: int, shape: tuple[int, int, int], dtype: np.dtype
) -> None:
    if size < needed:
        raise ValueError(
            f"{data}: {size} bytes, but {shape[0]} lines x {shape[1]} samples x {shape[2]} bands "
            f"of {dtype.name} need {needed}. The file is truncated or its header is wrong."
        )


def _metadata(fields: dict[str, str], bands: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (shared metadata, what `Source` needs of them)."""
    metadata: dict[str, Any] = {}
    notes: list[str] = []
    extra = _spectral(fields, bands, metadata, notes)
    flags = _per_band(fields, "bbl", bands)
    if flags is not None:
        metadata["good_bands"] = [number != 0 for number in numbers(flags, "bbl value")]
        extra["good_bands"] = np.array(metadata["good_bands"])
    if "data ignore value" in fields:
        text = _inner(fields["data ignore value"])
        try:
            metadata["nodata"] = extra["nodata"] = float(text)
        except ValueError:
            raise ValueError(
                f"invalid 'data ignore value' {text!r}. It must be a number."
            ) from None
    extra |= _scaling(fields, bands, metadata)
    names = _items(fields, "band names")
    if names is not None and len(names) == bands:
        metadata["band_names"] = names
    elif names is not None:
        notes.append(f"{len(names)} band names for {bands} bands; they are left out")
    if "map info" in fields:
        metadata["map_info"] = _inner(fields["map info"])
    system = _inner(fields.get("coordinate system string", "")) or None
    wkt, transform = crs.from_map_info(metadata.get("map_info"), system)
    metadata |= {"crs_wkt": wkt} if wkt else {}
    metadata |= {"transform": transform} if transform else {}
    if "acquisition time" in fields:
        metadata["acquisition_time"] = _inner(fields["acquisition time"])
    metadata["envi"] = {key: value for key, value in fields.items() if key not in _KNOWN}
    metadata |= {"notes": notes} if notes else {}
    return metadata, extra


def _spectral(
    fields: Mapping[str, str], bands: int, metadata: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    centres = _per_band(fields, "wavelength", bands)
    widths = _per_band(fields, "fwhm", bands)
    units = fields.get("wavelength units")
    if units is not None:
        metadata["wavelength_units"] = units = _inner(units)
    if centres is None:
        return {}
    wavelengths, fwhm, note = to_nanometres(centres, units, widths)
    if fwhm is not None:
        metadata["fwhm"] = fwhm
    if note:
        notes.append(note)
    return {"wavelengths": wavelengths}


def _scaling(fields: Mapping[str, str], bands: int, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return scale and offset: the reflectance scale factor divides, gains multiply."""
    if "reflectance scale factor" in fields:
        (factor,) = numbers(
            [_inner(fields["reflectance scale factor"])], "reflectance scale factor"
        )
        if factor == 0:
            raise ValueError("invalid reflectance scale factor 0. It must not be zero.")
        scale = float(1 / factor)
        metadata |= {"scale_factor": scale, "name": "reflectance", "units": "1"}
        return {} if scale == 1 else {"scale": scale}
    extra: dict[str, Any] = {}
    neutral = {"scale": 1.0, "offset": 0.0}
    keys = {"scale": "data gain values", "offset": "data offset values"}
    names = {"scale": "scale_factor", "offset": "add_offset"}
    for name, key in keys.items():
        items = _per_band(fields, key, bands)
        if items is None:
            continue
        values = [float(number) for number in numbers(items, key)]
        metadata[names[name]] = values
        if any(value != neutral[name] for value in values):
            extra[name] = np.array(values)
    return extra


def write_raster(
    data: Path,
    header: Path,
    values: np.ndarray,
    *,
    dtype: str,
    description: str,
    metadata: Mapping[str, Any],
    wavelengths: np.ndarray | None = None,
) -> None:
    """Write (row, col, band) values and their header, in the input's interleave and byte order."""
    interleave = str(metadata.get("interleave", "bil")).lower()
    interleave = interleave if interleave in _LAYOUTS else "bil"
    big = metadata.get("byte_order") == "big"
    stored = np.dtype(dtype).newbyteorder(">" if big else "<")
    with data.open("wb") as file:
        for plane in planes(values.transpose(_LAYOUTS[interleave][0]), 0):
            file.write(np.ascontiguousarray(plane, dtype=stored).tobytes())
    rows, cols, bands = values.shape
    codes = {name: code for code, name in _TYPES.items()}
    fields = {
        "description": "{" + description + "}",
        "samples": cols,
        "lines": rows,
        "bands": bands,
        "header offset": 0,
        "file type": "ENVI Standard",
        "data type": codes[stored.str[1:]],
        "interleave": interleave,
        "byte order": int(big),
    }
    fields |= _written_fields(metadata, wavelengths, bands, stored.kind == "f")
    lines = ["ENVI", *(f"{key} = {value}" for key, value in fields.items())]
    header.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _listed(items: Any) -> str:
    return "{" + ", ".join(str(item) for item in items) + "}"


def _written_fields(
    metadata: Mapping[str, Any], wavelengths: np.ndarray | None, bands: int, real: bool
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if real:
        fields["data ignore value"] = "nan"
    if wavelengths is not None:
        fields["wavelength units"] = "Nanometers"
        fields["wavelength"] = _listed(repr(float(value)) for value in wavelengths)
        if metadata.get("fwhm"):
            fields["fwhm"] = _listed(repr(float(value)) for value in metadata["fwhm"])
    good = metadata.get("good_bands")
    if good is not None and len(good) == bands:
        fields["bbl"] = _listed(int(flag) for flag in good)
    names = metadata.get("band_names")
    if names is not None and len(names) == bands:
        # A comma would split a name, a brace would end the list.
        fields["band names"] = _listed(
            "".join(" " if c in ",{}\n" else c for c in str(name)) for name in names
        )
    wkt, transform = metadata.get("crs_wkt"), metadata.get("transform")
    info = metadata.get("map_info")
    if transform is not None and (
        info is None or not crs.same_transform(crs.from_map_info(info, wkt)[1], transform)
    ):
        info = crs.to_map_info(wkt, transform)
    if info is not None:
        fields["map info"] = "{" + info + "}"
    if wkt:
        fields["coordinate system string"] = "{" + crs.esri_wkt(wkt) + "}"
    if metadata.get("acquisition_time"):
        fields["acquisition time"] = metadata["acquisition_time"]
    envi = metadata.get("envi") or {}
    return fields | {k: v for k, v in envi.items() if k not in _KNOWN and k != "description"}

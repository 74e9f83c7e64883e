"""Metadata as text: what a format has no place for travels as JSON and comes back unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from sigmacube.io.crs import same_transform

#: Metadata with one item per band.
PER_BAND = ("fwhm", "good_bands", "band_names", "scale_factor", "add_offset", "dark_std")
#: Metadata that hold arrays or coordinates; only labelled formats carry them.
NOT_TEXT = ("location", "xarray")


def to_json(content: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Return ``content`` as JSON, without the keys that are no text.

    Examples
    --------
    >>> to_json({"nodata": float("nan"), "fwhm": np.array([6.5, 7.0]), "location": {}})
    '{"nodata": "nan", "fwhm": [6.5, 7.0]}'
    """
    kept = {key: value for key, value in content.items() if key not in NOT_TEXT}
    return json.dumps(plain(kept), indent=indent, ensure_ascii=False, allow_nan=False)


def from_json(text: str) -> dict[str, Any]:
    """Return what `to_json` wrote.

    Examples
    --------
    >>> from_json('{"nodata": "nan"}')
    {'nodata': nan}
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("the metadata are nested too deeply.") from None
    if not isinstance(content, dict):
        raise ValueError("the metadata are no JSON object.")
    if isinstance(content.get("nodata"), str):
        content["nodata"] = float(content["nodata"])
    for key, right in _SHAPES.items():
        if content.get(key) is not None and not right(content[key]):
            raise ValueError(f"invalid {key!r} in the metadata: {content[key]!r:.60}.")
    return content


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_is_number(item) for item in value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


#: What each of the shared metadata must look like for the rest of the package.
_SHAPES: dict[str, Callable[[Any], bool]] = {
    "fwhm": _are_numbers,
    "good_bands": _is_list,
    "band_names": _is_list,
    "scale_factor": lambda value: _is_number(value) or _are_numbers(value),
    "add_offset": lambda value: _is_number(value) or _are_numbers(value),
    "transform": lambda value: _are_numbers(value) and len(value) == 6,
    "ortho_transform": lambda value: _are_numbers(value) and len(value) == 6,
    "nodata": lambda value: isinstance(value, int | float),
    "crs_wkt": _is_text,
    "ortho_crs_wkt": _is_text,
    "map_info": _is_text,
    "name": _is_text,
    "units": _is_text,
    "source": _is_text,
    "interleave": _is_text,
    "acquisition_time": _is_text,
    "notes": _is_list,
    "envi": _is_table,
}


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # JSON has no NaN
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value) if isinstance(value, PurePath) else repr(value)


def sidecar(path: Path) -> Path:
    """Return the name of the JSON file that goes with a raster result, by its main file.

    Examples
    --------
    >>> sidecar(Path("scene_clean.hdr")).name, sidecar(Path("scene_clean.img")).name
    ('scene_clean.hdr.sigmacube.json', 'scene_clean.hdr.sigmacube.json')
    >>> sidecar(Path("scene_clean.tif")).name
    'scene_clean.tif.sigmacube.json'
    """
    main = path if path.suffix.lower() in (".tif", ".tiff") else path.with_suffix(".hdr")
    return main.with_name(f"{main.name}.sigmacube.json")


def read_sidecar(path: Path) -> dict[str, Any]:
    """Return the contents of a raster's JSON file, or nothing where there is none."""
    beside = sidecar(path)
    if not beside.is_file():
        return {}
    try:
        document = json.loads(beside.read_text(encoding="utf-8"))
        for key in ("settings", "metadata"):
            document[key] = from_json(json.dumps(document[key]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{beside}: damaged ({error}).") from None
    return dict(document)


def noted(metadata: Mapping[str, Any], note: str) -> dict[str, Any]:
    """Return metadata with one more note of what a reader assumed or did."""
    return {**metadata, "notes": [*metadata.get("notes", []), note]}


def merged(found: Mapping[str, Any], stored: Mapping[str, Any], bands: int) -> dict[str, Any]:
    """Return the metadata ``stored`` by an earlier run, corrected by what the file says now.

    Values were written in physical units with NaN for no data, so the input's scale and no-data
    value are those stored. Where another tool has since cropped the file, its own place and bands
    hold.
    """
    if not stored:
        return dict(found)
    result = {**found, **stored}
    for key in ("nodata", "scale_factor", "add_offset", "dark_std"):
        if key not in stored:
            result.pop(key, None)
    if not same_transform(found.get("transform"), stored.get("transform")):
        result.pop("map_info", None)
        for key in ("crs_wkt", "transform"):
            result.pop(key, None)
            if found.get(key) is not None:
                result[key] = found[key]
    for key in PER_BAND:
        if isinstance(result.get(key), list) and len(result[key]) != bands:
            result.pop(key)
            if len(found.get(key, [])) == bands:
                result[key] = found[key]
    return result

"""Where a cube lies: ENVI map info, affine transforms and CF grid mappings, from one another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# PROJ method -> CF grid_mapping_name and the CF names of its parameters.
_ORIGIN = {
    "Latitude of natural origin": "latitude_of_projection_origin",
    "Longitude of natural origin": "longitude_of_projection_origin",
    "False easting": "false_easting",
    "False northing": "false_northing",
}
_MERIDIAN = {**_ORIGIN, "Longitude of natural origin": "longitude_of_central_meridian"}
_CONIC = {
    "Latitude of false origin": "latitude_of_projection_origin",
    "Longitude of false origin": "longitude_of_central_meridian",
    "Latitude of 1st standard parallel": "standard_parallel",
    "Latitude of 2nd standard parallel": "standard_parallel",
    "Easting at false origin": "false_easting",
    "Northing at false origin": "false_northing",
}
_METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "Transverse Mercator": (
        "transverse_mercator",
        {**_MERIDIAN, "Scale factor at natural origin": "scale_factor_at_central_meridian"},
    ),
    "Lambert Azimuthal Equal Area": ("lambert_azimuthal_equal_area", _ORIGIN),
    "Albers Equal Area": ("albers_conical_equal_area", _CONIC),
    "Lambert Conic Conformal (2SP)": ("lambert_conformal_conic", _CONIC),
    "Mercator (variant A)": (
        "mercator",
        {**_ORIGIN, "Scale factor at natural origin": "scale_factor_at_projection_origin"},
    ),
    "Mercator (variant B)": (
        "mercator",
        {**_ORIGIN, "Latitude of 1st standard parallel": "standard_parallel"},
    ),
    "Popular Visualisation Pseudo Mercator": ("mercator", _ORIGIN),
    "Polar Stereographic (variant A)": (
        "polar_stereographic",
        {
            **_ORIGIN,
            "Longitude of natural origin": "straight_vertical_longitude_from_pole",
            "Scale factor at natural origin": "scale_factor_at_projection_origin",
        },
    ),
    "Polar Stereographic (variant B)": (
        "polar_stereographic",
        {
            **_ORIGIN,
            "Latitude of standard parallel": "standard_parallel",
            "Longitude of origin": "straight_vertical_longitude_from_pole",
        },
    ),
    "Sinusoidal": ("sinusoidal", _ORIGIN),
}


def from_gdal(numbers: Iterable[Any]) -> list[float]:
    """Return the transform of six numbers in the order of GDAL.

    Examples
    --------
    >>> from_gdal("600000 30 0 5800000 0 -30".split())
    [30.0, 0.0, 600000.0, 0.0, -30.0, 5800000.0]
    """
    c, a, b, f, d, e = (float(number) for number in numbers)
    return [a, b, c, d, e, f]


def from_grid_mapping(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``crs_wkt`` and ``transform`` from the attributes of a CF grid mapping that has them.

    Examples
    --------
    >>> from_grid_mapping({"GeoTransform": "600000 30 0 5800000 0 -30"})
    {'transform': [30.0, 0.0, 600000.0, 0.0, -30.0, 5800000.0]}
    """
    wkt = attrs.get("crs_wkt") or attrs.get("spatial_ref")
    found: dict[str, Any] = {"crs_wkt": wkt} if isinstance(wkt, str) and wkt else {}
    numbers = str(attrs.get("GeoTransform", "")).split()
    return found | ({"transform": from_gdal(numbers)} if len(numbers) == 6 else {})


def same_transform(one: Sequence[float] | None, other: Sequence[float] | None) -> bool:
    """Return whether two transforms place pixels alike, up to rounding.

    Examples
    --------
    >>> same_transform([3.0, 0, 7, 0, -3, 9], [3.0000000000000004, 0, 7, 0, -3, 9])
    True
    """
    if one is None or other is None:
        return one is other
    size = abs(one[0]) + abs(one[1]) or 1.0
    return all(
        math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-9 * size)
        for a, b in zip(one, other, strict=True)
    )


def from_map_info(
    map_info: str | None, coordinate_system: str | None
) -> tuple[str | None, list[float] | None]:
    """Return (WKT, affine a b c d e f) from an ENVI header's map info and coordinate system.

    Examples
    --------
    >>> from_map_info("UTM, 1, 1, 384342.37, 5818392.35, 30, 30, 33, North, WGS-84", None)[1]
    [30.0, 0.0, 384342.37, 0.0, -30.0, 5818392.35]
    """
    wkt = coordinate_system or None
    if not map_info:
        return wkt, None
    fields = [item.strip() for item in map_info.split(",")]
    options: dict[str, str] = {}
    for item in fields:
        if "=" in item:
            key, _, value = item.partition("=")
            options[key.strip().lower()] = value.strip()
    plain = [item for item in fields if "=" not in item]
    try:
        ref_x, ref_y, east, north, width, height = (float(item) for item in plain[1:7])
        angle = math.radians(float(options.get("rotation", 0.0)))
        if not math.isfinite(sum((ref_x, ref_y, east, north, width, height, angle))):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"Invalid map info {map_info!r}. It must hold a projection name, the reference pixel, "
            "its easting and northing, and the pixel's width and height."
        ) from None
    if wkt is None:
        wkt = _wkt_from_fields(plain)
    cos, sin = math.cos(angle), math.sin(angle)
    transform = [
        width * cos,
        width * sin,
        east - (ref_x - 1) * width,
        height * sin,
        -height * cos,
        north + (ref_y - 1) * height,
    ]
    return wkt, [value + 0.0 for value in transform]  # no negative zeros


def _wkt_from_fields(fields: Sequence[str]) -> str | None:
    """Return the WKT of the two systems that map info states completely: WGS-84 and its UTM."""
    from rasterio.crs import CRS

    names = [field.lower() for field in fields]
    if not any(name.replace(" ", "-") == "wgs-84" for name in names):
        return None
    if names[0].startswith("geographic"):
        return str(CRS.from_epsg(4326).to_wkt())
    if names[0] == "utm" and len(names) > 8 and names[7].isdigit():
        zone = int(names[7])
        if 1 <= zone <= 60:
            return str(CRS.from_epsg((32700 if names[8] == "south" else 32600) + zone).to_wkt())
    return None


def _projjson(wkt: str) -> dict[str, Any] | None:
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        return dict(CRS.from_wkt(wkt).to_dict(projjson=True))
    except CRSError:
        return None


def esri_wkt(wkt: str) -> str:
    """Return ``wkt`` in the dialect of ENVI headers; unchanged where it is not understood."""
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        return str(CRS.from_wkt(wkt).to_wkt(version="WKT1_ESRI"))
    except CRSError:
        return wkt


def to_map_info(wkt: str | None, transform: Sequence[float]) -> str | None:
    """Return ENVI map info for a transform, or None where it is sheared.

    Examples
    --------
    >>> to_map_info(None, [30.0, 0.0, 365055.0, 0.0, -30.0, 5807085.0])
    'Arbitrary, 1, 1, 365055.0, 5807085.0, 30.0, 30.0, 0, North'
    """
    a, b, c, d, e, f = (float(value) for value in transform)
    width, height = math.hypot(a, b), math.hypot(d, e)
    angle = math.atan2(b, a)
    expected = (height * math.sin(angle), -height * math.cos(angle))
    if not all(
        math.isclose(x, y, abs_tol=1e-9 * height) for x, y in zip((d, e), expected, strict=True)
    ):
        return None
    name, tail = _projection_fields(wkt)
    text = f"{name}, 1, 1, {c!r}, {f!r}, {width!r}, {height!r}{tail}"
    return text if angle == 0 else f"{text}, rotation={math.degrees(angle)!r}"


def _projection_fields(wkt: str | None) -> tuple[str, str]:
    system = _projjson(wkt) if wkt else None
    if system is None:
        return "Arbitrary", ", 0, North"
    base = system.get("base_crs", system)
    datum = "WGS-84" if "WGS 84" in base.get("name", "") else base.get("name", "")
    if system.get("type") == "GeographicCRS":
        return "Geographic Lat/Lon", f", {datum}, units=Degrees"
    conversion = system.get("conversion", {}).get("name", "")
    if conversion.startswith("UTM zone "):
        zone = conversion.removeprefix("UTM zone ")
        hemisphere = "South" if zone.endswith("S") else "North"
        return "UTM", f", {zone[:-1]}, {hemisphere}, {datum}, units=Meters"
    name = str(system.get("name", "Arbitrary")).replace(",", " ")
    return name, f", {datum}"


def is_geographic(wkt: str) -> bool:
    """Return whether ``wkt`` is a system of longitudes and latitudes."""
    system = _projjson(wkt)
    return system is not None and system.get("type") == "GeographicCRS"


def cf_grid_mapping(wkt: str | None, transform: Sequence[float] | None) -> dict[str, Any]:
    """Return the attributes of a CF grid mapping variable, which GDAL reads as well.

    Examples
    --------
    >>> from rasterio.crs import CRS
    >>> cf_grid_mapping(CRS.from_epsg(32633).to_wkt(), None)["grid_mapping_name"]
    'transverse_mercator'
    """
    attributes: dict[str, Any] = {}
    system = _projjson(wkt) if wkt else None
    if system is not None:
        attributes |= _ellipsoid(system)
        if system.get("type") == "GeographicCRS":
            attributes["grid_mapping_name"] = "latitude_longitude"
        else:
            attributes |= _projection(system)
    if wkt:
        attributes["crs_wkt"] = attributes["spatial_ref"] = wkt
    if transform is not None:
        a, b, c, d, e, f = (float(value) for value in transform)
        attributes["GeoTransform"] = " ".join(repr(value) for value in (c, a, b, f, d, e))
    return attributes


def _number(value: Any) -> float:
    """Return a PROJJSON number, which may carry its unit."""
    return float(value["value"]) if isinstance(value, dict) else float(value)


def _ellipsoid(system: dict[str, Any]) -> dict[str, Any]:
    base = system.get("base_crs", system)
    datum = base.get("datum") or base.get("datum_ensemble") or {}
    ellipsoid = datum.get("ellipsoid", {})
    attributes: dict[str, Any] = {"longitude_of_prime_meridian": 0.0}
    if "semi_major_axis" in ellipsoid:
        attributes["semi_major_axis"] = _number(ellipsoid["semi_major_axis"])
    if "inverse_flattening" in ellipsoid:
        attributes["inverse_flattening"] = _number(ellipsoid["inverse_flattening"])
    elif "semi_minor_axis" in ellipsoid:
        attributes["semi_minor_axis"] = _number(ellipsoid["semi_minor_axis"])
    return attributes


def _projection(system: dict[str, Any]) -> dict[str, Any]:
    conversion = system.get("conversion", {})
    found = _METHODS.get(conversion.get("method", {}).get("name", ""))
    if found is None:
        return {}
    name, names = found
    attributes: dict[str, Any] = {"grid_mapping_name": name}
    for parameter in conversion.get("parameters", []):
        key = names.get(parameter["name"])
        if key is None:
            continue
        value = _number(parameter["value"])
        if key in attributes:
            attributes[key] = [attributes[key], value]
        else:
            attributes[key] = value
    if name == "mercator" and "standard_parallel" not in attributes:
        attributes.setdefault("scale_factor_at_projection_origin", 1.0)
    if name == "polar_stereographic" and "standard_parallel" in attributes:
        pole = math.copysign(90.0, attributes["standard_parallel"])
        attributes["latitude_of_projection_origin"] = pole
    return attributes

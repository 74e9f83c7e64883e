"""``sigmacube info``: what is in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from sigmacube.commands._options import FILE, local_file, reading_options
from sigmacube.console import percent, table

if TYPE_CHECKING:
    import numpy as np

    from sigmacube.cube import Cube
    from sigmacube.io.source import Source

#: Elements looked at for the statistics; larger cubes are judged by a block in their middle.
_SAMPLE = 30_000_000


@click.command("info", short_help="Describe a cube: shape, bands, wavelengths, noise.")
@click.argument("source", metavar="FILE", type=FILE)
@reading_options
@click.option("--no-noise", is_flag=True, help="Leave out the noise estimate.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(source: str, no_noise: bool, as_json: bool, **options: Any) -> None:
    """Describe the cube in FILE: shape, bands, wavelengths, no data, estimated noise and SNR."""
    from sigmacube import io

    with local_file(source) as path:
        opened = io.open_source(path, **options)
        cube, whole = _sample(opened)
        facts = _facts(opened, cube, source) | _statistics(cube, whole)
        if not no_noise and "denoised" not in facts:
            facts |= _noise(cube)
    if as_json:
        from sigmacube.io.metadata import to_json

        click.echo(to_json(facts, indent=1))
    else:
        table(_rows(facts))


def _sample(source: Source) -> tuple[Cube, bool]:
    """Return the cube, or a square in its middle where it is large, and whether it is whole."""
    rows, cols, bands = source.shape
    if rows * cols * bands <= _SAMPLE:
        return source.read(), True
    side = max(32, int((_SAMPLE / bands) ** 0.5))
    top, left = max(0, (rows - side) // 2), max(0, (cols - side) // 2)
    return source.read_part(slice(top, top + side), slice(left, left + side)), False


def _facts(source: Source, cube: Cube, name: str) -> dict[str, Any]:
    metadata = source.metadata
    facts: dict[str, Any] = {
        "file": name,
        "shape": list(source.shape),
        "dtype": source.stored_dtype.name,
        "values": cube.values.dtype.newbyteorder("=").name,
    }
    if source.wavelengths is not None:
        facts["wavelengths_nm"] = source.wavelengths.tolist()
    if source.good_bands is not None:
        facts["bad_bands"] = [i for i, good in enumerate(source.good_bands) if not good]
    for key, value in metadata.items():
        if key not in ("good_bands", "location", "xarray", "envi"):
            facts.setdefault(key, value)
    if metadata.get("location"):
        facts["location"] = sorted(metadata["location"])
    return facts


def _valid(cube: Cube) -> np.ndarray:
    import numpy as np

    valid = np.isfinite(cube.values)
    return valid if cube.mask is None else valid & cube.mask


def _statistics(cube: Cube, whole: bool) -> dict[str, Any]:
    import numpy as np

    valid = _valid(cube)
    facts: dict[str, Any] = {"masked": float(1 - valid.mean())}
    if valid.any():
        inside = np.asarray(cube.values)[valid]
        facts["range"] = [float(inside.min()), float(np.median(inside)), float(inside.max())]
    if not whole:
        facts["sampled"] = list(cube.shape)
    return facts


def _noise(cube: Cube) -> dict[str, Any]:
    """Return what is known of the noise, or the reason why nothing is."""
    import logging

    import numpy as np

    from sigmacube.noise.report import noise_report

    logger = logging.getLogger("sigmacube")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the table says it all
    try:
        return noise_report(np.asarray(cube.values), mask=_valid(cube))
    except ValueError as error:
        return {"noise_reason": str(error)}
    finally:
        logger.setLevel(level)


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from sigmacube.core.card import count_of

    rows, cols, bands = facts["shape"]
    yield "file", facts["file"]
    sides = (count_of(rows, "row"), count_of(cols, "col"), count_of(bands, "band"))
    yield "shape", " × ".join(sides)
    stored = facts["dtype"]
    yield "type", stored if stored == facts["values"] else f"{stored}, {facts['values']} as scaled"
    yield from _spectral_rows(facts)
    if "range" in facts:
        low, middle, high = (f"{value:.4g}" for value in facts["range"])
        unit = "" if facts.get("units") in (None, "1") else f" {facts['units']}"
        yield "values", f"{low} to {high}, median {middle}{unit}"
    if "scale_factor" in facts:
        scale = facts["scale_factor"]
        yield "scale", "one per band" if isinstance(scale, list) else f"{scale:g}, applied"
    empty = facts.get("nodata")
    yield "no-data value", "not stated" if empty is None else f"{empty:g}".replace("nan", "NaN")
    yield "masked", f"{percent(facts['masked'], 2)} of the values"
    yield from _place_rows(facts)
    for key, label in (
        ("acquisition_time", "acquired"),
        ("instrument", "instrument"),
        ("name", "variable"),
        ("interleave", "interleave"),
        ("byte_order", "byte order"),
    ):
        if facts.get(key):
            yield label, str(facts[key])
    if "denoised" in facts:
        yield "made by", f"sigmacube {facts['denoised'].get('version', '')}, denoise"
        if "rejected_share" in facts["denoised"]:
            share, solver = (facts["denoised"][key] for key in ("rejected_share", "solver"))
            yield "set aside", f"{percent(share, 2)} of the values, by solver {solver}"
    yield from _noise_rows(facts)
    if "sampled" in facts:
        yield "from", f"values and noise of {facts['sampled'][0]} × {facts['sampled'][1]} pixels"
    # What was found out about the input of a result is not about the result.
    for text in () if "denoised" in facts else facts.get("notes", []):
        yield "note", text


def _spectral_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    centres = facts.get("wavelengths_nm")
    if centres is None:
        yield "wavelengths", "not stated"
    else:
        units = facts.get("wavelength_units")
        told = (
            f" (stored as {units})" if units and units.lower() not in ("nm", "nanometers") else ""
        )
        yield "wavelengths", f"{min(centres):.1f} to {max(centres):.1f} nm{told}"
    if facts.get("fwhm"):
        low, high = f"{min(facts['fwhm']):.1f}", f"{max(facts['fwhm']):.1f}"
        yield "fwhm", f"{low} nm" if low == high else f"{low} to {high} nm"
    if facts.get("bad_bands"):
        yield "bad bands", f"{_ranges(facts['bad_bands'])} (the first band is 0)"


def _ranges(items: list[int]) -> str:
    """Return sorted integers as text.

    Examples
    --------
    >>> _ranges([3, 4, 5, 9])
    '3-5, 9'
    """
    parts: list[list[int]] = []
    for item in items:
        if parts and item == parts[-1][1] + 1:
            parts[-1][1] = item
        else:
            parts.append([item, item])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _place_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if facts.get("crs_wkt"):
        # The name is the first quoted text of any WKT dialect; headers may hold other texts.
        wkt = str(facts["crs_wkt"])
        yield "crs", wkt.split('"')[1] if '"' in wkt else wkt[:60]
    if facts.get("transform"):
        a, _, c, _, e, f = facts["transform"]
        yield "origin", f"{c:.10g}, {f:.10g}; pixels of {abs(a):g} × {abs(e):g}"
    if facts.get("location"):
        yield "location", f"sensor geometry with {', '.join(facts['location'])}"


def _noise_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "noise_reason" in facts:
        yield "noise", f"not estimated: {facts['noise_reason']}"
    if "noise" in facts:
        noise, snr = (sorted(v for v in facts[key] if v is not None) for key in ("noise", "snr"))
        middle = len(noise) // 2
        yield "noise", f"median {noise[middle]:.3g}, from {noise[0]:.3g} to {noise[-1]:.3g}"
        if snr:
            middle = len(snr) // 2
            yield "SNR", f"median {snr[middle]:.0f}, from {snr[0]:.2g} to {snr[-1]:.0f}"
            yield "SNR by band", spark_line(facts["snr"])
        yield from _noise_kind_rows(facts)


def _noise_kind_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from sigmacube.core.card import count_of

    lags = facts["noise_band_correlation"]
    near = ", ".join(f"{r:+.2f}" for r in lags[1:4]) if any(lags[1:]) else "none"
    yield "between bands", f"correlation of neighbouring bands {near}"
    yield "with signal", "noise grows" if facts["noise_signal_dependent"] else "noise is constant"
    lag1 = round(facts["noise_spatial_lag1"], 2) + 0.0  # no -0.00
    text = f"correlation of neighbouring pixels {lag1:+.2f}"
    yield "in space", text + ("; a resampled product?" if lag1 > 0.05 else "")
    for key, label in (
        ("empty_bands", "no data"),
        ("constant_bands", "constant"),
        ("duplicated_bands", "duplicated"),
        ("saturated_bands", "saturated"),
        ("noisy_bands", "SNR below 3"),
        ("striped_bands", "striped"),
    ):
        if facts[key] and facts[key] != facts.get("bad_bands"):
            yield label, f"{count_of(len(facts[key]), 'band')}: {_ranges(facts[key])}"


def spark_line(values: list[float | None], width: int = 60) -> str:
    """Return numbers as a line of bars on a logarithmic scale; a dot where there is none.

    Examples
    --------
    >>> spark_line([1.0, 10.0, None, 100.0])
    '▁▅·█'
    """
    import numpy as np

    bars = "▁▂▃▄▅▆▇█"
    groups = np.array_split(np.array([v or np.nan for v in values], float), min(width, len(values)))
    means = [float(np.median(g[g > 0])) if np.any(g > 0) else np.nan for g in groups]
    known = [m for m in means if m == m]
    if not known:
        return "·" * len(means)
    low, high = np.log(min(known)), np.log(max(known))
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join("·" if m != m else bars[round((np.log(m) - low) * scale)] for m in means)

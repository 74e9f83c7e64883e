"""Hand-over to ISOFIT: denoised radiance, its uncertainty, and the noise that is left, as files.

ISOFIT takes the noise of radiance as a curve per band, σ = a √(b + L) + c. What denoising leaves is
known for every value; the curve that comes nearest to it per band is what can be handed over today,
with how far it is from the values in the file's last column. The values themselves lie beside the
radiance, as ``name_rdn_uncert``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.io import envi
from sigmacube.io.atomic import staged
from sigmacube.noise.instrument import radiance_factor

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube


def write_isofit(
    result: DenoisedCube, folder: str | Path, name: str, *, overwrite: bool = False
) -> dict[str, Path]:
    """Write the files that ISOFIT reads: radiance, uncertainty, places, wavelengths and noise.

    Parameters
    ----------
    result
        Denoised radiance, with its standard deviation and wavelengths.
    folder
        Where to write; it must exist.
    name
        What names begin with.
    overwrite
        Whether existing files may be replaced.

    Returns
    -------
    dict
        ``radiance``, ``uncertainty``, ``loc`` (where places are known), ``wavelengths`` and
        ``noise``. Radiance is in µW cm⁻² nm⁻¹ sr⁻¹.

    Examples
    --------
    >>> import tempfile, sigmacube as sc
    >>> scene = sc.synthetic.scene((24, 30, 40), rng=1)
    >>> about = {"name": "radiance", "units": "uW cm-2 nm-1 sr-1"}
    >>> cube = sc.Cube(10 * scene.values, scene.wavelengths, metadata=about)
    >>> made = write_isofit(sc.denoise(sc.synthetic.add_noise(cube, 0.1, rng=2), 0.1),
    ...                     tempfile.mkdtemp(), "scene")
    >>> sorted(made), np.loadtxt(made["noise"]).shape
    (['noise', 'radiance', 'uncertainty', 'wavelengths'], (40, 5))
    """
    plain = result.unlabelled()
    if plain.std is None or plain.wavelengths is None:
        raise ValueError("Invalid result for ISOFIT: it must have σ and wavelengths.")
    factor = radiance_factor("ISOFIT", plain.metadata)
    files = _files(Path(folder), name, plain.metadata.get("location") or {})
    finals = [file for key in files for file in _with_header(files[key], key)]
    with staged(finals, overwrite=overwrite) as temporary:
        names = dict(zip(finals, temporary, strict=True))
        about = {**plain.metadata, "interleave": "bil", "byte_order": "little"}
        about |= {"units": "uW cm-2 nm-1 sr-1"}
        widths = plain.metadata.get("fwhm")
        for key, values in (("radiance", plain.estimate), ("uncertainty", plain.std)):
            filled = np.where(np.isfinite(values), values * factor, -9999.0)
            data, header = _with_header(files[key], key)
            envi.write_raster(names[data], names[header], filled, dtype="float32",
                              description=key, metadata=about,
                              wavelengths=plain.wavelengths)  # fmt: skip
        if "loc" in files:
            data, header = _with_header(files["loc"], "loc")
            _write_loc(names[data], names[header], plain.metadata["location"])
        table = _wavelengths(plain.wavelengths, widths)
        np.savetxt(names[files["wavelengths"]], table, fmt=("%d", "%.6f", "%.6f"))
        noise = noise_left(plain.estimate * factor, plain.std * factor, plain.wavelengths)
        np.savetxt(names[files["noise"]], noise, fmt="%.10g", header="wvl a b c rmse")
    return files


def _files(folder: Path, name: str, location: dict[str, Any]) -> dict[str, Path]:
    files = {
        "noise": folder / f"{name}_noise.txt",
        "wavelengths": folder / f"{name}_wavelengths.txt",
        "uncertainty": folder / f"{name}_rdn_uncert",
        "radiance": folder / f"{name}_rdn",
    }
    placed = "lat" in location and "lon" in location
    return ({"loc": folder / f"{name}_loc"} if placed else {}) | files


def _with_header(path: Path, key: str) -> list[Path]:
    if key in ("noise", "wavelengths"):
        return [path]
    return [path, path.with_name(f"{path.name}.hdr")]


def _write_loc(data: Path, header: Path, location: dict[str, Any]) -> None:
    """Write longitude, latitude and elevation of every pixel."""
    lat, lon = np.asarray(location["lat"], float), np.asarray(location["lon"], float)
    height = np.asarray(location.get("elev", np.zeros_like(lat)), float)
    names = ["Longitude (WGS-84)", "Latitude (WGS-84)", "Elevation (m)"]
    about = {"interleave": "bil", "byte_order": "little", "band_names": names}
    envi.write_raster(data, header, np.stack([lon, lat, height], axis=2), dtype="float64",
                      description="places", metadata=about)  # fmt: skip


def _wavelengths(centres: np.ndarray, widths: Any) -> np.ndarray:
    """Return number, centre and width (nm) of every band; widths from the spacing if unknown."""
    spacing = np.gradient(np.asarray(centres, dtype=float))
    fwhm = spacing if widths is None or len(widths) != len(centres) else np.asarray(widths, float)
    return np.column_stack([np.arange(len(centres)), centres, np.abs(fwhm)])


def noise_left(radiance: np.ndarray, std: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return (bands, 5) wavelength, a, b, c and rmse of the curve nearest to σ in every band.

    σ² is taken for a line in the radiance where it grows with it, and for constant elsewhere.
    """
    rows = []
    for band, centre in enumerate(centres):
        level, spread = radiance[..., band].ravel(), std[..., band].ravel()
        known = np.isfinite(level) & np.isfinite(spread)
        if not known.any():
            rows.append((centre, 0.0, 0.0, 0.0, 0.0))
            continue
        level, spread = level[known], spread[known]
        slope, start = np.polyfit(level, spread**2, 1) if np.ptp(level) > 0 else (0.0, 0.0)
        if slope > 0 and start > 0:
            a, b, c = slope**0.5, start / slope, 0.0
        else:
            a, b, c = 0.0, 0.0, float(np.sqrt(np.mean(spread**2)))
        curve = a * np.sqrt(np.maximum(b + level, 0)) + c
        rows.append((centre, a, b, c, float(np.sqrt(np.mean((curve - spread) ** 2)))))
    return np.array(rows)

"""Every sensor from its file to a map, checked against what the file was made from.

python benchmarks/sensors.py            table of all samples: info, denoise, product, map
python benchmarks/sensors.py emit-l1b   some of them
python benchmarks/sensors.py --noise    coverage with EMIT's noise file, and with noise unknown
python benchmarks/sensors.py --bytes    bytes fetched for tiles of a COG from a server on loopback
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import sigmacube as sc
from sigmacube import products
from sigmacube.io import open_source
from sigmacube.io.ortho import lookup_of
from sigmacube.io.sensors.samples import SAMPLES, Sample, Setting, write_sample

#: Kept small: samples are there to be read, not to be denoised well.
SETTING = Setting(rows=40, cols=44)


def offsets(sample: Sample, path: Path) -> np.ndarray:
    """Return how far, in pixels, each cell of a map lies from the centre of the pixel it shows.

    The pixel is found by its value; its centre is the maker's, brought to the map's system by
    rasterio. Along rows and columns of the sensor, in the larger of the two.
    """
    import rasterio
    from rasterio.warp import transform

    with rasterio.open(path) as file:
        shown, place, system = file.read(1), file.transform, file.crs
    x, y = (
        np.array(v).reshape(sample.x.shape)
        for v in transform(
            rasterio.crs.CRS.from_epsg(sample.epsg), system, sample.x.ravel(), sample.y.ravel()
        )
    )
    which = {float(v): at for at, v in np.ndenumerate(_numbered(sample))}
    down, across = ((np.gradient(v, axis=0), np.gradient(v, axis=1)) for v in (x, y))
    found = []
    for (row, col), value in np.ndenumerate(shown):
        if not np.isfinite(value):
            continue
        at = which[float(value)]
        mx, my = place @ (col + 0.5, row + 0.5) if hasattr(place, "__matmul__") else place * (
            col + 0.5, row + 0.5
        )  # fmt: skip
        steps = np.array([[down[0][at], down[1][at]], [across[0][at], across[1][at]]])
        found.append(np.abs(np.linalg.solve(steps, [mx - x[at], my - y[at]])).max())
    return np.array(found)


def _numbered(sample: Sample) -> np.ndarray:
    """Return a number for every pixel, exact in single precision."""
    return np.arange(sample.x.size, dtype=np.float32).reshape(sample.x.shape)


def map_of_numbers(sample: Sample, metadata: dict, path: Path) -> None:
    """Write a map that shows the number of every pixel."""
    numbers = _numbered(sample).astype(float)
    plain = products.Product("number", numbers, numbers, ("row", "col"), metadata=metadata)
    plain.save(path, ortho="transform" not in metadata)


def whole_path(name: str, folder: Path) -> dict[str, object]:
    """Take one sample from its file to a map; return what was found."""
    sample = write_sample(name, folder, SETTING)
    reading = {"variable": "swir"} if name == "enmap-l1b" else {}
    cube = open_source(sample.path, **reading).read()
    valid = np.broadcast_to(True if cube.mask is None else cube.mask, cube.shape)
    valid = valid & np.isfinite(cube.values)
    scale = np.abs(sample.values[sample.valid]).max()
    error = np.abs(np.where(sample.valid, cube.values - sample.values, 0)).max() / scale
    row: dict[str, object] = {
        "sensor": name,
        "values": float(error),
        "wavelengths": float(np.abs(cube.wavelengths - sample.wavelengths).max()),
        "mask": bool(np.array_equal(valid, sample.valid)),
        "time": cube.metadata.get("acquisition_time") == sample.time,
    }
    result = sc.denoise(cube)
    inside = np.isfinite(result.estimate) & sample.valid
    row["masked kept"] = bool(inside.sum() == sample.valid.sum())
    kept = result.save(folder / "clean.nc", keep_factors=True)
    row["CF"] = cf_errors(kept, folder)
    made = products.index(sc.io.read_result(kept), "(b560 - b665) / (b560 + b665)", tolerance=60.0)\
        if cube.wavelengths.min() < 600 else \
        products.index(sc.io.read_result(kept), "b1650 / b2200", tolerance=60.0)  # fmt: skip
    metadata = dict(result.metadata)
    placed = "transform" in metadata or metadata.get("location")
    target = folder / "index.tif"
    made.save(target, ortho=bool(placed and "transform" not in metadata))
    row["gdalinfo"] = subprocess.run(
        ["gdalinfo", str(target)], capture_output=True, check=False
    ).returncode == 0  # fmt: skip
    if placed:
        map_of_numbers(sample, metadata, folder / "numbers.tif")
        row["place"] = float(offsets(sample, folder / "numbers.tif").max())
        if "transform" not in metadata:
            row["by"] = lookup_of(metadata, result.estimate.shape[:2]).source
    return row


def cf_errors(path: Path, folder: Path) -> int:
    """Return how many errors the CF checker finds."""
    import json
    import warnings

    from compliance_checker.runner import CheckSuite, ComplianceChecker

    CheckSuite.load_all_available_checkers()
    out = folder / "cf.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ComplianceChecker.run_checker(
            str(path), ["cf:1.11"], 0, "strict", output_filename=str(out), output_format="json"
        )
    report = json.loads(out.read_text())["cf:1.11"]
    return int(report["high_count"]) + int(report["medium_count"])


def table(names: list[str]) -> None:
    print(f"{'sensor':14} {'values':>8} {'nm':>8} mask  time  place  by       CF gdalinfo")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            row = whole_path(name, Path(folder))
        place = f"{row['place']:.3f}" if "place" in row else "none"
        print(
            f"{name:14} {row['values']:8.1e} {row['wavelengths']:8.1e} {row['mask']!s:5} "
            f"{row['time']!s:5} {place:6} {row.get('by', 'map'):8} {row['CF']:2} {row['gdalinfo']}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="samples; all of them by default")
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--bytes", action="store_true")
    asked = parser.parse_args()
    if asked.noise:
        coverage()
    elif asked.bytes:
        fetched()
    else:
        table(asked.names or list(SAMPLES))


if __name__ == "__main__":
    main()

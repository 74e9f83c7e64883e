"""Every sensor from its file to a map, checked against what the file was made from.

python benchmarks/sensors.py            table of all samples: info, denoise, product, map
python benchmarks/sensors.py emit-l1b   some of them
python benchmarks/sensors.py --noise FILE  coverage with EMIT's noise file, and without it
python benchmarks/sensors.py --bytes    bytes fetched for tiles of a COG from a server on loopback
python benchmarks/sensors.py --outputs  every kind of output by gdalinfo, rasterio, the CF checker
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
        mx = place.a * (col + 0.5) + place.b * (row + 0.5) + place.c
        my = place.d * (col + 0.5) + place.e * (row + 0.5) + place.f
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


def whole_path(name: str, folder: Path, setting: Setting = SETTING) -> dict[str, object]:
    """Take one sample from its file to a map; return what was found."""
    sample = write_sample(name, folder, setting)
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
    expression = "(b560 - b665) / (b560 + b665)"
    if cube.wavelengths.min() > 600:  # a SWIR detector alone
        expression = "b1650 / b2200"
    made = products.index(sc.io.read_result(kept), expression, tolerance=60.0)
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


def output_kinds(folder: Path) -> list[Path]:
    """Write a granule's result, products and maps in every format; return the files."""
    from sigmacube.io.isofit import write_isofit
    from sigmacube.io.maps import write_result
    from sigmacube.io.ortho import on_map

    sample = write_sample("emit-l1b", folder, SETTING)
    result = sc.denoise(sc.read(sample.path))
    mapped = on_map(result)
    files = [
        made.save(folder / f"{name}.{end}")
        for name, made in (("sensor", result), ("mapped", mapped))
        for end in ("nc", "zarr", "tif", "hdr")
    ]
    files.append(result.save(folder / "factors.nc", keep_factors=True))
    index = products.index(result, "b860 / b650", tolerance=60)
    files += [index.save(folder / f"index.{end}") for end in ("nc", "tif")]
    files += [index.save(folder / f"index_map.{end}", ortho=True) for end in ("nc", "tif")]
    blocks = products.aggregate(result, 4)
    files += [blocks.save(folder / f"blocks.{end}") for end in ("nc", "tif")]
    labels = np.zeros(result.estimate.shape[:2], dtype=int)
    labels[5:15, 5:15], labels[20:30, 10:30] = 1, 2
    files.append(products.region_means(result, labels).save(folder / "fields.nc"))
    files.append(write_result(result, folder / "map.tif", ortho=True, bands=[3, 20]))
    made = write_isofit(result, folder, "isofit")
    files += [Path(made[key]) for key in ("radiance", "uncertainty", "loc")]
    beside = [file.with_name(f"{file.stem}_uncert{file.suffix}") for file in files]
    return files + [file for file in beside if file.suffix in (".tif", ".hdr") and file.exists()]


def reads_zarr_3() -> bool:
    """Tell whether this GDAL knows the final version 3 of Zarr, as it does from 3.8 on."""
    told = subprocess.run(["gdalinfo", "--version"], capture_output=True, text=True, check=True)
    return tuple(map(int, told.stdout.split()[1].split(".")[:2])) >= (3, 8)


def outputs() -> None:
    """Print what gdalinfo, rasterio, xarray and the CF checker say of every kind of output."""
    import warnings

    import rasterio
    import xarray as xr

    warnings.simplefilter("ignore")
    print(f"{'file':22} {'gdalinfo':9} {'rasterio':22} {'xarray':8} CF errors")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        good = True
        for file in sorted(output_kinds(folder)):
            data = file.with_suffix("") if file.suffix == ".hdr" else file
            done = subprocess.run(["gdalinfo", str(data)], capture_output=True, check=False)
            found = {"gdalinfo": "yes" if done.returncode == 0 else "NO"}
            if file.suffix == ".zarr" and done.returncode and not reads_zarr_3():
                found["gdalinfo"] = "too old"
            if file.suffix not in (".nc", ".zarr"):
                with rasterio.open(data) as opened:
                    opened.read(1)
                    where = "placed" if opened.crs else "no place"
                    found["rasterio"] = f"{opened.count} bands, {where}"
            else:
                engine = {"engine": "zarr"} if file.suffix == ".zarr" else {}
                with xr.open_dataset(file, **engine) as data_set:
                    found["xarray"] = f"{len(data_set.variables)} var"
            if file.suffix == ".nc":
                found["CF"] = str(cf_errors(file, folder))
            good &= "NO" not in found.values() and found.get("CF", "0") == "0"
            line = [found.get(key, "-") for key in ("gdalinfo", "rasterio", "xarray", "CF")]
            print(f"{file.name:22} {line[0]:9} {line[1]:22} {line[2]:8} {line[3]}", flush=True)
    raise SystemExit(0 if good else 1)


def emit_scene(file: Path, seed: int = 1) -> tuple[np.ndarray, sc.Cube, np.ndarray]:
    """Return the true radiance of a scene at EMIT's bands, the noisy cube, and σ of its noise."""
    from sigmacube.io.sensors.samples import sunlight
    from sigmacube.noise.instrument import InstrumentNoise, file_wavelengths

    centres = file_wavelengths(file)
    scene = sc.synthetic.scene((80, 84, 120), rng=3)
    table = np.array([np.interp(centres, scene.wavelengths, row) for row in np.eye(120)])
    truth = scene.values @ table * sunlight(centres) * 0.6
    std = InstrumentNoise.read(file, centres).std(truth)
    noisy = truth + std * np.random.default_rng(seed).normal(size=truth.shape)
    about = {"name": "radiance", "units": "uW cm-2 nm-1 sr-1"}
    return truth, sc.Cube(noisy, centres, metadata=about), std


#: Seeds of the noise in `coverage`; the list is not to change with what it shows.
SEEDS = (1, 2, 3, 4)


def coverage(file: Path) -> None:
    """Print how often the 95 % interval holds the truth, with the noise file and without."""
    scenes = [emit_scene(file, seed) for seed in SEEDS]
    print(f"draws of the noise: seeds {', '.join(map(str, SEEDS))}")
    print("prior    noise     coverage, from to          σ / noise   error / noise")
    for prior in ("spatial", None):
        for noise, told in ((str(file), "file"), (None, "unknown")):
            rows = []
            for truth, cube, std in scenes:
                result = sc.denoise(cube, noise, prior=prior)
                inside = np.abs(result.estimate - truth) <= 1.96 * result.std
                share, error = np.median(result.std / std), np.std((result.estimate - truth) / std)
                rows.append((inside.mean(), share, error))
            cover, share, error = np.mean(rows, axis=0)
            low, high = np.min(rows, axis=0)[0], np.max(rows, axis=0)[0]
            print(f"{prior!s:8} {told:9} {cover:.4f}, {low:.4f} to {high:.4f}   {share:.3f}       "
                  f"{error:.3f}", flush=True)  # fmt: skip
    print(result.settings["noise_model"])


def fetched() -> None:
    """Print the bytes that are fetched for some tiles of a COG, over what the tiles take."""
    import rasterio
    import rasterio.shutil

    from range_server import serving

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        values = np.random.default_rng(0).normal(size=(40, 768, 768)).astype("f4")
        options = {"width": 768, "height": 768, "count": 40, "dtype": "float32"}
        options |= {"crs": "EPSG:32633", "transform": rasterio.Affine(30, 0, 3e5, 0, -30, 5.8e6)}
        with rasterio.open(folder / "plain.tif", "w", driver="GTiff", **options) as file:
            file.write(values)
        rasterio.shutil.copy(str(folder / "plain.tif"), str(folder / "cog.tif"), driver="COG",
                             compress="deflate", blocksize=128)  # fmt: skip
        with rasterio.open(folder / "cog.tif") as file:
            sizes = [file.get_tag_item(f"BLOCK_SIZE_{c}_{r}", "TIFF", bidx=1)
                     for r in (2, 3) for c in (1, 2, 3)]  # fmt: skip
        needed = sum(int(size) for size in sizes)
        with serving(folder) as served:
            source = open_source(f"{served.address}/cog.tif")
            found, _ = source.block(slice(256, 512), slice(128, 512))
        same = np.array_equal(found.transpose(2, 0, 1), values[:, 256:512, 128:512])
        print(f"needed {needed:,} bytes, fetched {served.bytes_sent:,} in {len(served.ranges)} "
              f"requests: {served.bytes_sent / needed:.3f} times; same values: {same}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="samples; all of them by default")
    parser.add_argument("--noise", type=Path, metavar="FILE", help="an ISOFIT noise file")
    parser.add_argument("--bytes", action="store_true")
    parser.add_argument("--outputs", action="store_true")
    asked = parser.parse_args()
    if asked.noise:
        coverage(asked.noise)
    elif asked.bytes:
        fetched()
    elif asked.outputs:
        outputs()
    else:
        table(asked.names or list(SAMPLES))


if __name__ == "__main__":
    main()

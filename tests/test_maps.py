"""Maps: every cell shows the pixel that it lies on, with that pixel's σ; tools can read them."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio

import sigmacube as sc
from sigmacube import products
from sigmacube.io.isofit import write_isofit
from sigmacube.io.maps import style, write_result
from sigmacube.io.ortho import Lookup, lookup_of, on_map
from sigmacube.io.sensors.samples import Setting, write_sample
from sigmacube.show.place import Place

SWATHS = ("emit-l1b", "emit-l2a", "prisma-l1", "prisma-l2c", "pace", "tanager", "aviris-5")


@pytest.fixture(scope="module")
def benchmark(load_benchmark):
    return load_benchmark("sensors")


@pytest.fixture(scope="module")
def emit(tmp_path_factory):
    """A denoised EMIT granule, and what it was made from."""
    sample = write_sample("emit-l2a", tmp_path_factory.mktemp("emit"), Setting(32, 28))
    result = sc.denoise(sc.read(sample.path), 0.004, prior=None, window=12)
    return sample, result


class TestLookup:
    @pytest.mark.parametrize("name", SWATHS)
    def test_cells_lie_within_half_a_pixel_of_what_they_show(self, name, tmp_path, benchmark):
        """Places are those of the maker, pixels are found again by a number that is drawn."""
        sample = write_sample(name, tmp_path, Setting(26, 24))
        metadata = dict(sc.io.open_source(sample.path).metadata)
        benchmark.map_of_numbers(sample, metadata, tmp_path / "numbers.tif")
        found = benchmark.offsets(sample, tmp_path / "numbers.tif")
        assert found.max() <= 0.5 + 1e-3
        assert len(found) > 0.8 * sample.x.size

    def test_a_shifted_table_is_noticed(self, tmp_path, benchmark):
        """The check above can fail: a table that is one pixel off."""
        sample = write_sample("emit-l1b", tmp_path, Setting(26, 24))
        metadata = dict(sc.io.open_source(sample.path).metadata)
        place = dict(metadata["location"])
        place["glt_x"] = np.where(place["glt_x"] > 1, place["glt_x"] - 1, place["glt_x"])
        benchmark.map_of_numbers(sample, metadata | {"location": place}, tmp_path / "n.tif")
        assert benchmark.offsets(sample, tmp_path / "n.tif").max() > 1

    def test_missing_positions_leave_holes(self):
        lon, lat = Setting(20, 22).swath()
        lat[3:6, 4:9] = -9999.0
        found = lookup_of({"location": {"lat": lat, "lon": lon}}, (20, 22))
        shown = set(zip(found.rows.ravel().tolist(), found.cols.ravel().tolist(), strict=True))
        assert not any((r, c) in shown for r in range(3, 6) for c in range(4, 9))

    def test_across_the_date_line(self):
        lon, lat = Setting(20, 22).swath()
        lon = (lon - lon.mean() + 180 + 180) % 360 - 180
        found = lookup_of({"location": {"lat": lat, "lon": lon}}, (20, 22))
        assert found.shape[1] < 60
        assert np.count_nonzero(found.rows >= 0) > 350

    def test_what_has_no_place_is_refused(self):
        with pytest.raises(ValueError, match="neither a lookup table"):
            lookup_of({}, (4, 5))
        with pytest.raises(ValueError, match="on a map already"):
            lookup_of({"transform": [1, 0, 0, 0, -1, 0]}, (4, 5))
        table = {"glt_x": np.array([[9]]), "glt_y": np.array([[1]])}
        place = {"location": table, "ortho_transform": [1, 0, 0, 0, -1, 0]}
        with pytest.raises(ValueError, match="names row 1 and column 9"):
            lookup_of(place, (4, 5))

    def test_the_viewer_tells_where_a_pixel_lies(self, emit):
        sample, result = emit
        lat, lon = sample.y[3, 4], sample.x[3, 4]
        assert Place.of(result.metadata).text(3, 4) == f"lat {lat:.5f}°, lon {lon:.5f}°"
        a, b, c, d, e, f = Place.of(result.metadata).transform
        assert abs(a * 4.5 + b * 3.5 + c - lon) < 1e-9  # the hover text is by the nearest map
        assert abs(d * 4.5 + e * 3.5 + f - lat) < 1e-9


class TestOrtho:
    def test_values_and_sigma_are_taken_over_as_they_are(self, emit):
        _, result = emit
        mapped = on_map(result)
        lookup = lookup_of(result.metadata, result.estimate.shape[:2])
        inside = lookup.rows >= 0
        for name in ("estimate", "std"):
            there, here = getattr(mapped, name), getattr(result, name)
            at = lookup.rows[inside], lookup.cols[inside]
            np.testing.assert_array_equal(there[inside], here[at])
            assert np.isnan(there[~inside]).all()
        assert "location" not in mapped.metadata
        assert mapped.settings["ortho"] == "glt"

    @pytest.mark.parametrize("suffix", [".nc", ".tif", ".hdr", ".zarr"])
    def test_results_on_a_map_open_in_the_right_place(self, emit, tmp_path, suffix):
        _, result = emit
        path = on_map(result).save(tmp_path / f"map{suffix}")
        again = sc.io.read_result(path)
        np.testing.assert_array_equal(again.estimate, on_map(result).estimate.astype("f4"))
        expected = result.metadata["ortho_transform"]
        np.testing.assert_allclose(again.metadata["transform"], expected)
        if suffix == ".tif":
            with rasterio.open(path) as file:
                np.testing.assert_allclose(file.transform[:6], expected)
                assert file.crs.to_epsg() == 4326

    def test_lookup_of_booleans(self):
        lookup = Lookup(np.array([[0, -1]]), np.array([[0, -1]]), [1, 0, 0, 0, -1, 0], "", "glt")
        assert lookup.gather(np.array([[True]])).tolist() == [[True, False]]


class TestFiles:
    def test_index_with_sigma(self, emit, tmp_path):
        _, result = emit
        made = products.index(result, "(b860 - b650) / (b860 + b650)", tolerance=30)
        path = made.save(tmp_path / "index.tif", ortho=True)
        with rasterio.open(path) as file:
            assert file.count == 2
            assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
            assert np.isnan(file.nodata)
            values, sigma = file.read()
        lookup = lookup_of(result.metadata, result.estimate.shape[:2])
        np.testing.assert_array_equal(values, lookup.gather(made.estimate).astype("f4"))
        np.testing.assert_array_equal(sigma, lookup.gather(made.std).astype("f4"))

    def test_results_band_by_band(self, emit, tmp_path):
        _, result = emit
        kept = result.save(tmp_path / "clean.nc")
        one = write_result(kept, tmp_path / "a.tif", bands=[3, 7], ortho=True)
        two = write_result(result, tmp_path / "b.tif", bands=[3, 7], ortho=True)
        for ending in ("", "_uncert"):
            files = [p.with_name(f"{p.stem}{ending}.tif") for p in (one, two)]
            with rasterio.open(files[0]) as first, rasterio.open(files[1]) as second:
                np.testing.assert_array_equal(first.read(), second.read())
                centre = float(first.tags(1)["wavelength"])
                assert abs(centre - result.wavelengths[3]) < 1e-6
        expected = on_map(result).std[..., 3].astype("f4")
        with rasterio.open(tmp_path / "b_uncert.tif") as file:
            np.testing.assert_array_equal(file.read(1), expected)

    def test_several_bands_are_a_pair(self, emit, tmp_path):
        _, result = emit
        made = products.aggregate(result, 4)
        made = replace(made, metadata={"transform": [4.0, 0, 0, 0, -4.0, 0]})
        made.save(tmp_path / "means.tif")
        with rasterio.open(tmp_path / "means_uncert.tif") as file:
            assert file.count == result.estimate.shape[2]

    def test_nothing_is_replaced_unasked(self, emit, tmp_path):
        _, result = emit
        write_result(result, tmp_path / "a.tif", bands=[1])
        with pytest.raises(FileExistsError, match="overwrite"):
            write_result(result, tmp_path / "a.tif", bands=[1])
        write_result(result, tmp_path / "a.tif", bands=[1], overwrite=True)
        assert not [p for p in tmp_path.iterdir() if "partial" in p.name]
        with pytest.raises(ValueError, match="maps cannot be written with suffix"):
            write_result(result, tmp_path / "a.png")

    def test_regions_are_no_map(self, emit, tmp_path):
        _, result = emit
        labels = np.ones(result.estimate.shape[:2], dtype=int)
        made = products.region_means(result, labels)
        with pytest.raises(ValueError, match="regions are no map"):
            made.save(tmp_path / "a.tif")

    @pytest.mark.parametrize("sequential", [False, True])
    def test_style(self, sequential):
        text = style(0.1, 0.9, sequential=sequential)
        assert not style_faults(text, bands=2)
        ramp = ElementTree.fromstring(text).find(".//colorrampshader")
        values = [float(item.get("value")) for item in ramp]
        assert (values[0], values[-1]) == (0.1, 0.9)

    @pytest.mark.parametrize(
        ("good", "bad"),
        [('type="singlebandpseudocolor"', 'type="pseudo"'), ('band="1"', 'band="3"'),
         ("INTERPOLATED", "LINEAR"), ("<limits>None", "<limits>No"), ("#440154", "purple"),
         ("<rastershader>", "<shader>"), ('alpha="255"', 'alpha="opaque"')],
    )  # fmt: skip
    def test_what_qgis_would_not_take_is_seen(self, good, bad):
        text = style(0.1, 0.9)
        assert good in text
        wrong = text.replace(good, bad)
        if bad == "<shader>":
            wrong = wrong.replace("</rastershader>", "</shader>")
        assert style_faults(wrong, bands=2)

    def test_styles_that_are_written(self, emit, tmp_path):
        _, result = emit
        write_result(result, tmp_path / "a.tif", bands=[1, 4], ortho=True)
        for path, bands in ((tmp_path / "a.qml", 2), (tmp_path / "a_uncert.qml", 2)):
            assert not style_faults(path.read_text(encoding="utf-8"), bands)

    @pytest.mark.skipif(shutil.which("gdalinfo") is None, reason="gdalinfo is not installed")
    def test_gdalinfo_reads_every_kind(self, emit, tmp_path):
        _, result = emit
        mapped = on_map(result)
        files = [mapped.save(tmp_path / f"clean.{end}") for end in ("tif", "hdr", "nc")]
        files[1] = tmp_path / "clean"
        made = products.index(result, "b860 / b650", tolerance=30)
        files += [made.save(tmp_path / f"index.{end}", ortho=True) for end in ("tif", "nc")]
        files += [write_result(result, tmp_path / "map.tif", ortho=True, bands=[0])]
        for path in files:
            found = subprocess.run(["gdalinfo", str(path)], capture_output=True, text=True,
                                   check=False)  # fmt: skip
            assert found.returncode == 0, found.stderr
            assert "Origin = (12.99" in found.stdout or "SUBDATASET" in found.stdout, path

    def test_cf_of_maps(self, emit, tmp_path, benchmark):
        _, result = emit
        assert benchmark.cf_errors(on_map(result).save(tmp_path / "map.nc"), tmp_path) == 0
        made = products.index(result, "b860 / b650", tolerance=30)
        assert benchmark.cf_errors(made.save(tmp_path / "i.nc", ortho=True), tmp_path) == 0


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of its own use of affine
def test_rioxarray_reads_what_is_written(emit, tmp_path):
    rioxarray = pytest.importorskip("rioxarray")
    _, result = emit
    path = write_result(result, tmp_path / "a.tif", bands=[2], ortho=True)
    with rioxarray.open_rasterio(path, masked=True) as found:
        assert found.rio.crs.to_epsg() == 4326
        np.testing.assert_allclose(found.rio.transform()[:6], result.metadata["ortho_transform"])


def test_the_command_line_from_granule_to_map(tmp_path):
    from click.testing import CliRunner

    from sigmacube.cli import main

    sample = write_sample("emit-l2a", tmp_path, Setting(24, 26))
    kept, drawn = tmp_path / "clean.nc", tmp_path / "ndvi.tif"
    steps = (
        ["info", str(sample.path), "--no-noise"],
        [
            "denoise",
            str(sample.path),
            str(kept),
            "--keep-factors",
            "--noise",
            "0.004",
            "--prior",
            "none",
            "--window",
            "12",
        ],
        ["product", str(kept), "--index", "ndvi", "-o", str(drawn), "--ortho"],
        ["map", str(kept), "--ortho", "--bands", "600nm:700nm"],
    )
    for step in steps:
        found = CliRunner().invoke(main, step)
        assert found.exit_code == 0, found.output
    with rasterio.open(drawn) as file:
        assert file.crs.to_epsg() == 4326
    assert Path(tmp_path / "clean_map_uncert.tif").is_file()


class TestIsofit:
    def test_what_it_reads(self, tmp_path):
        sample = write_sample("emit-l1b", tmp_path, Setting(24, 26))
        result = sc.denoise(sc.read(sample.path))
        made = write_isofit(result, tmp_path, "scene")
        back = sc.read(made["radiance"])
        known = np.isfinite(result.estimate)
        np.testing.assert_allclose(back.values[known], result.estimate[known], rtol=1e-6)
        assert (back.values[~known] == -9999).all()
        np.testing.assert_allclose(back.wavelengths, result.wavelengths)
        spread = sc.read(made["uncertainty"]).values
        np.testing.assert_allclose(spread[known], result.std[known], rtol=1e-6)
        places = sc.read(made["loc"]).values
        np.testing.assert_allclose(places[..., 0], sample.x)
        np.testing.assert_allclose(places[..., 1], sample.y)
        table = np.loadtxt(made["wavelengths"])
        np.testing.assert_allclose(table[:, 1], result.wavelengths, atol=1e-5)

    def test_noise_that_is_left(self, tmp_path):
        """The curve of a band is near to the σ of its values, by as much as the file says."""
        sample = write_sample("emit-l1b", tmp_path, Setting(24, 26))
        result = sc.denoise(sc.read(sample.path))
        made = write_isofit(result, tmp_path, "scene")
        _, a, b, c, rmse = np.loadtxt(made["noise"]).T
        curve = a * np.sqrt(np.maximum(b + result.estimate, 0)) + c
        off = np.sqrt(np.nanmean((curve - result.std) ** 2, axis=(0, 1)))
        np.testing.assert_allclose(off, rmse, rtol=1e-3, atol=1e-9)
        noise = sc.SignalNoise.from_file(made["noise"], result.wavelengths)
        mean = np.nanmean(result.estimate, axis=(0, 1))
        typical = np.sqrt(np.nanmean(result.std**2, axis=(0, 1)))
        np.testing.assert_allclose(noise.std(mean), typical, rtol=0.1)

    def test_reflectance_is_refused(self, emit, tmp_path):
        _, result = emit
        with pytest.raises(ValueError, match="one of radiance"):
            write_isofit(result, tmp_path, "scene")
        assert not list(tmp_path.iterdir())


def test_the_whole_path(tmp_path, benchmark):
    """From file to map, as the benchmark takes all sensors."""
    found = benchmark.whole_path("prisma-l1", tmp_path, Setting(24, 24))
    assert found["values"] < 1e-6
    assert found["mask"]
    assert found["time"]
    assert found["masked kept"]
    assert found["CF"] == 0
    assert found["place"] <= 0.501


#: What QGIS 3 reads of a style: attributes and texts, and what they may be, as its classes
#: QgsRasterPipe, QgsSingleBandPseudoColorRenderer, QgsRasterMinMaxOrigin and QgsColorRampShader
#: write them. Numbers are read by QString::toDouble, which makes 0 of what is none.
NUMBER = r"-?\d+(\.\d+)?(e[-+]?\d+)?"
RENDERER = "pipe/rasterrenderer"
RAMP = f"{RENDERER}/rastershader/colorrampshader"
QGIS = {
    ".": {"version": r"3\.\d+", "styleCategories": r"\w+"},
    RENDERER: {"type": "singlebandpseudocolor", "band": r"\d+", "alphaBand": r"-1|\d+",
               "opacity": r"0(\.\d+)?|1", "nodataColor": "", "classificationMin": NUMBER,
               "classificationMax": NUMBER},
    f"{RENDERER}/rasterTransparency": {},
    f"{RENDERER}/minMaxOrigin/limits": {None: "None|MinMax|StdDev|CumulativeCut"},
    f"{RENDERER}/minMaxOrigin/extent": {None: "WholeRaster|CurrentCanvas|UpdatedCanvas"},
    f"{RENDERER}/minMaxOrigin/statAccuracy": {None: "Exact|Estimated"},
    f"{RENDERER}/minMaxOrigin/cumulativeCutLower": {None: NUMBER},
    f"{RENDERER}/minMaxOrigin/cumulativeCutUpper": {None: NUMBER},
    f"{RENDERER}/minMaxOrigin/stdDevFactor": {None: NUMBER},
    RAMP: {"colorRampType": "INTERPOLATED|DISCRETE|EXACT", "classificationMode": "[123]",
           "clip": "[01]", "minimumValue": NUMBER, "maximumValue": NUMBER,
           "labelPrecision": r"\d+"},
    f"{RAMP}/item": {"value": NUMBER, "label": ".*", "color": "#[0-9a-f]{6}",
                     "alpha": r"\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5]"},
    "pipe/brightnesscontrast": {"brightness": NUMBER, "contrast": NUMBER, "gamma": NUMBER},
    "pipe/huesaturation": {"saturation": NUMBER, "grayscaleMode": "[0123]", "colorizeOn": "[01]"},
    "pipe/rasterresampler": {"maxOversampling": NUMBER},
    "blendMode": {None: r"\d+"},
}  # fmt: skip


def style_faults(text, bands):
    """Return what QGIS would not find, or not understand, in a style."""
    assert text.startswith("<!DOCTYPE qgis PUBLIC")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        return [str(error)]
    faults = [] if root.tag == "qgis" else [root.tag]
    for place, rules in QGIS.items():
        found = [root] if place == "." else root.findall(place)
        faults += [] if found else [f"no {place}"]
        for element in found:
            texts = {None: element.text, **element.attrib}
            faults += [f"{place} {key}: {texts.get(key)}" for key, rule in rules.items()
                       if not re.fullmatch(rule, texts.get(key) or "")]  # fmt: skip
            faults += [f"{place}: unknown {key}" for key in set(element.attrib) - set(rules)]
    known = {part for place in QGIS for part in place.split("/")} | {"qgis"}
    faults += [f"unknown {element.tag}" for element in root.iter() if element.tag not in known]
    renderer, items = root.find(RENDERER), root.findall(f"{RAMP}/item")
    if renderer is not None and not 1 <= int(renderer.get("band")) <= bands:
        faults.append(f"band {renderer.get('band')} of {bands}")
    values = [item.get("value") for item in items]
    rising = all(re.fullmatch(NUMBER, v or "") for v in values) and all(
        float(a) < float(b) for a, b in pairwise(values)
    )
    return faults if rising else [*faults, f"values {values}"]

"""Products of every sensor: what is read is what was made; damaged files get one clear line."""

from __future__ import annotations

import shutil
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio

from sigmacube.io import open_source, read
from sigmacube.io.sensors import SENSORS
from sigmacube.io.sensors.samples import SAMPLES, Setting, write_sample

SWATHS = ("emit-l1b", "emit-l2a", "prisma-l1", "prisma-l2b", "prisma-l2c", "pace", "tanager")


def options(name: str) -> dict:
    return {"variable": "swir"} if name == "enmap-l1b" else {}


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    made = {}
    for name in SAMPLES:
        made[name] = write_sample(name, tmp_path_factory.mktemp(name))
    return made


@pytest.mark.parametrize("name", SAMPLES)
class TestEverySensor:
    def test_values_wavelengths_mask_and_time(self, samples, name):
        sample = samples[name]
        cube = read(sample.path, **options(name))
        assert cube.shape == sample.values.shape
        valid = np.isfinite(cube.values)
        valid &= True if cube.mask is None else cube.mask
        np.testing.assert_array_equal(np.broadcast_to(valid, cube.shape), sample.valid)
        np.testing.assert_allclose(
            cube.values[sample.valid], sample.values[sample.valid], rtol=2e-6, atol=1e-6
        )
        np.testing.assert_allclose(cube.wavelengths, sample.wavelengths, rtol=1e-6)
        assert (np.diff(cube.wavelengths) > 0).all()
        assert cube.metadata["acquisition_time"] == sample.time
        words = f"{cube.metadata.get('name')} {cube.metadata.get('long_name')}".lower()
        assert sample.quantity in words
        assert cube.metadata["instrument"].split()[0].split("-")[0].lower() in name

    def test_place_to_a_hundredth_of_a_pixel(self, samples, name):
        """The maker's own geometry is not known to the readers."""
        sample = samples[name]
        metadata = open_source(sample.path, **options(name)).metadata
        if name in ("enmap-l1b",):
            assert "transform" not in metadata  # a fit of corners is no map
            return
        if name in SWATHS:
            assert "transform" not in metadata
            found = metadata["location"]["lon"], metadata["location"]["lat"]
            pixel = abs(sample.y[1, 0] - sample.y[0, 0])
        elif name == "aviris-5":
            return  # placed by its lookup, see the tests of maps
        else:
            a, b, c, d, e, f = metadata["transform"]
            row, col = np.mgrid[: sample.x.shape[0], : sample.x.shape[1]] + 0.5
            found = a * col + b * row + c, d * col + e * row + f
            pixel = float(np.hypot(a, d))
            assert rasterio.crs.CRS.from_wkt(metadata["crs_wkt"]).to_epsg() == sample.epsg
        assert np.abs(found[0] - sample.x).max() < 0.01 * pixel
        assert np.abs(found[1] - sample.y).max() < 0.01 * pixel

    def test_parts_are_those_of_the_whole(self, samples, name):
        source = open_source(samples[name].path, **options(name))
        rows, cols = slice(2, 13), slice(1, 9)
        values, mask = source.block(rows, cols)
        whole = source.read()
        np.testing.assert_array_equal(values, whole.values[rows, cols])
        full = np.broadcast_to(True if whole.mask is None else whole.mask, whole.shape)
        part = np.broadcast_to(True if mask is None else mask, values.shape)
        finite = np.isfinite(values)
        np.testing.assert_array_equal(part & finite, full[rows, cols] & finite)

    def test_bands_take_their_flags_along(self, samples, name):
        source = open_source(samples[name].path, bands=[5, 3, 20], **options(name))
        valid = samples[name].valid[..., [5, 3, 20]]
        cube = source.read()
        mask = np.broadcast_to(True if cube.mask is None else cube.mask, cube.shape)
        np.testing.assert_array_equal(mask & np.isfinite(cube.values), valid)

    def test_another_name_is_the_same_product(self, samples, name, tmp_path):
        """Sensors are found by content."""
        sample = samples[name]
        if sample.path.is_dir() or name == "aviris-ng":
            pytest.skip("its files find one another by name")
        other = tmp_path / f"renamed{sample.path.suffix}"
        shutil.copy(sample.path, other)
        first, second = open_source(sample.path), open_source(other)
        assert first.metadata["instrument"] == second.metadata["instrument"]
        assert first.shape == second.shape

    def test_truncated_files_are_one_line(self, samples, name, tmp_path):
        sample = samples[name]
        home = tmp_path / sample.path.name
        if sample.path.is_dir():
            shutil.copytree(sample.path, home)
            victim = next(p for p in home.iterdir() if "SPECTRAL_IMAGE" in p.name
                          and "VNIR" not in p.name)  # fmt: skip
        else:
            shutil.copy(sample.path, home)
            victim = home
            beside = sample.path.with_name(f"{sample.path.name}.hdr")
            if beside.exists():
                shutil.copy(beside, tmp_path)
        content = victim.read_bytes()
        victim.write_bytes(content[: int(len(content) * 0.6)])
        with pytest.raises((ValueError, OSError)) as caught:
            read(home, **options(name))
        text = str(caught.value)
        assert "\n" not in text
        assert home.name in text or victim.name in text


class TestEmit:
    def test_quality_can_be_ignored(self, samples):
        kept = read(samples["emit-l2a"].path, quality=False)
        used = read(samples["emit-l2a"].path)
        extra = np.broadcast_to(kept.mask, kept.shape) & ~np.broadcast_to(used.mask, used.shape)
        good = (used.wavelengths < 1320) | (used.wavelengths > 1440)
        there = samples["emit-l2a"].valid.any(axis=2)[..., None]
        np.testing.assert_array_equal(extra, Setting().bad(64) & good & there)

    def test_uncertainty_file(self, samples):
        path = samples["emit-l2a"].path
        beside = path.with_name(path.name.replace("_RFL_", "_RFLUNCERT_"))
        assert read(beside, variable="reflectance_uncertainty").shape == (36, 30, 64)

    def test_a_mask_of_another_granule_is_refused(self, samples, tmp_path):
        path = samples["emit-l2a"].path
        shutil.copy(path, tmp_path)
        (tmp_path / "other").mkdir()
        write_sample("emit-l2a", tmp_path / "other", Setting(rows=24, cols=26))
        beside = path.name.replace("_RFL_", "_MASK_")
        shutil.move(tmp_path / "other" / beside, tmp_path / beside)
        with pytest.raises(ValueError, match=r"band_mask of shape \(24, 26, 8\)"):
            read(tmp_path / path.name)

    @pytest.mark.parametrize("group", ["sensor_band_parameters", "location"])
    def test_missing_groups(self, samples, tmp_path, group):
        path = tmp_path / "x.nc"
        shutil.copy(samples["emit-l1b"].path, path)
        with h5py.File(path, "a") as file:
            del file[group]
        if group == "location":
            assert "location" not in read(path).metadata
            return
        cube = read(path)
        assert cube.wavelengths is None
        assert (
            "EMIT granule without sensor_band_parameters/wavelengths" in cube.metadata["notes"][0]
        )
        centres = samples["emit-l1b"].wavelengths
        assert read(path, wavelengths=centres).wavelengths.tolist() == centres.tolist()


class TestDamagedHdf:
    """What is missing or in another order is named."""

    def change(self, samples, name, tmp_path, do):
        path = tmp_path / samples[name].path.name
        shutil.copy(samples[name].path, path)
        with h5py.File(path, "a") as file:
            do(file)
        return path

    @pytest.mark.parametrize(
        ("name", "change", "told"),
        [
            ("prisma-l2d", lambda f: f.attrs.update(Processing_Level="3X"), "Level '3X'"),
            ("prisma-l1", lambda f: f.attrs.pop("List_Cw_Vnir"), "'List_Cw_Vnir' is missing"),
            ("prisma-l1", lambda f: f.attrs.pop("ScaleFactor_Swir"), "ScaleFactor_Swir is missing"),
            ("prisma-l2d", lambda f: f.attrs.update(Epsg_Code=123456), "EPSG code 123456"),
            ("neon", lambda f: f.pop("BART/Reflectance/Metadata"), "Spectral_Data/Wavelength"),
            ("pace", lambda f: f.pop("sensor_band_parameters"), "_parameters/wavelength"),
            ("aviris-5", lambda f: f.pop("radiance/wavelength"), "wavelength"),
            (
                "tanager",
                lambda f: f["HDFEOS/SWATHS/HYP/Data Fields/toa_radiance"].attrs.pop("wavelengths"),
                "no attribute 'wavelengths'",
            ),
        ],
    )  # fmt: skip
    def test_one_line_names_what_is_missing(self, samples, tmp_path, name, change, told):
        path = self.change(samples, name, tmp_path, change)
        with pytest.raises(ValueError, match=told) as caught:
            read(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("name", "where", "order"),
        [
            ("prisma-l1", "HDFEOS/SWATHS/PRS_L1_HCO/Data Fields/SWIR_Cube", (1, 0, 2)),
            ("neon", "BART/Reflectance/Reflectance_Data", (2, 0, 1)),
            ("tanager", "HDFEOS/SWATHS/HYP/Data Fields/toa_radiance", (1, 2, 0)),
        ],
    )
    def test_axes_in_another_order_are_refused(self, samples, tmp_path, name, where, order):
        def turn(file):
            values, attrs = file[where][()], dict(file[where].attrs)
            del file[where]
            file[where] = values.transpose(order)
            file[where].attrs.update(attrs)

        with pytest.raises(ValueError, match=r"one per band, bands in the|differ in size"):
            read(self.change(samples, name, tmp_path, turn))


class TestPrisma:
    def test_joins(self, samples):
        path = samples["prisma-l1"].path
        both = read(path, join="both")
        vnir = read(path, join="vnir")
        assert both.shape[2] == 70
        assert vnir.wavelengths.max() == 2495.0
        assert (np.diff(vnir.wavelengths) > 0).all()
        assert vnir.shape[2] < both.shape[2]
        assert read(path, variable="SWIR_Cube").shape[2] == 40
        with pytest.raises(ValueError, match="Invalid join"):
            read(path, join="nir")

    def test_join_needs_detectors(self, samples):
        with pytest.raises(ValueError, match=r"two detectors|has none"):
            read(samples["aviris-ng"].path, join="swir")


class TestFolders:
    @pytest.mark.parametrize("name", ["enmap-l2a", "enmap-l1c", "desis-l2a"])
    def test_folder_zip_xml_and_image_are_one_product(self, samples, name, tmp_path):
        home = samples[name].path
        archive = tmp_path / "product.zip"
        with zipfile.ZipFile(archive, "w") as file:
            for item in home.iterdir():
                file.write(item, f"{home.name}/{item.name}")
        xml = next(p for p in home.iterdir() if p.name.upper().endswith("METADATA.XML"))
        image = next(p for p in home.iterdir() if "SPECTRAL_IMAGE" in p.name)
        first = read(home)
        for path in (archive, xml, image):
            other = read(path)
            np.testing.assert_array_equal(first.values, other.values)
            np.testing.assert_array_equal(first.wavelengths, other.wavelengths)
            assert first.metadata["transform"] == other.metadata["transform"]

    def test_bands_listed_in_another_order_are_sorted(self, samples, tmp_path):
        home = tmp_path / samples["enmap-l2a"].path.name
        shutil.copytree(samples["enmap-l2a"].path, home)
        xml = next(home.glob("*METADATA.XML"))
        text = xml.read_text()
        start, end = text.index("<bandID"), text.rindex("</bandID>") + len("</bandID>")
        bands = text[start:end].replace("</bandID>", "</bandID>\n").splitlines()
        xml.write_text(text[:start] + "".join(reversed(bands)) + text[end:])
        np.testing.assert_array_equal(read(home).values, read(samples["enmap-l2a"].path).values)

    @pytest.mark.parametrize(
        ("old", "new", "told"),
        [
            (">L2A<", ">L3Z<", None),
            ("GainOfBand", "Gain", "band 1 has no GainOfBand"),
            ("bandCharacterisation", "bands", "describes no known product"),
            ("</level_X>", "", "not readable as XML"),
            ('<bandID number="60">', "<other>", None),
        ],
    )
    def test_damaged_xml(self, samples, tmp_path, old, new, told):
        home = tmp_path / "ENMAP_product"
        shutil.copytree(samples["enmap-l2a"].path, home)
        xml = next(home.glob("*METADATA.XML"))
        xml.write_text(xml.read_text().replace(old, new))
        if old == ">L2A<":  # the file's own name says it all the same
            assert read(home).metadata["processing_level"] == "L2A"
            return
        with pytest.raises(ValueError, match=told or "XML") as caught:
            read(home)
        assert "\n" not in str(caught.value)

    def test_unknown_level(self, samples, tmp_path):
        home = tmp_path / "product"
        shutil.copytree(samples["enmap-l2a"].path, home)
        for item in list(home.iterdir()):
            item.rename(home / item.name.replace("L2A", "L9Z"))
        xml = next(home.glob("*METADATA.XML"))
        xml.write_text(xml.read_text().replace("L2A", "L9Z"))
        with pytest.raises(
            ValueError, match=r"level 'L9Z' is not known. It must be L1B, L1C or L2A"
        ):
            read(home)

    def test_missing_image_and_missing_xml(self, samples, tmp_path):
        home = tmp_path / "product"
        shutil.copytree(samples["enmap-l2a"].path, home)
        next(home.glob("*SPECTRAL_IMAGE.TIF")).unlink()
        with pytest.raises(ValueError, match=r"no SPECTRAL_IMAGE.TIF beside"):
            read(home)
        with pytest.raises(ValueError, match=r"is a folder with no METADATA.XML"):
            read(tmp_path)
        (tmp_path / "x.zip").write_bytes(b"PK\x03\x04 no archive")
        with pytest.raises(ValueError, match="not readable as a zip file"):
            read(tmp_path / "x.zip")

    def test_detectors_of_l1b_stay_apart(self, samples):
        with pytest.raises(ValueError, match="not registered to one another"):
            read(samples["enmap-l1b"].path)
        assert read(samples["enmap-l1b"].path, variable="vnir").shape == (36, 30, 24)


def test_flight_lines_in_sensor_geometry_have_their_places_beside(tmp_path):
    sample = write_sample("aviris-ng", tmp_path)
    header = sample.path.with_name(f"{sample.path.name}.hdr")
    kept = [line for line in header.read_text().splitlines() if not line.startswith("map info")]
    header.write_text("\n".join(kept) + "\n")
    lon, lat = Setting().swath()
    places = np.stack([lon, lat, np.zeros_like(lat)], axis=2)
    places.tofile(tmp_path / "ang20240618t102030_rdn_v2z1_loc")
    (tmp_path / "ang20240618t102030_rdn_v2z1_loc.hdr").write_text(
        "ENVI\nsamples = 30\nlines = 36\nbands = 3\ndata type = 5\ninterleave = bip\n"
        "byte order = 0\nheader offset = 0\n"
    )
    location = read(sample.path).metadata["location"]
    np.testing.assert_array_equal(location["lat"], lat)
    np.testing.assert_array_equal(location["lon"], lon)


def test_turned_maps_agree_with_gdal(samples):
    """AVIRIS flight lines are not north-up; GDAL's reading of the same header is the measure."""
    path = samples["aviris-ng"].path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rasterio.open(path) as theirs:
            expected = list(theirs.transform[:6])
    np.testing.assert_allclose(read(path).metadata["transform"], expected, rtol=1e-9)


def test_every_sensor_of_the_table_has_a_sample():
    known = {sensor.name.split()[0].lower() for sensor in SENSORS}
    assert known == {name.split("-")[0] for name in SAMPLES}


def test_plain_files_are_no_sensors(tmp_path):
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["cube"] = np.zeros((4, 5, 3))
    assert "instrument" not in read(tmp_path / "plain.h5", axes="rcb").metadata
    assert isinstance(tmp_path, Path)

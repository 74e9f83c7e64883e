"""Results are written whole, open in other people's tools, and come back unchanged."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
import spectral.io.envi
import xarray as xr

import sigmacube as sc
from sigmacube import error_correlation as correlation
from sigmacube.io import atomic, read, read_result, write
from sigmacube.result import DenoisedCube

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SUFFIXES = ("nc", "zarr", "hdr", "tif")
SHAPE = (24, 30, 12)
UTM = rasterio.crs.CRS.from_epsg(32633).to_wkt()
#: Every item that must survive, as ENVI gives it.
METADATA = {
    "source": "scene.img",
    "wavelength_units": "Micrometers",
    "fwhm": [6.5 + 0.1 * i for i in range(SHAPE[2])],
    "good_bands": [i != 4 for i in range(SHAPE[2])],
    "nodata": -9999.0,
    "scale_factor": 0.0001,
    "map_info": "UTM, 1, 1, 365055.0, 5807085.0, 30.0, 30.0, 33, North, WGS-84",
    "crs_wkt": UTM,
    "transform": [30.0, 0.0, 365055.0, 0.0, -30.0, 5807085.0],
    "band_names": [f"band {i} (b)" for i in range(SHAPE[2])],
    "acquisition_time": "2022-07-24T10:45:26",
    "interleave": "bip",
    "byte_order": "big",
    "name": "reflectance",
    "units": "1",
    "envi": {"sensor type": "EnMAP", "default bands": "{3, 2, 1}"},
}


@pytest.fixture(scope="session")
def data():
    if not DATA.is_dir():
        pytest.skip("the scenes and files kept beside the repository are absent")
    return DATA


def make_result(noise="bands", *, rejected=False, std=True, rng=7):
    """Return a result of random numbers with everything that one can have."""
    rng = np.random.default_rng(rng)
    estimate = rng.normal(0.3, 0.1, SHAPE)
    estimate[:, :, 4] = estimate[2, 3] = np.nan
    level = {
        "scalar": 0.01,
        "bands": rng.uniform(0.01, 0.02, SHAPE[2]),
        "covariance": np.diag(rng.uniform(1e-4, 2e-4, SHAPE[2])) + 1e-5,
    }[noise]
    spread = np.where(np.isnan(estimate), np.nan, rng.uniform(0.001, 0.002, SHAPE))
    return DenoisedCube(
        estimate=estimate,
        std=spread if std else None,
        ranks=rng.integers(2, 6, (5, 6)),
        noise=level,
        residual_ratio=rng.uniform(0.9, 1.1, (5, 6)),
        rejected=rng.random(SHAPE) < 0.1 if rejected else None,
        wavelengths=np.linspace(0.42, 2.4, SHAPE[2]) * 1000,
        metadata=METADATA,
        settings={"window": [8, 10, 12], "step": [4, 4, 12], "rank": "auto", "version": "0.0.1"},
    )


def assert_same(found, result):
    single = np.float32
    assert found.estimate.dtype == single
    np.testing.assert_array_equal(found.estimate, result.estimate.astype(single))
    np.testing.assert_array_equal(found.residual_ratio, result.residual_ratio.astype(single))
    np.testing.assert_array_equal(found.ranks, result.ranks)
    np.testing.assert_array_equal(found.noise, result.noise)
    np.testing.assert_array_equal(found.wavelengths, result.wavelengths)
    assert (found.std is None) == (result.std is None)
    if result.std is not None:
        np.testing.assert_array_equal(found.std, result.std.astype(single))
    assert (found.rejected is None) == (result.rejected is None)
    if result.rejected is not None:
        np.testing.assert_array_equal(found.rejected, result.rejected)
    assert dict(found.settings) == dict(result.settings)
    for key, value in result.metadata.items():
        assert found.metadata[key] == value, key


class TestRoundTrips:
    @pytest.mark.parametrize("first", SUFFIXES)
    @pytest.mark.parametrize("second", SUFFIXES)
    def test_through_two_formats(self, tmp_path, first, second):
        result = make_result()
        once = read_result(result.save(tmp_path / f"a.{first}"))
        assert_same(once, result)
        assert_same(read_result(once.save(tmp_path / f"b.{second}")), result)

    @pytest.mark.parametrize("suffix", SUFFIXES)
    @pytest.mark.parametrize("noise", ["scalar", "covariance"])
    def test_noise_and_rejected(self, tmp_path, suffix, noise):
        result = make_result(noise, rejected=True)
        assert_same(read_result(result.save(tmp_path / f"a.{suffix}")), result)

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_without_uncertainty(self, tmp_path, suffix):
        result = make_result(std=False)
        assert_same(read_result(result.save(tmp_path / f"a.{suffix}")), result)

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_windows_that_cut_the_bands(self, tmp_path, suffix):
        ranks = np.arange(5 * 6 * 3).reshape(5, 6, 3)
        result = replace(make_result(), ranks=ranks, residual_ratio=1 + ranks / 100)
        assert_same(read_result(result.save(tmp_path / f"a.{suffix}")), result)

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_reads_as_a_cube_in_physical_units(self, tmp_path, suffix):
        result = make_result()
        found = read(result.save(tmp_path / f"a.{suffix}"))
        np.testing.assert_array_equal(found.values, result.estimate.astype(np.float32))
        valid = np.broadcast_to(found.mask, SHAPE)
        np.testing.assert_array_equal(valid, np.isfinite(result.estimate))
        for key, value in METADATA.items():
            assert found.metadata[key] == value, key
        np.testing.assert_array_equal(found.wavelengths, result.wavelengths)
        assert found.metadata["denoised"]["version"] == "0.0.1"

    def test_double_precision(self, tmp_path):
        result = make_result()
        for suffix in SUFFIXES:
            found = read_result(result.save(tmp_path / f"a.{suffix}", dtype="float64"))
            np.testing.assert_array_equal(found.estimate, result.estimate)
            np.testing.assert_array_equal(found.std, result.std)

    def test_bare_result(self, tmp_path):
        flat = np.zeros((6, 5, 3))
        ones = np.ones((1, 1))
        result = DenoisedCube(flat, flat + 0.1, ones.astype(int), 0.3, ones)
        for suffix in SUFFIXES:
            assert_same(read_result(result.save(tmp_path / f"a.{suffix}")), result)

    def test_crop_by_another_tool_keeps_its_own_place(self, tmp_path):
        path = make_result().save(tmp_path / "a.tif")
        with rasterio.open(path) as file:
            profile, tags = file.profile, file.tags()
            transform = rasterio.Affine(30, 0, 365055 + 5 * 30, 0, -30, 5807085 - 4 * 30)
            part = file.read(window=rasterio.windows.Window(5, 4, 10, 8))
        profile |= {"width": 10, "height": 8, "transform": transform}
        with rasterio.open(tmp_path / "crop.tif", "w", **profile) as file:
            file.write(part)
            file.update_tags(**tags)
        found = read(tmp_path / "crop.tif").metadata
        assert found["transform"] == list(transform)[:6]
        assert "map_info" not in found
        assert found["acquisition_time"] == METADATA["acquisition_time"]

    def test_result_is_not_written_to(self, tmp_path):
        result = make_result(rejected=True)
        for array in (result.estimate, result.std, result.ranks, result.noise, result.rejected):
            array.setflags(write=False)
        for suffix in SUFFIXES:
            result.save(tmp_path / f"a.{suffix}")


class TestOtherTools:
    def test_spectral_reads_the_envi_pair(self, tmp_path):
        result = make_result()
        path = result.save(tmp_path / "a.hdr")
        for name, values in (("a", result.estimate), ("a_uncert", result.std)):
            theirs = spectral.io.envi.open(path.with_name(f"{name}.hdr"), path.with_name(name))
            np.testing.assert_array_equal(
                theirs.open_memmap(interleave="bip"), values.astype(np.float32)
            )
            assert theirs.metadata["interleave"] == "bip"
            assert theirs.metadata["byte order"] == "1"
            assert theirs.bands.centers == result.wavelengths.tolist()

    @pytest.mark.parametrize("suffix", ["hdr", "tif"])
    def test_rasterio_reads_the_pair(self, tmp_path, suffix):
        result = make_result()
        path = result.save(tmp_path / f"a.{suffix}")
        for name, values in (("a", result.estimate), ("a_uncert", result.std)):
            file = path.with_name(name + (".tif" if suffix == "tif" else ""))
            with rasterio.open(file) as theirs:
                np.testing.assert_array_equal(
                    theirs.read().transpose(1, 2, 0), values.astype(np.float32)
                )
                assert np.isnan(theirs.nodata)
                assert theirs.crs == rasterio.crs.CRS.from_wkt(UTM)
                assert list(theirs.transform)[:6] == METADATA["transform"]
                tagged = [float(theirs.tags(i)["wavelength"]) for i in theirs.indexes]
                np.testing.assert_allclose(tagged, result.wavelengths, rtol=1e-12)

    def test_geotiff_keeps_full_precision_in_imagery(self, tmp_path):
        result = make_result()
        with rasterio.open(result.save(tmp_path / "a.tif")) as file:
            centres = [
                float(file.tags(i, ns="IMAGERY")["CENTRAL_WAVELENGTH_UM"]) for i in file.indexes
            ]
            assert file.profile["compress"] == "deflate"
        np.testing.assert_allclose(np.array(centres) * 1000, result.wavelengths, rtol=1e-15)

    @pytest.mark.skipif(shutil.which("gdalinfo") is None, reason="gdalinfo is not installed")
    @pytest.mark.parametrize("name", ["a", "a_uncert", "a.tif", "a_uncert.tif"])
    def test_gdalinfo_shows_wavelengths(self, tmp_path, name):
        result = make_result()
        for suffix in ("hdr", "tif"):
            result.save(tmp_path / f"a.{suffix}")
        run = subprocess.run(
            ["gdalinfo", "-json", name], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        found = json.loads(run.stdout)
        assert found["size"] == [SHAPE[1], SHAPE[0]]
        assert len(found["bands"]) == SHAPE[2]
        assert f"{result.wavelengths[3]}" in run.stdout
        assert "UTM zone 33N" in run.stdout

    def test_netcdf_is_compressed_and_without_fill_on_coordinates(self, tmp_path):
        path = make_result().save(tmp_path / "a.nc")
        with xr.open_dataset(path, engine="h5netcdf") as found:
            assert found["reflectance"].encoding["zlib"]
            for name in found.coords:
                assert "_FillValue" not in found[name].encoding


def cf_report(path, folder):
    from compliance_checker.runner import CheckSuite, ComplianceChecker

    CheckSuite.load_all_available_checkers()
    out = folder / "report.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the checker's own dependencies
        passed, errors = ComplianceChecker.run_checker(
            str(path), ["cf:1.11"], 0, "strict", output_filename=str(out), output_format="json"
        )
    assert not errors
    return passed, json.loads(out.read_text())["cf:1.11"]


class TestCf:
    def test_no_error(self, tmp_path):
        path = make_result("covariance", rejected=True).save(tmp_path / "a.nc")
        _, report = cf_report(path, tmp_path)
        assert report["high_count"] == 0, report["high_priorities"]
        assert report["medium_count"] == 0, report["medium_priorities"]

    def test_standard_error_of_a_standard_name(self, tmp_path):
        result = make_result()
        metadata = {**METADATA, "standard_name": "surface_bidirectional_reflectance"}
        path = replace(result, metadata=metadata).save(tmp_path / "a.nc")
        with xr.open_dataset(path) as found:
            name = found["reflectance_uncertainty"].attrs["standard_name"]
        assert name == "surface_bidirectional_reflectance standard_error"
        _, report = cf_report(path, tmp_path)
        assert report["high_count"] == 0, report["high_priorities"]

    @pytest.mark.parametrize(
        ("code", "name"),
        [
            (4326, "latitude_longitude"),
            (32733, "transverse_mercator"),
            (3035, "lambert_azimuthal_equal_area"),
            (5070, "albers_conical_equal_area"),
            (2154, "lambert_conformal_conic"),
            (3413, "polar_stereographic"),
            (3031, "polar_stereographic"),
        ],
    )
    def test_grid_mappings(self, tmp_path, code, name):
        wkt = rasterio.crs.CRS.from_epsg(code).to_wkt()
        metadata = {**METADATA, "crs_wkt": wkt, "transform": [0.5, 0.0, 10.0, 0.0, -0.5, 50.0]}
        result = replace(make_result(), metadata=metadata)
        path = result.save(tmp_path / "a.nc")
        with xr.open_dataset(path) as found:
            assert found["spatial_ref"].attrs["grid_mapping_name"] == name
        _, report = cf_report(path, tmp_path)
        assert report["high_count"] == 0, report["high_priorities"]
        found = read(path).metadata
        assert found["transform"] == metadata["transform"]
        with rasterio.open(result.save(tmp_path / "a.hdr").with_suffix("")) as theirs:
            assert theirs.crs is not None
            assert list(theirs.transform)[:6] == metadata["transform"]

    def test_rotated_grid(self, tmp_path):
        metadata = {**METADATA, "transform": [3.0, 4.0, 10.0, 4.0, -3.0, 50.0]}
        metadata.pop("map_info")
        result = replace(make_result(), metadata=metadata)
        for suffix in SUFFIXES:
            path = result.save(tmp_path / f"a.{suffix}")
            assert read(path).metadata["transform"] == metadata["transform"]
        with rasterio.open(tmp_path / "a") as theirs:
            assert list(theirs.transform)[:6] == pytest.approx(metadata["transform"])

    def test_sensor_geometry(self, tmp_path):
        rng = np.random.default_rng(3)
        location = {
            "lat": rng.uniform(50, 51, SHAPE[:2]),
            "lon": rng.uniform(10, 11, SHAPE[:2]),
            "elev": rng.uniform(0, 9, SHAPE[:2]),
            "glt_x": rng.integers(0, 30, (40, 50)),
            "glt_y": rng.integers(0, 24, (40, 50)),
        }
        metadata = {
            k: v for k, v in METADATA.items() if k not in ("map_info", "crs_wkt", "transform")
        }
        result = replace(make_result(), metadata={**metadata, "location": location})
        path = result.save(tmp_path / "a.nc")
        _, report = cf_report(path, tmp_path)
        assert report["high_count"] == 0, report["high_priorities"]
        found = read_result(path).metadata["location"]
        for key, values in location.items():
            np.testing.assert_array_equal(found[key], values)

    def test_the_checker_can_fail(self, tmp_path):
        path = make_result().save(tmp_path / "a.nc")
        with xr.open_dataset(path) as found:
            broken = found.load()
        broken["reflectance"].attrs["units"] = "not a unit"
        broken.attrs["Conventions"] = "none"
        broken.to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
        _, report = cf_report(tmp_path / "b.nc", tmp_path)
        assert report["high_count"] > 0

    @pytest.mark.data
    def test_enmap(self, data, tmp_path):
        cube = read(data / "formats/enmap/enmap_potsdam_tile_96_96.tif")
        result = sc.denoise(cube, 0.002)
        path = result.save(tmp_path / "a.nc")
        _, report = cf_report(path, tmp_path)
        assert report["high_count"] == 0, report["high_priorities"]
        assert report["medium_count"] == 0, report["medium_priorities"]
        for suffix in ("zarr", "hdr", "tif"):
            assert_same(read_result(result.save(tmp_path / f"a.{suffix}")), result)


class TestObsarray:
    @pytest.fixture
    def opened(self, tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pytest.importorskip("obsarray")
            path = make_result().save(tmp_path / "a.nc")
            with xr.open_dataset(path) as found:
                yield found.load()

    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_is_neither_random_nor_systematic(self, opened):
        uncertainty = opened.unc["reflectance"]["reflectance_uncertainty"]
        assert uncertainty.is_structured
        assert not uncertainty.is_random
        assert not uncertainty.is_systematic
        assert uncertainty.pdf_shape == "gaussian"
        forms = {dim: form.form for dim, form in uncertainty.err_corr}
        assert forms == dict.fromkeys(("wavelength", "y", "x"), "err_corr_matrix")

    @pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:Duplicate dimension:UserWarning")
    def test_matrix_of_a_spectrum(self, opened):
        matrix = opened.unc["reflectance"][:, 5, 6]["reflectance_uncertainty"].err_corr_matrix()
        np.testing.assert_allclose(matrix, opened["err_corr_wavelength"], atol=1e-6)


class TestCorrelation:
    """The statement in the file is held against what the window factors give exactly."""

    @pytest.fixture(scope="class")
    @classmethod
    def result(cls):
        noisy = sc.synthetic.add_noise(sc.synthetic.scene((60, 50, 40), rng=1), 0.03, rng=2)
        return sc.denoise(noisy, 0.03, window=12, step=4, prior=None)

    def stated_std(self, made, name, block):
        rows, cols, band = block
        std = made[f"{name}_uncertainty"].transpose("y", "x", ...).values[rows, cols, band]
        y = made["err_corr_y"].values[rows, rows]
        x = made["err_corr_x"].values[cols, cols]
        weighted = std / std.size
        return np.sqrt(np.sum(weighted * (y @ weighted @ x)))

    def blocks(self, side):
        for row, col, band in ((20, 15, 9), (33, 25, 20), (12, 8, 31), (25, 30, 5)):
            yield slice(row, row + side), slice(col, col + side), band

    def test_the_matrix_of_a_large_scene_takes_no_more_than_its_profile(self):
        matrix = correlation.along_pixels(100_000, 20, 4, 0.5)  # 40 GB if it were written out
        assert matrix.shape == (100_000, 100_000)
        small = correlation.along_pixels(90, 20, 4, 0.5)
        np.testing.assert_array_equal(matrix[-90:, -90:], small)
        np.testing.assert_array_equal(small, small.T)
        assert np.all(np.diagonal(small) == 1)
        assert 0 < small[0, 5] < small[0, 1] < 1

    @pytest.mark.parametrize("kept", [True, False])
    @pytest.mark.parametrize("side", [4, 8, 12])
    def test_means_over_pixels(self, result, kept, side):
        made = (result if kept else replace(result, error_model=None)).to_xarray()
        name = made.attrs["sigmacube_variable"]
        ratios, random = [], []
        for block in self.blocks(side):
            weights = np.zeros(result.estimate.shape)
            weights[block] = 1 / side**2
            exact = result.functional_std(weights)
            ratios.append(self.stated_std(made, name, block) / exact)
            random.append(np.sqrt(np.sum((weights * result.std) ** 2)) / exact)
        # One correlation for the whole scene: right within a third, where "random" is far off.
        assert 0.75 < np.mean(ratios) < 1.35
        assert np.mean(random) < 0.75

    @pytest.mark.parametrize("kept", [True, False])
    def test_between_bands(self, result, kept):
        stated = correlation.along_bands(result if kept else replace(result, error_model=None))
        exact = np.zeros_like(stated)
        for place in ((15, 12), (30, 25), (44, 38), (20, 35)):
            covariance = result.spectral_cov(*place)
            std = np.sqrt(np.diag(covariance))
            exact += covariance / np.outer(std, std) / 4
        off = ~np.eye(len(stated), dtype=bool)
        assert np.corrcoef(stated[off], exact[off])[0, 1] > 0.9
        assert np.linalg.eigvalsh(stated).min() > 0
        # Negative control: independent bands would miss most of it.
        assert np.sqrt(np.mean((stated - exact)[off] ** 2)) < 0.5 * np.sqrt(
            np.mean(exact[off] ** 2)
        )

    def test_long_axes_are_not_stated(self, monkeypatch):
        from sigmacube.io import cf

        monkeypatch.setattr(cf, "_MAX_MATRIX", 26)
        made = make_result().to_xarray()
        assert "err_corr_x" not in made
        assert "Not stated along x" in made["reflectance_uncertainty"].attrs["comment"]


class TestWhole:
    """An output appears under its final name when it is whole, or not at all."""

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_existing_output_is_refused_and_kept(self, tmp_path, suffix):
        path = make_result().save(tmp_path / f"a.{suffix}")
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(FileExistsError, match="only replaced with overwrite"):
            make_result(rng=8).save(path)
        assert sorted(tmp_path.rglob("*")) == before
        assert_same(read_result(path), make_result())

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_overwrite_replaces_and_leaves_nothing_stale(self, tmp_path, suffix):
        path = make_result(rejected=True).save(tmp_path / f"a.{suffix}")
        other = make_result(std=False, rng=8)
        assert_same(read_result(write(other, path, overwrite=True)), other)
        names = {p.name for p in tmp_path.iterdir()}
        assert not [n for n in names if "uncert" in n or "rejected" in n or n.endswith(".partial")]

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_failure_leaves_nothing(self, tmp_path, suffix, monkeypatch):
        def fail(*_):
            raise OSError("disk full")

        monkeypatch.setattr(atomic, "commit", fail)
        with pytest.raises(OSError, match="disk full"):
            make_result().save(tmp_path / f"a.{suffix}")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("suffix", SUFFIXES)
    @pytest.mark.parametrize("moment", ["middle", "whole", "last"])
    def test_kill_while_writing(self, tmp_path, suffix, moment):
        """Stop the process at a known point, kill it there, and look at what is left."""
        existing = make_result().save(tmp_path / "old.nc")
        script = textwrap.dedent(f"""
            import os, time
            from sigmacube import io
            from sigmacube.io import atomic, read_result

            def pause(*_):
                print("ready", flush=True)
                time.sleep(600)

            def half_written(self, result, names, path, dtype, **options):
                for name in names.values():
                    name.write_bytes(b"half of it")
                pause()

            # In the middle of the bytes; with all bytes written; with all but one file renamed.
            if {moment!r} == "middle":
                writer = type(io.writer_of(io.Path("a.{suffix}")))
                writer.write = half_written
            elif {moment!r} == "whole":
                atomic.commit = pause
            else:
                replace = os.replace
                def stepwise(source, final):
                    if str(final).endswith("a.{suffix}"):
                        pause()
                    replace(source, final)
                atomic.os.replace = stepwise
            read_result({str(existing)!r}).save({str(tmp_path / f"a.{suffix}")!r})
        """)
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert process.stdout.readline() == "ready\n"
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        assert not (tmp_path / f"a.{suffix}").exists()
        with pytest.raises(FileNotFoundError):
            read(tmp_path / f"a.{suffix}")
        # What was killed is in nobody's way.
        assert_same(
            read_result(make_result().save(tmp_path / f"a.{suffix}", overwrite=True)), make_result()
        )

    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("absent/a.nc", FileNotFoundError),
            ("file/a.nc", NotADirectoryError),
            ("a.xyz", ValueError),
            ("a", ValueError),
            ("a.npy", ValueError),
            ("folder.nc", IsADirectoryError),
        ],
    )
    def test_impossible_outputs(self, tmp_path, name, error):
        (tmp_path / "file").write_text("")
        (tmp_path / "folder.nc").mkdir()
        with pytest.raises(error):
            make_result().save(tmp_path / name, overwrite=True)

    def test_unknown_type(self, tmp_path):
        with pytest.raises(ValueError, match="Invalid dtype 'int16'"):
            make_result().save(tmp_path / "a.nc", dtype="int16")

    def test_not_a_result(self, tmp_path):
        xr.Dataset({"a": ("x", [1.0])}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        with pytest.raises(ValueError, match="no result of sigmacube"):
            read_result(tmp_path / "a.nc")
        (tmp_path / "a.hdr").write_text("ENVI\n")
        with pytest.raises(ValueError, match="is missing beside it"):
            read_result(tmp_path / "a.hdr")
        with pytest.raises(FileNotFoundError):
            read_result(tmp_path / "b.nc")


class TestDataArrays:
    def array(self, dims=("y", "wavelength", "x")):
        scene = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 12), rng=1), 0.03, rng=2)
        time = np.datetime64("2024-05-06T07:08:09", "ns")
        return xr.DataArray(
            scene.values,
            dims=("y", "x", "wavelength"),
            coords={
                "y": ("y", 100.0 - np.arange(24), {"units": "m"}),
                "x": ("x", 5.0 + np.arange(30)),
                "wavelength": ("wavelength", scene.wavelengths / 1000, {"units": "um"}),
                "quality": (("y", "x"), np.ones((24, 30), int)),
                "time": time,
            },
            attrs={"units": "1", "long_name": "surface reflectance", "mission": "test"},
            name="rho",
        ).transpose(*dims)

    @pytest.mark.parametrize(
        "dims", [("y", "wavelength", "x"), ("wavelength", "y", "x"), ("x", "y", "wavelength")]
    )
    def test_labels_come_back(self, dims):
        array = self.array(dims)
        result = sc.denoise(array, 0.03, window=10)
        assert result.estimate.dims == dims
        made = result.to_xarray()
        found = made["rho"]
        assert found.dims == dims
        for name, coordinate in array.coords.items():
            xr.testing.assert_identical(found.coords[name].drop_vars(found.coords[name].coords),
                                        coordinate.drop_vars(coordinate.coords))  # fmt: skip
        for key, value in array.attrs.items():
            assert found.attrs[key] == value
        assert made["rho_uncertainty"].dims == dims
        np.testing.assert_allclose(result.wavelengths, array["wavelength"] * 1000)

    @pytest.mark.parametrize("suffix", ["nc", "zarr"])
    def test_labels_survive_a_file(self, tmp_path, suffix):
        array = self.array()
        result = sc.denoise(array, 0.03, window=10)
        found = read_result(result.save(tmp_path / f"a.{suffix}")).to_xarray()["rho"]
        assert found.dims == array.dims
        assert set(array.coords) <= set(found.coords)
        np.testing.assert_array_equal(found["y"], array["y"])
        assert found.attrs["mission"] == "test"

    def test_saves_as_rasters(self, tmp_path):
        result = sc.denoise(self.array(), 0.03, window=10)
        for suffix in ("hdr", "tif"):
            found = read_result(result.save(tmp_path / f"a.{suffix}"))
            plain = result.arrays.estimate.astype(np.float32)
            np.testing.assert_array_equal(found.estimate, plain)

    def test_to_xarray_is_what_save_writes(self, tmp_path):
        result = make_result()
        made = result.to_xarray()
        with xr.open_dataset(result.save(tmp_path / "a.nc")) as found:
            assert set(found.variables) == set(made.variables)
            for name in made.variables:
                np.testing.assert_array_equal(
                    found[name], made[name].astype(found[name].dtype), err_msg=name
                )

    def test_band_dimension(self):
        from sigmacube.io.dataarray import from_dataarray

        values = np.zeros((2, 3, 4))
        for dims, shape in (
            (("band", "y", "x"), (3, 4, 2)),
            (("line", "sample", "channel"), (2, 3, 4)),
            (("lat", "lon", "whatever"), (2, 3, 4)),
            (("dim_0", "dim_1", "dim_2"), (2, 3, 4)),
        ):
            assert from_dataarray(xr.DataArray(values, dims=dims)).shape == shape
        named = xr.DataArray(
            values,
            dims=("p", "q", "r"),
            coords={"c": ("q", [1.0, 2.0, 3.0], {"standard_name": "radiation_wavelength"})},
        )
        assert from_dataarray(named).shape == (2, 4, 3)
        with pytest.raises(ValueError, match="band dimension is not clear"):
            from_dataarray(xr.DataArray(values, dims=("p", "q", "r")))
        with pytest.raises(ValueError, match="must have three"):
            from_dataarray(xr.DataArray(values[0], dims=("p", "q")))

    def test_fill_value_masks(self):
        from sigmacube.io.dataarray import from_dataarray

        array = xr.DataArray(np.arange(24.0).reshape(2, 3, 4), dims=("y", "x", "band"))
        array.attrs["_FillValue"] = 5.0
        cube = from_dataarray(array)
        np.testing.assert_array_equal(cube.mask, array.values != 5)
        assert (
            "_FillValue"
            not in sc.DenoisedCube(
                cube.values,
                None,
                np.ones((1, 1), int),
                1.0,
                np.ones((1, 1)),
                metadata=cube.metadata,
            )
            .to_xarray()["estimate"]
            .attrs
        )


def test_nothing_is_computed_where_it_is_not_asked_for(tmp_path, monkeypatch):
    result = make_result()
    monkeypatch.setattr(DenoisedCube, "error_correlation", None)
    plain = read_result(result.save(tmp_path / "a.nc", correlation=False))
    assert_same(plain, result)
    with xr.open_dataset(tmp_path / "a.nc") as opened:
        assert not [name for name in opened.variables if "correlation" in name]

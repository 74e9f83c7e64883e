"""Every format is read with its shape, values, wavelengths, no data and place."""

import gzip
import random
import struct
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
import scipy.io
import scipy.sparse
import spectral.io.envi
from rasterio.transform import Affine

from sigmacube.io import open_source, read
from sigmacube.io.source import parse_bands

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
ENVI_TYPES = {
    1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8",
}  # fmt: skip
DISK = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}
SHAPE = (4, 5, 3)
CENTRES = [450.0, 550.5, 651.25]


@pytest.fixture(scope="session")
def data():
    if not DATA.is_dir():
        pytest.skip("the scenes and files kept beside the repository are absent")
    return DATA


def cube_of(dtype, shape=SHAPE):
    values = np.arange(np.prod(shape)).reshape(shape) % 120
    return values.astype(dtype)


def write_envi(path, values, *, interleave="bsq", order=0, offset=0, code=None, extra=""):
    """Write a raw file and its header, without any code of the package."""
    code = code or {v: k for k, v in ENVI_TYPES.items()}[values.dtype.str[1:]]
    stored = values.transpose(DISK[interleave]).astype(values.dtype.newbyteorder("<>"[order]))
    path.with_suffix("").write_bytes(b"\xff" * offset + stored.tobytes())
    rows, cols, bands = values.shape
    path.write_text(
        f"ENVI\nsamples = {cols}\nlines   = {rows}\nbands = {bands}\nheader offset = {offset}\n"
        f"file type = ENVI Standard\ndata type = {code}\ninterleave = {interleave}\n"
        f"byte order = {order}\n{extra}"
    )
    return path


class TestEnvi:
    @pytest.mark.parametrize("code", ENVI_TYPES)
    @pytest.mark.parametrize("interleave", DISK)
    @pytest.mark.parametrize("order", [0, 1])
    def test_layouts_agree_with_spectral(self, tmp_path, code, interleave, order):
        values = cube_of(ENVI_TYPES[code])
        path = write_envi(
            tmp_path / "x.hdr", values, interleave=interleave, order=order, offset=7 * order
        )
        found = read(path)
        assert found.values.dtype.newbyteorder("=") == values.dtype
        np.testing.assert_array_equal(found.values, values)
        theirs = spectral.io.envi.open(path, path.with_suffix("")).open_memmap(interleave="bip")
        np.testing.assert_array_equal(found.values, theirs)
        assert found.metadata["interleave"] == interleave
        assert found.metadata["byte_order"] == ("big" if order else "little")

    def test_is_mapped_not_read(self, tmp_path):
        path = write_envi(tmp_path / "x.hdr", cube_of("f4"))
        values = read(path).values
        assert isinstance(values, np.memmap)
        assert not values.flags.writeable

    def test_block_is_that_part_of_the_whole(self, tmp_path):
        values = cube_of("i2", (9, 7, 3))
        extra = "reflectance scale factor = 100\ndata ignore value = 5\n"
        source = open_source(write_envi(tmp_path / "x.hdr", values, interleave="bil", extra=extra))
        whole = source.read()
        block = source.read_part(slice(2, 6), slice(1, 4))
        np.testing.assert_array_equal(block.values, whole.values[2:6, 1:4])
        assert whole.values.dtype == np.float32
        np.testing.assert_allclose(whole.values[values != 5], values[values != 5] / 100, rtol=1e-6)
        np.testing.assert_array_equal(np.broadcast_to(whole.mask, values.shape), values != 5)

    def test_header_fields(self, tmp_path):
        extra = (
            "; a comment = {not a list\n"
            "Wavelength Units = Micrometers\n"
            "WAVELENGTH = {0.389750,\n 0.397250,\n 1.1 ,\n}\n"
            "fwhm = {0.0051, 0.0052, 0.0053}\n"
            "bbl = {1.0, 0, 1}\n"
            "band names = {red, green (b), blue}\n"
            "acquisition time = 2024-05-06T07:08:09Z\n"
            "map info = {UTM, 1.5, 1.5, 500015.0, 4000000.0, 30, 20, 33, North, WGS-84}\n"
            "sensor type = Unknown\n"
        )
        found = read(write_envi(tmp_path / "x.hdr", cube_of("u2"), extra=extra))
        # Decimal arithmetic: not a bit is lost between micrometres and nanometres.
        assert found.wavelengths.tolist() == [389.75, 397.25, 1100.0]
        metadata = found.metadata
        assert metadata["fwhm"] == [5.1, 5.2, 5.3]
        assert metadata["good_bands"] == [True, False, True]
        assert found.mask.shape == (1, 1, 3)
        assert found.mask.ravel().tolist() == [True, False, True]
        assert metadata["band_names"] == ["red", "green (b)", "blue"]
        assert metadata["acquisition_time"] == "2024-05-06T07:08:09Z"
        assert metadata["wavelength_units"] == "Micrometers"
        assert metadata["envi"] == {"sensor type": "Unknown"}
        assert "33N" in metadata["crs_wkt"]
        with rasterio.open(tmp_path / "x") as theirs:
            assert metadata["transform"] == pytest.approx(list(theirs.transform)[:6])

    @pytest.mark.parametrize("rotation", [0.0, 12.5, -30.0, 90.0])
    def test_rotation_is_gdal_s(self, tmp_path, rotation):
        extra = f"map info = {{Arbitrary, 1, 1, 100.0, 200.0, 2.0, 2.0, rotation={rotation}}}\n"
        found = read(write_envi(tmp_path / "x.hdr", cube_of("u1"), extra=extra))
        with rasterio.open(tmp_path / "x") as theirs:
            expected = list(theirs.transform)[:6]
        assert found.metadata["transform"] == pytest.approx(expected, abs=1e-9)

    def test_gains_and_offsets(self, tmp_path):
        extra = "data gain values = {2, 3, 4}\ndata offset values = {0, 0.5, 1}\n"
        values = cube_of("u1")
        found = read(write_envi(tmp_path / "x.hdr", values, extra=extra))
        np.testing.assert_allclose(found.values, values * [2, 3, 4] + [0, 0.5, 1])

    def test_compressed(self, tmp_path):
        values = cube_of("i2")
        path = write_envi(tmp_path / "x.hdr", values, extra="file compression = 1\n")
        (tmp_path / "x").write_bytes(gzip.compress((tmp_path / "x").read_bytes()))
        np.testing.assert_array_equal(read(path).values, values)

    @pytest.mark.parametrize("name", ["x", "x.img", "x.dat", "x.RAW", "x.bsq"])
    def test_binary_is_found_and_finds_its_header(self, tmp_path, name):
        values = cube_of("f4")
        path = write_envi(tmp_path / "x.hdr", values)
        (tmp_path / "x").rename(tmp_path / name)
        np.testing.assert_array_equal(read(path).values, values)
        np.testing.assert_array_equal(read(tmp_path / name).values, values)

    def test_binary_by_another_name(self, tmp_path):
        values = cube_of("f4")
        path = write_envi(tmp_path / "x.hdr", values)
        (tmp_path / "x").rename(tmp_path / "other")
        with pytest.raises(ValueError, match="such as other, whose size fits"):
            read(path)
        np.testing.assert_array_equal(read(path, data=tmp_path / "other").values, values)

    def test_esri_header(self, tmp_path):
        values = cube_of("i2")
        (tmp_path / "x.bil").write_bytes(values.transpose(DISK["bil"]).astype(">i2").tobytes())
        (tmp_path / "x.hdr").write_text(
            "BYTEORDER M\nLAYOUT BIL\nNROWS 4\nNCOLS 5\nNBANDS 3\nNBITS 16\nPIXELTYPE SIGNEDINT\n"
            "BANDROWBYTES 10\nNODATA 7\nULXMAP 10.5\nULYMAP 20.5\nXDIM 1\nYDIM 1\n"
            "WAVELENGTHS\n450\n550.5\n651.25\nWAVELENGTHS_END\n"
        )
        found = read(tmp_path / "x.hdr")
        np.testing.assert_array_equal(found.values, values)
        assert found.wavelengths.tolist() == CENTRES
        assert found.metadata["nodata"] == 7
        assert found.metadata["transform"] == [1.0, 0.0, 10.0, 0.0, -1.0, 21.0]


def write_tiff(path, values, **profile):
    rows, cols, bands = values.shape
    profile = {
        "transform": Affine(30, 0, 365055, 0, -30, 5807085),
        "crs": "EPSG:32633",
        **profile,
    }
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=cols,
        height=rows,
        count=bands,
        dtype=values.dtype,
        **profile,
    ) as file:
        file.write(values.transpose(2, 0, 1))
        return path


class TestGeoTiff:
    @pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i4", "f4", "f8"])
    @pytest.mark.parametrize("interleave", ["band", "pixel"])
    def test_agrees_with_rasterio(self, tmp_path, dtype, interleave):
        values = cube_of(dtype)
        path = write_tiff(tmp_path / "x.tif", values, interleave=interleave, nodata=3)
        found = read(path)
        np.testing.assert_array_equal(found.values, values)
        assert found.values.dtype == values.dtype
        np.testing.assert_array_equal(np.broadcast_to(found.mask, SHAPE), values != 3)
        assert found.metadata["transform"] == [30.0, 0.0, 365055.0, 0.0, -30.0, 5807085.0]
        with rasterio.open(path) as theirs:
            assert rasterio.crs.CRS.from_wkt(found.metadata["crs_wkt"]) == theirs.crs

    def test_scale_offset_and_tags(self, tmp_path):
        values = cube_of("i2")
        path = write_tiff(tmp_path / "x.tif", values)
        with rasterio.open(path, "r+") as file:
            file.scales = (0.1,) * 3
            file.offsets = (1.0, 2.0, 3.0)
            file.update_tags(start_time="2022-07-24T10:45:26")
            for i, centre in enumerate(["0.45", "0.5505", "0.65125"], start=1):
                file.update_tags(i, wavelength=centre, wavelength_units="um", fwhm="0.01", bbl="1")
        found = read(path)
        np.testing.assert_allclose(found.values, values * 0.1 + [1, 2, 3], rtol=1e-6)
        assert found.wavelengths.tolist() == CENTRES
        assert found.metadata["fwhm"] == [10.0] * 3
        assert found.metadata["acquisition_time"] == "2022-07-24T10:45:26"

    def test_imagery_domain(self, tmp_path):
        path = write_tiff(tmp_path / "x.tif", cube_of("u1"))
        with rasterio.open(path, "r+") as file:
            for i, centre in enumerate(["0.45", "0.5505", "0.65125"], start=1):
                file.update_tags(i, ns="IMAGERY", CENTRAL_WAVELENGTH_UM=centre)
        assert read(path).wavelengths.tolist() == CENTRES

    def test_descriptions(self, tmp_path):
        path = write_tiff(tmp_path / "x.tif", cube_of("u1"))
        with rasterio.open(path, "r+") as file:
            file.descriptions = tuple(f"band {i} ({c} Nanometers)" for i, c in enumerate(CENTRES))
        assert read(path).wavelengths.tolist() == CENTRES

    def test_block(self, tmp_path):
        values = cube_of("i2", (30, 20, 3))
        source = open_source(write_tiff(tmp_path / "x.tif", values))
        block = source.block(slice(5, 9), slice(10, 20))[0]
        np.testing.assert_array_equal(block, values[5:9, 10:20])


class TestHdf:
    def write_cf(self, path, values, dims=("wavelength", "y", "x"), **attrs):
        with h5py.File(path, "w") as file:
            order = ["yx".find(d) if d in "yx" else 2 for d in dims]
            cube = file.create_dataset("radiance", data=values.transpose(order))
            cube.attrs.update(attrs)
            for i, name in enumerate(dims):
                file[name] = np.arange(values.shape[order[i]], dtype=float)
                file[name].make_scale(name)
                cube.dims[i].attach_scale(file[name])
            if "wavelength" in dims:
                file["wavelength"][:] = CENTRES
                file["wavelength"].attrs["units"] = "nm"
        return path

    @pytest.mark.parametrize(
        "dims", [("wavelength", "y", "x"), ("y", "x", "wavelength"), ("y", "wavelength", "x")]
    )
    def test_dimension_names_decide_the_axes(self, tmp_path, dims):
        values = cube_of("f4")
        found = read(self.write_cf(tmp_path / "x.nc", values, dims, units="W m-2"))
        np.testing.assert_array_equal(found.values, values)
        assert found.wavelengths.tolist() == CENTRES
        assert found.metadata["units"] == "W m-2"
        assert found.metadata["name"] == "radiance"
        assert "notes" not in found.metadata

    def test_packing(self, tmp_path):
        values = cube_of("i2")
        path = self.write_cf(
            tmp_path / "x.nc", values, scale_factor=0.5, add_offset=2.0, _FillValue=np.int16(4)
        )
        found = read(path)
        valid = values != 4
        np.testing.assert_allclose(found.values[valid], values[valid] * 0.5 + 2)
        np.testing.assert_array_equal(np.broadcast_to(found.mask, SHAPE), valid)
        assert np.isnan(found.values[~valid]).all()
        np.testing.assert_array_equal(read(path, scale=1).values[valid], values[valid])

    @pytest.mark.parametrize("key", ["scale_factor", "add_offset", "_FillValue"])
    @pytest.mark.parametrize(
        ("given", "told"), [("x", "'x'"), ([0.5, 2.0], "0.5"), (np.zeros(0), "array")]
    )
    def test_packing_must_be_numbers(self, tmp_path, key, given, told):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["a"] = cube_of("i2")
            file["a"].attrs[key] = given
        with pytest.raises(ValueError, match=f"x.h5: the attribute {key} is .*{told}"):
            read(tmp_path / "x.h5")

    def test_packing_may_be_text_or_a_vector_of_one(self, tmp_path):
        values = cube_of("i2")
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["a"] = values
            file["a"].attrs.update({"scale_factor": "0.5", "add_offset": [2.0]})
            file["a"].attrs["_FillValue"] = [np.nan, np.nan]
        np.testing.assert_allclose(read(tmp_path / "x.h5").values, values * 0.5 + 2)

    def test_classic_netcdf(self, tmp_path):
        values = cube_of("i2")
        with scipy.io.netcdf_file(tmp_path / "x.nc", "w") as file:
            for name, size in zip(("band", "lat", "lon"), (3, 4, 5), strict=True):
                file.createDimension(name, size)
            file.createVariable("r", "i2", ("band", "lat", "lon"))[:] = values.transpose(2, 0, 1)
        np.testing.assert_array_equal(read(tmp_path / "x.nc").values, values)

    def test_named_variable(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["group/one"] = cube_of("f4")
            file["group/two"] = cube_of("f4") + 1
        with pytest.raises(ValueError, match="2 arrays could be the cube"):
            read(tmp_path / "x.h5")
        for name in ("group/two", "two"):
            found = read(tmp_path / "x.h5", variable=name)
            np.testing.assert_array_equal(found.values, cube_of("f4") + 1)

    def test_wavelengths_decide_unnamed_axes(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["cube"] = cube_of("f4").transpose(2, 0, 1)
            file["wavelength"] = CENTRES
        found = read(tmp_path / "x.h5")
        assert found.shape == SHAPE
        assert found.wavelengths.tolist() == CENTRES

    def test_emit_groups(self, tmp_path):
        values = cube_of("f4")
        with h5py.File(tmp_path / "x.nc", "w") as file:
            file["reflectance"] = values
            file["reflectance"].attrs["_FillValue"] = np.float32(-9999)
            file["reflectance"].attrs["long_name"] = "Surface Reflectance"
            for i, name in enumerate(("downtrack", "crosstrack", "bands")):
                file[name] = np.zeros(values.shape[i])
                file[name].make_scale(name)
                file["reflectance"].dims[i].attach_scale(file[name])
            group = file.create_group("sensor_band_parameters")
            group["wavelengths"], group["fwhm"] = CENTRES, [8.0, 8.5, 9.0]
            group["wavelengths"].attrs["units"] = "nm"
            group["good_wavelengths"] = np.array([1, 0, 1], "u1")
            file["location/lat"] = np.full((4, 5), 3.5)
            file["location/glt_x"] = np.zeros((6, 7), "i4")
            file.attrs["geotransform"] = [1.0, 2.0, 0.0, 4.0, 0.0, -2.0]
            file.attrs["time_coverage_start"] = "2023-01-02T03:04:05"
        found = read(tmp_path / "x.nc")
        assert found.wavelengths.tolist() == CENTRES
        assert found.metadata["fwhm"] == [8.0, 8.5, 9.0]
        assert found.mask.ravel().tolist() == [True, False, True]
        # Pixels lie in sensor geometry: the map grid is kept apart from their own transform.
        assert "transform" not in found.metadata
        assert found.metadata["ortho_transform"] == [2.0, 0.0, 1.0, 0.0, -2.0, 4.0]
        assert sorted(found.metadata["location"]) == ["glt_x", "lat"]
        assert found.metadata["acquisition_time"] == "2023-01-02T03:04:05"
        assert found.metadata["standard_name"] == "surface_bidirectional_reflectance"

    @pytest.mark.parametrize("level", ["1", "2D"])
    def test_prisma(self, tmp_path, level):
        rng = np.random.default_rng(5)
        vnir, swir = (rng.integers(1, 65536, (6, n, 5), dtype="u2") for n in (4, 3))
        with h5py.File(tmp_path / "x.he5", "w") as file:
            fields = f"HDFEOS/SWATHS/PRS_L{level}_HCO/Data Fields"
            file[f"{fields}/VNIR_Cube"], file[f"{fields}/SWIR_Cube"] = vnir, swir
            # Wavelengths fall, and a zero marks a band that is absent.
            file.attrs["List_Cw_Vnir"] = np.array([0.0, 700.0, 600.0, 500.0])
            file.attrs["List_Cw_Swir"] = np.array([1200.0, 1100.0, 0.0])
            file.attrs["List_Fwhm_Vnir"] = np.array([0.0, 12.0, 11.0, 10.0])
            file.attrs["List_Fwhm_Swir"] = np.array([9.0, 8.0, 0.0])
            file.attrs["Processing_Level"] = np.bytes_(level)
            file.attrs["Product_StartTime"] = np.bytes_("2021-02-03T04:05:06")
            if level == "1":
                file.attrs["ScaleFactor_Vnir"] = file.attrs["ScaleFactor_Swir"] = 100.0
                file.attrs["Offset_Vnir"] = file.attrs["Offset_Swir"] = 2.0
            else:
                for name in ("Vnir", "Swir"):
                    file.attrs[f"L2Scale{name}Min"] = np.float32(0.0)
                    file.attrs[f"L2Scale{name}Max"] = np.float32(0.5)
                file.attrs["Epsg_Code"] = 32634
                # Centres of the outermost pixels.
                corners = {"ULcorner_easting": 115.0, "ULcorner_northing": 985.0}
                corners |= {"LRcorner_easting": 235.0, "LRcorner_northing": 835.0}
                for key, value in corners.items():
                    file.attrs[f"Product_{key}"] = value
        found = read(tmp_path / "x.he5")
        assert found.wavelengths.tolist() == [500.0, 600.0, 700.0, 1100.0, 1200.0]
        assert found.metadata["fwhm"] == [10.0, 11.0, 12.0, 8.0, 9.0]
        stored = np.concatenate([vnir[:, [3, 2, 1]], swir[:, [1, 0]]], axis=1).transpose(0, 2, 1)
        expected = stored / 100 - 2 if level == "1" else stored * (0.5 / 65535)
        np.testing.assert_allclose(found.values, expected, rtol=1e-6, atol=1e-6)
        assert found.metadata["acquisition_time"] == "2021-02-03T04:05:06"
        if level == "2D":
            assert found.metadata["transform"] == [30.0, 0.0, 100.0, 0.0, -30.0, 1000.0]
        assert read(tmp_path / "x.he5", variable="SWIR_Cube").shape == (6, 5, 2)


class TestMatlabAndNumpy:
    def test_matlab_v5(self, tmp_path):
        contents = {"hsi": cube_of("f8"), "wavelengths": np.array(CENTRES)[:, None], "n": 3}
        scipy.io.savemat(tmp_path / "x.mat", contents)
        found = read(tmp_path / "x.mat")
        np.testing.assert_array_equal(found.values, cube_of("f8"))
        assert found.wavelengths.tolist() == CENTRES

    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
    def test_matlab_types(self, tmp_path, dtype, packed):
        contents = {"text": "hello", "s": {"a": 1.0}, "c": [[1, "x"]], "flag": True}
        contents |= {"cube": cube_of(dtype), "sparse": scipy.sparse.eye_array(4).tocsc()}
        scipy.io.savemat(tmp_path / "x.mat", contents, do_compression=packed)
        found = read(tmp_path / "x.mat")
        assert found.values.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(found.values, cube_of(dtype))
        theirs = scipy.io.loadmat(tmp_path / "x.mat")["cube"]
        np.testing.assert_array_equal(found.values, theirs)

    def test_matlab_whole_doubles_are_kept_small(self, tmp_path):
        """MATLAB stores doubles that are whole numbers in fewer bytes."""
        values = cube_of("f8")
        element = struct.pack("<IIIIII", 6, 8, 6, 0, 5, 12) + struct.pack("<3ii", *SHAPE, 0)
        element += struct.pack("<HH4s", 1, 1, b"c") + struct.pack("<II", 2, values.size)
        element += values.astype("u1").tobytes(order="F") + bytes(4)
        header = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
        content = header + struct.pack("<II", 14, len(element)) + element
        (tmp_path / "x.mat").write_bytes(content)
        np.testing.assert_array_equal(scipy.io.loadmat(tmp_path / "x.mat")["c"], values)
        found = read(tmp_path / "x.mat").values
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, values)

    def test_matlab_v73_has_its_axes_reversed(self, tmp_path):
        with h5py.File(tmp_path / "x.mat", "w") as file:
            file["hsi"] = cube_of("f8").transpose()
            file["wavelength"] = np.array(CENTRES)[None, :]
        found = read(tmp_path / "x.mat")
        np.testing.assert_array_equal(found.values, cube_of("f8"))
        assert found.wavelengths.tolist() == CENTRES

    def test_npy_is_mapped(self, tmp_path):
        np.save(tmp_path / "x.npy", cube_of("f4"))
        values = read(tmp_path / "x.npy").values
        assert isinstance(values, np.memmap)
        np.testing.assert_array_equal(values, cube_of("f4"))

    def test_npz(self, tmp_path):
        np.savez_compressed(tmp_path / "x.npz", cube=cube_of("i2"), wavelengths=CENTRES)
        found = read(tmp_path / "x.npz")
        np.testing.assert_array_equal(found.values, cube_of("i2"))
        assert found.wavelengths.tolist() == CENTRES

    def test_axes_are_as_told(self, tmp_path):
        np.save(tmp_path / "x.npy", cube_of("f4").transpose(2, 0, 1))
        for axes in ("brc", "band,row,col", ("band", "row", "col")):
            np.testing.assert_array_equal(read(tmp_path / "x.npy", axes=axes).values, cube_of("f4"))

    def test_what_is_assumed_is_said(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((4, 5, 3)))
        (note,) = read(tmp_path / "x.npy").metadata["notes"]
        assert "(row, col, band)" in note
        assert "band,row,col" in note

    def test_doubtful_order_is_warned_of(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((224, 9, 9)))
        with pytest.warns(UserWarning, match="taken as"):
            read(tmp_path / "x.npy")


class TestZarr:
    @pytest.mark.parametrize("version", [2, 3])
    def test_group(self, tmp_path, version):
        xr = pytest.importorskip("xarray")
        pytest.importorskip("zarr")
        values = cube_of("f4")
        values[1, 2] = np.nan
        made = xr.Dataset(
            {"radiance": (("wavelength", "y", "x"), values.transpose(2, 0, 1))},
            {"wavelength": ("wavelength", CENTRES, {"units": "nm"})},
        )
        made.to_zarr(tmp_path / "x.zarr", zarr_format=version, consolidated=False)
        found = read(tmp_path / "x.zarr")
        np.testing.assert_array_equal(found.values, values)
        assert found.wavelengths.tolist() == CENTRES
        assert found.mask.shape == (4, 5, 1)
        assert not found.mask[1, 2, 0]

    def test_array(self, tmp_path):
        zarr = pytest.importorskip("zarr")
        zarr.save_array(tmp_path / "x.zarr", cube_of("i2"))
        np.testing.assert_array_equal(read(tmp_path / "x.zarr").values, cube_of("i2"))

    def test_needs_the_extra(self, tmp_path, monkeypatch):
        (tmp_path / "x.zarr").mkdir()
        monkeypatch.setitem(__import__("sys").modules, "zarr", None)
        with pytest.raises(ValueError, match=r"sigmacube\[scale\]"):
            read(tmp_path / "x.zarr")


class TestMasksAndBands:
    def test_masks_are_compact(self, tmp_path):
        values = cube_of("f4")
        path = write_envi(tmp_path / "a.hdr", values, extra="bbl = {1, 0, 1}\n")
        assert read(path).mask.shape == (1, 1, 3)
        dead = values.copy()
        dead[2, 3] = np.nan
        path = write_envi(tmp_path / "b.hdr", dead, extra="data ignore value = -1\n")
        assert read(path).mask.shape == (4, 5, 1)
        path = write_envi(tmp_path / "c.hdr", values, extra="data ignore value = -1\n")
        assert read(path).mask is None

    def test_not_finite_is_not_valid(self, tmp_path):
        values = cube_of("f4")
        values[0, 0, 0], values[1, 1, 1] = np.nan, np.inf
        path = write_envi(tmp_path / "a.hdr", values, extra="bbl = {1, 1, 0}\n")
        valid = np.broadcast_to(read(path).mask, SHAPE)
        assert valid.sum() == 4 * 5 * 2 - 2

    def test_integers_stay_integers(self, tmp_path):
        path = write_envi(tmp_path / "a.hdr", cube_of("i2"), extra="data ignore value = 5\n")
        assert read(path).values.dtype == np.int16

    @pytest.mark.parametrize(
        ("bands", "expected"),
        [
            ("0:2", [0, 1]),
            ("2,0", [2, 0]),
            (":", [0, 1, 2]),
            ("500nm:", [1, 2]),
            (":600nm", [0, 1]),
            (slice(1, None), [1, 2]),
            ([0, 2], [0, 2]),
            (np.array([True, False, True]), [0, 2]),
        ],
    )
    def test_bands(self, tmp_path, bands, expected):
        extra = f"wavelength = {{{', '.join(map(str, CENTRES))}}}\nbbl = {{1, 0, 1}}\n"
        path = write_envi(tmp_path / "a.hdr", cube_of("i2"), extra=extra)
        found = read(path, bands=bands)
        np.testing.assert_array_equal(found.values, cube_of("i2")[:, :, expected])
        assert found.wavelengths.tolist() == [CENTRES[i] for i in expected]
        assert found.metadata["good_bands"] == [[True, False, True][i] for i in expected]

    @pytest.mark.parametrize(
        "bands", ["", "3", "-1", "a", "1:99", "2:1", "0,0", "900nm:", [], [1.5]]
    )
    def test_bad_bands(self, bands):
        with pytest.raises(ValueError, match="Invalid bands"):
            parse_bands(bands, 3, CENTRES)

    def test_files_are_not_modified(self, tmp_path):
        extra = "reflectance scale factor = 100\ndata ignore value = 5\nbbl = {1, 0, 1}\n"
        path = write_envi(tmp_path / "x.hdr", cube_of("i2"), extra=extra)
        before = (path.read_bytes(), path.with_suffix("").read_bytes())
        read(path).values[:] = 0
        assert before == (path.read_bytes(), path.with_suffix("").read_bytes())


class TestDamage:
    """A damaged file is read, or refused with a `ValueError`; nothing else comes of it."""

    def make(self, folder, kind):
        if kind == "envi":
            extra = (
                "wavelength = {0.4, 0.5, 0.6}\nwavelength units = um\nfwhm = {1, 2, 3}\n"
                "bbl = {1, 1, 0}\nmap info = {UTM, 1, 1, 5, 5, 1, 1, 33, North, WGS-84}\n"
                "data ignore value = 3\nreflectance scale factor = 10\nband names = {a, b, c}\n"
            )
            return write_envi(folder / "x.hdr", cube_of("f4"), extra=extra)
        contents = {"cube": cube_of("f8"), "wavelengths": CENTRES}
        path = folder / f"x.{kind.split('-')[0]}"
        if kind == "npy":
            np.save(path, cube_of("f4"))
        elif kind == "npz":
            np.savez_compressed(path, **contents)
        else:
            scipy.io.savemat(path, contents, do_compression=kind == "mat-packed")
        return path

    @pytest.mark.parametrize("kind", ["envi", "npy", "npz", "mat", "mat-packed"])
    @pytest.mark.filterwarnings("ignore")
    def test_bytes_changed_or_cut(self, tmp_path, kind):
        path = self.make(tmp_path, kind)
        good, refused = path.read_bytes(), 0
        rng = random.Random(4)
        for number in range(150):
            content = bytearray(good)
            if number % 5 == 0:
                content = content[: rng.randrange(1, len(content))]
            for _ in range(rng.choice([1, 1, 2, 5])):
                where = rng.randrange(min(len(content), rng.choice([400, 10**6])))
                content[where] = (
                    rng.choice(b"0123456789.-{}=,; \nae")
                    if kind == "envi"
                    else (rng.randrange(256))
                )
            path.write_bytes(content)
            try:
                np.asarray(read(path).values).sum()
            except ValueError:
                refused += 1
        assert refused > 20


# Every file kept beside the repository: (shape, first and last wavelength, no data) or a reason.
KNOWN = {
    "formats/emit_nc_gdal/fake_EMIT_L2A.nc": ((2, 2, 2), None, -9999),
    "formats/emit_nc_gdal/fake_EMIT_L2A_with_good_wavelengths.nc": ((2, 2, 2), None, -9999),
    "formats/emit_nc_gdal/fake_EMIT_L2B_MIN.nc": "no cube found",
    "formats/enmap/enmap_potsdam_tile_128_128.tif": ((32, 32, 224), (418.24, 2445.53), -32768),
    "formats/enmap/enmap_potsdam_tile_128_96.tif": ((32, 32, 224), (418.24, 2445.53), -32768),
    "formats/enmap/enmap_potsdam_tile_96_128.tif": ((32, 32, 224), (418.24, 2445.53), -32768),
    "formats/enmap/enmap_potsdam_tile_96_96.tif": ((32, 32, 224), (418.24, 2445.53), -32768),
    "formats/enmap/torchgeo_fake_ENMAP01-L2A-SPECTRAL_IMAGE_COG.tiff": (
        (32, 32, 224), None, -32768,
    ),
    "formats/envi_aviris3_isofit/AV320250308t200738_rdn.hdr": (
        (1, 1, 284), (389.75, 2494.0), -9999,
    ),
    "formats/envi_gamsberg/cubus_gamsberg_subset.hdr": (
        (25, 10, 189), (426.820007, 2324.909912), None,
    ),
    "formats/envi_gdal/aea.hdr": ((3, 434, 1), None, None),
    "formats/envi_gdal/aea_compressed.hdr": ((3, 434, 1), None, None),
    "formats/envi_gdal/envi_rgbsmall_bil.hdr": ((49, 50, 3), None, None),
    "formats/envi_gdal/envi_rgbsmall_bip.hdr": ((49, 50, 3), None, None),
    "formats/envi_gdal/envi_rgbsmall_bsq.hdr": ((49, 50, 3), None, None),
    "formats/envi_gdal/uint16_envi_bigendian.hdr": ((20, 20, 1), None, None),
    "formats/envi_plantcv/corn-kernel-hyperspectral.hdr": (
        (31, 43, 580), (366.551, 1048.421), None,
    ),
    "formats/envi_plantcv/darkReference.hdr": ((1, 1600, 978), (379.027, 1000.95), None),
    "formats/envi_plantcv/darkReference2.hdr": "no data file found",
    "formats/envi_plantcv/darkReference3.hdr": "such as darkReference, whose size fits",
    "formats/envi_plantcv/darkReference4.hdr": "no data file found",
    "formats/envi_plantcv/darkReference_arcgis.hdr": "no data file found",
    "formats/envi_prism_isofit/prm20231110t071521_rdn_two_px.hdr": (
        (2, 1, 246), (350.5548293, 1045.6487295000002), None,
    ),
    "formats/matlab_v73_100x100x102.mat": ((100, 100, 102), None, None),
    "formats/neon/2019_HARV_crop_hyperspectral.tif": (
        (27, 10, 369), None, -3.3999999521443642e38,
    ),
    "formats/prisma/torchgeo_fake_PRS_L2D_STD.tif": ((36, 36, 239), None, None),
    "formats/qps/enmap.tif": ((7, 10, 177), None, -9999),
    "formats/qps/envi.hdr": ((7, 10, 177), (460.0, 2409.0), None),
    "formats/qps/hymap.tif": ((58, 83, 3), None, 0),
    "scenes/aviris_90x90x224.mat": ((90, 90, 224), (365.910004, 2496.219971), None),
    "scenes/beach2.npz": ((100, 100, 193), None, None),
    "scenes/muufl51.npz": ((51, 88, 72), None, None),
    "scenes/pavia_centre_100x100x102.mat": ((100, 100, 102), None, None),
    "scenes/simu_indian.mat": ((145, 145, 224), None, None),
    "scenes/urban3.npz": ((100, 100, 191), None, None),
}  # fmt: skip


@pytest.mark.data
class TestFilesBesideTheRepository:
    def test_none_is_forgotten(self, data):
        listed = {path.removesuffix(".hdr") for path in KNOWN}
        for path in (*data.glob("formats/**/*"), *data.glob("scenes/*")):
            if path.is_file() and path.suffix not in (".img", ".dat", ".raw"):
                assert path.relative_to(data).as_posix().removesuffix(".hdr") in listed

    @pytest.mark.parametrize("name", KNOWN)
    def test_is_read_or_refused(self, data, name):
        expected = KNOWN[name]
        if isinstance(expected, str):
            with pytest.raises(ValueError, match=expected):
                read(data / name)
            return
        shape, centres, nodata = expected
        found = read(data / name)
        assert found.shape == shape
        assert found.metadata.get("nodata") == nodata
        if centres is None:
            assert found.wavelengths is None
        else:
            assert (found.wavelengths[0], found.wavelengths[-1]) == centres

    @pytest.mark.parametrize("name", [n for n in KNOWN if n.endswith(".hdr")])
    def test_envi_agrees_with_spectral(self, data, name):
        if isinstance(KNOWN[name], str) or "compressed" in name or "corn" in name:
            pytest.skip("no cube, or compressed or without byte order, which spectral refuses")
        header = data / name
        found = read(header)
        binary = header.with_name(found.metadata["source"])
        theirs = spectral.io.envi.open(header, binary)
        np.testing.assert_array_equal(found.values, theirs.open_memmap(interleave="bip"))
        if found.wavelengths is not None:
            factor = 1000 if max(theirs.bands.centers) < 100 else 1
            np.testing.assert_allclose(
                found.wavelengths, np.array(theirs.bands.centers) * factor, rtol=1e-14
            )

    @pytest.mark.parametrize("name", [n for n in KNOWN if n.endswith((".tif", ".tiff"))])
    def test_geotiff_agrees_with_rasterio(self, data, name):
        found = read(data / name, scale=1)
        with rasterio.open(data / name) as theirs:
            np.testing.assert_array_equal(found.values, theirs.read().transpose(1, 2, 0))
            if "wavelength" in theirs.tags(1):
                centres = [float(theirs.tags(i)["wavelength"]) for i in theirs.indexes]
                assert found.wavelengths.tolist() == centres
            assert found.metadata["transform"] == list(theirs.transform)[:6]

    def test_enmap_masks_its_six_dead_bands(self, data):
        found = read(data / "formats/enmap/enmap_potsdam_tile_96_96.tif")
        assert np.flatnonzero(~found.mask.ravel()).tolist() == [129, 130, 131, 132, 133, 134]
        assert found.metadata["scale_factor"] == 0.0001
        assert 0 <= found.values[:, :, :129].min() < found.values[:, :, :129].max() < 1

    @pytest.mark.parametrize(
        ("header", "reason"),
        [
            ("darkReference3.hdr", None),
            ("darkReference2.hdr", "35 values for 978 bands"),
            ("darkReference4.hdr", "invalid interleave 'bup'"),
            ("darkReference_arcgis.hdr", "636 values for 978 bands"),
        ],
    )
    def test_header_styles_of_one_frame(self, data, header, reason):
        folder = data / "formats/envi_plantcv"
        if reason is None:
            found = read(folder / header, data=folder / "darkReference")
            np.testing.assert_array_equal(found.values, read(folder / "darkReference.hdr").values)
        else:
            with pytest.raises(ValueError, match=reason):
                read(folder / header, data=folder / "darkReference")

    def test_corn_agrees_with_its_bytes(self, data):
        path = data / "formats/envi_plantcv/corn-kernel-hyperspectral.raw"
        stored = np.fromfile(path, "<u2").reshape(31, 580, 43)
        np.testing.assert_array_equal(read(path).values, stored.transpose(0, 2, 1))

    def test_matlab_v73_agrees_with_h5py(self, data):
        path = data / "formats/matlab_v73_100x100x102.mat"
        with h5py.File(path) as file:
            np.testing.assert_array_equal(read(path).values, file["data"][()].T)

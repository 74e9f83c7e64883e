"""Sources elsewhere: addresses, zip files, VRT; nothing is fetched that was not asked for."""

from __future__ import annotations

import importlib

import h5py
import numpy as np
import pytest
import rasterio
import rasterio.shutil

from sigmacube.io import open_source, read
from sigmacube.io.sensors.samples import Setting, write_sample


@pytest.fixture(scope="module")
def serving(load_benchmark):
    """The fixture puts benchmarks where they are found."""
    return importlib.import_module("range_server").serving


def write_tif(path, values, **options):
    bands, rows, cols = values.shape
    with rasterio.open(
        path, "w", driver="GTiff", width=cols, height=rows, count=bands, dtype="float32",
        crs="EPSG:32633", transform=rasterio.Affine(30, 0, 3e5, 0, -30, 5.8e6), **options,
    ) as file:  # fmt: skip
        file.write(values)
        for band in range(bands):
            file.update_tags(band + 1, wavelength=str(400 + 10 * band))
    return path


class TestCog:
    def test_bytes_of_tiles(self, tmp_path, serving):
        """Not more is fetched than 1.3 times what the tiles take."""
        values = np.random.default_rng(0).normal(size=(12, 512, 512)).astype("f4")
        write_tif(tmp_path / "plain.tif", values)
        rasterio.shutil.copy(str(tmp_path / "plain.tif"), str(tmp_path / "cog.tif"), driver="COG",
                             compress="deflate", blocksize=128)  # fmt: skip
        with rasterio.open(tmp_path / "cog.tif") as file:
            needed = sum(int(file.get_tag_item(f"BLOCK_SIZE_{c}_{r}", "TIFF", bidx=1))
                         for r in (1, 2) for c in (1, 2, 3))  # fmt: skip
        with serving(tmp_path) as served:
            source = open_source(f"{served.address}/cog.tif")
            found, _ = source.block(slice(128, 384), slice(128, 512))
        np.testing.assert_array_equal(found.transpose(2, 0, 1), values[:, 128:384, 128:512])
        assert source.wavelengths[0] == 400
        assert served.bytes_sent <= 1.3 * needed
        assert served.bytes_sent < 0.5 * (tmp_path / "cog.tif").stat().st_size

    def test_missing(self, tmp_path, serving):
        with serving(tmp_path) as served, pytest.raises(ValueError, match="404") as caught:
            read(f"{served.address}/no.tif")
        assert served.address in str(caught.value)


class TestHdf5:
    def test_a_granule_at_an_address(self, tmp_path, serving):
        pytest.importorskip("aiohttp")
        sample = write_sample("emit-l1b", tmp_path, Setting(40, 44))
        with serving(tmp_path) as served:
            found = read(f"{served.address}/{sample.path.name}")
            sent = served.bytes_sent
        here = read(sample.path)
        np.testing.assert_array_equal(found.values, here.values)
        assert found.metadata["instrument"] == "EMIT"
        assert sent <= 1.3 * sample.path.stat().st_size

    def test_a_part_is_fetched(self, tmp_path, serving):
        pytest.importorskip("aiohttp")
        with h5py.File(tmp_path / "x.h5", "w") as file:
            values = np.random.default_rng(0).normal(size=(256, 256, 40)).astype("f4")
            file.create_dataset("cube", data=values, chunks=(64, 64, 40))
        with serving(tmp_path) as served:
            source = open_source(f"{served.address}/x.h5", axes="rcb")
            found, _ = source.block(slice(0, 64), slice(0, 128))
            sent = served.bytes_sent
        np.testing.assert_array_equal(found, values[:64, :128])
        assert sent < 0.3 * (tmp_path / "x.h5").stat().st_size

    def test_missing(self, tmp_path, serving):
        pytest.importorskip("aiohttp")
        with serving(tmp_path) as served, pytest.raises((ValueError, OSError), match="404"):
            read(f"{served.address}/no.nc")


class TestAddresses:
    @pytest.mark.parametrize(
        ("address", "told"),
        [
            ("https://host/x.hdr", r"https://host/x.hdr: .hdr is not read from an address"),
            ("https://host/x", "no suffix is not read from an address"),
            ("ftp://host/x.tif", "not read from ftp://, only from http://, https://"),
        ],
    )
    def test_what_is_not_read_says_so(self, address, told):
        with pytest.raises(ValueError, match=told):
            read(address)

    def test_slashes_stay(self):
        """The address in the message is the one that was given."""
        with pytest.raises(ValueError, match=r"^http://127\.0\.0\.1:9/a/x\.tif: "):
            read("http://127.0.0.1:9/a/x.tif")


class TestVrt:
    def write(self, folder, source):
        text = (
            '<VRTDataset rasterXSize="6" rasterYSize="5"><VRTRasterBand dataType="Float32" '
            f'band="1"><SimpleSource><SourceFilename relativeToVRT="0">{source}</SourceFilename>'
            "<SourceBand>1</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>"
        )
        (folder / "x.vrt").write_text(text)
        return folder / "x.vrt"

    def test_of_files_on_the_disk(self, tmp_path):
        values = np.arange(30, dtype="f4").reshape(1, 5, 6)
        path = write_tif(tmp_path / "a.tif", values)
        np.testing.assert_array_equal(read(self.write(tmp_path, path)).values[..., 0], values[0])

    @pytest.mark.parametrize("source", ["/vsicurl/http://127.0.0.1:9/a.tif", "http://127.0.0.1:9/a",
                                        "/vsis3/bucket/a.tif"])  # fmt: skip
    def test_that_points_elsewhere_is_refused(self, tmp_path, source):
        with pytest.raises(ValueError, match="names files elsewhere"):
            read(self.write(tmp_path, source))

    def test_a_nested_one_fetches_nothing(self, tmp_path, serving):
        (tmp_path / "served").mkdir()
        write_tif(tmp_path / "served" / "a.tif", np.ones((1, 5, 6), "f4"))
        with serving(tmp_path / "served") as served:
            inner = self.write(tmp_path, f"/vsicurl/{served.address}/a.tif")
            inner = inner.rename(tmp_path / "inner.vrt")
            outer = self.write(tmp_path, inner)
            with pytest.raises(ValueError, match=r"x.vrt"):
                read(outer)
        assert served.bytes_sent == 0

"""Sources elsewhere: addresses, zip files, VRT; nothing is fetched that was not asked for."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap

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


@pytest.fixture
def store(tmp_path, serving, monkeypatch):
    """A store of objects on this machine, with a bucket, and the keys to it."""
    pytest.importorskip("s3fs")
    (tmp_path / "store" / "bucket").mkdir(parents=True)
    with serving(tmp_path / "store", keys=True) as served:
        host = served.address.removeprefix("http://")
        for name, value in {
            "AWS_ACCESS_KEY_ID": "name", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": served.address,
            "AWS_S3_ENDPOINT": host, "AWS_HTTPS": "NO", "AWS_VIRTUAL_HOSTING": "FALSE",
            "CPL_GS_ENDPOINT": f"{served.address}/", "GS_ACCESS_KEY_ID": "name",
            "GS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        served.folder = tmp_path / "store" / "bucket"
        yield served


class TestStores:
    """``s3://`` and ``gs://`` by the clients that users have, against a store on loopback."""

    @pytest.mark.parametrize("scheme", ["s3", "gs"])
    def test_a_cog_by_parts(self, tmp_path, store, scheme):
        values = np.random.default_rng(0).normal(size=(6, 256, 256)).astype("f4")
        write_tif(tmp_path / "plain.tif", values)
        path = store.folder / "cog.tif"
        rasterio.shutil.copy(str(tmp_path / "plain.tif"), str(path), driver="COG",
                             compress="deflate", blocksize=128)  # fmt: skip
        source = open_source(f"{scheme}://bucket/cog.tif")
        found, _ = source.block(slice(0, 128), slice(0, 128))
        np.testing.assert_array_equal(found.transpose(2, 0, 1), values[:, :128, :128])
        assert 0 < store.bytes_sent < 0.5 * path.stat().st_size
        assert store.unsigned == 0

    def test_a_granule(self, store):
        sample = write_sample("emit-l1b", store.folder, Setting(40, 44))
        apart(f"""
            found = sc.read("s3://bucket/{sample.path.name}")
            np.testing.assert_array_equal(found.values, sc.read("{sample.path}").values)
            assert found.metadata["instrument"] == "EMIT"
        """)
        assert store.unsigned == 0

    def test_zarr_in_and_out(self, store):
        pytest.importorskip("zarr")
        apart(f"""
            import zarr
            from sigmacube.tiles import denoise_file

            noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 26, 20), rng=1), 0.02, rng=2)
            array = zarr.create_array("{store.folder}/in.zarr", shape=noisy.shape, dtype="f8")
            array[...] = noisy.values
            found = sc.read("s3://bucket/in.zarr", axes="rcb")
            np.testing.assert_array_equal(found.values, noisy.values)
            denoise_file("s3://bucket/in.zarr", "s3://bucket/out.zarr", 0.02, tile=(16, 16),
                         workers=1, mode="threads", reading={{"axes": "rcb"}})
            there = sc.io.read_result("{store.folder}/out.zarr")
            assert np.isfinite(there.std).all()
            assert np.std(there.estimate - noisy.values) < 0.03
        """)

    def test_without_keys(self, tmp_path, store, monkeypatch):
        """One line, that names the address."""
        write_tif(store.folder / "x.tif", np.ones((2, 5, 6), "f4"))
        monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "YES")
        with pytest.raises(ValueError, match=r"^s3://bucket/x.tif: "):
            read("s3://bucket/x.tif")
        assert store.unsigned > 0

    @pytest.mark.parametrize("name", ["no.tif", "no.nc", "no.zarr"])
    def test_missing(self, store, name):
        apart(f"""
            try:
                sc.read("s3://bucket/{name}")
            except (ValueError, OSError) as error:
                assert str(error).startswith("s3://bucket/{name}: "), error
            else:
                raise AssertionError("read")
        """)


def apart(code):
    """Run code in a process of its own: clients of stores never close what they have opened."""
    code = "import numpy as np, sigmacube as sc\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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

    @pytest.mark.parametrize("way", ["raw", "outside", "attribute", "entity", "link", "nested"])
    def test_other_files_of_the_machine_are_not_shown(self, tmp_path, way):
        folder = tmp_path / "sent"
        folder.mkdir()
        secret = write_tif(tmp_path / "secret.tif", np.ones((1, 5, 6), "f4"))
        path = self.write(folder, secret)
        if way == "raw":
            (folder / "a.tif").write_text("no picture")
            path = self.write(folder, folder / "a.tif")
        elif way == "attribute":
            element = f'<SourceFilename relativeToVRT="0">{secret}</SourceFilename>'
            text = path.read_text().replace(f"<SimpleSource>{element}", "<SimpleSource{}>")
            path.write_text(text.format(f' SourceFilename="{secret}"'))
        elif way == "entity":
            path = self.write(folder, str(secret).replace("/", "&#47;"))
        elif way == "link":
            (folder / "a.tif").symlink_to(secret)
            path = self.write(folder, folder / "a.tif")
        elif way == "nested":
            path = self.write(folder, path.rename(folder / "a.tif"))
        with pytest.raises(ValueError, match=r"x\.vrt: its values lie in .*external=True"):
            read(path)
        if way not in ("raw", "attribute"):
            assert read(path, external=True).values.shape == (5, 6, 1)

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

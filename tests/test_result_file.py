"""Results read by block give the values that the whole file holds."""

from dataclasses import replace

import numpy as np
import pytest

import sigmacube as sc
from sigmacube.core.validity import finite_mean
from sigmacube.io import result_file
from sigmacube.io.observed import (
    block_of,
    find_observed,
    open_observed,
    picture_of,
)
from sigmacube.io.result_file import open_result

SUFFIXES = (".nc", ".zarr", ".hdr", ".img", ".tif")
SHAPE = (70, 83, 68)
SMALL = (12, 17, 6)


@pytest.fixture(scope="module")
def result():
    """Larger than a chunk along every axis, with holes and rejected elements."""
    rng = np.random.default_rng(0)
    estimate = rng.normal(size=SHAPE).astype(np.float32)
    estimate[5:9, 7] = np.nan
    rejected = rng.random(SHAPE) < 0.1
    windows = (15, 18)
    return sc.DenoisedCube(
        estimate=estimate,
        std=rng.uniform(0.1, 0.2, SHAPE).astype(np.float32),
        ranks=rng.integers(1, 9, windows),
        noise=rng.uniform(0.5, 0.6, SHAPE[2]),
        residual_ratio=rng.uniform(0.9, 1.1, windows),
        rejected=rejected,
        wavelengths=np.linspace(400, 2400, SHAPE[2]),
        metadata={"name": "reflectance", "units": "1", "source": "in.npy"},
        settings={"window": [16, 16, SHAPE[2]], "step": [4, 4, SHAPE[2]], "solver": "robust"},
    )


@pytest.fixture(scope="module")
def small():
    values = np.ones(SMALL)
    window = np.ones((1, 1), dtype=int)
    return sc.DenoisedCube(
        values, values, window, 1.0, window.astype(float), metadata={"source": "in.npy"}
    )


@pytest.fixture(scope="module", params=SUFFIXES)
def source(request, result, tmp_path_factory):
    path = tmp_path_factory.mktemp("pieces") / f"out{request.param}"
    result.save(path)
    with open_result(path) as opened:
        yield opened


class TestAnyFormat:
    def test_small_things(self, source, result):
        assert source.shape == SHAPE
        np.testing.assert_allclose(source.wavelengths, result.wavelengths)
        np.testing.assert_allclose(source.noise_std, result.noise)
        np.testing.assert_array_equal(source.about.ranks, result.ranks)
        assert source.about.settings["solver"] == "robust"
        assert source.about.estimate.shape == (1, 1, SHAPE[2])

    @pytest.mark.parametrize("name", ["estimate", "std", "rejected"])
    def test_spectrum(self, source, result, name):
        for row, col in ((0, 0), (69, 82), (6, 7), (64, 63)):
            np.testing.assert_array_equal(
                source.spectrum(name, row, col), getattr(result, name)[row, col]
            )

    @pytest.mark.parametrize("step", [1, 3, 40])
    @pytest.mark.parametrize("band", [63, 67])
    def test_image(self, source, result, step, band):
        np.testing.assert_array_equal(
            source.image("estimate", band, step=step), result.estimate[::step, ::step, band]
        )
        part = source.image("std", band, rows=slice(60, 68), cols=slice(3, 80), step=step)
        np.testing.assert_array_equal(part, result.std[60:68:step, 3:80:step, band])

    def test_block(self, source, result):
        rows, cols = slice(60, 70), slice(62, 66)
        np.testing.assert_array_equal(source.block("std", rows, cols), result.std[rows, cols])

    def test_thinned(self, source, result):
        thin, step = source.thinned(SHAPE[0] * SHAPE[1] * SHAPE[2] // 5)
        assert step == 3
        np.testing.assert_array_equal(thin.estimate, result.estimate[::3, ::3])
        np.testing.assert_array_equal(thin.rejected, result.rejected[::3, ::3])
        assert thin.ranks.shape == result.ranks.shape

    def test_outside(self, source):
        with pytest.raises(ValueError, match=r"Invalid pixel \(70, 0\). The result has 70×83"):
            source.spectrum("estimate", 70, 0)
        with pytest.raises(ValueError, match="Invalid band 68"):
            source.image("estimate", 68)


class TestWindowImage:
    def test_nearest_window(self, result):
        image = open_result(result).window_image("ranks")
        assert image.shape == SHAPE[:2]
        # Window (1, 2) starts at (4, 8), so its centre is (11.5, 15.5).
        assert image[11, 15] == result.ranks[1, 2]
        # The last window ends on the edge.
        assert image[-1, -1] == result.ranks[-1, -1]

    def test_part_equals_whole(self, result):
        source = open_result(result)
        whole = source.window_image("residual_ratio")
        part = source.window_image("residual_ratio", rows=slice(9, 50), cols=slice(2, 60), step=3)
        np.testing.assert_array_equal(part, whole[9:50:3, 2:60:3])


class TestMemory:
    def test_cache_is_bounded(self, result, monkeypatch, tmp_path):
        result.save(tmp_path / "out.zarr")
        one_layer = 4 * SHAPE[0] * SHAPE[1] * 64
        monkeypatch.setattr(result_file, "_CACHE_BYTES", 3 * one_layer)
        with open_result(tmp_path / "out.zarr") as source:
            for name in ("estimate", "std", "rejected"):
                for band in (0, 67):
                    source.image(name, band)
            assert sum(item.nbytes for item in source._kept.values()) <= 3 * one_layer

    def test_tiles_are_bounded(self, result, monkeypatch):
        monkeypatch.setattr(result_file, "_TILE_BYTES", 64 * 64 * 64 * 4)
        sides = result_file._tile_sides((64, 64, 64), (1000, 1000), 64)
        assert sides == (64, 64)
        assert result_file._tile_sides((64, 64, 64), (1000, 1000), 1)[0] > 64

    def test_neighbouring_band_is_not_read_again(self, result, tmp_path):
        result.save(tmp_path / "out.zarr")
        with open_result(tmp_path / "out.zarr") as source:
            source.image("estimate", 3)
            source._load = None
            np.testing.assert_array_equal(source.image("estimate", 40), result.estimate[..., 40])

    def test_reading_can_be_ended(self, result, tmp_path):
        result.save(tmp_path / "out.zarr")
        with open_result(tmp_path / "out.zarr") as source:
            seen = []
            source.image("estimate", 0, progress=lambda part: bool(seen.append(part.shape)))
            assert len(seen) == 1
            assert not source._kept


class TestRefusals:
    def test_no_result(self, tmp_path):
        import xarray as xr

        xr.Dataset({"a": 1.0}).to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
        with pytest.raises(ValueError, match=r"x\.nc: no result of sigmacube"):
            open_result(tmp_path / "x.nc")

    def test_not_netcdf(self, tmp_path):
        (tmp_path / "x.nc").write_bytes(b"nothing of the kind")
        with pytest.raises(ValueError, match=r"x\.nc: not readable as netCDF"):
            open_result(tmp_path / "x.nc")

    def test_empty_zarr(self, tmp_path):
        (tmp_path / "x.zarr").mkdir()
        with pytest.raises(ValueError, match=r"x\.zarr"):
            open_result(tmp_path / "x.zarr")

    def test_suffix(self, tmp_path):
        (tmp_path / "x.npy").write_bytes(b"")
        with pytest.raises(ValueError, match=r"no result has the suffix '.npy'"):
            open_result(tmp_path / "x.npy")

    def test_absent(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="no such file"):
            open_result(tmp_path / "x.nc")


class TestObserved:
    def test_found_beside(self, small, tmp_path):
        noisy = np.random.default_rng(1).normal(size=SMALL)
        small.save(tmp_path / "out.nc")
        with open_result(tmp_path / "out.nc") as source:
            assert find_observed(tmp_path / "out.nc", source) is None
            np.save(tmp_path / "in.npy", noisy)
            found = find_observed(tmp_path / "out.nc", source)
            block = block_of(found, slice(2, 5), slice(7, 9))
            np.testing.assert_array_equal(block, noisy[2:5, 7:9])
            np.testing.assert_allclose(
                finite_mean(block, (0, 1)), noisy[2:5, 7:9].mean(axis=(0, 1))
            )
            np.testing.assert_array_equal(picture_of(found, [5, 3], 3), noisy[::3, ::3, [5, 3]])

    @pytest.mark.parametrize("name", ["../in.npy", "sub/in.npy", "", "."])
    def test_only_a_plain_name_is_looked_for(self, small, tmp_path, name):
        folder = tmp_path / "sub"
        folder.mkdir()
        np.save(tmp_path / "in.npy", np.zeros(SMALL))
        other = replace(small, metadata={"source": name})
        other.save(folder / "out.nc")
        with open_result(folder / "out.nc") as source:
            assert find_observed(folder / "out.nc", source) is None

    def test_another_shape(self, small, tmp_path):
        np.save(tmp_path / "in.npy", np.zeros((3, 4, 5)))
        small.save(tmp_path / "out.nc")
        with open_result(tmp_path / "out.nc") as source:
            assert find_observed(tmp_path / "out.nc", source) is None
            with pytest.raises(ValueError, match=r"Invalid observed in.npy of shape \(3, 4, 5\)"):
                open_observed(tmp_path / "in.npy", source)

    def test_another_scale(self, small, tmp_path):
        np.save(tmp_path / "in.npy", np.zeros(SMALL))
        scaled = replace(small, metadata={"source": "in.npy", "scale_factor": 0.5})
        scaled.save(tmp_path / "out.nc")
        with open_result(tmp_path / "out.nc") as source:
            assert find_observed(tmp_path / "out.nc", source) is None

"""What tiles keep for later: window factors, killed and resumed; products and checks from tiles."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

import sigmacube as sc
from sigmacube import io, products
from sigmacube.check.holdout_file import holdout_file
from sigmacube.cli import main
from sigmacube.core import stored as storing
from sigmacube.io.result_file import open_result
from sigmacube.result import DenoisedCube
from sigmacube.tiles import denoise_file
from sigmacube.tiles.faults import FACTOR_POINTS, POINTS
from sigmacube.tiles.products import product_file

pytest.importorskip("zarr")
pytest.importorskip("distributed")

SHAPE = (47, 39, 16)
NOISE = 0.05
WINDOW: dict[str, Any] = {"prior": None, "window": 5, "step": 2}


def noisy_cube() -> np.ndarray:
    rng = np.random.default_rng(7)
    cube = sc.synthetic.scene(SHAPE, rng=3).values + rng.normal(scale=NOISE, size=SHAPE)
    cube[:5, :7] = np.nan
    cube[..., 3] = np.nan
    return np.asarray(cube)


def damaged_cube() -> np.ndarray:
    """A cube with impulses, a stripe and missing values."""
    rng = np.random.default_rng(11)
    cube = sc.synthetic.add_noise(sc.synthetic.scene(SHAPE, rng=3), NOISE, impulses=0.03, rng=4)
    values = np.array(cube.values)
    values[:, 17, 5] += 0.5
    values[:20][rng.random((20, *SHAPE[1:])) < 0.02] = np.nan  # such windows take long
    return values


def assert_same_factors(found: DenoisedCube, whole: DenoisedCube) -> None:
    """Compare all that products rest on, bit by bit."""
    mine, theirs = found.error_model, whole.error_model
    assert mine is not None
    assert theirs is not None
    for name in ("noise_variance", "bands", "pixel_scale", "gap_factor"):
        a, b = getattr(mine, name), getattr(theirs, name)
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_array_equal(a, b, err_msg=name)
    for name in ("left", "right", "singular_values", "residual", "n_valid", "pixel_weights"):
        np.testing.assert_array_equal(
            getattr(mine.factors, name), getattr(theirs.factors, name), err_msg=name
        )


def whole_result(folder: Path, cube: np.ndarray, noise: Any = NOISE, **options: Any) -> Any:
    """Return the result of the whole cube as it is read back from a file."""
    result = sc.denoise(cube, noise, **{**WINDOW, **options})
    result.save(folder / "whole.nc", keep_factors=True, dtype="float64", overwrite=True)
    return io.read_result(folder / "whole.nc")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("plain", {}),
        ("plain", {"rank": 4}),
        ("plain", {"weights": "uniform", "finite_noise": False}),
        ("plain", {"window": (5, 7, 5), "step": (2, 3, 5), "rank": 2}),
        ("damaged", {"step": 3}),
        ("damaged", {"solver": "robust", "window": 8, "step": 4}),
    ],
    ids=str,
)
def test_tiles_keep_the_factors_of_the_whole(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    cube = noisy_cube() if kind == "plain" else damaged_cube()
    whole = whole_result(tmp_path, cube, **options)
    np.save(tmp_path / "in.npy", cube)
    for tile, name in (("47x39", "a.zarr"), ("20x16", "b.nc"), ("33x27", "c.zarr")):
        made = denoise_file(
            tmp_path / "in.npy", tmp_path / name, NOISE, **{**WINDOW, **options}, tile=tile,
            workers=1, dtype="float64", keep_factors=True,
        )  # fmt: skip
        assert made.factor_bytes > 0
        found = io.read_result(tmp_path / name)
        assert_same_factors(found, whole)
        np.testing.assert_array_equal(found.std, whole.std)
    assert not list(tmp_path.glob(".*"))


def test_tiles_smaller_than_a_window_keep_factors(tmp_path: Path) -> None:
    cube = noisy_cube()[:21, :17]
    whole = whole_result(tmp_path, cube)
    np.save(tmp_path / "in.npy", cube)
    denoise_file(tmp_path / "in.npy", tmp_path / "a.zarr", NOISE, **WINDOW, tile="3x4", workers=1,
                 dtype="float64", keep_factors=True)  # fmt: skip
    assert_same_factors(io.read_result(tmp_path / "a.zarr"), whole)


def test_signal_dependent_noise_is_kept(tmp_path: Path) -> None:
    """The factor of every pixel on its noise goes with the windows' factors."""
    cube, noise = noisy_cube(), sc.SignalNoise(4e-3, 1e-3)
    whole = whole_result(tmp_path, cube, noise)
    np.save(tmp_path / "in.npy", cube)
    denoise_file(tmp_path / "in.npy", tmp_path / "a.zarr", noise, **WINDOW, tile="20x16",
                 workers=1, dtype="float64", keep_factors=True)  # fmt: skip
    found = io.read_result(tmp_path / "a.zarr")
    assert found.error_model is not None
    assert found.error_model.pixel_scale is not None
    assert_same_factors(found, whole)


def points_with_factors() -> list[str]:
    """Return all points in the order that a run which keeps factors passes them."""
    *of_tiles, packing = FACTOR_POINTS
    points = list(POINTS)
    at = points.index("chunk-after") + 1
    points[at:at] = of_tiles
    points.insert(points.index("metadata-after"), packing)
    return points


@pytest.mark.parametrize("output", ["a.zarr", "a.nc"])
def test_killed_at_every_point_and_resumed(
    output: str, resume: Any, killer: Any, tmp_path: Path
) -> None:
    source, _ = resume.make_scene(tmp_path)
    target = tmp_path / output
    points = [p for p in points_with_factors() if output == "a.zarr" or p != "metadata-during"]
    for point in points:
        killed = killer.run(source, target, fault=point, keep_factors=True)
        assert killed, f"{point} was not passed"
        renamed = points.index(point) >= points.index("rename-after")
        assert target.exists() == renamed, point
    assert not killer.run(source, target, keep_factors=True)
    found = io.read_result(target)
    assert not list(tmp_path.glob(".*"))
    given = {k: v for k, v in resume.SETTINGS.items() if k != "noise"}
    assert_same_factors(found, whole_result(tmp_path, np.load(source), **given))


def test_lost_factors_are_computed_again(resume: Any, killer: Any, tmp_path: Path) -> None:
    """A machine that went down may lose factors whose tile was recorded."""
    source, _ = resume.make_scene(tmp_path)
    target = tmp_path / "a.zarr"
    assert killer.run(source, target, fault="metadata-before", keep_factors=True)
    files = sorted((tmp_path / ".a.zarr.run" / "factors").iterdir())
    assert len(files) == 4
    files[0].unlink()
    files[1].write_bytes(b"")
    content = bytearray(files[2].read_bytes())
    content[len(content) // 2] ^= 1
    files[2].write_bytes(bytes(content))
    assert not killer.run(source, target, keep_factors=True)
    given = {k: v for k, v in resume.SETTINGS.items() if k != "noise"}
    assert_same_factors(io.read_result(target), whole_result(tmp_path, np.load(source), **given))


def test_factors_by_the_command_line(tmp_path: Path) -> None:
    cube = noisy_cube()
    np.save(tmp_path / "in.npy", cube)
    words = ["denoise", str(tmp_path / "in.npy"), str(tmp_path / "a.zarr"), "--noise", str(NOISE),
             "--window", "5", "--step", "2", "--tile", "20x16", "--workers", "1",
             "--keep-factors", "--prior", "none"]  # fmt: skip
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    assert "MB before compression" in told.output
    assert_same_factors(io.read_result(tmp_path / "a.zarr"), whole_result(tmp_path, cube))


@pytest.mark.parametrize(
    ("output", "more", "message"),
    [
        ("a.tif", [], "only .nc and .zarr can keep the window factors"),
        ("a.zarr", ["--no-uncertainty"], "not with --no-uncertainty"),
    ],
)
def test_factors_that_cannot_be_kept(
    output: str, more: list[str], message: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", noisy_cube())
    words = ["denoise", str(tmp_path / "in.npy"), str(tmp_path / output), "--tile", "20x16",
             "--keep-factors", *more]  # fmt: skip
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 2
    assert message in told.output
    assert [p.name for p in tmp_path.iterdir()] == ["in.npy"]


def test_resume_must_keep_factors_alike(resume: Any, killer: Any, tmp_path: Path) -> None:
    source, _ = resume.make_scene(tmp_path)
    assert killer.run(source, tmp_path / "a.zarr", fault="tile-before:2")
    with pytest.raises(ValueError, match="Invalid keep_factors True for --resume"):
        denoise_file(source, tmp_path / "a.zarr", **resume.SETTINGS, tile=resume.TILE, workers=1,
                     dtype="float64", resume=True, keep_factors=True)  # fmt: skip


MASK = np.random.default_rng(5).random(SHAPE) > 0.05
MASK[20:] = True


@pytest.mark.parametrize(
    ("kind", "noise", "options"),
    [
        ("plain", NOISE, {}),
        ("plain", None, {"window": 8, "step": 4}),
        ("plain", NOISE, {"share": 0.1, "rng": 3}),
        ("plain", NOISE, {"mask": MASK, "step": 3}),
        ("plain", NOISE, {"window": (5, 7, 5), "step": (2, 3, 5), "rank": 2}),
        ("plain", "covariance", {}),
        ("plain", sc.SignalNoise(4e-3, 1e-3), {}),
        ("damaged", NOISE, {"window": 8, "step": 4}),
        ("damaged", None, {"solver": "robust", "window": 8, "step": 4}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_holdout_of_tiles_is_that_of_the_whole(
    kind: str, noise: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    cube = noisy_cube() if kind == "plain" else damaged_cube()
    if noise == "covariance":
        bands = np.arange(SHAPE[2])
        noise = NOISE**2 * 0.6 ** np.abs(bands[:, None] - bands)
    np.save(tmp_path / "in.npy", cube)
    how = {**WINDOW, **options}
    expected = sc.holdout(cube, noise=noise, **how)
    assert expected.n_elements > 100
    for tile in ("24x20",) if options else ("20x16", "24x39"):
        found = holdout_file(tmp_path / "in.npy", noise, **how, tile=tile, workers=1)
        for name in ("coverage", "coverage_error", "n_elements", "brightness"):
            assert getattr(found, name) == getattr(expected, name), (name, tile)
        np.testing.assert_array_equal(found.band_factors, expected.band_factors)
        assert found.median_rank == expected.median_rank
        assert found.removed_lag1 == pytest.approx(expected.removed_lag1, abs=1e-9)


def test_masked_elements_do_not_count_whatever_they_hold() -> None:
    cube = noisy_cube()
    wild, missing = np.where(MASK, cube, 1e6), np.where(MASK, cube, np.nan)
    one = sc.holdout(wild, noise=NOISE, mask=MASK, **WINDOW)
    two = sc.holdout(missing, noise=NOISE, **WINDOW)
    assert one.z_std == pytest.approx(two.z_std, rel=1e-6)
    assert one.n_elements == two.n_elements


def test_hidden_elements_follow_the_seed(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", noisy_cube())
    one, two, again = (
        holdout_file(tmp_path / "in.npy", NOISE, **WINDOW, rng=seed, tile="20x16")
        for seed in (1, 2, 1)
    )
    assert one.to_json() == again.to_json()
    assert one.to_json() != two.to_json()


def test_wrong_noise_is_noticed_in_tiles(tmp_path: Path) -> None:
    """The negative control: a check that trusts any σ is none."""
    shape = (62, 50, 30)
    noisy = sc.synthetic.scene(shape, rng=3).values
    noisy = noisy + np.random.default_rng(1).normal(scale=0.03, size=shape)
    np.save(tmp_path / "in.npy", noisy)
    right, wrong = (
        holdout_file(tmp_path / "in.npy", noise, tile="40x40", workers=1) for noise in (0.03, 0.018)
    )
    assert right.trusted
    assert not wrong.trusted
    assert "Leave the noise to be estimated" in wrong.verdict


def test_validate_command_in_tiles(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", noisy_cube())
    scene = str(tmp_path / "in.npy")
    words = ["validate", scene, "--noise", "0.05", "--window", "5", "--step", "2", "--json"]
    whole, tiled, limited = (
        CliRunner().invoke(main, [*words, *more])
        for more in ([], ["--tile", "20x16", "--workers", "2"], ["--memory", "1GB"])
    )
    assert tiled.exit_code == 0, tiled.output
    assert whole.stdout == tiled.stdout == limited.stdout
    told = CliRunner().invoke(main, [*words, "--tile", "20x16", "--method", "monte-carlo"])
    assert told.exit_code == 2
    assert "--tile does not go with --method monte-carlo" in told.output
    told = CliRunner().invoke(main, [*words, "--memory", "1MB"])
    assert told.exit_code == 2
    assert "Invalid memory 1MB. It must be at least" in told.output


LARGE = (97, 85, 16)
CENTRES = np.linspace(450, 900, LARGE[2])
NDVI = "(b840 - b660) / (b840 + b660)"


def write_scene(path: Path, kind: str) -> None:
    """Write a scene with wavelengths; some pixels and a band are missing."""
    import xarray as xr

    rng = np.random.default_rng(2)
    values = 0.2 + sc.synthetic.scene(LARGE, rng=3).values + rng.normal(scale=0.02, size=LARGE)
    values[30:52, 33:47] = np.nan
    values[..., 5] = np.nan
    if kind == "damaged":
        values[30:50][rng.random((20, *LARGE[1:])) < 0.01] = np.nan  # such windows take long
    about = {"units": "nm", "standard_name": "radiation_wavelength"}
    coords = {"wavelength": ("wavelength", CENTRES, about)}
    cube = xr.DataArray(values, dims=("y", "x", "wavelength"), coords=coords, name="reflectance")
    cube.to_netcdf(path, engine="h5netcdf")


@pytest.fixture(scope="module", params=["plain", "noise kept", "photons", "damaged"])
def stored(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DenoisedCube]:
    """A result with factors made tile by tile, and the same in memory."""
    folder = tmp_path_factory.mktemp("stored")
    write_scene(folder / "scene.nc", request.param)
    noise = sc.SignalNoise(1e-3, 1e-4) if request.param == "photons" else 0.02
    options = {**WINDOW, "rank": 3 if request.param == "noise kept" else "auto"}
    denoise_file(folder / "scene.nc", folder / "clean.zarr", noise, **options, tile="60x50",
                 workers=1, keep_factors=True)  # fmt: skip
    whole = io.read_result(folder / "clean.zarr")
    assert whole.error_model is not None
    parts = {"noise kept": "noise_variance", "photons": "pixel_scale", "damaged": "gap_factor"}
    for kind, part in parts.items():
        assert (getattr(whole.error_model, part) is not None) == (request.param == kind)
    return folder / "clean.zarr", whole


REQUESTS: list[tuple[dict[str, Any], Any]] = [
    ({"index": NDVI}, lambda cube: products.index(cube, NDVI)),
    ({"index": NDVI, "aggregate": 7}, lambda cube: products.index(cube, NDVI, aggregate=7)),
    ({"aggregate": 3}, lambda cube: products.aggregate(cube, 3)),
    (
        {"centres": [560.0, 700.0], "fwhm": [80.0, 60.0]},
        lambda cube: products.resample(cube, [560.0, 700.0], [80.0, 60.0]),
    ),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: "-".join(request[0]))
def test_products_of_tiles_are_those_of_the_whole(
    request_: Any, stored: tuple[Path, DenoisedCube], tmp_path: Path
) -> None:
    import xarray as xr

    options, make = request_
    source, whole = stored
    expected = make(whole).to_xarray()
    assert np.isfinite(expected[next(n for n in expected if n.endswith("_uncertainty"))]).any()
    for tile, name in (("40x40", "a.nc"), ("85x40", "b.zarr"), ("200x200", "c.nc")):
        product_file(source, tmp_path / name, **options, tile=tile, workers=1)
        engine = "zarr" if name.endswith("zarr") else "h5netcdf"
        kwargs = {"consolidated": False} if engine == "zarr" else {}
        with xr.open_dataset(tmp_path / name, engine=engine, **kwargs) as found:
            assert set(found.variables) == set(expected.variables)
            for key in expected.variables:
                a, b = found[key].values, expected[key].values
                if a.dtype.kind == "f" and "centres" in options:  # matrix products by BLAS
                    np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=str(key))
                else:
                    np.testing.assert_array_equal(a, b, err_msg=str(key))
            assert found.attrs["sigmacube_product"] == expected.attrs["sigmacube_product"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.nc", "b.zarr", "c.nc"]


def test_products_of_a_file_written_in_memory(tmp_path: Path) -> None:
    write_scene(tmp_path / "scene.nc", "plain")
    result = sc.denoise(io.read(tmp_path / "scene.nc"), 0.02, **WINDOW)
    result.save(tmp_path / "clean.nc", keep_factors=True)
    product_file(tmp_path / "clean.nc", tmp_path / "a.nc", index=NDVI, tile="40x40", workers=1)
    expected = products.index(io.read_result(tmp_path / "clean.nc"), NDVI).to_xarray()
    import xarray as xr

    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as found:
        for key in ("index", "index_uncertainty", "index_flag"):
            np.testing.assert_array_equal(found[key].values, expected[key].values)


def test_product_command_in_tiles(stored: tuple[Path, DenoisedCube], tmp_path: Path) -> None:
    source, _ = stored
    words = ["product", str(source), "--expr", NDVI]
    told = []
    for name, more in (("whole.nc", []), ("tiles.nc", ["--memory", "1GB", "--workers", "1"])):
        told.append(CliRunner().invoke(main, [*words, "-o", str(tmp_path / name), *more]))
        assert told[-1].exit_code == 0, told[-1].output
    rows = [[line for line in one.output.splitlines() if line.startswith(("size", "value"))]
            for one in told]  # fmt: skip
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--expr", NDVI, "--memory", "1MB"], "Invalid memory 1MB. It must be at least"),
        (["--expr", NDVI, "--memory", "much"], "Invalid memory 'much'"),
        (["--aggregate", "40", "--tile", "40x40"], "It must be from 1 to 9, below two windows"),
        (["--labels", "regions.npy", "--memory", "1GB"], "--memory does not go with --labels"),
        (["--index", "evil", "--tile", "40"], "Invalid --index evil"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_products_that_tiles_refuse(
    more: list[str], message: str, stored: tuple[Path, DenoisedCube], tmp_path: Path
) -> None:
    words = ["product", str(stored[0]), "-o", str(tmp_path / "a.nc"), *more]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 2
    assert message in " ".join(told.output.split())
    assert not list(tmp_path.iterdir())


def test_evi_of_tiles_needs_reflectance(tmp_path: Path) -> None:
    """As in memory: half of the values above 1.5 are no reflectances."""
    import xarray as xr

    values = 50 + sc.synthetic.scene((24, 20, 16), rng=3).values
    coords = {"wavelength": ("wavelength", CENTRES, {"units": "nm"})}
    cube = xr.DataArray(values, dims=("y", "x", "wavelength"), coords=coords)
    result = sc.denoise(cube, 0.02, **WINDOW)
    result.save(tmp_path / "clean.nc", keep_factors=True)
    for make in (
        lambda: products.index(result, "evi"),
        lambda: product_file(tmp_path / "clean.nc", tmp_path / "a.nc", index="evi", tile=40),
    ):
        with pytest.raises(ValueError, match="Invalid values for evi"):
            make()


def test_a_result_without_factors_is_refused(tmp_path: Path) -> None:
    sc.denoise(noisy_cube()[:20, :20], NOISE, **WINDOW).save(tmp_path / "clean.nc")
    with pytest.raises(ValueError, match=r"clean\.nc: no window factors"):
        product_file(tmp_path / "clean.nc", tmp_path / "a.nc", index="ndvi", tile=40)


@pytest.mark.parametrize("name", ["whole", "tiles"])
def test_factors_of_the_first_release_are_read(name: str) -> None:
    """Files that its two layouts were written in give the figures that it gave."""
    with open_result(Path(__file__).parent / "files" / f"first_release_{name}.nc") as opened:
        whole = opened.load()
        part, (top, left) = opened.part((4, 9), (5, 12))
    weights = np.zeros(whole.estimate.shape)
    weights[4:9, 5:12, 2:4] = 1 / 70
    assert whole.functional_std(weights) == pytest.approx(0.004713571884, rel=1e-9)
    assert np.trace(whole.spectral_cov(7, 8)) == pytest.approx(0.0056205486, rel=1e-6)
    rows, cols, _ = part.estimate.shape
    own = weights[top : top + rows, left : left + cols]
    assert part.functional_std(own) == pytest.approx(0.004713571884, rel=1e-9)


def test_another_kind_of_error_model_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row of a table, and a model goes to files and back that knows nothing of them."""
    monkeypatch.setitem(storing.KINDS, "even", f"{__name__}:StoredEven")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[StoredEven.__module__])
    values = np.random.default_rng(0).normal(size=(7, 9, 3))
    windows = np.ones((1, 1), dtype=int)
    variance = np.arange(63.0).reshape(7, 9) + 1
    result = DenoisedCube(values, np.ones_like(values), windows, 1.0, windows.astype(float),
                          error_model=EvenErrors(variance))  # fmt: skip
    for name in ("a.nc", "a.zarr"):
        result.save(tmp_path / name, keep_factors=True)
        with open_result(tmp_path / name) as opened:
            np.testing.assert_array_equal(opened.error_model.variance, variance)
            part, origin = opened.part((2, 5), (4, 6))
            assert origin == (2, 4)
            np.testing.assert_array_equal(part.error_model.variance, variance[2:5, 4:6])


@dataclass(frozen=True, eq=False)
class EvenErrors:
    """Errors whose variance is the same in all bands."""

    variance: np.ndarray

    def to_arrays(self, rows: Any = None, cols: Any = None) -> storing.ModelArrays:
        size = self.variance.shape
        places = {"row": (0, size[0], size[0]), "col": (0, size[1], size[1])}
        return storing.ModelArrays.create("even", {}, {"variance": self.variance}, places)

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        return self.variance[row, col] * np.eye(3)

    def functional_covariance(self, weights: Any) -> np.ndarray:
        return np.ones((len(weights), len(weights)))


@dataclass(frozen=True, eq=False)
class StoredEven:
    """`EvenErrors` in a file."""

    arrays: ClassVar = {
        "variance": storing.ArraySpec(("row", "col"), "float64", "variance of the pixel")
    }
    found: Any

    @classmethod
    def from_arrays(cls, about: Any, arrays: Any, noise: Any, n_bands: int) -> StoredEven:
        return cls(arrays)

    def span(self, rows: Any, cols: Any) -> Any:
        return rows, cols

    def read(self, rows: Any = None, cols: Any = None) -> EvenErrors:
        key = tuple(slice(None) if span is None else slice(*span) for span in (rows, cols))
        return EvenErrors(np.asarray(self.found["variance"][key]))

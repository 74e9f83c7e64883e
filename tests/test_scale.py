"""Tiles: the bits of the whole, whoever computes them; killed runs are resumed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sigmacube as sc
from sigmacube import io
from sigmacube.core import windows
from sigmacube.core.parallel import parallel
from sigmacube.core.windows import WindowGrid
from sigmacube.pipeline import as_cube, denoise_region, survey_scene
from sigmacube.result import DenoisedCube
from sigmacube.settings import Settings
from sigmacube.survey import Presence, SettledNoise, Survey
from sigmacube.tiles import denoise_file
from sigmacube.tiles.execute import Execution, run_tiles
from sigmacube.tiles.faults import POINTS
from sigmacube.tiles.job import compute_tile, open_job
from sigmacube.tiles.plan import TileGrid, choose_tile, parse_memory, parse_tile

pytest.importorskip("zarr")
pytest.importorskip("distributed")

SHAPE = (61, 53, 20)
# Four blocks of windows and more along each side: all kinds of borders between tiles.
SMALL = (43, 37, 20)
WINDOW: dict[str, Any] = {"prior": None, "window": 5, "step": 2}
TILINGS = [
    (61, 53), (1, 53), (61, 7), (40, 40), (20, 16), (16, 20), (13, 53), (33, 27), (10, 10),
    (40, 53), (61, 40), (7, 31), (25, 26),
]  # fmt: skip


def noisy_cube(shape: tuple[int, int, int] = SHAPE) -> np.ndarray:
    rng = np.random.default_rng(7)
    cube = sc.synthetic.scene(shape, rng=3).values + rng.normal(scale=0.05, size=shape)
    cube[:5, :7] = np.nan
    cube[..., 3] = np.nan
    return np.asarray(cube)


@pytest.fixture(scope="module")
def cube() -> np.ndarray:
    return noisy_cube()


@pytest.fixture(scope="module")
def whole(cube: np.ndarray) -> DenoisedCube:
    return sc.denoise(cube, 0.05, **WINDOW)


@pytest.fixture
def source(tmp_path: Path, cube: np.ndarray) -> Path:
    path = tmp_path / "in.npy"
    np.save(path, cube)
    return path


def assert_same(path: str | Path, whole: DenoisedCube, dtype: str = "float64") -> None:
    found = io.read_result(path)
    for name in ("estimate", "std", "ranks", "residual_ratio"):
        expected = getattr(whole, name)
        expected = expected if name == "ranks" else expected.astype(dtype)
        np.testing.assert_array_equal(getattr(found, name), expected, err_msg=name)


def assert_part_is_same(source: Any, survey: Any, whole: DenoisedCube, tile: Any) -> None:
    with parallel(1) as run:
        part = denoise_region(source, survey, run, rows=tile.rows, cols=tile.cols)
    np.testing.assert_array_equal(part.estimate, whole.estimate[tile.slices])
    if part.std is not None:
        np.testing.assert_array_equal(part.std, whole.std[tile.slices])
    here = tile.windows_in(survey.grid, part.grid)
    there = tuple(slice(*ends) for ends in tile.windows(survey.grid))
    np.testing.assert_array_equal(part.ranks[here], whole.ranks[there])
    np.testing.assert_array_equal(part.residual_ratio[here], whole.residual_ratio[there])


def survey_of(
    cube: np.ndarray, noise: Any, settings: Settings, mask: Any = None
) -> tuple[Any, Any]:
    source = as_cube(cube, mask)
    with parallel(1) as run:
        return source, survey_scene(source, noise, settings, run)


@pytest.mark.parametrize("tiling", TILINGS, ids=str)
def test_any_tiling_has_the_bits_of_the_whole(
    tiling: tuple[int, int], cube: np.ndarray, whole: DenoisedCube
) -> None:
    options = Settings(**WINDOW)
    source, survey = survey_of(cube, 0.05, options)
    tiles = TileGrid(SHAPE, tiling, tiling)
    for number in {0, len(tiles) // 3, len(tiles) // 2, len(tiles) - 1}:
        assert_part_is_same(source, survey, whole, tiles[number])


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 4},
        {"rank": 4, "weights": "uniform"},
        {"overlap": "ratio"},
        {"uncertainty": False},
        {"window": (5, 7, 10), "step": (2, 3, 10), "rank": 3},
        {"window": 9, "step": 4},
        {"finite_noise": False},
    ],
    ids=str,
)
def test_tiles_with_other_options(options: dict[str, Any]) -> None:
    cube = noisy_cube(SMALL)
    chosen = Settings(**{**WINDOW, **options})
    expected = sc.denoise(cube, 0.05, **{**WINDOW, **options})
    source, survey = survey_of(cube, 0.05, chosen)
    for tile in TileGrid(SMALL, (23, 18), (23, 18)):
        assert_part_is_same(source, survey, expected, tile)


@pytest.mark.parametrize("kind", ["per band", "covariance", "estimated", "signal", "photons"])
def test_tiles_with_other_noise(kind: str) -> None:
    cube = noisy_cube(SMALL)
    bands = np.arange(SHAPE[2])
    noise: Any = {
        "per band": np.linspace(0.03, 0.07, SHAPE[2]),
        "covariance": 0.05**2 * 0.6 ** np.abs(bands[:, None] - bands),
        "estimated": None,
        "signal": sc.SignalNoise(4e-3, 1e-3),
        "photons": sc.SignalNoise(
            np.full(SHAPE[2], 4e-3), 1e-3, correlation=0.5 ** np.abs(bands[:, None] - bands)
        ),
    }[kind]
    options = Settings(**WINDOW)
    expected = sc.denoise(cube, noise, **WINDOW)
    source, survey = survey_of(cube, noise, options)
    for tile in TileGrid(SMALL, (23, 29), (23, 29)):
        assert_part_is_same(source, survey, expected, tile)


def test_tiles_with_a_mask_and_integers() -> None:
    rng = np.random.default_rng(1)
    cube = np.round(1000 * np.nan_to_num(noisy_cube())).astype(np.int16)
    mask = rng.random(SHAPE[:2]) > 0.1
    mask[20:38, 10:33] = False
    expected = sc.denoise(cube, 50.0, mask=mask, **WINDOW)
    options = Settings(**WINDOW)
    source, survey = survey_of(cube, 50.0, options, mask)
    for tile in TileGrid(SHAPE, (20, 20), (20, 20)):
        assert_part_is_same(source, survey, expected, tile)


def damaged_cube(shape: tuple[int, int, int] = (40, 36, 16)) -> np.ndarray:
    """A cube with impulses, a stripe and missing values."""
    rng = np.random.default_rng(11)
    cube = sc.synthetic.add_noise(sc.synthetic.scene(shape, rng=3), 0.05, impulses=0.03, rng=4)
    values = np.array(cube.values)
    values[:, 17, 5] += 0.5
    values[rng.random(shape) < 0.02] = np.nan
    return values


@pytest.mark.parametrize(
    ("noise", "options"),
    [
        (0.05, {"solver": "robust"}),
        (0.05, {"solver": "ssgodec", "rank": 3}),
        (0.05, {}),
        (0.05**2 * 0.5 ** np.abs(np.subtract.outer(np.arange(16), np.arange(16))), {}),
    ],
    ids=["robust", "ssgodec", "missing", "missing, covariance"],
)
def test_tiles_with_missing_values_and_impulses(noise: Any, options: dict[str, Any]) -> None:
    cube = damaged_cube()
    chosen = {**WINDOW, "step": 3, **options}
    expected = sc.denoise(cube, noise, **chosen)
    source, survey = survey_of(cube, noise, Settings(**chosen))
    assert (survey.stripes is not None) == (options.get("solver") == "robust")
    for tile in TileGrid(cube.shape, (23, 19), (23, 19)):
        assert_part_is_same(source, survey, expected, tile)


@pytest.mark.parametrize("output", ["a.zarr", "a.hdr"])
def test_rejected_elements_are_written(output: str, tmp_path: Path) -> None:
    cube = damaged_cube((40, 35, 12))
    np.save(tmp_path / "in.npy", cube)
    settings: dict[str, Any] = {"prior": None, "window": 5, "step": 4, "solver": "robust"}
    expected = sc.denoise(cube, 0.05, **settings)
    denoise_file(tmp_path / "in.npy", tmp_path / output, 0.05, **settings, tile=20, workers=1,
                 dtype="float64")  # fmt: skip
    found = io.read_result(tmp_path / output)
    np.testing.assert_array_equal(found.std, expected.std)
    assert expected.rejected is not None
    assert expected.rejected.any()
    np.testing.assert_array_equal(found.rejected, expected.rejected)


def test_large_scenes_sample_the_same_noise_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the size of a mosaic and of a block, survey and pooled correlation are sampled."""
    monkeypatch.setattr("sigmacube.survey.MOSAIC", 40)
    monkeypatch.setattr("sigmacube.survey.STREAMED", 20_000)
    cube = np.nan_to_num(noisy_cube())
    cube[..., 3] = np.nan
    expected = sc.denoise(cube, None, rank=3, **WINDOW)
    options = Settings(rank=3, **WINDOW)
    source, survey = survey_of(cube, None, options)
    assert "correlation" in survey.learnt
    for tile in TileGrid(SMALL, (23, 29), (23, 29)):
        assert_part_is_same(source, survey, expected, tile)


def test_blocks_are_what_makes_the_bits_equal(
    cube: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: blocks that depend on where the tile lies give other last bits."""
    options = Settings(**WINDOW)
    expected = sc.denoise(cube, 0.05, **WINDOW)
    monkeypatch.setattr(windows, "BLOCK", 3)
    source, other = survey_of(cube, 0.05, options)
    with parallel(1) as run:
        part = denoise_region(source, other, run, rows=(0, 20), cols=(0, 20))
    assert not np.array_equal(part.std, expected.std[:20, :20], equal_nan=True)
    np.testing.assert_allclose(part.std, expected.std[:20, :20], rtol=1e-5)


@pytest.mark.parametrize(("length", "size", "step"), [(61, 5, 2), (160, 20, 4), (333, 10, 3)])
def test_blocks_partition_an_axis_at_cells(length: int, size: int, step: int) -> None:
    axis = WindowGrid.create((length, size, 4), window=size, step=step).rows
    ends = np.array(axis.blocks)
    assert ends[0, 0] == 0
    assert ends[-1, 1] == length
    np.testing.assert_array_equal(ends[1:, 0], ends[:-1, 1])
    assert set(ends[:, 0]) <= set(axis.edges)
    for start, stop in axis.blocks:
        first, end = axis.windows_over(start, stop)
        covered = [w for w in range(len(axis))
                   if axis.starts[w] < stop and axis.starts[w] + size > start]  # fmt: skip
        assert (first, end) == (covered[0], covered[-1] + 1)


@pytest.mark.parametrize("output", ["a.zarr", "a.nc", "a.hdr", "a.tif"])
def test_every_format_holds_the_bits(
    output: str, source: Path, tmp_path: Path, whole: DenoisedCube
) -> None:
    denoise_file(
        source, tmp_path / output, 0.05, **WINDOW, tile="40x16", workers=1, dtype="float64"
    )
    found = io.read_result(tmp_path / output)
    np.testing.assert_array_equal(found.estimate, whole.estimate)
    np.testing.assert_array_equal(found.std, whole.std)
    np.testing.assert_array_equal(found.ranks, whole.ranks)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "who",
    [
        {"mode": "threads", "workers": 1},
        {"mode": "threads", "workers": 2},
        {"mode": "threads", "workers": 4},
        {"mode": "processes", "workers": 2},
    ],
    ids=str,
)
def test_anyone_computes_the_same_bits(
    who: dict[str, Any], source: Path, tmp_path: Path, whole: DenoisedCube
) -> None:
    denoise_file(source, tmp_path / "a.zarr", 0.05, **WINDOW, tile="40x27", dtype="float64", **who)
    assert_same(tmp_path / "a.zarr", whole)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import distributed

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as made:
        yield made


def test_dask_computes_the_same_bits_though_a_worker_dies(
    cluster: Any, source: Path, tmp_path: Path, whole: DenoisedCube
) -> None:
    victims = [worker.pid for worker in cluster.workers.values()]

    def kill(done: int, total: int) -> None:
        if victims and done > 0:
            os.kill(victims.pop(), signal.SIGKILL)
            victims.clear()

    denoise_file(
        source,
        tmp_path / "a.zarr",
        0.05,
        **WINDOW,
        tile="20x16",
        dtype="float64",
        scheduler=cluster.scheduler_address,
        progress=kill,
    )
    assert not victims
    assert_same(tmp_path / "a.zarr", whole)
    assert not list(tmp_path.glob(".*"))


def test_a_cluster_without_workers_is_reported(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed

    monkeypatch.setattr("sigmacube.tiles.execute.PATIENCE", 0.5)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as empty,
        pytest.raises(RuntimeError, match=r"no workers .*--resume"),
    ):
        denoise_file(source, tmp_path / "a.zarr", 0.05, **WINDOW, scheduler=empty.scheduler_address)


def test_dask_arrays_give_lazy_results(cube: np.ndarray, whole: DenoisedCube) -> None:
    import dask
    import dask.array as da
    import xarray as xr

    from sigmacube.tiles.lazy import denoise_lazily

    reads: list[int] = []

    def touched(block: np.ndarray) -> np.ndarray:
        reads.append(1)
        return block

    data = da.from_array(cube, chunks=(30, 20, 20)).map_blocks(touched, dtype=cube.dtype)
    array = xr.DataArray(data, dims=("y", "x", "band"), name="estimate")
    for result in (
        sc.denoise(array, 0.05, **WINDOW),
        denoise_lazily(array, 0.05, Settings(**WINDOW), tile=(25, 30)),
    ):
        before = len(reads)
        assert isinstance(result.unlabelled().estimate, da.Array)
        assert len(reads) == before
        computed = dask.compute(result.estimate, result.std, result.ranks, scheduler="sync")
        for found, expected in zip(computed, (whole.estimate, whole.std, whole.ranks), strict=True):
            np.testing.assert_array_equal(found, expected)
    dataset = result.to_xarray()
    assert isinstance(dataset["estimate"].data, da.Array)
    np.testing.assert_array_equal(
        dataset["estimate_uncertainty"].isel(y=slice(0, 9)).transpose("y", "x", "band").values,
        whole.std[:9],
    )


def test_stores_at_addresses(cube: np.ndarray, whole: DenoisedCube) -> None:
    import xarray as xr

    given = xr.Dataset({"cube": (("y", "x", "band"), cube)})
    given.to_zarr("memory://scale/in.zarr", consolidated=False)
    made = denoise_file(
        "memory://scale/in.zarr", "memory://scale/out.zarr", 0.05, **WINDOW, tile="40x30",
        workers=1, dtype="float64",
    )  # fmt: skip
    with xr.open_zarr(made.output, consolidated=False) as found:
        np.testing.assert_array_equal(
            found["cube_uncertainty"].transpose("y", "x", "band").values, whole.std
        )
    with pytest.raises(FileExistsError, match="overwrite"):
        denoise_file("memory://scale/in.zarr", made.output, 0.05, **WINDOW, workers=1)


@pytest.mark.parametrize("output", ["a.zarr", "a.nc"])
def test_killed_at_every_point_and_resumed(
    output: str, resume: Any, killer: Any, tmp_path: Path
) -> None:
    """One run, killed once at each point in turn: every attempt goes on where the last one died."""
    source, whole = resume.make_scene(tmp_path)
    target = tmp_path / output
    points = [p for p in POINTS if output == "a.zarr" or p != "metadata-during"]
    for point in points:
        assert killer.run(source, target, fault=point), f"{point} was not passed"
        renamed = points.index(point) >= points.index("rename-after")
        assert target.exists() == renamed, point
    assert not killer.run(source, target)
    resume.check(source, target, whole)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find processes")
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_run(tmp_path: Path, blow: signal.Signals) -> None:
    source = tmp_path / "in.npy"
    np.save(source, sc.synthetic.scene((60, 60, 8), rng=1).values)
    code = "from sigmacube.cli import main; main()"
    options = ["--noise", "0.05", "--window", "6", "--tile", "6x6", "--workers", "2"]
    command = [sys.executable, "-c", code, "denoise", str(source), str(tmp_path / "a.zarr")]
    with subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) as run:
        workers: list[int] = []
        for _ in range(300):
            workers = _workers_of(run.pid)
            if len(workers) == 2:
                break
            time.sleep(0.1)
        time.sleep(0.5)
        assert run.poll() is None
        run.send_signal(blow)
        run.wait(20)
    assert len(workers) == 2
    for _ in range(100):
        if not any(_is_alive(pid) for pid in workers):
            return
        time.sleep(0.1)
    raise AssertionError(f"workers {workers} outlived their run")


def _workers_of(pid: int) -> list[int]:
    """Return the processes that compute tiles for another one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == pid and b"spawn_main" in line:
            found.append(int(folder.name))
    return found


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_killed_at_random_times(resume: Any, killer: Any, tmp_path: Path) -> None:
    source, whole = resume.make_scene(tmp_path)
    rng = np.random.default_rng(5)
    target = tmp_path / "a.zarr"
    for _ in range(8):
        killer.run(source, target, seconds=float(rng.uniform(0, 0.6)))
        if target.exists():
            break
    if not target.exists() or (tmp_path / ".a.zarr.run").exists():
        assert not killer.run(source, target)
    resume.check(source, target, whole)


def test_lost_chunks_are_computed_again(resume: Any, killer: Any, tmp_path: Path) -> None:
    """A machine that went down may lose chunks whose tile was recorded."""
    source, whole = resume.make_scene(tmp_path)
    target = tmp_path / "a.zarr"
    assert killer.run(source, target, fault="metadata-before")
    state = tmp_path / ".a.zarr.run"
    chunks = sorted((state / "cube.zarr" / "estimate_uncertainty" / "c").rglob("*"))
    files = [chunk for chunk in chunks if chunk.is_file()]
    files[0].unlink()
    files[1].write_bytes(b"")
    files[2].write_bytes(files[2].read_bytes()[:-10])
    (state / "tiles" / "000000.npz").write_bytes(b"torn")
    assert not killer.run(source, target)
    resume.check(source, target, whole)


def begin_and_stop(source: Path, target: Path) -> None:
    """Leave an unfinished run behind."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        denoise_file(source, target, 0.05, **WINDOW, tile="40x27", workers=1, dtype="float64",
                     progress=stop)  # fmt: skip
    assert not target.exists()


def test_ctrl_c_leaves_a_run_that_goes_on(
    source: Path, tmp_path: Path, whole: DenoisedCube
) -> None:
    target = tmp_path / "a.zarr"
    begin_and_stop(source, target)
    outcome = denoise_file(
        source, target, 0.05, **WINDOW, tile="40x27", workers=1, dtype="float64", resume=True
    )
    assert outcome.computed == outcome.tiles - 1
    assert_same(target, whole)
    with pytest.raises(FileExistsError, match="overwrite"):
        denoise_file(source, target, 0.05, **WINDOW, workers=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 6}, "Invalid window 6 for --resume: the run was begun with 5"),
        ({"noise": 0.06}, "Invalid noise 0.06"),
        ({"rank": 2}, "Invalid rank 2"),
        ({"tile": "20x20"}, r"Invalid tile \[20, 20\]"),
        ({"dtype": "float32"}, "Invalid dtype"),
        ({"reading": {"scale": 2.0}}, "Invalid (reading|scale)"),
        ({"mask": np.ones(SHAPE[:2], bool)}, "Invalid mask"),
        ({"resume": False}, "an unfinished run of this output exists"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_changed_settings_are_refused(
    change: dict[str, Any], message: str, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "a.zarr"
    begin_and_stop(source, target)
    settings = {"noise": 0.05, **WINDOW, "tile": "40x27", "dtype": "float64", "resume": True}
    with pytest.raises((ValueError, FileExistsError), match=message):
        denoise_file(source, target, **{**settings, **change}, workers=1)


def test_changed_input_is_refused_and_a_restored_one_taken(
    source: Path, tmp_path: Path, cube: np.ndarray, whole: DenoisedCube
) -> None:
    target = tmp_path / "a.zarr"
    begin_and_stop(source, target)
    np.save(source, cube + 1e-3)
    settings: dict[str, Any] = {**WINDOW, "tile": "40x27", "dtype": "float64", "workers": 1}
    with pytest.raises(ValueError, match="changed since the run was begun"):
        denoise_file(source, target, 0.05, **settings, resume=True)
    np.save(source, cube)
    denoise_file(source, target, 0.05, **settings, resume=True)
    assert_same(target, whole)


@pytest.mark.parametrize("harm", ["removed", "changed"])
def test_input_lost_during_the_run(
    harm: str, source: Path, tmp_path: Path, cube: np.ndarray, whole: DenoisedCube
) -> None:
    target = tmp_path / "a.zarr"

    def strike(done: int, total: int) -> None:
        if harm == "removed":
            source.unlink(missing_ok=True)
        else:
            np.save(source, cube * 2)

    settings: dict[str, Any] = {**WINDOW, "tile": "40x27", "dtype": "float64", "workers": 1}
    with pytest.raises((FileNotFoundError, ValueError), match=f"in.npy: {harm} during the run"):
        denoise_file(source, target, 0.05, **settings, progress=strike)
    assert not target.exists()
    np.save(source, cube)
    denoise_file(source, target, 0.05, **settings, resume=True)
    assert_same(target, whole)


def test_read_only_target(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write to any folder")
    try:
        with pytest.raises(PermissionError, match="not writable"):
            denoise_file(source, folder / "a.zarr", 0.05, **WINDOW, workers=1)
    finally:
        folder.chmod(0o755)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(folder)]
    if not mount or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk(small_disk: Path, source: Path, whole: DenoisedCube) -> None:
    target = small_disk / "a.zarr"
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 400_000)
    settings: dict[str, Any] = {**WINDOW, "tile": "40x27", "dtype": "float32", "workers": 1}
    with pytest.raises(OSError, match=r"No space left.*--resume"):
        denoise_file(source, target, 0.05, **settings)
    assert not target.exists()
    ballast.unlink()
    denoise_file(source, target, 0.05, **settings, resume=True)
    assert_same(target, whole, "float32")


def test_two_runs_do_not_share_an_output(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    begin_and_stop(source, target)
    job = open_job(str(tmp_path / ".a.zarr.run"))
    with job.folder.locked(), pytest.raises(FileExistsError, match="another run"):
        denoise_file(source, target, 0.05, **WINDOW, tile="40x27", workers=1, dtype="float64",
                     resume=True)  # fmt: skip


def test_failed_start_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        denoise_file(source, tmp_path / "a.zarr", 0.05, **WINDOW, memory="1MB", workers=1)
    assert [p.name for p in tmp_path.iterdir()] == ["in.npy"]


def test_dead_worker_process_is_reported(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    begin_and_stop(source, target)
    os.environ["SIGMACUBE_FAULT"] = "tile-before:1"
    work = partial(compute_tile, str(tmp_path / ".a.zarr.run"), 1)
    try:
        with pytest.raises(RuntimeError, match=r"worker process was killed.*--resume"):
            run_tiles(work, [1, 2, 3], Execution("processes", 2), lambda number: None)
    finally:
        del os.environ["SIGMACUBE_FAULT"]


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "2XB", "1..5GB", "5iB"])
def test_nonsense_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid memory"):
        parse_memory(text)


@pytest.mark.parametrize("text", ["", "x", "0x5", "5x0", "5x5x5", "-3", "axb", (0, 4)])
def test_nonsense_tile_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="Invalid tile"):
        parse_tile(text)


@pytest.mark.parametrize(
    "options",
    [{"mode": "magic"}, {"workers": 0}, {"scheduler": "nowhere"}, {"dtype": "int8"},
     {"solver": lambda patch: patch}],
    ids=lambda options: "".join(options),
)  # fmt: skip
def test_nonsense_options_are_refused(
    options: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="Invalid"):
        denoise_file(source, tmp_path / "a.zarr", 0.05, **WINDOW, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["in.npy"]


def test_larger_memory_gives_larger_tiles() -> None:
    everything = Presence(np.zeros(64), np.ones(64), 64)
    known = Survey(
        (3000, 2000, 64), everything, SettledNoise(0.1, "given"), Settings(prior=None, rank=8)
    )
    sizes = [choose_tile(known, 4, memory) for memory in (3e8, 1e9, 4e9, 1e11)]
    areas = [rows * cols for rows, cols in sizes]
    assert areas == sorted(areas)
    assert areas[0] < areas[-1]
    assert all(rows % 40 == 0 and cols % 40 == 0 for rows, cols in sizes)

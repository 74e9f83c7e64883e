"""Kills at random and at chosen moments: arrays are the same after the next run, nothing is left.

Every way to run is killed: whole cubes to every format, tiles by threads, processes and Dask,
products, checks and reports; by SIGKILL, SIGTERM and SIGINT, after a random time or at the
instrumented points of `sigmacube.tiles.faults`. After each kill the output must be absent or whole.
After the last run it must be that of a run left in peace, with no temporary file and no process
left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np

from attacks._worker import Bad

SHAPE = (26, 21, 9)
_SOLVING = ("--noise", "0.05", "--window", "5", "--step", "2", "--prior", "none", "--quiet")
_SPATIAL = ("--noise", "0.05", "--window", "8", "--quiet")
_TILES = ("--tile", "20x18", "--dtype", "float64")
_ONE = ("--threads", "--workers", "1")
_DASK = ("--scheduler", "local", "--workers", "1")


@dataclass(frozen=True)
class Scenario:
    """A way to run: its name, its output, the words of its command, how often it is chosen."""

    name: str
    output: str
    words: tuple[str, ...]
    share: int

    @property
    def resumes(self) -> bool:
        """Whether a killed run goes on where it was."""
        return self.name in ("tiles", "processes", "dask")


def _denoise(name: str, output: str, *options: str, share: int) -> Scenario:
    return Scenario(name, output, ("denoise", "in.npy", output, *options), share)


SCENARIOS = (
    _denoise("whole", "out.nc", *_SOLVING, share=14),
    _denoise("whole", "out.zarr", *_SOLVING, share=10),
    _denoise("whole", "out.hdr", *_SOLVING, share=8),
    _denoise("whole", "out.tif", *_SOLVING, share=8),
    _denoise("whole", "out.nc", *_SPATIAL, "--keep-factors", share=6),
    _denoise("tiles", "out.zarr", *_SOLVING, *_TILES, *_ONE, share=30),
    _denoise("tiles", "out.nc", *_SOLVING, *_TILES, *_ONE, share=14),
    _denoise("tiles", "out.zarr", *_SOLVING, *_TILES, *_ONE, "--keep-factors", share=8),
    _denoise("tiles", "out.zarr", *_SPATIAL, *_TILES, *_ONE, share=8),
    _denoise("processes", "out.zarr", *_SOLVING, *_TILES, "--workers", "2", share=3),
    _denoise("dask", "out.zarr", *_SOLVING, *_TILES, *_DASK, share=3),
    Scenario("product", "p.nc", ("product", "kept.nc", "--aggregate", "3", "-o", "p.nc", "-q"), 12),
    Scenario("validate", "v.png", ("validate", "in.npy", *_SOLVING, "--plot", "v.png"), 6),
    Scenario("report", "r.html", ("report", "kept.nc", "-o", "r.html", "-q"), 6),
)
#: Kills of one case before it is left in peace, at most.
MOST = 10
#: What every run would load anew; no threads are started by it, which a copy would lack.
LOADED = (
    "h5netcdf", "rasterio", "scipy.linalg", "scipy.signal", "scipy.special", "scipy.stats",
    "xarray", "zarr", "numcodecs", "sigmacube.cli", "sigmacube.pipeline",
    "sigmacube.commands.denoise", "sigmacube.io.result_file", "sigmacube.io.cf",
    "sigmacube.io.zarr", "sigmacube.io.geotiff", "sigmacube.tiles.run",
)  # fmt: skip


def case(number: int, folder: Path) -> dict[str, int]:
    """Kill one way to run again and again, then let it come to its end."""
    _adopt_orphans()
    for module in LOADED:
        import_module(module)
    rng = np.random.default_rng([17, number])
    shares = np.array([scenario.share for scenario in SCENARIOS], dtype=float)
    chosen = int(rng.choice(len(SCENARIOS), p=shares / shares.sum()))
    scenario = SCENARIOS[chosen]
    told = f"{scenario.name} {scenario.output}"
    _prepare(folder, scenario.name)
    before = {path.name for path in folder.iterdir()}
    kills = 0
    try:
        for _ in range(int(rng.integers(3, MOST + 1))):
            kills += _attempt(folder, scenario, rng, _expected(chosen)[1], before)
            if (folder / scenario.output).exists():
                _compare(folder, chosen)
                if scenario.resumes:  # nothing is left to do
                    break
        code = _run(folder, _again(scenario), None, None, "")
        if code not in (0, 2) or (code == 2 and not (folder / scenario.output).exists()):
            raise Bad(f"the last run ended with {code}: {_said(folder)}")
        _compare(folder, chosen)
        left = _left(folder, scenario, before)
        if left:
            raise Bad(f"left {sorted(left)}")
        _no_orphans()
    except Bad as bad:
        raise Bad(f"{told} ({scenario.words}): {bad}", {"killed": kills}) from bad
    return {"killed": kills} if kills else {"unkilled": 1}


def _left(folder: Path, scenario: Scenario, before: set[str]) -> set[str]:
    """Return the names of what is there besides inputs and a whole output."""
    left = {path.name for path in folder.iterdir()} - before - {"said.txt"}
    left -= {scenario.output, *_companions(scenario.output)}
    return left | {path.name for path in folder.rglob("*.partial")}


def _companions(output: str) -> set[str]:
    stem, suffix = output.split(".")
    if suffix == "hdr":
        parts = {f"{stem}{part}" for part in ("", "_uncert", "_windows")}
        return {*parts, *(f"{part}.hdr" for part in parts), f"{output}.sigmacube.json"}
    if suffix == "tif":
        return {f"{stem}_uncert.tif", f"{stem}_windows.tif", f"{output}.sigmacube.json"}
    return set()


def _again(scenario: Scenario) -> tuple[str, ...]:
    if scenario.resumes:
        return (*scenario.words, "--resume")
    return scenario.words if scenario.name == "validate" else (*scenario.words, "--overwrite")


@cache
def _kept() -> bytes:
    """Return a result that products and reports are made of."""
    import tempfile

    import sigmacube as sc

    with tempfile.TemporaryDirectory() as place:
        made = sc.denoise(_cube(), 0.05, prior=None, window=5, step=2)
        return made.save(Path(place, "kept.nc"), keep_factors=True).read_bytes()


@cache
def _cube() -> np.ndarray:
    import sigmacube as sc

    clean = sc.synthetic.scene(SHAPE, rng=1).values
    return np.asarray(clean + np.random.default_rng(0).normal(scale=0.05, size=SHAPE))


def _prepare(folder: Path, kind: str) -> None:
    np.save(folder / "in.npy", _cube())
    if kind in ("product", "report"):
        (folder / "kept.nc").write_bytes(_kept())


def _attempt(
    folder: Path, scenario: Scenario, rng: np.random.Generator, usual: float, before: set[str]
) -> int:
    """Start a run and kill it; return whether that happened before its end."""
    from sigmacube.tiles.faults import FACTOR_POINTS, POINTS

    number = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT][rng.integers(4)]
    seconds, fault = float(rng.uniform(0, 0.8 * usual)), ""
    if scenario.name == "tiles" and rng.random() < 0.5:
        points = POINTS + FACTOR_POINTS * ("--keep-factors" in scenario.words)
        seconds, number = 60.0, signal.SIGKILL
        fault = f"{points[rng.integers(len(points))]}:{rng.integers(1, 3)}"
    former = _left(folder, scenario, before)  # of what was killed without a word
    code = _run(folder, _again(scenario), seconds, number, fault)
    said = _said(folder)
    if "Traceback" in said:
        raise Bad(f"signal {number} after {seconds:.2f} s: {said[-400:]}")
    if number != signal.SIGKILL and not scenario.resumes:
        left = _left(folder, scenario, before) - former
        if left:
            raise Bad(f"signal {number} after {seconds:.2f} s left {sorted(left)}")
    return int(code not in (0, 2))


def _run(
    folder: Path, words: tuple[str, ...], seconds: float | None, number: int | None, fault: str
) -> int:
    """Run a command in a copy of this process; return its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        _in_child(folder, words, fault)
    end = time.monotonic() + (300.0 if seconds is None else seconds)
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL if number is None else number)
    for _ in range(6000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if number is None:
                raise Bad(f"hung: {' '.join(words)}")
            return code
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise Bad(f"signal {number} did not end it: {' '.join(words)}")


def _in_child(folder: Path, words: tuple[str, ...], fault: str) -> None:
    code = 70
    try:
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["SIGMACUBE_FAULT"] = fault
        said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        from sigmacube.cli import main

        main(list(words))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:  # before the command's own frame stood
        code = 130
    finally:
        os._exit(code)


def _said(folder: Path) -> str:
    said = folder / "said.txt"  # a run that was killed at once has not made it yet
    return said.read_text(errors="replace") if said.exists() else ""


@cache
def _expected(chosen: int) -> tuple[dict[str, np.ndarray] | None, float]:
    """Return the arrays of a run that is left in peace, and the seconds it takes."""
    import tempfile

    scenario = SCENARIOS[chosen]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _prepare(folder, scenario.name)
        start = time.monotonic()
        if _run(folder, scenario.words, None, None, "") != 0:
            raise Bad(f"fails by itself: {_said(folder)}")
        return _arrays(folder / scenario.output), time.monotonic() - start


def _arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of an output; raise an error where it is not whole."""
    if path.suffix == ".html":
        if not path.read_text().rstrip().endswith("</html>"):
            raise Bad("half a page")
        return None
    if path.suffix == ".png":
        if b"IEND" not in path.read_bytes()[-12:]:
            raise Bad("half a picture")
        return None
    if path.name == "p.nc":
        import xarray as xr

        with xr.open_dataset(path, engine="h5netcdf") as made:
            return {str(name): made[name].values for name in made.data_vars}
    from sigmacube import io

    found = io.read_result(path)
    return {"estimate": found.estimate, "std": found.std, "ranks": found.ranks}


def _compare(folder: Path, chosen: int) -> None:
    output = SCENARIOS[chosen].output
    expected, found = _expected(chosen)[0], _arrays(folder / output)
    for name, values in (expected or {}).items():
        if values.dtype.kind in "fiu" and not np.array_equal(
            values, (found or {})[name], equal_nan=values.dtype.kind == "f"
        ):
            raise Bad(f"{output}: {name} differs")


def _adopt_orphans() -> None:
    """Let processes whose parent has ended become children of this one, so that it sees them."""
    become_reaper = 36  # PR_SET_CHILD_SUBREAPER
    if ctypes.CDLL(None).prctl(become_reaper, 1, 0, 0, 0) != 0:
        raise OSError("orphans cannot be seen here")


def _no_orphans(seconds: float = 10.0) -> None:
    """Raise an error where a process of the runs is still there after a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            done, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not done:
            time.sleep(0.02)
    raise Bad("processes are left behind")

"""Kills at random and at chosen moments: arrays are the same after the next run, nothing is left.

Every way to run is killed: whole cubes to every format, tiles by threads, processes and Dask,
products, checks and reports; by SIGKILL, SIGTERM and SIGINT, after a random time or at the
instrumented points of `sigmacube.tiles.faults`. After each kill the output must be absent or whole.
After the last run it must be that of a run left in peace, with no temporary file and no process
left behind.
"""

from __future__ import annotations

import os
import signal
import time
from functools import cache
from pathlib import Path

import numpy as np

from attacks._worker import Bad

SHAPE = (26, 21, 9)
_SOLVING = ("--noise", "0.05", "--window", "5", "--step", "2", "--prior", "none", "--quiet")
_TILES = ("--tile", "20x18", "--dtype", "float64")
#: Name, output, words, usual seconds, and how often it is chosen.
SCENARIOS = (
    ("whole", "out.nc", ("denoise", "in.npy", "out.nc", *_SOLVING), 0.4, 20),
    ("whole", "out.zarr", ("denoise", "in.npy", "out.zarr", *_SOLVING), 0.5, 15),
    ("whole", "out.hdr", ("denoise", "in.npy", "out.hdr", *_SOLVING), 0.3, 10),
    ("whole", "out.tif", ("denoise", "in.npy", "out.tif", *_SOLVING), 0.4, 10),
    ("tiles", "out.zarr",
     ("denoise", "in.npy", "out.zarr", *_SOLVING, *_TILES, "--threads", "--workers", "1"), 0.9, 60),
    ("tiles", "out.nc",
     ("denoise", "in.npy", "out.nc", *_SOLVING, *_TILES, "--threads", "--workers", "1"), 1.0, 20),
    ("processes", "out.zarr",
     ("denoise", "in.npy", "out.zarr", *_SOLVING, *_TILES, "--workers", "2"), 8.0, 2),
    ("dask", "out.zarr",
     ("denoise", "in.npy", "out.zarr", *_SOLVING, *_TILES, "--scheduler", "local", "--workers",
      "1"), 8.0, 1),
    ("product", "p.nc", ("product", "kept.nc", "--aggregate", "3", "-o", "p.nc", "-q"), 0.4, 15),
    ("validate", "v.png", ("validate", "in.npy", *_SOLVING, "--plot", "v.png"), 1.0, 5),
    ("report", "r.html", ("report", "kept.nc", "-o", "r.html", "-q"), 2.0, 5),
)  # fmt: skip


def case(number: int, folder: Path) -> str:
    """Kill one way to run until it comes to its end."""
    rng = np.random.default_rng([17, number])
    shares = np.array([scenario[4] for scenario in SCENARIOS], dtype=float)
    chosen = int(rng.choice(len(SCENARIOS), p=shares / shares.sum()))
    kind, output, words, usual, _ = SCENARIOS[chosen]
    _prepare(folder, kind)
    before = {path.name for path in folder.iterdir()}
    kills = 0
    for _ in range(int(rng.integers(1, 4))):
        kills += _attempt(folder, kind, words, rng, usual)
        if (folder / output).exists():
            _compare(folder, output, chosen)
            break
    code = _run(folder, _again(kind, words, kills > 0), None, None, "")
    if code not in (0, 2) or (code == 2 and not (folder / output).exists()):
        raise Bad(f"{kind} {output}: the last run ended with {code}: {_said(folder)}")
    _compare(folder, output, chosen)
    left = {path.name for path in folder.iterdir()} - before - {"said.txt"}
    left -= {output, *_companions(output)}
    left |= {path.name for path in folder.rglob("*.partial")}
    if left:
        raise Bad(f"{kind} {output}: left {sorted(left)}")
    _no_orphans(folder)
    return f"killed {kills}" if kills else "unkilled 1"


def _companions(output: str) -> set[str]:
    stem, suffix = output.split(".")
    if suffix == "hdr":
        parts = {f"{stem}{part}" for part in ("", "_uncert", "_windows")}
        return {*parts, *(f"{part}.hdr" for part in parts), f"{output}.sigmacube.json"}
    if suffix == "tif":
        return {f"{stem}_uncert.tif", f"{stem}_windows.tif", f"{output}.sigmacube.json"}
    return set()


def _again(kind: str, words: tuple[str, ...], killed: bool) -> tuple[str, ...]:
    if kind in ("tiles", "processes", "dask"):
        return (*words, "--resume")
    return words if kind == "validate" else (*words, "--overwrite")


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
    folder: Path, kind: str, words: tuple[str, ...], rng: np.random.Generator, usual: float
) -> int:
    """Start a run and kill it; return whether that happened before its end."""
    from sigmacube.tiles.faults import POINTS

    number = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT][rng.integers(4)]
    seconds, fault = float(rng.uniform(0, 1.2 * usual)), ""
    if kind == "tiles" and rng.random() < 0.5:
        seconds, number = 60.0, signal.SIGKILL
        fault = f"{POINTS[rng.integers(len(POINTS))]}:{rng.integers(1, 3)}"
    code = _run(folder, _again(kind, words, True), seconds, number, fault)
    said = _said(folder)
    if "Traceback" in said:
        raise Bad(f"{kind}, signal {number} after {seconds:.2f} s: {said[-400:]}")
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
        os.environ |= {"SIGMACUBE_FAULT": fault, "SIGMACUBE_ATTACK": str(folder)}
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
    return (folder / "said.txt").read_text(errors="replace")


@cache
def _expected(chosen: int) -> dict[str, np.ndarray] | None:
    import tempfile

    kind, output, words, _, _ = SCENARIOS[chosen]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _prepare(folder, kind)
        if _run(folder, words, None, None, "") != 0:
            raise Bad(f"{kind} {output} fails by itself: {_said(folder)}")
        return _arrays(folder / output)


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


def _compare(folder: Path, output: str, chosen: int) -> None:
    expected, found = _expected(chosen), _arrays(folder / output)
    for name, values in (expected or {}).items():
        if values.dtype.kind in "fiu" and not np.array_equal(
            values, (found or {})[name], equal_nan=values.dtype.kind == "f"
        ):
            raise Bad(f"{output}: {name} differs")


def _no_orphans(folder: Path) -> None:
    """Raise an error where a process of the runs in a folder is still there after a while."""
    mark = f"SIGMACUBE_ATTACK={folder}".encode()
    for _ in range(100):
        alive = [
            path for path in Path("/proc").glob("[0-9]*/environ") if mark in _environment(path)
        ]
        if not alive:
            return
        time.sleep(0.1)
    raise Bad(f"{len(alive)} processes left behind")


def _environment(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""

"""Kill runs over tiles, resume them, and compare the result with that of a run left in peace.

Runs are killed (SIGKILL) at the instrumented points of `sigmacube.tiles.faults` and at random
times, again and again until one comes to its end. Workers of a Dask cluster are killed too. After
every run the arrays must be those of the whole cube, bit by bit, and nothing else may be left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import distributed
import numpy as np

import sigmacube as sc
from sigmacube import io
from sigmacube.io.atomic import remove
from sigmacube.tiles import denoise_file, execute
from sigmacube.tiles.faults import POINTS

SHAPE = (46, 37, 12)
SETTINGS: dict[str, Any] = {"noise": 0.05, "prior": None, "window": 5, "step": 2}
TILE = "40x27"

# Imports take longer than such a run: one process makes them and forks a child for every attempt.
# It must not start threads of its own, which would be missing in its children.
SERVER = """
import json, os, signal, sys, time
import dask.array, xarray, zarr, h5netcdf, rasterio
import xarray.backends.zarr, xarray.backends.h5netcdf_
from sigmacube.tiles import denoise_file
import sigmacube.io.cf_files, sigmacube.io.rasters, sigmacube.tiles.lazy
print("ready", flush=True)
for line in sys.stdin:
    task = json.loads(line)
    child = os.fork()
    if child == 0:
        os.environ["SIGMACUBE_FAULT"] = task["fault"]
        try:
            denoise_file(**task["arguments"])
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
            os._exit(3)
        os._exit(0)
    if task["seconds"] is not None:
        time.sleep(task["seconds"])
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Killer:
    """Runs `denoise_file` in processes of their own, and kills them."""

    def __enter__(self) -> Killer:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment,
        )  # fmt: skip
        assert self.server.stdout is not None
        self.server.stdout.readline()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.server.communicate()

    def run(self, source: Path, output: Path, *, fault: str = "", seconds: float | None = None,
            **options: Any) -> bool:  # fmt: skip
        """Start or resume a run; return whether it was killed."""
        arguments = {
            "source": str(source), "output": str(output), **SETTINGS, "tile": TILE, "workers": 1,
            "dtype": "float64", "resume": True, **options,
        }  # fmt: skip
        task = {"arguments": arguments, "fault": fault, "seconds": seconds}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(task) + "\n")
        self.server.stdin.flush()
        code = int(self.server.stdout.readline())
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"The run failed with exit code {code}: {task}")
        return code != 0


def make_scene(folder: Path) -> tuple[Path, sc.DenoisedCube]:
    """Write a small noisy cube; return its path and the result of the whole."""
    rng = np.random.default_rng(0)
    cube = sc.synthetic.scene(SHAPE, rng=1).values + rng.normal(scale=0.05, size=SHAPE)
    cube[:4, :6] = np.nan
    path = folder / "in.npy"
    np.save(path, cube)
    return path, sc.denoise(cube, **SETTINGS)


def check(source: Path, output: Path, whole: sc.DenoisedCube) -> None:
    """Raise an error where the arrays differ or anything is left of the run."""
    found = io.read_result(output)
    for name in ("estimate", "std", "ranks"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name), err_msg=name)
    left = {path.name for path in source.parent.iterdir()} - {source.name, output.name}
    left |= {path.name for path in output.rglob("*.partial")}
    if left:
        raise AssertionError(f"Left behind: {left}")


def kill_runs(folder: Path, kills: int, seed: int = 0) -> dict[str, int]:
    """Kill runs ``kills`` times; return how often at which point."""
    rng = np.random.default_rng(seed)
    source, whole = make_scene(folder)
    counts: dict[str, int] = {}
    runs, length = 0, 1.0
    with Killer() as killer:
        while sum(counts.values()) < kills:
            output = folder / ("out.nc" if runs % 4 == 3 else "out.zarr")
            for attempt in range(40):
                if rng.random() < 0.35:
                    point, at = "random time", {"seconds": float(rng.uniform(0, length))}
                else:
                    point = str(rng.choice(POINTS))
                    at = {"fault": f"{point}:{rng.integers(1, 4)}"}
                if not killer.run(source, output, **at if attempt < 39 else {}):
                    break
                counts[point] = counts.get(point, 0) + 1
            check(source, output, whole)
            remove(output)
            runs += 1
    counts["runs"] = runs
    return counts


def kill_workers(folder: Path, kills: int) -> int:
    """Kill workers of Dask clusters while they compute; return how many died.

    Dask starts workers anew, but not always; a run that is left without any is resumed on another
    cluster.
    """
    source, whole = make_scene(folder)
    output = folder / "out.zarr"
    execute.PATIENCE = 5.0
    dead = 0
    while dead < kills:
        killed = 0
        while not output.exists():
            with distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
            ) as cluster:

                def kill(done: int, total: int, cluster: Any = cluster) -> None:
                    nonlocal killed
                    alive = [worker.pid for worker in cluster.workers.values() if worker.pid]
                    if killed < 2 and alive:
                        os.kill(alive[killed % len(alive)], signal.SIGKILL)
                        killed += 1

                with suppress(RuntimeError):
                    denoise_file(source, output, **SETTINGS, tile="20x16", dtype="float64",
                                 scheduler=cluster.scheduler_address, progress=kill,
                                 resume=True)  # fmt: skip
        dead += killed
        check(source, output, whole)
        remove(output)
    return dead


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers-killed", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = kill_runs(Path(folder), options.kills, options.seed)
        runs = counts.pop("runs")
        for point in (*POINTS, "random time"):
            print(f"{point:20s} {counts.get(point, 0):4d}")
        print(f"{sum(counts.values())} kills in {runs} runs: identical arrays, nothing left behind")
    with tempfile.TemporaryDirectory() as folder:
        dead = kill_workers(Path(folder), options.workers_killed)
        print(f"{dead} Dask workers killed: identical arrays, nothing left behind")


if __name__ == "__main__":
    main()

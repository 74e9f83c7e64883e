"""Time of every step on real scenes, against a loop of `numpy.linalg.svd` and the first release.

All figures of a scene come from one run, step after step, so that whatever else the machine does
hits all of them. The goals of speed are of wall time on two cores: two workers against the loop and
against the first release with two of its own; only a machine that does nothing else shows them.
Beside them stand ratios of processor time of one worker, which a busy machine changes least. The
loop is what a user would write: the SVD of every window of 20 × 20 pixels, every 4 pixels, on one
thread, from a sample of the windows. The first release runs in a process of its own, with ``--first
FOLDER`` (a checkout of it). Scenes that are not at hand are left out; any file that
`sigmacube.read` reads can be given instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import sigmacube as sc
from pages import markdown, put_tables
from sigmacube.core.windows import WindowGrid
from sigmacube.settings import Settings
from sigmacube.survey import settle_noise

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
INDEX = "(b842 - b665) / (b842 + b665)"
PRIOR = "spatial"
SCENES = ("aviris", "enmap", "pavia", "simulated")
#: What a ratio of wall times of two workers is called.
WALL = "wall, two workers: "
#: Ratios and their goals; negative: no more than that.
GOALS = {
    WALL + "svd loop / denoise": {"aviris": 8.0, "enmap": 8.0, "simulated": 30.0},
    WALL + "first release / denoise": {"aviris": 6.0, "enmap": 6.0},
    WALL + "hold-out / denoise": {"*": -2.0},
    "sigma / no sigma": {"*": -0.35},
    "noise / rest of denoise": {"*": -1.0},
    "index / denoise": {"*": -0.10},
    "5×5 means / denoise": {"*": -0.40},
    "16 regions / denoise": {"*": -0.40},
    "keeping the error model / denoise": {"*": -0.25},
    "robust / denoise": {"aviris": -6.0},
    "first release / denoise, robust": {"aviris": 6.0},
    "one worker / two": {"*": 1.8},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", nargs="+", default=list(SCENES),
                        help=f"{', '.join(SCENES)}, or files")  # fmt: skip
    parser.add_argument("--first", type=Path, help="a checkout of the first release")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many runs counts")
    parser.add_argument("--robust", action="store_true", help="the robust solver, too")
    parser.add_argument("--json", type=Path, help="also write the figures here; others stay")
    parser.add_argument("--page", type=Path, help="only put the figures of --json into this page")
    options = parser.parse_args()
    if options.page:
        write_page(options.page, json.loads(options.json.read_text()))
        return
    every = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for name in options.scene:
        cube = load_scene(name)
        if cube is None:
            print(f"{name}: not at hand")
            continue
        figures = bench(cube, options.rounds, options.first, robust=options.robust)
        every[Path(name).stem] = figures
        tell(Path(name).stem, figures)
        if options.json:
            options.json.write_text(json.dumps(every, indent=1) + "\n")


def load_scene(name: str) -> sc.Cube | None:
    """Return a scene by its name or from a file, with wavelengths; None where it is absent."""
    if name not in SCENES:
        return with_wavelengths(sc.read(name))
    if not DATA.is_dir():
        return None
    scenes = DATA / "scenes"
    if name == "aviris":
        return with_wavelengths(sc.read(scenes / "aviris_90x90x224.mat", variable="hsi_img"))
    if name == "pavia":
        return with_wavelengths(sc.read(scenes / "pavia_centre_100x100x102.mat"))
    if name == "enmap":
        parts = [[sc.read(DATA / f"formats/enmap/enmap_potsdam_tile_{r}_{c}.tif")
                  for c in (96, 128)] for r in (96, 128)]  # fmt: skip
        values, mask = (
            np.concatenate([np.concatenate([get(p) for p in line], axis=1) for line in parts])
            for get in (lambda p: np.asarray(p.values), lambda p: np.isfinite(p.values) & p.mask)
        )
        return sc.Cube(values, parts[0][0].wavelengths, mask)
    truth = np.asarray(sc.read(scenes / "simu_indian.mat").values, dtype=np.float64)
    low, high = truth.min(axis=(0, 1)), truth.max(axis=(0, 1))
    truth = (truth - low) / (high - low)
    noise = np.random.default_rng(0).normal(scale=0.05, size=truth.shape)
    return with_wavelengths(sc.Cube(truth + noise))


def with_wavelengths(cube: sc.Cube) -> sc.Cube:
    """Return a cube that an index can be made of, wherever its bands lie."""
    if cube.wavelengths is not None:
        return cube
    return sc.Cube(cube.values, np.linspace(400, 2450, cube.shape[2]), cube.mask)


Seconds = tuple[float, float]
"""Processor time and wall time."""


def timed(function: Callable[[], Any], rounds: int) -> tuple[Seconds, Any]:
    """Return the least processor and wall time of some runs, and what the last one made."""
    times = []
    for _ in range(rounds):
        wall, own = time.perf_counter(), time.process_time()
        made = function()
        times.append((time.process_time() - own, time.perf_counter() - wall))
    return (min(t[0] for t in times), min(t[1] for t in times)), made


def bench(cube: sc.Cube, rounds: int, first: Path | None, *, robust: bool) -> dict[str, Any]:
    """Return the times of all steps on a scene, and their ratios."""
    seconds: dict[str, Seconds] = {}

    def step(name: str, function: Callable[[], Any], times: int = rounds) -> Any:
        seconds[name], made = timed(function, times)
        print(f"  {name:32s} {seconds[name][0]:8.2f} s of processor, {seconds[name][1]:8.2f} s",
              flush=True)  # fmt: skip
        return made

    sc.denoise(cube.values[:24, :24], 1.0, prior=PRIOR, workers=1)  # what is loaded on first use
    with threadpool_limits(limits=1):
        step("svd loop", lambda: svd_loop(cube), 1)
    seconds["svd loop"] = scaled(seconds["svd loop"], cube)
    result = step("denoise", lambda: sc.denoise(cube, prior=PRIOR, workers=1))
    step("denoise, two workers", lambda: sc.denoise(cube, prior=PRIOR, workers=2))
    noise = given_noise(result)
    step("noise", lambda: settle_noise(cube, None, Settings(prior=PRIOR)), rounds)
    step("no sigma", lambda: sc.denoise(cube, noise, prior=PRIOR, workers=1, uncertainty=False))
    step("noise given", lambda: sc.denoise(cube, noise, prior=PRIOR, workers=1))
    step("noise given, two workers", lambda: sc.denoise(cube, noise, prior=PRIOR, workers=2))
    steps_on_result(step, cube, result, noise)
    if robust:
        step("robust", lambda: sc.denoise(cube, prior=PRIOR, workers=1, solver="robust"), 1)
    if first is not None:
        seconds |= first_release(cube, first, robust=robust)
    return {
        "elements": int(np.prod(cube.shape)),
        "shape": list(cube.shape),
        "median rank": float(np.median(result.ranks)),
        "seconds": {name: list(both) for name, both in seconds.items()},
        "ratios": ratios(seconds),
    }


def steps_on_result(step: Any, cube: sc.Cube, result: Any, noise: Any) -> None:
    """Time what is made of a result: products, checks, files."""
    step("index", lambda: sc.products.index(result, INDEX, tolerance=1e6, workers=1))
    step("5×5 means", lambda: sc.products.aggregate(result, 5, workers=1))
    step("16 regions", lambda: sc.products.region_means(result, quarters(cube.shape), workers=1))
    for name, workers in (("hold-out", 1), ("hold-out, two workers", 2)):
        step(name, lambda n=workers: sc.holdout(cube, noise=noise, prior=PRIOR, workers=n), 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.nc")
        step("saving", lambda: result.save(path, overwrite=True))
        step("saving, error model kept",
             lambda: result.save(path, overwrite=True, keep_factors=True))  # fmt: skip


def given_noise(result: Any) -> Any:
    """Return the noise that a result was made with, to be given again."""
    return result.noise


def quarters(shape: tuple[int, ...]) -> np.ndarray:
    """Return labels of 4 × 4 regions that together make the scene."""
    rows, cols = (np.arange(n) * 4 // n for n in shape[:2])
    return 1 + 4 * rows[:, None] + cols


def _windows(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    grid = WindowGrid.create(shape, window=20, step=4)
    return list(np.ndindex(grid.shape[:2]))


def svd_loop(cube: sc.Cube) -> None:
    """Decompose every n-th window, as a user would."""
    values = np.nan_to_num(np.asarray(cube.values, dtype=np.float64))
    grid = WindowGrid.create(cube.shape, window=20, step=4)
    windows = _windows(cube.shape)
    for i, j in windows[:: max(1, len(windows) // 60)]:
        np.linalg.svd(values[grid.slices(i, j)].reshape(-1, cube.shape[2]), full_matrices=False)


def scaled(both: Seconds, cube: sc.Cube) -> Seconds:
    """Return the time of all windows from that of every n-th."""
    windows = _windows(cube.shape)
    factor = len(windows) / len(windows[:: max(1, len(windows) // 60)])
    return both[0] * factor, both[1] * factor


FIRST = """
import json, sys, time
import numpy as np, sigmacube as sc
values, options = np.load(sys.argv[1]), json.loads(sys.argv[2])
sc.denoise(values[:24, :24], 1.0, workers=1)
found = {}
for name, more in options.items():
    wall, own = time.perf_counter(), time.process_time()
    sc.denoise(values, **more)
    found[name] = [time.process_time() - own, time.perf_counter() - wall]
print(json.dumps(found))
"""


def first_release(cube: sc.Cube, folder: Path, *, robust: bool) -> dict[str, Seconds]:
    """Return the times of the first release on the same values, noise unknown, σ included."""
    tasks: dict[str, dict[str, Any]] = {
        "first release": {"workers": 1},
        "first release, two workers": {"workers": 2},
    }
    if robust:
        tasks["first release, robust"] = {"solver": "robust", "workers": 1}
    with tempfile.TemporaryDirectory() as name:
        path, script = Path(name, "cube.npy"), Path(name, "first.py")
        values = np.array(cube.values, dtype=np.float64)
        if cube.mask is not None:
            values[~np.broadcast_to(cube.mask, values.shape)] = np.nan
        np.save(path, values)
        script.write_text(FIRST)
        environment = {**os.environ, "PYTHONPATH": str(folder.resolve() / "src")}
        ran = subprocess.run(
            [sys.executable, str(script), str(path), json.dumps(tasks)],
            env=environment, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    found: dict[str, Seconds] = json.loads(ran.stdout.splitlines()[-1])
    for label, both in found.items():
        print(f"  {label:32s} {both[0]:8.2f} s of processor, {both[1]:8.2f} s", flush=True)
    return found


def ratios(seconds: dict[str, Seconds]) -> dict[str, float]:
    """Return what is compared: wall time of two workers, and processor time of one."""
    own = {name: both[0] for name, both in seconds.items()}
    wall = {name: both[1] for name, both in seconds.items()}
    whole, both_cores = own["denoise"], wall["denoise, two workers"]
    found = {
        WALL + "svd loop / denoise": wall["svd loop"] / both_cores,
        WALL + "svd loop / noise given": wall["svd loop"] / wall["noise given, two workers"],
        WALL + "hold-out / denoise": wall["hold-out, two workers"] / both_cores,
        "svd loop / denoise": own["svd loop"] / whole,
        "noise / rest of denoise": own["noise"] / max(whole - own["noise"], 1e-9),
        "sigma / no sigma": own["noise given"] / own["no sigma"] - 1,
        "index / denoise": own["index"] / whole,
        "5×5 means / denoise": own["5×5 means"] / whole,
        "16 regions / denoise": own["16 regions"] / whole,
        "hold-out / denoise": own["hold-out"] / whole,
        "saving / denoise": own["saving"] / whole,
        "keeping the error model / denoise":
            (own["saving, error model kept"] - own["saving"]) / (whole + own["saving"]),
        "one worker / two": wall["denoise"] / both_cores,
    }  # fmt: skip
    if "first release" in own:
        found[WALL + "first release / denoise"] = wall["first release, two workers"] / both_cores
        found["first release / denoise"] = own["first release"] / whole
    if "robust" in own:
        found["robust / denoise"] = own["robust"] / whole
    if "robust" in own and "first release, robust" in own:
        found["first release / denoise, robust"] = own["first release, robust"] / own["robust"]
    return found


def goal(ratio: str, scene: str) -> float | None:
    """Return the least that a ratio should be; negative: the most."""
    goals = GOALS.get(ratio, {})
    return goals.get(scene, goals.get("*"))


def judged(ratio: str, scene: str, value: float) -> str:
    """Return the goal of a ratio and whether it is met."""
    limit = goal(ratio, scene)
    if limit is None:
        return ""
    met = value >= limit if limit > 0 else value <= -limit
    return f"{'>=' if limit > 0 else '<='} {abs(limit):g}: {'met' if met else 'missed'}"


def tell(name: str, figures: dict[str, Any]) -> None:
    shape, rate = "×".join(map(str, figures["shape"])), figures["seconds"]["denoise"][0]
    print(
        f"{name}: {shape}, median rank {figures['median rank']:g}, "
        f"{rate / figures['elements'] * 1e6:.2f} processor seconds per million elements"
    )
    for ratio, value in figures["ratios"].items():
        print(f"  {ratio:44s} {value:7.2f}   {judged(ratio, name, value)}")


def write_page(page: Path, every: dict[str, Any]) -> None:
    """Put the figures of all scenes into their page."""
    steps = list(dict.fromkeys(s for f in every.values() for s in f["seconds"]))
    times = [
        [step, *(_cell(f["seconds"].get(step), f["elements"]) for f in every.values())]
        for step in steps
    ]
    names = list(dict.fromkeys(r for f in every.values() for r in f["ratios"]))
    rows = []
    for ratio in names:
        cells = []
        for scene, figures in every.items():
            value = figures["ratios"].get(ratio)
            told = "" if value is None else judged(ratio, scene, value)
            cells.append("" if value is None else f"{value:.2f}{f' ({told})' if told else ''}")
        rows.append([ratio, *cells])
    head = [f"{s} {'×'.join(map(str, f['shape']))}" for s, f in every.items()]
    put_tables(page, {"times": markdown(["processor seconds per million elements", *head], times),
                      "ratios": markdown(["", *head], rows)})  # fmt: skip


def _cell(both: list[float] | None, elements: int) -> str:
    return "" if both is None else f"{both[0] / elements * 1e6:.2f}"


if __name__ == "__main__":
    main()

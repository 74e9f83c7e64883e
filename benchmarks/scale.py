"""Memory and time of runs over tiles: bounded memory, constant time per pixel, two workers.

Every run is a process of its own; its peak memory is the largest sum over the process and its
children, with shared pages counted once (VmRSS and Pss in `/proc`), sampled every 20 ms. Cubes are
written to a temporary folder as float32 and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sigmacube as sc
from pages import markdown, put_tables

TABLES = ("rates", "small", "memory", "time", "workers", "products")
GOALS = {
    "peak memory": "<= 1.15",
    "time per pixel": "<= 0.10",
    "1 worker / 2 workers, processes": ">= 1.7",
}
BANDS = 32
WINDOW, STEP, NOISE = 10, 4, 0.05
INDEX = "(b840 - b660) / (b840 + b660)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", default="450MB", help="limit given to the runs")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1, 4, 10],
                        help="cubes, in multiples of the memory")  # fmt: skip
    parser.add_argument("--sides", type=int, nargs="+", default=[200, 630, 2000],
                        help="pixels along a side for the time per pixel")  # fmt: skip
    parser.add_argument("--workers-side", type=int, default=1600,
                        help="pixels along a side for one worker against two")  # fmt: skip
    parser.add_argument("--product-size", type=float, default=4,
                        help="results for products, in multiples of the memory")  # fmt: skip
    parser.add_argument("--only", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--json", type=Path, help="also write the figures here; others stay")
    parser.add_argument("--page", type=Path, help="only put the figures of --json into this page")
    options = parser.parse_args()
    if options.page:
        write_page(options.page, json.loads(options.json.read_text()))
        return
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "rates" in options.only:
            rate_table(figures)
        if "small" in options.only:
            small_table(folder, figures)
        if "memory" in options.only:
            memory_table(folder, options.memory, options.sizes, figures)
        if "time" in options.only:
            time_table(folder, options.sides, figures)
        if "workers" in options.only:
            worker_table(folder, options.workers_side, figures)
        if "products" in options.only:
            product_table(folder, options.memory, options.product_size, figures)
    if options.json:
        before = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps({**before, **figures}, indent=1) + "\n")


def rate_table(figures: dict[str, float]) -> None:
    """Processor time of one core per window of 20 × 20 pixels, for the bands of two sensors."""
    for sensor, bands in (("EMIT", 285), ("AVIRIS-NG", 425)):
        scene = sc.synthetic.scene((180, 180, bands), rng=0)
        noisy = np.asarray(sc.synthetic.add_noise(scene, 0.02, rng=1).values, dtype=np.float32)
        times = []
        for _ in range(3):
            begin = time.process_time()
            ranks = sc.denoise(noisy, 0.02, workers=1, prior=None).ranks
            times.append((time.process_time() - begin) / ranks.size)
        report(figures, f"ms per window, {bands} bands ({sensor})", 1e3 * statistics.median(times),
               f"rank {ranks.mean():.1f}")  # fmt: skip


def small_table(folder: Path, figures: dict[str, float]) -> None:
    """Peak memory of scenes of few columns or few rows, in as little memory as is allowed."""
    for shape, kind in (((435, 580, 200), np.int16), ((2000, 60, 224), np.float32)):
        scene = sc.synthetic.scene(shape, rng=0).values
        noisy = 5000 * (scene + np.random.default_rng(1).normal(scale=0.02, size=shape))
        np.save(folder / "cube.npy", np.round(noisy).astype(kind))
        for prior in ("spatial", None):
            options = {"source": str(folder / "cube.npy"), "output": str(folder / "out.zarr"),
                       "memory": "300MB", "prior": prior, "overwrite": True}  # fmt: skip
            used, (seconds, _) = watched(folder / "cube.npy", CHILD, options)
            sides = f"{'×'.join(map(str, shape))} {np.dtype(kind)}"
            report(figures, f"peak memory / --memory 300MB, {sides}, prior {prior}",
                   used / 3e8, f"{seconds:.0f} s")  # fmt: skip


def memory_table(folder: Path, memory: str, sizes: list[float], figures: dict[str, float]) -> None:
    from sigmacube.tiles.plan import parse_memory

    limit = parse_memory(memory)
    for size in sizes:
        side = int((size * limit / BANDS / 4) ** 0.5)
        path = write_cube(folder / "cube.npy", side)
        used, seconds = run(path, "--memory", memory, "--workers", "1")
        name = f"peak memory / --memory {memory}, cube {size:g} x"
        report(figures, name, used / limit,
               f"{side}² pixels, {seconds / side**2 * 1e6:.0f} µs per pixel")  # fmt: skip
        path.unlink()


def time_table(folder: Path, sides: list[int], figures: dict[str, float]) -> None:
    """Time per pixel, of the tiles alone: a process takes seconds to start.

    Sizes take turns, and the median over three rounds counts: the machine may be shared. The tile
    is the smallest that holds the smallest scene; narrow tiles at an edge cost more per pixel.
    """
    paths = {side: write_cube(folder / f"cube{side}.npy", side) for side in sides}
    times: dict[int, list[float]] = {side: [] for side in sides}
    for _ in range(3):
        for side in sides:
            for _ in range(3 if side < 1000 else 1):
                seconds = run(paths[side], "--tile", "240", "--workers", "1", part=True)[1]
                times[side].append(seconds / side**2)
    rates = [statistics.median(seconds) for seconds in times.values()]
    for side, rate in zip(sides, rates, strict=True):
        print(f"  {side:5d}² pixels: {rate * 1e6:.1f} µs per pixel", flush=True)
        paths[side].unlink()
    spread = max(rates) / min(rates) - 1
    report(figures, f"time per pixel, {sides[0]}² to {sides[-1]}²: spread", spread, "")


def worker_table(folder: Path, side: int, figures: dict[str, float]) -> None:
    path = write_cube(folder / "cube.npy", side)
    for mode in ([], ["--threads"]):
        times: dict[int, list[float]] = {1: [], 2: []}
        for n in (1, 2, 1, 2):  # the better of two runs: others may use this machine as well
            times[n].append(run(path, "--tile", "160", "--workers", str(n), *mode, part=True)[1])
        one, two = (min(seconds) for seconds in times.values())
        name = "threads" if mode else "processes, the default"
        report(figures, f"1 worker / 2 workers, {name}", one / two,
               f"{side}² pixels, {one:.1f} s and {two:.1f} s")  # fmt: skip
    path.unlink()


def product_table(folder: Path, memory: str, size: float, figures: dict[str, float]) -> None:
    """Peak memory of keeping factors, and of products and a check made tile by tile."""
    from sigmacube.io.result_file import open_result
    from sigmacube.tiles.plan import parse_memory

    limit, side, needed = parse_memory(memory), 160, 0.0
    while needed < size * limit:
        side = int(side * max((1.02 * size * limit / needed) ** 0.5, 1.02)) if needed else side
        path = write_header(write_cube(folder / "cube.npy", side), side)
        used, _ = run(path, "--memory", memory, "--workers", "1", "--keep_factors", "yes")
        with open_result(folder / "out.zarr") as opened:
            needed = opened.bytes_in_memory()
    told = f"{side}² pixels, {needed / limit:.1f} x the limit in memory"
    name = f"peak memory / --memory {memory}"
    report(figures, f"{name}, --keep-factors", used / limit, told)
    stored = {"source": str(folder / "out.zarr"), "output": str(folder / "product.nc"),
              "overwrite": True}  # fmt: skip
    check = {"source": str(path), "noise": NOISE, "window": WINDOW, "step": STEP,
             "reading": {"data": str(folder / "cube.npy")}}  # fmt: skip
    works = {
        "product, index": ("tiles.products", "product_file", {**stored, "index": INDEX}),
        "product, aggregate 5": ("tiles.products", "product_file", {**stored, "aggregate": 5}),
        "validate": ("check.holdout_file", "holdout_file", check),
    }
    for work, (module, function, options) in works.items():
        script = f"import json, sys\nfrom sigmacube.{module} import {function}\n"
        script += f"{function}(**json.loads(sys.argv[1]))\nprint('[0]')"
        begin = time.perf_counter()
        used, _ = watched(path, script, {"memory": memory, "workers": 1, **options})
        more = f"{told}, {time.perf_counter() - begin:.0f} s"
        report(figures, f"{name}, {work}", used / limit, more)


def write_header(path: Path, side: int) -> Path:
    """Write an ENVI header for the values of a .npy file, with wavelengths."""
    offset = path.stat().st_size - side * side * BANDS * 4
    centres = ", ".join(f"{value:.1f}" for value in np.linspace(450, 900, BANDS))
    header = path.with_suffix(".hdr")
    header.write_text(
        f"ENVI\nsamples = {side}\nlines = {side}\nbands = {BANDS}\nheader offset = {offset}\n"
        "data type = 4\ninterleave = bip\nbyte order = 0\nwavelength units = nm\n"
        f"wavelength = {{{centres}}}\n"
    )
    return header


def report(figures: dict[str, float], name: str, value: float, more: str) -> None:
    figures[name] = value
    print(f"{name:52s} {value:7.2f}   goal {goal(name):7s} {more}", flush=True)


def goal(name: str) -> str:
    """Return the limit of a figure."""
    return next((limit for start, limit in GOALS.items() if name.startswith(start)), "")


def write_page(page: Path, figures: dict[str, float]) -> None:
    """Put the figures into their page."""
    rows = [
        [re.sub(r"--[a-z-]+", r"`\g<0>`", name), f"{value:.2f}", goal(name)]
        for name, value in figures.items()
    ]
    put_tables(page, {"figures": markdown(["", "measured", "goal"], rows)})


def write_cube(path: Path, side: int) -> Path:
    """Write a noisy cube, strip by strip: one scene, repeated, with fresh noise."""
    scene = np.asarray(sc.synthetic.scene((128, 128, BANDS), rng=0).values, dtype=np.float32)
    rng = np.random.default_rng(1)
    cols = np.arange(side) % 128
    cube = np.lib.format.open_memmap(path, "w+", np.float32, (side, side, BANDS))
    for start in range(0, side, 128):
        rows = np.arange(start, min(start + 128, side))
        part = scene[rows % 128][:, cols]
        noise = rng.standard_normal(part.shape, dtype=np.float32)
        cube[rows[0] : rows[-1] + 1] = part + np.float32(NOISE) * noise
    cube.flush()
    return path


CHILD = """
import json, sys, time
from pathlib import Path
from sigmacube.tiles import denoise_file
import sigmacube.tiles.run as run
spent = [0.0]
inner = run.run_tiles
def timed(*arguments, **options):
    begin = time.perf_counter()
    inner(*arguments, **options)
    spent[0] = time.perf_counter() - begin
run.run_tiles = timed
if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    if warm := options.pop("warm", None):  # what is loaded on first use is not counted
        denoise_file(**{**options, "source": warm, "workers": 1})
    begin = time.perf_counter()
    denoise_file(**options)
    print(json.dumps([time.perf_counter() - begin, spent[0]]))
"""


def run(path: Path, *arguments: str, part: bool = False) -> tuple[float, float]:
    """Denoise a cube in another process; return peak memory and seconds.

    ``part`` is for times alone: seconds are those of the tiles, and memory is not looked at.
    """
    output = path.with_name("out.zarr")
    options = {"source": str(path), "output": str(output), "noise": NOISE, "prior": None,
               "window": WINDOW, "step": STEP, "overwrite": True, "mode": "processes"}  # fmt: skip
    if path.suffix == ".hdr":
        options["reading"] = {"data": str(path.with_suffix(".npy"))}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--threads":
            options["mode"] = "threads"
        else:
            value = words.pop(0)
            options[word[2:]] = int(value) if word == "--workers" else value
    if part:
        options["warm"] = str(write_cube(path.with_name("warm.npy"), 40))
    peak, (whole, tiles) = watched(path, CHILD, options, sampled=not part)
    return peak, tiles if part else whole


def watched(
    path: Path, text: str, options: dict[str, object], *, sampled: bool = True
) -> tuple[float, list[float]]:
    """Run a script in another process; return its peak memory and what it printed."""
    script = path.with_name("child.py")
    script.write_text(text)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, str(script), json.dumps(options)],
                             stdout=subprocess.PIPE, text=True, env=environment)  # fmt: skip
    peak = 0.0
    while sampled and child.poll() is None:
        peak = max(peak, used_bytes(family(child.pid)))
        time.sleep(0.02)
    child.wait()
    assert child.stdout is not None
    return peak, json.loads(child.stdout.read())


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return [pid]
    return [pid, *(one for child in text.split() for one in family(int(child)))]


def used_bytes(pids: list[int]) -> float:
    """Return the memory that processes have in use, pages that they share counted once.

    A process that is about to start another one shares all of its pages with it for a moment.
    """
    if len(pids) == 1:
        return of_process(pids[0], "status", "VmRSS")
    return sum(of_process(pid, "smaps_rollup", "Pss") for pid in pids)


def of_process(pid: int, file: str, name: str) -> float:
    """Return a figure in bytes that the system gives for a process; 0 for one that has ended."""
    try:
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return float(line.split()[1]) * 1024
    except OSError:
        pass
    return 0.0


if __name__ == "__main__":
    main()

"""Time and memory of the core, as ratios measured side by side in one run.

The baseline is what a user would write: a loop of `numpy.linalg.svd` over the same windows, with
NumPy's own threading. It is timed in every round anew, and ratios are those of a round: on a
machine that others use as well, times of the same work minutes apart differ by half. The scene is
the built-in one, so that the figures can be had anywhere.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np

import sigmacube as sc
from sigmacube.core.windows import WindowGrid

SHAPE = (145, 145, 224)
NOISE = 0.05
LOOP = "numpy.linalg.svd loop"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each variant")
    parser.add_argument(
        "--scene", type=Path, help="a .mat or .npy cube instead of the built-in one"
    )
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    cube = load_scene(options.scene)
    noisy = cube + np.random.default_rng(0).normal(scale=NOISE, size=cube.shape)

    variants = {
        "rank auto": {"prior": None},
        "rank auto, no sigma": {"prior": None, "uncertainty": False},
        "rank 7": {"prior": None, "rank": 7},
        "rank 7, no sigma": {"prior": None, "rank": 7, "uncertainty": False},
    }
    seconds = side_by_side(noisy, variants, options.rounds)
    rows = [
        ("numpy.linalg.svd loop / denoise, rank auto", ratios(seconds, LOOP, "rank auto"), ">= 15"),
        ("numpy.linalg.svd loop / denoise, rank 7", ratios(seconds, LOOP, "rank 7"), ">= 10"),
        ("cost of sigma, rank auto", extra(seconds, "rank auto"), "<= 0.25"),
        ("cost of sigma, rank 7", extra(seconds, "rank 7"), "<= 0.25"),
        ("peak memory / cube, rank auto", [peak_memory(noisy, {"prior": None})], "<= 8"),
        ("peak memory / cube, rank 7", [peak_memory(noisy, {"prior": None, "rank": 7})], "<= 8"),
        ("import sigmacube / import numpy", [startup("import sigmacube")], "<= 3"),
        ("sigmacube --help / import numpy", [startup(HELP)], "<= 3"),
    ]
    print(f"cube {'×'.join(map(str, cube.shape))}, window 20, step 4; "
          + ", ".join(f"{k} {statistics.median(v):.2f} s" for k, v in seconds.items()))  # fmt: skip
    print(f"{'median and range of the rounds':48s}")
    for name, values, goal in rows:
        span = f"{min(values):6.2f} to {max(values):5.2f}" if len(values) > 1 else " " * 15
        print(f"{name:48s} {statistics.median(values):7.2f} {span}   goal {goal}")
    if options.json:
        figures = {name: statistics.median(values) for name, values, _ in rows}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def load_scene(path: Path | None) -> np.ndarray:
    if path is None:
        return np.asarray(sc.synthetic.scene(SHAPE, rng=0).values)
    if path.suffix == ".npy":
        cube = np.load(path, allow_pickle=False)
    else:
        from scipy.io import loadmat

        cube = next(v for v in loadmat(path).values() if getattr(v, "ndim", 0) == 3)
    low, high = cube.min(axis=(0, 1)), cube.max(axis=(0, 1))
    return (cube - low) / (high - low)


def svd_loop_seconds(cube: np.ndarray) -> float:
    """Return the time of decomposing every window, from a sample of them."""
    grid = WindowGrid.create(cube.shape, window=20, step=4)
    windows = list(np.ndindex(grid.shape[:2]))
    sample = windows[:: max(1, len(windows) // 100)]
    start = time.perf_counter()
    for i, j in sample:
        np.linalg.svd(cube[grid.slices(i, j)].reshape(-1, cube.shape[2]), full_matrices=False)
    return (time.perf_counter() - start) * len(windows) / len(sample)


def side_by_side(
    cube: np.ndarray, variants: dict[str, dict], rounds: int
) -> dict[str, list[float]]:
    """Return the times of the loop and of each variant, run in turn so that noise hits all."""
    sc.denoise(cube, NOISE, prior=None)  # what is loaded on first use
    times: dict[str, list[float]] = {LOOP: [], **{name: [] for name in variants}}
    for _ in range(rounds):
        times[LOOP].append(svd_loop_seconds(cube))
        for name, options in variants.items():
            start = time.perf_counter()
            sc.denoise(cube, NOISE, **options)
            times[name].append(time.perf_counter() - start)
    return times


def ratios(seconds: dict[str, list[float]], above: str, below: str) -> list[float]:
    """Return how much longer one variant took than another, round by round."""
    return [a / b for a, b in zip(seconds[above], seconds[below], strict=True)]


def extra(seconds: dict[str, list[float]], name: str) -> list[float]:
    return [ratio - 1 for ratio in ratios(seconds, name, f"{name}, no sigma")]


def peak_memory(cube: np.ndarray, options: dict) -> float:
    """Return the most memory that `denoise` allocates, in cubes."""
    tracemalloc.start()
    sc.denoise(cube, NOISE, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / cube.nbytes


HELP = "import sys; sys.argv = ['sigmacube', '--help']\nfrom sigmacube.cli import main\nmain()"


def startup(code: str, repeats: int = 7) -> float:
    """Return the start-up time of some code over that of importing NumPy."""

    def seconds(text: str) -> float:
        def once() -> float:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", text], capture_output=True, check=False)
            return time.perf_counter() - start

        return statistics.median(once() for _ in range(repeats))

    return seconds(code) / seconds("import numpy")


if __name__ == "__main__":
    main()

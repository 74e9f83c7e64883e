"""Impulses, missing data and dead lines: coverage, error and time beside the figures to beat.

    python benchmarks/robust.py --scene simu_indian.mat --trials 60 --json robust.json
    python benchmarks/robust.py --json robust.json --page docs/robust.md

The scene is the simulated Indian Pines cube, each band scaled to [0, 1]. Impulses replace elements
by 0 or 1 with equal odds. Coverage of the Monte Carlo mean is corrected for the mean itself.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import sigmacube as sc
from bench import load_scene
from pages import markdown, put_tables
from sigmacube.core.lowrank.solvers import GoDecSolver, SemiSoftGoDecSolver
from sigmacube.core.windows import WindowGrid

LEVELS = (0.05, 0.075, 0.1, 0.125)
IMPULSES = (0.0, 0.05, 0.1, 0.2, 0.3)
PAPER = {  # coverage of Song et al. (2021), simulated Indian Pines, by noise and impulses
    0.05: (0.9579, 0.9006, 0.8429, 0.7309, 0.6278),
    0.075: (0.9576, 0.9348, 0.9063, 0.8395, 0.7621),
    0.1: (0.9643, 0.9516, 0.9340, 0.8888, 0.8293),
    0.125: (0.9704, 0.9624, 0.9495, 0.9148, 0.8657),
}
REGION = np.s_[84:116, 78:114]  # of the coverage table
CROP = np.s_[40:100, 30:90]  # of the comparison with the public LRMR code
Z95 = 1.959964


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scene", type=Path, help="the cube, .mat or .npy")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--only", nargs="*", choices=sorted(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--page", type=Path, help="only put the figures of --json into this page")
    options = parser.parse_args()
    if options.page:
        write_page(options.page, json.loads(options.json.read_text()))
        return
    if options.scene is None:
        parser.error("--scene is needed, unless --page is given")
    scene = load_scene(options.scene)
    figures = {"trials": options.trials}
    if options.json and options.json.exists():
        figures = json.loads(options.json.read_text()) | figures
    for name in options.only:
        print(f"\n{name}")
        figures[name] = SECTIONS[name](scene, options.trials)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1) + "\n")


def coverage_table(scene: np.ndarray, trials: int) -> list[dict]:
    """Coverage under salt-and-pepper impulses, beside the paper's table."""
    truth = np.ascontiguousarray(scene[REGION])
    print("noise impulses | coverage  paper  goal   | truth  | RMSE/noise")
    table = []
    for level in LEVELS:
        for share, paper in zip(IMPULSES, PAPER[level], strict=True):
            row = {"noise": level, "impulses": share, "paper": paper}
            row |= monte_carlo(truth, level, share, trials, solver="robust")
            goal = ">= .94" if share <= 0.1 else ">= .93"
            print(f"{level:5.3f} {share:8.0%} | {row['coverage']:.4f}   {paper:.4f} {goal} | "
                  f"{row['truth']:.4f} | {row['rmse']:.4f}", flush=True)  # fmt: skip
            table.append(row)
    return table


def full_scene(scene: np.ndarray, trials: int) -> list[dict]:
    """Coverage of the truth on the full scene, from one observation each."""
    print("noise impulses | truth  | RMSE/noise")
    table = []
    for level in LEVELS:
        for share in IMPULSES:
            noisy = with_salt_and_pepper(scene, level, share, 0)
            result = sc.denoise(noisy, level, solver="robust", prior=None)
            error = np.abs(result.estimate - scene)
            row = {
                "noise": level,
                "impulses": share,
                "truth": float(np.mean(error <= Z95 * result.std)),
                "rmse": float(np.sqrt(np.mean(error**2)) / level),
            }
            print(f"{level:5.3f} {share:8.0%} | {row['truth']:.4f} | {row['rmse']:.4f}", flush=True)
            table.append(row)
    return table


def uniform_impulses(scene: np.ndarray, trials: int) -> list[dict]:
    """Impulses of any value within [0, 1]: no value repeats, and some hide in the noise."""
    truth = np.ascontiguousarray(scene[REGION])
    print("noise impulses | coverage | truth  | RMSE/noise")
    table = []
    for level in (0.05, 0.1):
        for share in (0.1, 0.3):
            row = {"noise": level, "impulses": share}
            row |= monte_carlo(truth, level, share, trials, observe=with_uniform, solver="robust")
            print(f"{level:5.3f} {share:8.0%} | {row['coverage']:.4f}   | {row['truth']:.4f} | "
                  f"{row['rmse']:.4f}", flush=True)  # fmt: skip
            table.append(row)
    return table


def all_solvers(scene: np.ndarray, trials: int) -> list[dict]:
    """Coverage of every solver, with and without impulses; a quarter of the trials."""
    truth = np.ascontiguousarray(scene[REGION])
    print("solver  impulses | coverage | truth  | RMSE/noise")
    table = []
    for name in ("robust", "godec", "ssgodec", "rpca"):
        for share in (0.0, 0.1, 0.3):
            row = {"solver": name, "noise": 0.05, "impulses": share}
            row |= monte_carlo(truth, 0.05, share, max(trials // 4, 2), solver=name)
            print(f"{name:8s} {share:7.0%} | {row['coverage']:.4f}   | {row['truth']:.4f} | "
                  f"{row['rmse']:.4f}", flush=True)  # fmt: skip
            table.append(row)
    return table


def with_salt_and_pepper(truth: np.ndarray, level: float, share: float, trial: int) -> np.ndarray:
    return sc.synthetic.add_noise(truth, level, impulses=share, rng=np.random.default_rng(trial))


def with_uniform(truth: np.ndarray, level: float, share: float, trial: int) -> np.ndarray:
    rng = np.random.default_rng(trial)
    noisy = truth + rng.normal(scale=level, size=truth.shape)
    return np.where(rng.random(truth.shape) < share, rng.random(truth.shape), noisy)


def monte_carlo(
    truth: np.ndarray,
    level: float,
    share: float,
    trials: int,
    observe: Callable[..., np.ndarray] = with_salt_and_pepper,
    **options: object,
) -> dict:
    """Return coverage of the mean over trials and of the truth, at 95 %, and the error."""
    estimates, stds = [], []
    for trial in range(trials):
        result = sc.denoise(observe(truth, level, share, trial), level, **options, prior=None)
        estimates.append(result.estimate.astype(np.float32))
        stds.append(result.std.astype(np.float32))
    estimate, std = np.array(estimates), np.array(stds)
    mean = estimate.mean(axis=0)
    shrink = np.sqrt(1 - 1 / trials)
    inside = np.mean(np.abs(estimate - mean) <= Z95 * shrink * std, axis=0)
    return {
        "coverage": float(inside.mean()),
        "spread": float(inside.std()),
        "truth": float(np.mean(np.abs(estimate - truth) <= Z95 * std)),
        "rmse": float(np.sqrt(np.mean((estimate - truth) ** 2)) / level),
    }


def peers(scene: np.ndarray, trials: int) -> dict[str, float]:
    """Error beside public code on the same data, one observation each."""
    crop = scene[CROP]
    low, high = crop.min(axis=(0, 1)), crop.max(axis=(0, 1))
    truth = (crop - low) / (high - low)
    level = 0.05
    plain = sc.synthetic.add_noise(truth, level, rng=1)
    wild = sc.synthetic.add_noise(truth, level, impulses=0.1, rng=1)
    mixed = sc.synthetic.add_noise(scene, 0.075, impulses=0.15, rng=1)
    public = {"solver": SemiSoftGoDecSolver(7, 0.15 / level, "random"), "weights": "uniform"}
    exact = {"solver": SemiSoftGoDecSolver(7, 0.15 / level), "weights": "uniform"}

    def rmse(noisy: np.ndarray, **options: object) -> float:
        estimate = sc.denoise(noisy, level, uncertainty=False, **options, prior=None).estimate
        return float(np.sqrt(np.mean((estimate - truth) ** 2)) / level)

    full = sc.denoise(mixed, 0.075, solver="robust", uncertainty=False, prior=None).estimate
    psnr = -10 * np.log10(np.mean((full - scene) ** 2, axis=(0, 1)))
    rows = {
        "public LRMR settings, no impulses (.161 ± .004)": rmse(plain, **public),
        "the same with exact updates": rmse(plain, **exact),
        "public LRMR settings, 10 % impulses (.246)": rmse(wild, **public),
        "the same with exact updates, 10 % impulses": rmse(wild, **exact),
        "robust, 10 % impulses (<= .165)": rmse(wild, solver="robust"),
        "svd, no impulses": rmse(plain),
        "robust, no impulses (<= 1.03 svd)": rmse(plain, solver="robust"),
        "robust, full scene, noise .075, 15 % impulses, dB (>= 39)": float(psnr.mean()),
    }
    for name, value in rows.items():
        print(f"{name:60s} {value:.4f}", flush=True)
    return rows


def missing_data(scene: np.ndarray, trials: int) -> dict[str, float]:
    """Coverage of the truth on elements that were missing: 5 % at random, and one dead line."""
    truth = np.ascontiguousarray(scene[REGION])
    rows = {}
    for name in ("svd", "robust", "godec", "ssgodec"):
        inside, line, ratio = [], [], []
        for trial in range(max(trials // 3, 2)):
            rng = np.random.default_rng(trial)
            noisy = truth + rng.normal(scale=0.05, size=truth.shape)
            at_random = rng.random(truth.shape) < 0.05
            dead = np.zeros(truth.shape, dtype=bool)
            dead[:, 17, 60:150] = True
            noisy[at_random | dead] = np.nan
            result = sc.denoise(noisy, 0.05, solver=name, prior=None)
            ok = np.abs(result.estimate - truth) <= Z95 * result.std
            inside.append(ok[at_random].mean())
            line.append(ok[dead].mean())
            ratio.append(result.std[dead].mean() / result.std[~dead & ~at_random].mean())
        rows |= {
            f"{name}: at random (.95 ± .01)": float(np.mean(inside)),
            f"{name}: dead line (.95 ± .01)": float(np.mean(line)),
            f"{name}: std on the dead line over std elsewhere": float(np.mean(ratio)),
        }
    for name, value in rows.items():
        print(f"{name:60s} {value:.4f}", flush=True)
    return rows


def seconds(scene: np.ndarray, trials: int) -> dict[str, float]:
    """Time of the solvers, in one run: processor time, so that other load does not count."""
    level = 0.075
    plain = sc.synthetic.add_noise(scene, level, rng=1)
    wild = sc.synthetic.add_noise(scene, level, impulses=0.15, rng=1)

    def cpu(call: Callable[[], object]) -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    sc.denoise(plain[:40, :40], level, solver="robust", prior=None)
    svd = min(cpu(partial(sc.denoise, plain, level, workers=1)) for _ in range(2))
    rows = {"svd, no impulses, s": svd}
    for name, cube in (("no impulses", plain), ("15 % impulses", wild)):
        robust = cpu(partial(sc.denoise, cube, level, solver="robust", workers=1))
        rows[f"robust / svd, {name} (<= 8)"] = robust / svd
    grid = WindowGrid.create(scene.shape, window=20, step=20)
    patches = [
        (wild[grid.slices(i, j)] / level).reshape(400, -1) for i, j in np.ndindex(grid.shape[:2])
    ]
    for label, solver in (
        ("godec", GoDecSolver()),
        ("ssgodec", SemiSoftGoDecSolver()),
        ("ssgodec, public settings", SemiSoftGoDecSolver(7, 2.0, "random")),
    ):
        with threadpool_limits(limits=1):  # as in a run
            spent = cpu(lambda solver=solver: [solver(patch) for patch in patches])
        goal = "" if "public" in label else " (<= 18)"
        rows[f"{label}, ms per 400×224 window{goal}"] = 1e3 * spent / len(patches)
    for name, value in rows.items():
        print(f"{name:60s} {value:.2f}", flush=True)
    return rows


def tables(figures: dict) -> dict[str, str]:
    """Return the tables of the documentation, by the name of their section."""

    def by_cell(rows: list[dict], words: Callable[[dict], str]) -> str:
        cells = {(row["noise"], row["impulses"]): words(row) for row in rows}
        lines = [[f"{level:g}", *(cells[level, share] for share in IMPULSES)] for level in LEVELS]
        return markdown(["noise", *(f"{share:.0%}" for share in IMPULSES)], lines)

    coverage = by_cell(
        figures["coverage"],
        lambda row: f"{row['coverage']:.4f} / {row['truth']:.4f} ({row['paper']:.3f})",
    )
    full = by_cell(figures["full scene"], lambda row: f"{row['truth']:.4f} / {row['rmse']:.4f}")
    uniform = markdown(
        ["noise", "impulses", "mean", "truth", "RMSE / noise"],
        [[f"{row['noise']:g}", f"{row['impulses']:.0%}", *three(row)]
         for row in figures["uniform impulses"]],
    )  # fmt: skip
    solvers = markdown(
        ["solver", "impulses", "mean", "truth", "RMSE / noise"],
        [[f"`{row['solver']}`", f"{row['impulses']:.0%}", *three(row)]
         for row in figures["solvers"]],
    )  # fmt: skip
    plain = {
        name: markdown(["", ""], [[key, f"{value:.{digits}f}"] for key, value in part.items()])
        for name, digits in (("peers", 4), ("missing", 4), ("time", 1))
        for part in [figures[name]]
    }
    return {
        "coverage": coverage,
        "full scene": full,
        "uniform impulses": uniform,
        "solvers": solvers,
        **plain,
    }


def three(row: dict) -> list[str]:
    return [f"{row[key]:.4f}" for key in ("coverage", "truth", "rmse")]


def write_page(page: Path, figures: dict) -> None:
    """Put the figures into their page."""
    put_tables(page, tables(figures))


SECTIONS: dict[str, Callable[[np.ndarray, int], object]] = {
    "coverage": coverage_table,
    "full scene": full_scene,
    "uniform impulses": uniform_impulses,
    "solvers": all_solvers,
    "peers": peers,
    "missing": missing_data,
    "time": seconds,
}

if __name__ == "__main__":
    main()

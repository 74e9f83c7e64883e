"""Noise estimation and hold-out: known truth, real scenes, and what they cost.

The built-in scene is always there; simulated Indian Pines and the real scenes are used where the
folder ``../shared/data`` holds them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

import sigmacube as sc
from pages import markdown, put_tables
from sigmacube.check.holdout import holdout
from sigmacube.noise.estimation import fit_noise

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
COST_SHAPE = (145, 145, 200)
KINDS = {
    "scalar": "one level",
    "per band 10:1": "per band, 10:1",
    "AR(1) 0.6": "correlated between bands, AR(1) .6",
    "signal": "growing with the signal",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="timed runs")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--page", type=Path, help="only put the figures of --json into this page")
    options = parser.parse_args()
    if options.page:
        write_page(options.page, json.loads(options.json.read_text()))
        return
    figures = {"known truth": known_truth(), "real scenes": real_scenes()}
    figures["cost"] = cost(options.repeats)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def known_truth() -> list[dict[str, Any]]:
    print("Known truth, noise=None. Goals: median error of σ below 5 %; 95 % cover .95 ± .015,")
    print("signal-dependent ± .025.")
    print(f"{'scene':16s} {'noise':14s} {'|error|':>9s} {'bias':>7s} {'50 %':>6s} {'95 %':>6s}")
    scenes = {"built-in": (sc.synthetic.scene((96, 90, 120), rng=0).values, 0.02)}
    path = DATA / "scenes" / "simu_indian.mat"
    if path.exists():
        from scipy.io import loadmat

        cube = loadmat(path)["simu_indian"]
        low, high = cube.min(axis=(0, 1)), cube.max(axis=(0, 1))
        scenes["Indian Pines"] = ((cube - low) / (high - low), 0.05)
    rows = []
    for name, (truth, level) in scenes.items():
        for kind in ("scalar", "per band 10:1", "AR(1) 0.6", "signal"):
            noisy, std = add_noise(truth, kind, level)
            result = sc.denoise(noisy, prior=None)
            value = np.asarray(result.noise)
            found = np.sqrt(np.diag(value)) if value.ndim == 2 else value
            z = (result.estimate - truth) / result.std
            row = {
                "scene": name,
                "noise": kind,
                "median_error": float(np.median(np.abs(found / std - 1))),
                "median_bias": float(np.median(found / std - 1)),
                "coverage_50": covered(z, 0.5),
                "coverage_95": covered(z, 0.95),
                "median_rank": float(np.median(result.ranks)),
                "model": result.settings["noise_model"],
            }
            rows.append(row)
            print(f"{name:16s} {kind:14s} {row['median_error']:9.3f} {row['median_bias']:+7.3f} "
                  f"{row['coverage_50']:6.3f} {row['coverage_95']:6.3f}", flush=True)  # fmt: skip
    return rows


def add_noise(truth: np.ndarray, kind: str, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a noisy scene and the root mean square of its noise per band."""
    rng = np.random.default_rng(1)
    n_bands = truth.shape[2]
    white = rng.normal(size=truth.shape)
    std: np.ndarray = np.full(n_bands, level)
    if kind.startswith("per band"):
        std = level / 4 * 10 ** rng.uniform(0, 1, n_bands)
    elif kind.startswith("AR"):
        lag = np.abs(np.subtract.outer(np.arange(n_bands), np.arange(n_bands)))
        white = white @ np.linalg.cholesky(0.6**lag).T
    elif kind == "signal":
        std = level * np.sqrt(2 * truth + 0.08)
    return truth + std * white, np.sqrt(np.mean(np.square(std + 0 * truth), axis=(0, 1)))


def covered(z: np.ndarray, level: float) -> float:
    return float(np.mean(np.abs(z) <= ndtri((1 + level) / 2)))


def real_scenes() -> list[dict[str, Any]]:
    print("\nReal scenes, default settings. Goals: .93-.97 at 95 %, .45-.55 at 50 %; removed part")
    print("white in space (± .03) beyond the noise's own correlation.")
    head = ("50 %", "95 %", "hidden", "removed", "noise", "weakest", "rank", "one σ")
    print(f"{'scene':12s} " + " ".join(f"{name:>8s}" for name in head))
    rows = []
    for name, cube in load_real():
        check = holdout(cube, prior=None)
        hidden = holdout(cube, method="hidden", step=20, prior=None)
        one = sc.denoise(cube, one_level_per_band(cube), uncertainty=False, step=20, prior=None)
        row = {
            "scene": name,
            "coverage_50": check.coverage[0.5],
            "coverage_95": check.coverage[0.95],
            "coverage_95_error": check.coverage_error[0.95],
            "hidden_95": hidden.coverage[0.95],
            "removed_lag1": check.removed_lag1,
            "noise_lag1": check.noise_lag1,
            "weakest_lag1": check.weakest_lag1,
            "copied_pixels": check.copied_pixels,
            "median_rank": check.median_rank,
            "median_rank_one_std_per_band": float(np.median(one.ranks)),
            "brightness_95": [part.coverage for part in check.brightness],
            "verdict": check.verdict,
        }
        rows.append(row)
        print(f"{name:12s} {row['coverage_50']:8.3f} {row['coverage_95']:8.3f} "
              f"{row['hidden_95']:8.3f} {row['removed_lag1']:+8.3f} {row['noise_lag1']:+8.3f} "
              f"{row['weakest_lag1']:+8.3f} {row['median_rank']:8.0f} "
              f"{row['median_rank_one_std_per_band']:8.0f}", flush=True)  # fmt: skip
    return rows


def one_level_per_band(cube: np.ndarray) -> str:
    """Return today's practice where the scene allows it: band regression needs many pixels."""
    rows, cols, bands = cube.shape
    return "regression" if rows * cols >= 2 * bands else "residual"


def load_real() -> list[tuple[str, np.ndarray]]:
    if not DATA.is_dir():
        return []
    import rasterio
    from scipy.io import loadmat

    scenes = DATA / "scenes"
    found = [
        ("Pavia crop", loadmat(scenes / "pavia_centre_100x100x102.mat")["data"]),
        ("AVIRIS crop", loadmat(scenes / "aviris_90x90x224.mat")["hsi_img"]),
    ]
    tiles = []
    for row in (96, 128):
        line = []
        for col in (96, 128):
            path = DATA / "formats" / "enmap" / f"enmap_potsdam_tile_{row}_{col}.tif"
            with rasterio.open(path) as source:
                line.append(source.read().transpose(1, 2, 0).astype(float))
        tiles.append(np.concatenate(line, axis=1))
    cube = np.concatenate(tiles, axis=0)
    found.append(("EnMAP tiles", np.where(cube == -32768, np.nan, cube)))
    corn = sc.read(DATA / "formats" / "envi_plantcv" / "corn-kernel-hyperspectral.hdr")
    found.append(("lab camera", np.asarray(corn.values)))
    return found


def cost(repeats: int) -> dict[str, float]:
    """Print the time of the default estimate and of hold-out over that of `denoise`."""
    truth = sc.synthetic.scene(COST_SHAPE, rng=0).values
    noisy = truth + np.random.default_rng(0).normal(scale=0.02, size=truth.shape)
    tasks = {
        "denoise": lambda: sc.denoise(noisy, 0.02, prior=None),
        "estimate": lambda: fit_noise(noisy),
        "holdout": lambda: holdout(noisy, prior=None),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    times = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {name: times[name] / times["denoise"] for name in ("estimate", "holdout")}
    print(f"\nCost on {'×'.join(map(str, COST_SHAPE))}, denoise with given noise "
          f"{times['denoise']:.2f} s:")  # fmt: skip
    print(f"default estimate / denoise {ratios['estimate']:.2f}   goal <= 0.20")
    print(f"holdout / denoise          {ratios['holdout']:.2f}   goal <= 4")
    return {**times, **{f"{name} / denoise": ratio for name, ratio in ratios.items()}}


def write_page(page: Path, figures: dict[str, Any]) -> None:
    """Put the figures into their page."""
    known = [
        [f"{row['scene']}, {KINDS[row['noise']]}", f"{100 * row['median_error']:.1f} %",
         *(f"{row[key]:.3f}" for key in ("coverage_50", "coverage_95"))]
        for row in figures["known truth"]
    ]  # fmt: skip
    real = [
        [row["scene"], *(f"{row[key]:.3f}" for key in ("coverage_50", "coverage_95", "hidden_95")),
         f"{row['removed_lag1'] - row['noise_lag1']:.2f}", f"{row['weakest_lag1']:.2f}",
         f"{row['median_rank']:.0f}", f"{row['median_rank_one_std_per_band']:.0f}"]
        for row in figures["real scenes"]
    ]  # fmt: skip
    cost = figures["cost"]
    put_tables(page, {
        "known truth": markdown(
            ["known truth, noise estimated", "median error of σ", "50 %", "95 %"], known
        ),
        "real scenes": markdown(
            ["real scene", "50 %", "95 %", "95 %, hidden", "removed − noise, lag 1",
             "weakest kept, lag 1", "rank", "rank, one σ per band"], real
        ),
        "cost": markdown(
            ["time over that of `denoise` with a given noise", "", "goal"],
            [["default estimate", f"{cost['estimate / denoise']:.2f}", "≤ 0.20"],
             ["`holdout`", f"{cost['holdout / denoise']:.2f}", "≤ 4"]],
        ),
    })  # fmt: skip


if __name__ == "__main__":
    main()

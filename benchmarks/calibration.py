"""What σ claims against what errors are, on simulated Indian Pines: the core's own figures.

One noisy observation of the full scene per noise level, then Monte Carlo on the crop of rows 40:100
and cols 30:90. Every line names its goal and says whether it is met; a control with σ halved must
fail. Usage: python benchmarks/calibration.py PATH/simu_indian.mat [--trials 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from scipy.special import ndtri

import sigmacube as sc

LEVELS = (0.5, 0.68, 0.9, 0.95, 0.99)
HALF = float(ndtri(0.975))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scene", type=Path)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cube = loadmat(options.scene)["simu_indian"]
    rows = full_scene(scale_bands(cube)) + crop(scale_bands(cube[40:100, 30:90]), options.trials)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    missed = [row["name"] for row in rows if not row["met"]]
    print(f"{len(rows) - len(missed)} of {len(rows)} goals met" + "".join(f"; {m}" for m in missed))


def scale_bands(cube: np.ndarray) -> np.ndarray:
    low, high = cube.min(axis=(0, 1)), cube.max(axis=(0, 1))
    return (cube - low) / (high - low)


def full_scene(truth: np.ndarray) -> list[dict]:
    """Coverage of the truth, error and PSNR of one observation per noise level, defaults."""
    print("full scene, one observation: coverage of the truth at 50/68/90/95/99 %, RMSE/σ₀, PSNR")
    rows = []
    for noise in (0.001, 0.025, 0.05, 0.1, 0.125):
        result = sc.denoise(sc.synthetic.add_noise(truth, noise, rng=1), noise, prior=None)
        error = result.estimate - truth
        found = [float(np.mean(np.abs(error) <= ndtri((1 + q) / 2) * result.std)) for q in LEVELS]
        rmse = float(np.sqrt(np.mean(error**2)) / noise)
        psnr = float(np.mean(-10 * np.log10(np.mean(error**2, axis=(0, 1)))))
        met = max(abs(f - q) for f, q in zip(found, LEVELS, strict=True)) <= 0.004
        met = met and rmse <= 0.122 and (noise != 0.1 or psnr >= 38.4)
        text = " ".join(f"{f:.4f}" for f in found)
        rows.append({"name": f"full scene, σ₀ {noise}", "coverage": found, "rmse": rmse,
                     "psnr": psnr, "met": met})  # fmt: skip
        print(f"  σ₀ {noise:<6} {text}   {rmse:.4f}   {psnr:.2f} dB   {verdict(met)}", flush=True)
    return rows


def crop(truth: np.ndarray, trials: int) -> list[dict]:
    """Coverage of the Monte Carlo mean by one closed form, its spread, and of the truth."""
    limit = np.sqrt(0.95 * 0.05 / trials)
    print(f"crop, {trials} trials: coverage of the mean at 95 %, spread (limit {limit:.4f}), truth")
    std = np.linspace(0.02, 0.08, truth.shape[2])
    lag = np.abs(np.subtract.outer(np.arange(len(std)), np.arange(len(std))))
    paper = {"rank": 7, "overlap": "ratio", "weights": "uniform"}
    plain = {"rank": 7, "finite_noise": False, "weights": "uniform"}
    wide = 10.0  # no goal for the spread
    cases = [
        ("defaults, σ₀ 0.025", 0.025, {}, 0.950, 0.006, 1.1),
        ("defaults, σ₀ 0.05", 0.05, {}, 0.950, 0.006, 1.1),
        ("defaults, σ₀ 0.1", 0.1, {}, 0.950, 0.006, 1.1),
        ("rank 7, σ₀ 0.05", 0.05, {"rank": 7}, 0.950, 0.006, 1.1),
        ("rank 12, σ₀ 0.05", 0.05, {"rank": 12}, 0.950, 0.006, 1.1),
        ("rank 7, first order, σ₀ 0.05", 0.05, plain, 0.907, 0.006, wide),
        ("rank 7, the paper's form, σ₀ 0.05", 0.05, paper, 0.916, 0.005, wide),
        ("AR(1) noise 0.7, σ 0.02-0.08", 0.7**lag * np.outer(std, std), {}, 0.950, 0.01, 1.1),
    ]
    rows = []
    for name, noise, options, goal, tolerance, widest in cases:
        mean, spread, of_truth, halved = monte_carlo(truth, noise, trials, options)
        met = abs(mean - goal) <= tolerance and spread <= widest * limit and halved < 0.75
        rows.append({"name": name, "coverage_of_mean": mean, "spread": spread, "limit": limit,
                     "coverage_of_truth": of_truth, "sigma_halved": halved, "goal": goal,
                     "tolerance": tolerance, "trials": trials, "met": met})  # fmt: skip
        print(f"  {name:36s} {mean:.4f} {spread:.4f} {of_truth:.4f}   goal {goal:.3f} ± {tolerance}"
              f"   σ halved {halved:.3f}   {verdict(met)}", flush=True)  # fmt: skip
    return rows


def monte_carlo(
    truth: np.ndarray, noise: float | np.ndarray, trials: int, options: dict
) -> tuple[float, float, float, float]:
    """Test the closed form of the first observation on all of them."""
    estimates = np.empty((trials, *truth.shape), dtype=np.float32)
    std = None
    for trial in range(trials):
        noisy = sc.synthetic.add_noise(truth, noise, rng=trial)
        result = sc.denoise(noisy, noise, prior=None, uncertainty=trial == 0, **options)
        estimates[trial] = result.estimate
        std = result.std if trial == 0 else std
    deviation = np.abs(estimates - estimates.mean(axis=0))
    shrunk = HALF * std * np.sqrt(1 - 1 / trials)  # deviations from the mean of so many trials
    inside = np.mean(deviation <= shrunk, axis=0)
    of_truth = float(np.mean(np.abs(estimates - truth) <= HALF * std))
    return (
        float(inside.mean()),
        float(inside.std()),
        of_truth,
        float(np.mean(deviation <= shrunk / 2)),
    )


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    main()

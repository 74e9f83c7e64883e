"""Is σ right, and does the verdict know when it is not? Scenes and regimes with a known truth.

Usage: python benchmarks/honesty.py [--only PART ...] [--again] [--prior NAME] [--whole]
                                    [--draws N] [--data FOLDER] [--json FILE] [--page FILE]

Every case is a noise-free scene of a fixed list, observed through one kind of noise. It is
denoised with defaults, its noise unknown; how often 50 and 95 % intervals hold the truth is
compared with the verdict of a hold-out check, which knows the observed values alone. A case is
right when 95 % covers .93–.97 and 50 % covers .45–.56.

Real scenes have no truth: each is denoised by low-rank windows first (`prior=None`), which keep its
texture, and what comes out is observed anew, with noise in units of what was estimated on the real
one. That noise is kept, so that the truth does not move when the estimator does (until then it did;
the kept one is of the last state before). Bands of all scenes are scaled to [0, 1].

Every case is one draw of noise, and small scenes have few independent errors: coverage scatters.
`--draws N` observes each N times more, with seeds that no constant was chosen on, and says how many
cases are right on average: what is left of chance is not counted against σ or for it.

`--whole` takes the same scenes and regimes with all of their pixels instead of 64 × 60: 145 × 145
of the simulated scene, 128 × 120 of made ones, real crops as they are. Draws have seeds of their
own. This second list was written before any of its cases was run.

Cases found in the JSON file are not run again, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import correlate1d
from scipy.special import ndtri

import sigmacube as sc
from pages import markdown, put_tables
from sigmacube import synthetic
from sigmacube.check.calibration import calibrated

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "shared" / "data"
KEPT = HERE / "results" / "honesty.json"
KEPT_WHOLE = HERE / "results" / "honesty_whole.json"
NOISE = HERE / "results" / "honesty_noise.npz"
PAGE = HERE.parent / "docs" / "honesty.md"
# What counts as right, and the goals, as shares of all cases.
RIGHT_95, RIGHT_50 = (0.93, 0.97), (0.45, 0.56)
GOALS = {"right": (">=", 0.85), "trusted though wrong": ("<=", 0.03), "false alarms": ("<=", 0.12)}
# Noise of made scenes, whose bands lie in [0, 1], unless the regime says otherwise.
BASE = 0.03
# Seeds of fresh draws and of whole scenes begin with these.
FRESH, WHOLE = 1009, 2003
# Pixels of scenes, and of made ones that are whole.
SMALL, LARGE = (64, 60), (128, 120)
# What impulses need; noise stays unknown.
ROBUST = {"solver": "robust"}
PRIORS = {"spatial": "spatial", "none": None}

Truth = np.ndarray
Std = np.ndarray
Rng = np.random.Generator
Regime = Callable[[Truth, Std, Rng], np.ndarray]


# ---------------------------------------------------------------------------- regimes


def gaussian(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
    return truth + std * rng.standard_normal(truth.shape)


def white(factor: float) -> Regime:
    return lambda truth, std, rng: gaussian(truth, factor * std, rng)


def per_band(ratio: float) -> Regime:
    """σ of bands log-uniform over a ratio."""

    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        return gaussian(truth, std * ratio ** rng.uniform(-0.5, 0.5, truth.shape[2]), rng)

    return observe


def autoregressive(lag: float, factor: float = 1.0) -> Regime:
    """Noise of unit variance, correlated between neighbouring bands."""

    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        noise = rng.standard_normal(truth.shape)
        for band in range(1, truth.shape[2]):
            noise[..., band] *= np.sqrt(1 - lag**2)
            noise[..., band] += lag * noise[..., band - 1]
        return truth + factor * std * noise

    return observe


def common_mode(factor: float) -> Regime:
    """All bands of a pixel shift together, by so many times the noise."""

    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        shift = factor * std * rng.standard_normal((*truth.shape[:2], 1))
        return gaussian(truth, std, rng) + shift

    return observe


def pixel_gain(spread: float) -> Regime:
    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        gain = 1 + spread * rng.standard_normal((*truth.shape[:2], 1))
        return gaussian(truth * gain, std, rng)

    return observe


def stripes(factor: float, share: float = 1.0, axis: int = 1) -> Regime:
    """Offsets of columns (axis 1) or rows (axis 0), drawn anew in every band."""

    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        count = truth.shape[axis]
        offset = factor * std * rng.standard_normal((count, truth.shape[2]))
        offset[rng.permutation(count)[round(share * count) :]] = 0
        return gaussian(truth, std, rng) + np.expand_dims(offset, 1 - axis)

    return observe


def poisson(floor: float, factor: float = 1.0) -> Regime:
    """Let the variance grow with the signal, from a floor; std holds at the mean spectrum."""

    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        relative = truth / truth.mean(axis=(0, 1))
        power = np.maximum(floor + (1 - floor) * relative, 0.02)
        return gaussian(truth, factor * std * np.sqrt(power), rng)

    return observe


def resampled(lag: float) -> Regime:
    """Noise of unit variance, correlated between neighbouring pixels of both axes."""

    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        side = np.roots([2 * lag, -2, lag]).real.min()  # lag 1 of [a 1 a] is 2a / (1 + 2a²)
        kernel = np.array([side, 1, side]) / np.sqrt(1 + 2 * side**2)
        noise = rng.standard_normal(truth.shape)
        noise = correlate1d(correlate1d(noise, kernel, axis=0), kernel, axis=1)
        return truth + std * noise

    return observe


def clipped(factor: float) -> Regime:
    return lambda truth, std, rng: np.clip(gaussian(truth, factor * std, rng), 0, 1)


def quantised(factor: float) -> Regime:
    """Values rounded to steps of so many times the noise."""

    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        step = factor * std
        return np.round(gaussian(truth, std, rng) / step) * step

    return observe


def student(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
    """Noise of Student's t with three degrees of freedom, scaled to the same variance."""
    return truth + std * rng.standard_t(3, truth.shape) / np.sqrt(3)


def impulses(share: float) -> Regime:
    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        noisy, draw = gaussian(truth, std, rng), rng.random(truth.shape)
        noisy[draw < share] = 1.0
        noisy[draw < share / 2] = 0.0
        return noisy

    return observe


def missing(share: float) -> Regime:
    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        noisy = gaussian(truth, std, rng)
        noisy[rng.random(truth.shape) < share] = np.nan
        return noisy

    return observe


def hole(side: int) -> Regime:
    """Leave out a square in three quarters of the bands."""

    def observe(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
        noisy = gaussian(truth, std, rng)
        top, left = (int(rng.integers(2, n - side - 2)) for n in truth.shape[:2])
        noisy[top : top + side, left : left + side, truth.shape[2] // 4 :] = np.nan
        return noisy

    return observe


def bands_partly_missing(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
    """Leave out a fifth of the bands in one half of the scene."""
    noisy = gaussian(truth, std, rng)
    start = int(rng.integers(0, truth.shape[2] * 4 // 5))
    noisy[: truth.shape[0] // 2, :, start : start + truth.shape[2] // 5] = np.nan
    return noisy


def signal_to_noise(ratio: float) -> Regime:
    """Noise as large as the spread of the signal, over a ratio."""
    return lambda truth, std, rng: gaussian(truth, truth.std(axis=(0, 1)) / ratio, rng)


def dead_bands(truth: Truth, std: Std, rng: Rng) -> np.ndarray:
    noisy = gaussian(truth, std, rng)
    noisy[..., rng.permutation(truth.shape[2])[: truth.shape[2] // 10]] = 0
    return noisy


MADE: Mapping[str, tuple[Regime, dict[str, Any]]] = {
    "white, weak": (white(0.5), {}),
    "white": (white(1), {}),
    "white, strong": (white(3), {}),
    "per band 10:1": (per_band(10), {}),
    "per band 100:1": (per_band(100), {}),
    "AR(1) .5": (autoregressive(0.5), {}),
    "AR(1) .8": (autoregressive(0.8), {}),
    "AR(1) .95": (autoregressive(0.95), {}),
    "common mode 1 σ": (common_mode(1), {}),
    "common mode 3 σ": (common_mode(3), {}),
    "gain 1 %": (pixel_gain(0.01), {}),
    "gain 5 %": (pixel_gain(0.05), {}),
    "stripes .5 σ": (stripes(0.5), {}),
    "stripes 2 σ": (stripes(2), {}),
    "stripes 2 σ in 10 %": (stripes(2, 0.1), {}),
    "rows 1 σ": (stripes(1, axis=0), {}),
    "Poisson, floor .5": (poisson(0.5), {}),
    "Poisson": (poisson(0.05), {}),
    "resampled .2": (resampled(0.2), {}),
    "resampled .4": (resampled(0.4), {}),
    "clipped, σ .06": (clipped(2), {}),
    "clipped, σ .15": (clipped(5), {}),
    "quantised 1 σ": (quantised(1), {}),
    "quantised 3 σ": (quantised(3), {}),
    "t(3)": (student, {}),
    "impulses 2 %": (impulses(0.02), {}),
    "impulses 10 %, robust": (impulses(0.1), ROBUST),
    "impulses 40 %, robust": (impulses(0.4), ROBUST),
    "missing 2 %": (missing(0.02), {}),
    "missing 20 %": (missing(0.2), {}),
    "missing 60 %": (missing(0.6), {}),
    "hole 12×12": (hole(12), {}),
    "bands partly missing": (bands_partly_missing, {}),
    "SNR 3": (signal_to_noise(3), {}),
    "SNR 1": (signal_to_noise(1), {}),
    "dead bands": (dead_bands, {}),
}
REAL: Mapping[str, tuple[Regime, dict[str, Any]]] = {
    "white 1 ×": (white(1), {}),
    "white 3 ×": (white(3), {}),
    "AR(1) .5 1 ×": (autoregressive(0.5), {}),
    "AR(1) .5 3 ×": (autoregressive(0.5, 3), {}),
    "signal 1 ×": (poisson(0.2), {}),
    "signal 3 ×": (poisson(0.2, 3), {}),
    "stripes .5 σ": (stripes(0.5), {}),
    "stripes 2 σ": (stripes(2), {}),
    "stripes 2 σ in 10 %": (stripes(2, 0.1), {}),
    "common mode 2 σ": (common_mode(2), {}),
    "resampled .3": (resampled(0.3), {}),
    "quantised 2 σ": (quantised(2), {}),
    "t(3)": (student, {}),
    "missing 2 %": (missing(0.02), {}),
    "impulses 5 %, robust": (impulses(0.05), ROBUST),
}


# ---------------------------------------------------------------------------- scenes


Load = Callable[[Path, bool], np.ndarray]


def simulated(data: Path, whole: bool) -> np.ndarray:
    from scipy.io import loadmat

    values = loadmat(data / "scenes" / "simu_indian.mat")["simu_indian"][..., ::3]
    return values if whole else values[40:104, 30:90]


def made(make: Callable[..., Any]) -> Load:
    return lambda data, whole: make((*(LARGE if whole else SMALL), 75), rng=5)


def crop(file: str, name: str, every: int) -> Load:
    """64 × 60 pixels at most of a file, or all, and some of its bands."""

    def load(data: Path, whole: bool) -> np.ndarray:
        path = data / "scenes" / file
        if path.suffix == ".mat":
            from scipy.io import loadmat

            values = loadmat(path)[name]
        else:
            values = np.load(path)[name]
        values = np.asarray(values[..., ::every], dtype=np.float64)
        return values if whole else values[: SMALL[0], : SMALL[1]]

    return load


def enmap(data: Path, whole: bool) -> np.ndarray:
    def tile(row: int, col: int) -> np.ndarray:
        path = data / "formats" / "enmap" / f"enmap_potsdam_tile_{row}_{col}.tif"
        return np.asarray(sc.read(path).values, dtype=np.float64)

    cube = np.vstack([np.hstack([tile(r, c) for c in (96, 128)]) for r in (96, 128)])
    return cube[..., np.isfinite(cube).all(axis=(0, 1)) & (cube > -30000).all(axis=(0, 1))][
        ..., ::2
    ]


SCENES: Mapping[str, Load] = {
    "simulated": simulated,
    "sharp": made(synthetic.rare_materials),
    "smooth": made(synthetic.smooth_fields),
    "fractal": made(synthetic.fractal_texture),
    "Pavia": crop("pavia_centre_100x100x102.mat", "data", 1),
    "AVIRIS": crop("aviris_90x90x224.mat", "hsi_img", 2),
    "beach": crop("beach2.npz", "cube", 2),
    "urban": crop("urban3.npz", "cube", 2),
    "MUUFL": crop("muufl51.npz", "cube", 1),
    "EnMAP": enmap,
}
MADE_SCENES = tuple(SCENES)[:4]
CASES = tuple(
    (scene, regime) for scene in SCENES for regime in (MADE if scene in MADE_SCENES else REAL)
)


def noise_of(scene: str) -> sc.SignalNoise:
    """Return the noise that was once estimated on a real scene."""
    with np.load(NOISE) as kept:
        gain, offset, reference = kept[f"{scene}_line"]
        shared = kept.get(f"{scene}_correlation")
    return sc.SignalNoise(gain, offset, reference, None if shared is None else shared.astype(float))


@cache
def truth_of(scene: str, data: Path, whole: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return a noise-free scene with bands in [0, 1] and the unit of its noise (band,)."""
    values = np.asarray(SCENES[scene](data, whole), dtype=np.float64)
    values = values[..., np.ptp(values, axis=(0, 1)) > 0]
    low, high = values.min(axis=(0, 1)), values.max(axis=(0, 1))
    values = (values - low) / (high - low)
    if scene in MADE_SCENES:
        return values, np.full(values.shape[2], BASE)
    own = noise_of(scene)
    clean = sc.denoise(values, own, prior=None, step=5, uncertainty=False, workers=1)
    noise = np.asarray(clean.noise)
    return clean.estimate, np.sqrt(np.diag(noise)) if noise.ndim == 2 else noise


# ---------------------------------------------------------------------------- one case


def covered(z: np.ndarray, level: float) -> float:
    return float(np.mean(np.abs(z) <= ndtri((1 + level) / 2)))


def is_right(row: Mapping[str, Any]) -> bool:
    at_95, at_50 = row["covered_95"], row["covered_50"]
    return RIGHT_95[0] <= at_95 <= RIGHT_95[1] and RIGHT_50[0] <= at_50 <= RIGHT_50[1]


def run_case(
    scene: str, regime: str, data: Path, whole: bool = False, **more: Any
) -> dict[str, Any]:
    """Denoise a case, compare with its truth, and ask for the verdict."""
    truth, std = truth_of(scene, data, whole)
    observe, options = (MADE if scene in MADE_SCENES else REAL)[regime]
    seed = CASES.index((scene, regime))
    noisy = observe(truth, std, np.random.default_rng([WHOLE, seed] if whole else seed))
    began = time.process_time()
    try:
        result = sc.denoise(noisy, workers=1, **options, **more)
        check = sc.holdout(noisy, result=result, workers=1)
    except Exception as error:  # a case that fails is a case that is wrong, not the end of the run
        failed = f"{type(error).__name__}: {error}"
        return {"covered_95": 0.0, "covered_50": 0.0, "trusted": False, "verdict": failed}
    z = _standardised(result, truth)
    return {
        "covered_95": round(covered(z, 0.95), 4),
        "covered_50": round(covered(z, 0.5), 4),
        "predicted_95": round(check.truth_coverage[0.95], 4),
        "hidden_95": round(check.coverage[0.95], 4),
        "calibrated_95": round(
            covered(_standardised(calibrated(result, sc.Cube(noisy), check), truth), 0.95), 4
        ),
        "error": round(float(np.sqrt(np.nanmean(((result.estimate - truth) / std) ** 2))), 4),
        "trusted": bool(check.trusted),
        "verdict": check.verdict,
        "z_std": round(check.z_std, 4),
        "hidden_50": round(check.coverage[0.5], 4),
        "removed_lag1": round(check.removed_lag1, 5),
        "caveats": list(result.caveats),
        "seconds": round(time.process_time() - began, 2),
    }


def run_draws(scene: str, regime: str, data: Path, number: int) -> dict[str, Any]:
    """Observe a case anew, so many times; return coverage by draw, and the mean."""
    truth, std = truth_of(scene, data)
    observe, options = (MADE if scene in MADE_SCENES else REAL)[regime]
    by_draw = []
    for draw in range(number):
        rng = np.random.default_rng([FRESH, draw, CASES.index((scene, regime))])
        try:
            result = sc.denoise(observe(truth, std, rng), workers=1, **options)
        except Exception:  # fails as a case does, see `run_case`
            by_draw.append((0.0, 0.0))
            continue
        z = _standardised(result, truth)
        by_draw.append((round(covered(z, 0.95), 4), round(covered(z, 0.5), 4)))
    at_95, at_50 = np.mean(by_draw, axis=0)
    return {"covered_95": float(at_95), "covered_50": float(at_50), "by_draw": by_draw}


def _standardised(result: sc.DenoisedCube, truth: np.ndarray) -> np.ndarray:
    """Return errors over σ of all elements that have an estimate; infinite where σ is zero."""
    known = np.isfinite(result.estimate) & np.isfinite(truth)
    error, std = (result.estimate - truth)[known], result.std[known]
    return np.where(std > 0, error / np.where(std > 0, std, 1), np.inf)


# ---------------------------------------------------------------------------- tables


def confusion(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return how many cases are right or wrong, trusted or not."""
    count = {"right, trusted": 0, "right, not trusted": 0, "wrong, trusted": 0}
    count["wrong, not trusted"] = 0
    for row in rows.values():
        right = "right" if is_right(row) else "wrong"
        count[f"{right}, {'trusted' if row['trusted'] else 'not trusted'}"] += 1
    return count


def shares(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the shares that have goals."""
    count, total = confusion(rows), max(len(rows), 1)
    return {
        "right": (count["right, trusted"] + count["right, not trusted"]) / total,
        "trusted though wrong": count["wrong, trusted"] / total,
        "false alarms": count["right, not trusted"] / total,
    }


def summary(rows: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    lines = []
    for name, share in shares(rows).items():
        sign, goal = GOALS[name]
        met = share >= goal if sign == ">=" else share <= goal
        limit = f"{'≥' if sign == '>=' else '≤'} {100 * goal:.0f} %"
        lines.append([name, f"{100 * share:.1f} %", limit, "yes" if met else "no"])
    return lines


def of_parts(rows: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return what was asked of real scenes with noise added, and of striped ones."""
    added = [
        row for name, row in rows.items()
        if name.endswith(("×", "× ")) and name.split(" | ")[0] not in MADE_SCENES
    ]  # fmt: skip
    held = [0.93 <= r["covered_95"] <= 0.965 or not r["trusted"] for r in added]
    striped = [row["covered_95"] >= 0.93 for name, row in rows.items() if "stripes" in name]
    return [
        [f"real scenes with noise added ({len(held)}): .93–.965, or not trusted",
         f"{100 * np.mean(held or [0]):.0f} %", "≥ 80 %"],
        [f"stripes ({len(striped)}): at least .93", f"{100 * np.mean(striped or [0]):.0f} %",
         "all"],
    ]  # fmt: skip


def fresh(rows: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return how many cases are right in the list, draw by draw, and on average over draws."""
    if not rows:
        return []
    draws = [
        is_right({"covered_95": at_95, "covered_50": at_50})
        for row in rows.values() for at_95, at_50 in row["by_draw"]
    ]  # fmt: skip
    on_average = [is_right(row) for row in rows.values()]
    by_chance = np.repeat(on_average, [len(row["by_draw"]) for row in rows.values()])
    chance = np.mean(by_chance & ~np.array(draws))
    return [
        [f"single draws ({len(draws)}) that are right", f"{100 * np.mean(draws):.1f} %"],
        [
            f"cases ({len(rows)}), right on average over their draws",
            f"{100 * np.mean(on_average):.1f} %",
        ],
        ["draws wrong by chance: of cases that are right on average", f"{100 * chance:.1f} %"],
    ]


def biased_cases(rows: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return the cases that are wrong on average over draws: those that σ is wrong in."""
    return [
        [name.replace(" | ", ": "), f"{row['covered_50']:.3f}", f"{row['covered_95']:.3f}",
         "–".join(f"{f([at_95 for at_95, _ in row['by_draw']]):.3f}" for f in (min, max))]
        for name, row in rows.items() if not is_right(row)
    ]  # fmt: skip


def by_regime(rows: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return one line per regime: how many cases are right, and what the verdict said."""
    lines = []
    for regime in dict.fromkeys(regime for _, regime in CASES):
        mine = {k: row for k, row in rows.items() if k.split(" | ")[1] == regime}
        if not mine:
            continue
        count = confusion(mine)
        at_95 = sorted(row["covered_95"] for row in mine.values())
        right = count["right, trusted"] + count["right, not trusted"]
        lines.append([
            regime, f"{right} of {len(mine)}", f"{at_95[0]:.3f}–{at_95[-1]:.3f}",
            str(count["wrong, trusted"] or "–"), str(count["right, not trusted"] or "–"),
        ])  # fmt: skip
    return lines


def wrong_cases(rows: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    return [
        [name.replace(" | ", ": "), f"{row['covered_50']:.3f}", f"{row['covered_95']:.3f}",
         "trusted" if row["trusted"] else "not trusted"]
        for name, row in rows.items() if not is_right(row)
    ]  # fmt: skip


def write_page(page: Path, figures: Mapping[str, Any]) -> None:
    """Put the tables of the list, and of the kept one of whole scenes, into the page."""
    rows, whole = figures["cases"], json.loads(KEPT_WHOLE.read_text())["cases"]
    head = ["regime", "right", "95 % covers", "trusted though wrong", "false alarms"]
    put_tables(page, _totals("", rows) | _totals("whole_", whole) | {
        "whole_wrong": markdown(["case", "50 % covers", "95 % covers", "verdict"],
                                wrong_cases(whole)),
        "regimes": markdown(head, by_regime(rows)),
        "wrong": markdown(["case", "50 % covers", "95 % covers", "verdict"], wrong_cases(rows)),
        "fresh": markdown(["fresh draws", "share"], fresh(figures.get("draws", {}))),
        "biased": markdown(
            ["case", "50 % covers", "95 % covers", "single draws"],
            biased_cases(figures.get("draws", {})),
        ),
    })  # fmt: skip


def _totals(name: str, rows: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of goals, and of what is right and trusted."""
    count = confusion(rows)
    table = [
        [right, str(count[f"{right}, trusted"]), str(count[f"{right}, not trusted"])]
        for right in ("right", "wrong")
    ]
    return {
        f"{name}goals": markdown([f"of {len(rows)} cases", "share", "goal", "met"], summary(rows)),
        f"{name}confusion": markdown(["intervals are", "trusted", "not trusted"], table),
        f"{name}parts": markdown(["95 % intervals", "share", "goal"], of_parts(rows)),
    }


def print_case(name: str, row: Mapping[str, Any]) -> None:
    mark = "     " if is_right(row) else "WRONG"
    trust = "trusted    " if row["trusted"] else "not trusted"
    print(f"{name:<36} {row['covered_50']:.3f} {row['covered_95']:.3f} {mark} {trust} "
          f"{row['verdict'][:90]}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="Parts of names of cases.")
    parser.add_argument("--again", action="store_true", help="Run cases again that are kept.")
    parser.add_argument("--draws", type=int, default=0, help="Fresh draws of every case.")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--prior", choices=("default", *PRIORS), default="default")
    parser.add_argument("--whole", action="store_true", help="All pixels of the scenes.")
    parser.add_argument("--json", type=Path, help="Where results are kept.")
    parser.add_argument("--page", type=Path, help="Page of the documentation to renew.")
    options = parser.parse_args()
    prior = {} if options.prior == "default" else {"prior": PRIORS[options.prior]}
    warnings.simplefilter("ignore")
    json_file = options.json or (KEPT_WHOLE if options.whole else KEPT)
    figures = json.loads(json_file.read_text()) if json_file.exists() else {}
    kept, draws = figures.get("cases", {}), figures.get("draws", {})
    for scene, regime in CASES:
        name = f"{scene} | {regime}"
        if not any(part in name for part in options.only):
            continue
        if options.again or name not in kept:
            kept[name] = run_case(scene, regime, options.data, options.whole, **prior)
            print_case(name, kept[name])
        if options.draws and (options.again or name not in draws):
            draws[name] = run_draws(scene, regime, options.data, options.draws)
            print(f"{name:<36} {draws[name]['covered_50']:.3f} {draws[name]['covered_95']:.3f} "
                  f"over {options.draws} draws", flush=True)  # fmt: skip
        _keep(json_file, {"cases": kept, "draws": draws})
    chosen = {k: row for k, row in kept.items() if any(part in k for part in options.only)}
    print(*(f"{k}: {n}" for k, n in confusion(chosen).items()), sep="\n")
    print(*("  ".join(line) for line in summary(chosen)), sep="\n")
    print(*("  ".join(line) for line in [*of_parts(chosen), *fresh(draws)]), sep="\n")
    if options.page is not None:
        write_page(options.page, json.loads(KEPT.read_text()))


def _keep(path: Path, figures: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what was found so far, in the order of the list."""
    order = [f"{scene} | {regime}" for scene, regime in CASES]
    tables = {name: {k: rows[k] for k in order if k in rows} for name, rows in figures.items()}
    path.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()

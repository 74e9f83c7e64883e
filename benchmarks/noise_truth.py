"""Is the noise that is estimated the noise that was added? The cases of honesty.py, undenoised.

Usage: python benchmarks/noise_truth.py [--only PART ...] [--data FOLDER] [--json FILE]

For every case the noise is settled as `denoise` settles it (offsets of lines first, noise unknown)
and compared with what was added: observed values less truth. Where values were lost (gaps,
clipping, impulses that the robust solver sets aside), it is the noise that they had before, which
is what σ of the others is about; for Student's t it is the law's variance. Where offsets of lines
were found it is the noise without them; what is left of the offsets is compared with its own σ.
Printed per case, worst first:

* estimated over true standard deviation of bands: median, 5 and 95 %;
* the same for the darkest and the brightest fifth of all elements;
* generalised eigenvalues of estimated against true covariance, as ratios of standard deviations:
  mean power, least and largest. The true one is that of a sample of n pixels: with P bands even
  a perfect estimate gives 1 / (1 ± √(P/n));
* processor time, and what else was found: the kind of noise, lines that carry offsets with the root
  mean square of what is left of these over its σ, and facts of the noise estimate.

A case is right when the median is within 5 %, 5 and 95 % of bands within 15 %, and all directions
within 25 % beyond what sampling gives.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import eigh

import honesty
import sigmacube as sc
from sigmacube.correction import corrected, find_line_offsets
from sigmacube.noise.signal_noise import SignalNoise
from sigmacube.settings import Settings
from sigmacube.survey import find_presence, settle_noise

KEPT = Path(__file__).parent / "results" / "noise_truth.json"
MEDIAN, BANDS, DIRECTIONS = 1.05, 1.15, 1.25
SHARE = 0.2
# What was lost or cut, and the noise it had: drawn first, by the same generator.
WHITE = ("impulses 5", "impulses 10", "impulses 40", "missing", "hole", "bands partly", "dead")
CLIPPED = {"clipped, σ .06": 2, "clipped, σ .15": 5}


def noise_added(scene: str, regime: str, data: Path) -> tuple[np.ndarray, ...]:
    """Return the observed cube, the truth, and what was added before anything was lost."""
    truth, std = honesty.truth_of(scene, data)
    observe = (honesty.MADE if scene in honesty.MADE_SCENES else honesty.REAL)[regime][0]
    seed = honesty.CASES.index((scene, regime))
    noisy = observe(truth, std, np.random.default_rng(seed))
    before = noisy
    if regime.startswith(WHITE) or regime in CLIPPED:
        whole = honesty.white(CLIPPED.get(regime, 1))
        before = whole(truth, std, np.random.default_rng(seed))
    return noisy, truth, before - truth


def run_case(scene: str, regime: str, data: Path) -> dict[str, Any]:
    """Settle the noise of a case and compare."""
    noisy, truth, added = noise_added(scene, regime, data)
    kinds = honesty.MADE if scene in honesty.MADE_SCENES else honesty.REAL
    settings, cube = Settings(**kinds[regime][1]), sc.Cube(noisy)
    began = time.process_time()
    presence = find_presence(cube)
    offsets = find_line_offsets(cube, presence, impulses=settings.solver == "robust")
    settled = settle_noise(corrected(cube, offsets), None, settings, workers=1)
    seconds = time.process_time() - began
    left = None
    if offsets is not None:
        added, left = _without_offsets(added, offsets)
    level = honesty.truth_of(scene, data)[1] if regime == "t(3)" else None
    row = compare(settled.model, truth, added, presence.bands, level) | {"left": left}
    row |= {"offsets": None if offsets is None else offsets.axis, "seconds": round(seconds, 2)}
    facts = settled.description
    for name in ("shared", "shared_doubtful", "wild_share", "clipped_share", "step_over_noise"):
        if facts.get(name):
            row[name] = facts[name]
    return row


def _without_offsets(added: np.ndarray, offsets: Any) -> tuple[np.ndarray, float]:
    """Return what was added without offsets of lines, and how large their errors are over σ.

    The true offset of a line is the mean of what was added along it, to the noise of that mean.
    """
    along = 1 - offsets.axis
    true = added.mean(axis=along)
    noise = np.expand_dims(true, along)
    error = (true - offsets.values) ** 2 - np.mean((added - noise) ** 2, axis=along) / added.shape[
        along
    ]
    size = np.sqrt(max(float(error.mean()), 0.0) / float(np.mean(offsets.std**2)))
    return added - noise, round(size, 3)


def compare(
    model: Any,
    truth: np.ndarray,
    added: np.ndarray,
    bands: np.ndarray,
    level: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return ratios of a noise model over what was added, on bands that hold data.

    ``level`` is the standard deviation of bands by its law, where no sample shows it.
    """
    scale, value = np.ones(truth.shape[:2]), model
    if isinstance(model, SignalNoise):
        scale, value = model.pixel_scale(truth), model.value
    value = np.asarray(value)
    covariance = value[np.ix_(bands, bands)] if value.ndim == 2 else np.diag(value[bands] ** 2)
    std = np.sqrt(np.diag(covariance))
    truth, added = truth[..., bands], added[..., bands]
    whole = (added / scale[..., None]).reshape(-1, len(bands))
    true = whole.T @ whole / len(whole) if level is None else np.diag(level[bands] ** 2)
    ratio = std / np.sqrt(np.diag(true))
    sizes = np.sqrt(eigh(covariance, true, eigvals_only=True))
    expected = np.square(scale[..., None] * std)
    order = np.argsort((truth / truth.mean(axis=(0, 1))).ravel(), kind="stable")
    fifth = int(SHARE * order.size)
    ends = (order[:fifth], order[-fifth:])
    dark, bright = (
        np.sqrt(expected.ravel()[e].mean() / np.square(added).ravel()[e].mean()) for e in ends
    )
    found = {"median": np.median(ratio), "low": np.quantile(ratio, 0.05)}
    found |= {"high": np.quantile(ratio, 0.95), "dark": dark, "bright": bright}
    found |= {"power": np.sqrt(np.mean(sizes**2)), "least": sizes[0], "largest": sizes[-1]}
    row: dict[str, Any] = {name: round(float(size), 4) for name, size in found.items()}
    row["sampling"] = round(float(np.sqrt(len(bands) / len(whole))), 4)
    row["kind"] = "signal" if isinstance(model, SignalNoise) else "noise"
    row["kind"] += ", covariance" if value.ndim == 2 else ""
    return row


def badness(row: Mapping[str, Any]) -> float:
    """Return how far a case is beyond what counts as right; up to one for a right one."""
    if "error" in row:
        return np.inf
    off = [abs(np.log(row["median"])) / np.log(MEDIAN)]
    off += [abs(np.log(row[name])) / np.log(BANDS) for name in ("low", "high")]
    few, many = 1 / (1 + row["sampling"]), 1 / (1 - row["sampling"])
    beyond = (max(few / max(row["least"], 1e-3), 1), max(row["largest"] / many, 1))
    off += [np.log(size) / np.log(DIRECTIONS) for size in beyond]
    return float(max(off))


def print_table(rows: Mapping[str, Mapping[str, Any]]) -> None:
    print(f"{'case':<36} median   5–95 % bands  dark bright  power least largest   s  kind")
    for name in sorted(rows, key=lambda name: -badness(rows[name])):
        row = rows[name]
        if "error" in row:
            print(f"{name:<36} {row['error']}")
            continue
        mark = " " if badness(row) <= 1 else "*"
        extra = "".join(f" {k} {row[k]}" for k in ("shared", "shared_doubtful", "wild_share",
                        "clipped_share", "step_over_noise") if k in row)  # fmt: skip
        lines = (
            "" if row["left"] is None else f" {('rows', 'columns')[row['offsets']]} {row['left']}"
        )
        print(f"{name:<36}{mark}{row['median']:5.2f}   {row['low']:5.2f} {row['high']:5.2f}     "
              f"{row['dark']:5.2f} {row['bright']:5.2f}   {row['power']:5.2f} {row['least']:5.2f} "
              f"{row['largest']:5.2f}   {row['seconds']:4.1f} {row['kind']}{lines}"
              f"{extra}")  # fmt: skip
    right = sum(badness(row) <= 1 for row in rows.values())
    print(f"right: {right} of {len(rows)} ({100 * right / max(len(rows), 1):.1f} %)")
    total = sum(row.get("seconds", 0.0) for row in rows.values())
    print(f"processor time: {total:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="Parts of names of cases.")
    parser.add_argument("--data", type=Path, default=honesty.DATA)
    parser.add_argument("--json", type=Path, help="File to keep the figures in.")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = {}
    for scene, regime in honesty.CASES:
        name = f"{scene} | {regime}"
        if not any(part in name for part in options.only):
            continue
        try:
            rows[name] = run_case(scene, regime, options.data)
        except ValueError as error:  # a case that fails is wrong, not the end of the run
            rows[name] = {"error": str(error), "seconds": 0.0}
    print_table(rows)
    if options.json is not None:
        options.json.write_text(json.dumps({"cases": rows}, indent=1))


if __name__ == "__main__":
    main()

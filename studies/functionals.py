"""Error of aggregates: band means, field means, contrasts, against the trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sigmacube.check.montecarlo import Trials
from sigmacube.show import plots

from ._report import Check, Found, Report, markdown_table, span
from ._setting import Setting

TITLE = "Error of aggregates"
QUESTION = "Is the σ of means and differences right, with all correlations?"

NOISE = 0.05
PLACES = 40
LABELS = {
    "band mean": "mean of 20 bands, one pixel",
    "coarse pixel": "3 × 3 pixels, one band",
    "field mean": "10 × 10 pixels, one band",
    "band contrast": "difference of two bands, 10 apart",
}


def run(setting: Setting) -> Found:
    """Compare predicted and actual standard deviations of aggregates at places drawn at random."""
    scene = setting.main_scene()
    rng = np.random.default_rng(0)
    with setting.run_trials(scene, NOISE, f"{scene.name}, functionals") as trials:
        result = trials.denoised(0, workers=setting.workers)
        weights = {
            kind: [_weights(kind, scene.truth.shape, rng) for _ in range(PLACES)] for kind in LABELS
        }
        actual = _actual(trials, weights)
        rows: list[dict[str, Any]] = []
        for kind, each in weights.items():
            predicted = np.array([result.functional_std(w) for w in each])
            naive = np.array([_naive(w, result.std) for w in each])
            rows.append({
                "kind": kind, "ratio": _pooled(predicted, actual[kind]),
                "naive": _pooled(naive, actual[kind]), "places": PLACES,
                "predicted": predicted.tolist(), "actual": actual[kind].tolist(),
                "naive_each": naive.tolist(),
            })  # fmt: skip
    # Places are far apart, so their variances are nearly independent estimates.
    margin = 4 / math.sqrt(2 * (setting.trials - 1) * PLACES)
    checks = []
    for row in rows:
        low, high = 1 - margin, 1 + margin
        checks.append(Check(f"{row['kind']}: predicted / actual", row["ratio"], low, high))
        checks.append(
            Check(f"{row['kind']}: errors taken as independent", row["naive"], low, high,
                  kind="control")
        )  # fmt: skip
    return Found(
        settings={"scene": scene.name, "trials": setting.trials, "noise": NOISE,
                     "places": PLACES},
        ours=f"predicted / actual {span([r['ratio'] for r in rows])}",
        paper="–",
        limit=f"1 ± {margin:.3f} (four standard errors)",
        checks=tuple(checks),
        data={"rows": rows},
    )  # fmt: skip


Weights = dict[tuple[int, int, int], float]


def _weights(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Weights:
    """Draw a place and return the weights of an aggregate there."""
    rows, cols, bands = shape
    i, j = int(rng.integers(rows - 10)), int(rng.integers(cols - 10))
    k = int(rng.integers(bands - 20))
    if kind == "band mean":
        return {(i, j, k + n): 1 / 20 for n in range(20)}
    if kind == "band contrast":
        return {(i, j, k): 1.0, (i, j, k + 10): -1.0}
    side = 3 if kind == "coarse pixel" else 10
    return {(i + n, j + m, k): 1 / side**2 for n in range(side) for m in range(side)}


def _actual(trials: Trials, weights: Mapping[str, list[Weights]]) -> dict[str, np.ndarray]:
    """Return the standard deviation of every aggregate over the trials."""
    values: dict[str, list[list[float]]] = {kind: [] for kind in weights}
    for error in trials.error_cubes():
        for kind, each in weights.items():
            values[kind].append([sum(c * error[at] for at, c in w.items()) for w in each])
    return {kind: np.std(v, axis=0, ddof=1) for kind, v in values.items()}


def _naive(weights: Weights, std: np.ndarray) -> float:
    """Return the σ of an aggregate as if the errors of its elements were independent."""
    return math.sqrt(sum((c * float(std[at])) ** 2 for at, c in weights.items()))


def _pooled(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Return the mean ratio of variances as a ratio of standard deviations."""
    return float(1 / np.sqrt(np.mean(np.square(actual / predicted))))


def table(report: Report) -> str:
    """Return the ratio of predicted and actual σ by kind of aggregate."""
    words = {check.name: check.words for check in report.checks}
    rows = [
        [LABELS[r["kind"]], f"{r['ratio']:.3f}", words[f"{r['kind']}: predicted / actual"],
         f"{r['naive']:.3f}", words[f"{r['kind']}: errors taken as independent"]]
        for r in report.data["rows"]
    ]  # fmt: skip
    head = ["aggregate", "**predicted / actual σ**", "verdict", "control: errors independent",
            "verdict"]  # fmt: skip
    return markdown_table(head, rows)


def draw(report: Report, figure: Figure) -> None:
    """Draw predicted against actual σ, one panel per kind."""
    rows = report.data["rows"]
    figure.set_size_inches(14.5, 4.0)
    axes = figure.subplots(1, 4)
    for ax, row in zip(axes, rows, strict=True):
        top = 1.15 * max(max(row["actual"]), max(row["predicted"]), max(row["naive_each"]))
        ax.axline((0, 0), slope=1, color=plots.GREY, lw=1)
        ax.plot(row["actual"], row["naive_each"], "s", ms=4.5, color=plots.VERMILION,
                mfc="none", label="errors independent (control)")  # fmt: skip
        ax.plot(row["actual"], row["predicted"], "o", ms=5, color=plots.BLUE,
                label="functional_std")  # fmt: skip
        ax.set(xlim=(0, top), ylim=(0, top), aspect="equal", xlabel="actual σ over trials")
        ax.set_title(LABELS[row["kind"]], fontsize=10.5)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.yaxis.set_major_locator(MaxNLocator(4))
    axes[0].set_ylabel("predicted σ")
    axes[0].legend(loc="upper left", fontsize=9)

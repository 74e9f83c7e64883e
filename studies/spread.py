"""Spread of coverage over elements against the limit that sampling sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sigmacube.check.montecarlo import judge
from sigmacube.show import plots

from ._report import Check, Found, Report, markdown_table
from ._setting import FORMS, Setting

TITLE = "Spread of coverage against the sampling limit"
QUESTION = "Is σ right element by element, or only on average?"

NOISE = 0.05
# The spread may exceed the limit by what the noise of one closed form itself adds.
LARGEST = 1.10
LABELS = {"own": "closed form", "one for all": "control: one σ for the scene"}


def run(setting: Setting) -> Found:
    """Judge the first 10, 20, 50, 100 trials of one series."""
    scene = setting.main_scene()
    counts = [n for n in (10, 20, 50, 100) if n <= setting.trials]
    points: list[dict[str, Any]] = []
    with setting.run_trials(scene, NOISE, f"{scene.name}, spread") as trials:
        for form in LABELS:
            std = FORMS[form](trials)
            for count in counts:
                found = judge(replace(trials, count=count), std, workers=setting.workers)
                points.append({
                    "form": form, "trials": count, "coverage": found.coverage[0.95],
                    "spread": found.coverage_spread[0.95], "limit": found.spread_limit[0.95],
                    "ratio_spread": found.std_ratio_spread, "ratio_limit": found.std_ratio_limit,
                })  # fmt: skip
    checks = [
        Check(f"{LABELS[p['form']]}, {p['trials']} trials: spread / limit",
              p["spread"] / p["limit"], 0.9, LARGEST,
              kind="ours" if p["form"] == "own" else "control")
        for p in points
    ]  # fmt: skip
    last = [p for p in points if p["form"] == "own"][-1]
    return Found(
        settings={"scene": scene.name, "trials": setting.trials, "noise": NOISE},
        ours=f"{last['spread']:.4f} (σ ratio {last['ratio_spread']:.3f})",
        paper="0.0371",
        limit=f"{last['limit']:.4f} by sampling alone (σ ratio {last['ratio_limit']:.3f})",
        checks=tuple(checks),
        data={"points": points},
    )


def table(report: Report) -> str:
    """Return spread and limit by number of trials."""
    rows = []
    for point, check in zip(report.data["points"], report.checks, strict=True):
        rows.append([
            LABELS[point["form"]], str(point["trials"]), f"{point['coverage']:.4f}",
            f"{point['spread']:.4f}", f"{point['limit']:.4f}", f"{check.value:.3f}",
            f"{point['ratio_spread']:.3f} / {point['ratio_limit']:.3f}", check.words,
        ])  # fmt: skip
    head = ["", "trials", "coverage", "**spread**", "sampling limit", "**ratio**",
            "spread of predicted/actual σ / limit", "verdict"]  # fmt: skip
    return markdown_table(head, rows)


def draw(report: Report, figure: Figure) -> None:
    """Draw the spread against the number of trials."""
    points = report.data["points"]
    figure.set_size_inches(6.4, 4.4)
    ax = figure.subplots()
    counts = np.linspace(8, max(p["trials"] for p in points) * 1.1, 200)
    ax.plot(counts, np.sqrt(0.95 * 0.05 / counts), color=plots.GREY,
            label="limit: √(.95 · .05 / T)")  # fmt: skip
    for form, color, marker in (
        ("own", plots.BLUE, "o"),
        ("one for all", plots.VERMILION, "s"),
    ):
        mine = [p for p in points if p["form"] == form]
        ax.plot([p["trials"] for p in mine], [p["spread"] for p in mine], marker, color=color,
                ms=7, label=LABELS[form])  # fmt: skip
    ax.set(xlabel="Monte Carlo trials T", ylabel="spread of coverage over elements")
    ax.set_ylim(0, None)
    ax.set_title("Spread over elements, and the limit that sampling sets")
    ax.legend(loc="best")

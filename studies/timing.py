"""Time: Monte Carlo of 100 trials, low-rank step, low-rank step with σ; as ratios."""

from __future__ import annotations

import statistics
import time
from typing import Any

from matplotlib.figure import Figure

from sigmacube.api import denoise
from sigmacube.check.montecarlo import judge
from sigmacube.core.parallel import default_workers
from sigmacube.show import plots

from ._paper import SECONDS
from ._report import Check, Found, Report, markdown_table
from ._scenes import Scene
from ._setting import Setting

TITLE = "Time of the closed form"
QUESTION = "What does σ cost, beside the Monte Carlo that it replaces?"

NOISE = 0.05
TRIALS = 100
LEAST_SPEED_UP = 80.0
LARGEST_COST = 0.32
"""The paper's own extra cost of σ on this scene, 864 s / 653 s − 1."""


def run(setting: Setting) -> Found:
    """Time the three ways side by side, for our defaults and for the paper's settings."""
    scene = setting.main_scene()
    rows: list[dict[str, Any]] = []
    settings: tuple[tuple[str, dict[str, Any]], ...] = (
        ("defaults", {}),
        ("rank 7", {"rank": 7, "weights": "uniform"}),
    )
    for label, options in settings:
        rows.append({"label": label, **_seconds(setting, scene, options)})
    ours = rows[0]
    speed, cost = ours["monte_carlo"] / ours["with_sigma"], ours["with_sigma"] / ours["alone"] - 1
    checks = [
        Check("Monte Carlo / closed form, defaults", speed, LEAST_SPEED_UP, 1e9),
        # A small scene is mostly overhead, so a quick run is held to less.
        Check("extra cost of σ, defaults", cost, -1.0, (4 if setting.quick else 1) * LARGEST_COST),
        Check("Monte Carlo of one trial / closed form", speed / TRIALS, LEAST_SPEED_UP, 1e9,
              kind="control"),
    ]  # fmt: skip
    paper = SECONDS["indian"]
    paper_cost = 100 * (paper[2] / paper[1] - 1)
    return Found(
        settings={"scene": scene.name, "shape": list(scene.truth.shape), "noise": NOISE,
                     "workers": setting.workers or default_workers(),
                     "trials_timed": rows[0]["trials_timed"]},
        ours=f"Monte Carlo {speed:.0f} × the closed form; σ costs {100 * cost:+.0f} %",
        paper=f"{paper[0] / paper[2]:.0f} × (20 threads); +{paper_cost:.0f} %",
        limit=f"at least {LEAST_SPEED_UP:.0f} ×; at most +{100 * LARGEST_COST:.0f} %",
        checks=tuple(checks),
        data={"rows": rows, "paper": {k: list(v) for k, v in SECONDS.items()}},
    )  # fmt: skip


def _seconds(setting: Setting, scene: Scene, options: dict[str, Any]) -> dict[str, Any]:
    """Time one way of denoising; few trials stand for 100 in a quick run."""
    count = 4 if setting.quick else TRIALS
    with setting.run_trials(
        scene, NOISE, f"timing {options}", count=2, rng=1, options=options
    ) as t:
        noisy = t.observation(0)
    alone: list[float] = []
    with_sigma: list[float] = []
    for _ in range(3 if setting.quick else 7):
        for uncertainty, times in ((False, alone), (True, with_sigma)):
            start = time.perf_counter()
            denoise(
                noisy,
                NOISE,
                prior=None,
                uncertainty=uncertainty,
                workers=setting.workers,
                **options,
            )
            times.append(time.perf_counter() - start)
    start = time.perf_counter()
    with setting.run_trials(scene, NOISE, f"timing {options}", count=count, rng=2,
                            options=options) as trials:  # fmt: skip
        judge(trials, workers=setting.workers)
        seconds = time.perf_counter() - start
    return {
        "monte_carlo": seconds * TRIALS / count,
        "alone": statistics.median(alone),
        "with_sigma": statistics.median(with_sigma),
        "trials_timed": count,
    }


def table(report: Report) -> str:
    """Return seconds and ratios, ours and the paper's."""
    rows = []
    for row in report.data["rows"]:
        seconds = (row["monte_carlo"], row["alone"], row["with_sigma"])
        rows.append([f"ours, {row['label']}", *_cells(seconds, 2)])
    for name, seconds in report.data["paper"].items():
        rows.append([f"paper, {name}", *_cells(seconds, 0)])
    head = ["", "Monte Carlo, 100 trials (s)", "low-rank step (s)", "with σ (s)",
            "**Monte Carlo / with σ**", "**extra cost of σ**"]  # fmt: skip
    return markdown_table(head, rows)


def _cells(seconds: Any, digits: int) -> list[str]:
    trials, alone, both = seconds
    return [
        f"{trials:.0f}",
        f"{alone:.{digits}f}",
        f"{both:.{digits}f}",
        f"{trials / both:.0f} ×",
        f"{100 * (both / alone - 1):+.0f} %",
    ]


def draw(report: Report, figure: Figure) -> None:
    """Draw the times on a logarithmic axis."""
    bars = [(f"ours, {row['label']}", (row["monte_carlo"], row["alone"], row["with_sigma"]))
            for row in report.data["rows"]]  # fmt: skip
    bars.append(("paper, Indian Pines", tuple(report.data["paper"]["indian"])))
    figure.set_size_inches(8.4, 3.8)
    ax = figure.subplots()
    for n, (label, color) in enumerate(
        (("Monte Carlo, 100 trials", plots.VERMILION), ("low-rank step", plots.GREY),
         ("low-rank step with σ", plots.BLUE))
    ):  # fmt: skip
        at = [position + 0.27 * (n - 1) for position in range(len(bars))]
        values = [seconds[n] for _, seconds in bars]
        drawn = ax.barh(at, values, height=0.25, color=color, label=label)
        ax.bar_label(
            drawn,
            labels=[f"{v:,.0f} s" if v >= 10 else f"{v:.2f} s" for v in values],
            padding=3,
            fontsize=9,
        )
    ax.set_yticks(range(len(bars)), [label for label, _ in bars])
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlim(0.1, 4e4)
    ax.set_xlabel("seconds")
    shape = "×".join(str(n) for n in report.settings["shape"])
    ax.set_title(f"Time for {shape}; {report.settings['workers']} cores (paper: 20 threads)")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

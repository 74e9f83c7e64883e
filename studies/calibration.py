"""Calibration curves: intervals at five levels, of the Monte Carlo mean and of the truth."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from sigmacube.show import plots

from ._report import Check, Found, Report, markdown_table
from ._setting import Setting, defaults

TITLE = "Calibration at five levels"
QUESTION = "Are intervals right at every level, not at 95 % alone?"

NOISE = 0.05
MARGIN = 0.01


def run(setting: Setting) -> Found:
    """Measure coverage at 50, 68, 90, 95 and 99 % on every scene."""
    curves: list[dict[str, Any]] = []
    checks = []
    for name in setting.scene_names():
        scene = setting.scene(name)
        found = defaults(setting, scene, NOISE)
        own = found["own"]
        curves.append({
            "scene": name, "title": scene.title, "real": scene.real, "mean": own["coverage"],
            "truth": own["truth_coverage"], "halved": found["halved"]["coverage"],
            "std_ratio": own["std_ratio"],
        })  # fmt: skip
        margin = 2 * MARGIN if scene.real else MARGIN
        for level, value in own["coverage"].items():
            p = float(level)
            checks.append(Check(f"{name}: mean at {100 * p:g} %", value, p - margin, p + margin))
        for level, value in found["halved"]["coverage"].items():
            p = float(level)
            what = f"{name}: σ halved, at {100 * p:g} %"
            checks.append(Check(what, value, p - margin, p + margin, kind="control"))
        if not scene.real:
            for level, value in own["truth_coverage"].items():
                p = float(level)
                checks.append(
                    Check(f"{name}: truth at {100 * p:g} %", value, p - MARGIN, p + MARGIN)
                )
    first = curves[0]["truth"]
    return Found(
        settings={"trials": setting.trials, "noise": NOISE},
        ours="truth " + ", ".join(f"{v:.3f}" for v in first.values()) + " (simulated)",
        paper="95 % only",
        limit=f"0.50, 0.68, 0.90, 0.95, 0.99 ± {MARGIN} (real scenes ± {2 * MARGIN})",
        checks=tuple(checks),
        data={"curves": curves},
    )


def table(report: Report) -> str:
    """Return coverage by level."""
    rows = []
    for curve in report.data["curves"]:
        lines = [("Monte Carlo mean", "mean"), ("control: σ halved", "halved")]
        if not curve["real"]:
            lines.insert(1, ("truth", "truth"))
        for label, key in lines:
            names = {"mean": "mean at", "truth": "truth at", "halved": "σ halved, at"}[key]
            wanted = f"{curve['scene']}: {names}"
            checks = [c for c in report.checks if c.name.startswith(wanted)]
            good = all(c.inside for c in checks)
            words = ("NOT CAUGHT" if good else "wrong, as it must be") if key == "halved" else (
                "right" if good else "wrong")  # fmt: skip
            rows.append([curve["title"], label, *(f"{v:.3f}" for v in curve[key].values()), words])
    head = ["scene", "coverage of", "50 %", "68 %", "90 %", "95 %", "99 %", "verdict"]
    return markdown_table(head, rows)


def draw(report: Report, figure: Figure) -> None:
    """Draw achieved minus claimed coverage for all scenes."""
    colors = (plots.BLUE, plots.GREEN, plots.VERMILION, plots.SKY, plots.INK)
    figure.set_size_inches(10.5, 4.4)
    ax, gap = figure.subplots(1, 2)
    ax.plot([0, 100], [0, 100], color=plots.GREY, lw=1)
    gap.axhline(0, color=plots.GREY, lw=1)
    gap.axhspan(-100 * MARGIN, 100 * MARGIN, color=plots.GREY, alpha=0.2, lw=0)
    for n, curve in enumerate(report.data["curves"]):
        color = colors[n % len(colors)]
        levels = [100 * float(level) for level in curve["mean"]]
        mean = [100 * v for v in curve["mean"].values()]
        ax.plot(levels, mean, "o-", color=color, label=curve["title"])
        gap.plot(levels, [m - p for m, p in zip(mean, levels, strict=True)], "o-", color=color)
        if n == 0:
            truth = [100 * v for v in curve["truth"].values()]
            gap.plot(levels, [m - p for m, p in zip(truth, levels, strict=True)], "o--",
                     color=color, mfc="white", label="of the truth (simulated)")  # fmt: skip
    halved = [100 * v for v in report.data["curves"][0]["halved"].values()]
    ax.plot(levels, halved, "x:", color=plots.GREY, label="control: σ halved (simulated)")
    ax.set(xlim=(20, 102), ylim=(20, 102), xlabel="claimed coverage (%)",
           ylabel="achieved coverage (%)")  # fmt: skip
    ax.set_title("Calibration of the intervals")
    ax.legend(loc="upper left", fontsize=9)
    gap.set(xlabel="claimed coverage (%)", ylabel="achieved − claimed (points)", ylim=(-3, 3))
    gap.set_title("Difference")
    gap.legend(loc="lower left")

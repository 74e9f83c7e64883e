"""Precision weights against the plain mean of windows."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from sigmacube.show import plots

from ._report import Check, Found, Report, markdown_table
from ._setting import Setting, defaults, pick

TITLE = "Precision weights against uniform ones"
QUESTION = "Do precision weights lower the error, and does σ stay right?"

NOISE = 0.05


def run(setting: Setting) -> Found:
    """Compare error and coverage of both on every scene."""
    rows: list[dict[str, Any]] = []
    checks = []
    for name in setting.scene_names():
        scene = setting.scene(name)
        precision = defaults(setting, scene, NOISE)
        sigma = "each" if scene.real else "first"
        uniform = setting.measure(scene, NOISE, sigma=sigma, options={"weights": "uniform"})["own"]
        row: dict[str, Any] = {
            "scene": name,
            "title": scene.title,
            "precision": pick(precision["own"]),
            "uniform": pick(uniform),
            "independent": pick(precision["independent"]),
        }
        rows.append(row)
        gain = row["precision"]["rmse"] / row["uniform"]["rmse"]
        checks.append(Check(f"{name}: RMSE, precision / uniform", gain, 0.0, 1.0))
        for form in ("precision", "uniform"):
            checks.append(Check(f"{name}: coverage, {form}", row[form]["mean"], 0.94, 0.96))
        checks.append(Check(f"{name}: windows taken as independent", row["independent"]["mean"],
                            0.94, 0.96, kind="control"))  # fmt: skip
    errors = {form: f"{rows[0][form]['rmse']:.3f}" for form in ("precision", "uniform")}
    return Found(
        settings={"trials": setting.trials, "noise": NOISE},
        ours=f"RMSE/σ₀ {errors['precision']}, uniform {errors['uniform']}",
        paper="uniform",
        limit="below uniform; coverage 0.94 to 0.96",
        checks=tuple(checks),
        data={"rows": rows},
    )


def table(report: Report) -> str:
    """Return error and coverage of both."""
    rows = []
    for row in report.data["rows"]:
        mine = [c for c in report.checks if c.name.startswith(f"{row['scene']}:")]
        good = all(c.passed for c in mine)
        rows.append([
            row["title"], f"{row['uniform']['rmse']:.4f}", f"{row['precision']['rmse']:.4f}",
            f"{100 * (row['precision']['rmse'] / row['uniform']['rmse'] - 1):+.1f} %",
            f"{row['uniform']['mean']:.3f}", f"{row['precision']['mean']:.3f}",
            f"{row['independent']['mean']:.3f}", "right" if good else "wrong",
        ])  # fmt: skip
    head = ["scene", "RMSE/σ₀ uniform", "**RMSE/σ₀ precision**", "change", "coverage uniform",
            "**coverage precision**", "control: windows independent", "verdict"]  # fmt: skip
    return markdown_table(head, rows)


def draw(report: Report, figure: Figure) -> None:
    """Draw the errors side by side."""
    rows = report.data["rows"]
    figure.set_size_inches(8.8, 4.0)
    ax = figure.subplots()
    for shift, key, color, label in (
        (-0.2, "uniform", plots.GREY, "uniform (the paper)"),
        (0.2, "precision", plots.BLUE, "precision (defaults)"),
    ):
        at = [n + shift for n in range(len(rows))]
        drawn = ax.bar(at, [r[key]["rmse"] for r in rows], width=0.38, color=color, label=label)
        ax.bar_label(drawn, fmt="%.3f", padding=2, fontsize=9)
    ax.set_xticks(range(len(rows)), [r["title"] for r in rows])
    ax.set_ylabel("RMSE / σ₀")
    ax.set_ylim(0, 1.2 * max(r["uniform"]["rmse"] for r in rows))
    ax.set_title(f"Error of the estimate, σ₀ = {NOISE:g}")
    ax.legend(loc="upper left")

"""Coverage against the rank at σ₀ = .125: the paper's figure, for three closed forms."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from sigmacube.show import plots

from ._report import Check, Found, Report, markdown_table, span
from ._setting import Setting, defaults, paper_setting, pick

TITLE = "Coverage against the rank"
QUESTION = "Is σ right at a rank that is too high, and does the noise edge find the right one?"

NOISE = 0.125
RANKS = (3, 4, 5, 6, 7, 9, 12)
LOW, HIGH = 0.94, 0.96


def run(setting: Setting) -> Found:
    """Measure coverage for fixed ranks and for the noise edge."""
    scene = setting.main_scene()
    ranks = (3, 7, 12) if setting.quick else RANKS
    points: list[dict[str, Any]] = []
    for rank in ranks:
        found = paper_setting(setting, scene, NOISE, rank)
        points.append({"rank": rank, **{key.replace(" ", "_"): pick(found[key]) for key in found}})
    auto = pick(defaults(setting, scene, NOISE)["own"])
    checks = [Check("defaults (noise edge)", auto["mean"], LOW, HIGH)]
    for point in points:
        name = f"rank {point['rank']}"
        checks.append(Check(f"{name}: exact form", point["own"]["mean"], LOW, HIGH))
        checks.append(
            Check(f"{name}: paper's form", point["paper"]["mean"], LOW, HIGH, kind="paper")
        )
    worst = points[-1]
    checks.append(
        Check(f"rank {worst['rank']}: noise components taken as signal",
              worst["first_order"]["mean"], LOW, HIGH, kind="control")
    )  # fmt: skip
    return Found(
        settings={"scene": scene.name, "trials": setting.trials, "noise": NOISE},
        ours=f"{span([p['own']['mean'] for p in points])} at ranks "
        f"{ranks[0]} to {ranks[-1]}; noise edge {auto['mean']:.3f}",
        paper="0.970 at rank 7, nearer .95 at lower ranks (figure)",
        limit=f"{LOW} to {HIGH}",
        checks=tuple(checks),
        data={"points": points, "auto": auto},
    )


def table(report: Report) -> str:
    """Return coverage by rank."""
    words = {check.name: check.words for check in report.checks}
    rows = [
        [str(p["rank"]), f"{p['paper']['mean']:.3f}", f"{p['first_order']['mean']:.3f}",
         f"{p['own']['mean']:.3f}", f"{p['own']['rmse']:.3f}",
         words[f"rank {p['rank']}: exact form"]]
        for p in report.data["points"]
    ]  # fmt: skip
    auto = report.data["auto"]
    rows.append(["noise edge (defaults)", "–", "–", f"{auto['mean']:.3f}", f"{auto['rmse']:.3f}",
                 words["defaults (noise edge)"]])  # fmt: skip
    head = ["rank", "paper's form", "first order only", "**exact form**", "RMSE / σ₀", "verdict"]
    return markdown_table(head, rows)


def draw(report: Report, figure: Figure) -> None:
    """Draw coverage and error against the rank."""
    points, auto = report.data["points"], report.data["auto"]
    ranks = [p["rank"] for p in points]
    figure.set_size_inches(10.5, 4.2)
    ax, error = figure.subplots(1, 2)
    ax.axhspan(LOW, HIGH, color=plots.GREY, alpha=0.25, lw=0)
    for key, color, marker, label in (
        ("paper", plots.VERMILION, "s", "paper's form"),
        ("first_order", plots.GREY, "d", "first order only (control)"),
        ("own", plots.SKY, "^", "exact form"),
    ):
        ax.plot(ranks, [p[key]["mean"] for p in points], marker + "-", color=color, label=label)
    ax.axhline(auto["mean"], color=plots.BLUE, ls="--", label="defaults: rank by noise edge")
    ax.set(xlabel="fixed rank", ylabel="coverage of the 95 % interval", ylim=(0.8, 1.0))
    ax.set_title(f"Coverage, σ₀ = {NOISE:g}")
    ax.legend(loc="lower left")
    error.plot(ranks, [p["own"]["rmse"] for p in points], "^-", color=plots.SKY, label="fixed")
    error.axhline(auto["rmse"], color=plots.BLUE, ls="--", label="defaults")
    error.set(xlabel="fixed rank", ylabel="RMSE / σ₀", ylim=(0, None))
    error.set_title("Error of the estimate")
    error.legend(loc="lower right")

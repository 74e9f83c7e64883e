"""Coverage under impulses: the paper's last table, with the robust solver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from sigmacube.show import plots

from ._paper import IMPULSE_LEVELS, IMPULSE_SHARES, IMPULSES
from ._report import Check, Found, Report, markdown_table, span
from ._scenes import Scene
from ._setting import Setting, at_95

TITLE = "Coverage under impulses"
QUESTION = "Does σ hold when a share of the elements is salt and pepper?"

LOW, HIGH = 0.94, 0.96
# A robust solver is slow, so the study keeps to a part of the scene with many borders.
ROWS, COLS = slice(84, 116), slice(78, 114)
ROBUST = {"solver": "robust"}
# Without regard to impulses a window takes in a hundred components: slow, and wrong at first sight.
CONTROL_TRIALS = 10


def run(setting: Setting) -> Found:
    """Measure every cell of the table on a part of the scene."""
    scene = _part(setting.main_scene(), setting)
    noises = (0.05, 0.1) if setting.quick else IMPULSE_LEVELS
    shares = (0.1, 0.3) if setting.quick else IMPULSE_SHARES
    count = setting.trials
    printed = IMPULSES["indian"]
    cells: list[dict[str, Any]] = []
    checks = []
    for noise in noises:
        for share in shares:
            found = _figures(setting, scene, noise, share, count, ROBUST)
            plain = _figures(setting, scene, noise, share, CONTROL_TRIALS, {})
            paper = printed[noise][IMPULSE_SHARES.index(share)]
            cells.append({"noise": noise, "impulses": share, "paper": paper, "robust": found,
                          "svd": plain})  # fmt: skip
            name = f"σ₀ {noise:g}, {100 * share:g} % impulses"
            checks.append(Check(f"{name}: robust, mean", found["mean"], LOW, HIGH, paper=paper))
            checks.append(Check(f"{name}: robust, truth", found["truth"], LOW, HIGH))
            checks.append(Check(f"{name}: svd, truth", plain["truth"], LOW, HIGH, kind="control"))
    return Found(
        settings={"scene": scene.name, "shape": list(scene.truth.shape), "trials": count},
        ours=f"mean {span([c['robust']['mean'] for c in cells])}, "
        f"truth {span([c['robust']['truth'] for c in cells])}",
        paper=span([c["paper"] for c in cells]),
        limit=f"{LOW} to {HIGH}",
        checks=tuple(checks),
        data={"cells": cells},
    )


def _part(scene: Scene, setting: Setting) -> Scene:
    if scene.name == "indian" and not setting.quick:
        return replace(scene, truth=scene.truth[ROWS, COLS])
    return replace(scene, truth=scene.truth[:24, :28])


def _figures(
    setting: Setting, scene: Scene, noise: float, share: float, count: int, options: dict[str, Any]
) -> dict[str, float]:
    found = setting.measure(
        scene, noise, count=count, impulses=share, sigma="each", options=options
    )["own"]
    return {
        "mean": at_95(found),
        "spread": at_95(found, "coverage_spread"),
        "truth": at_95(found, "truth_coverage"),
        "rmse": found["relative_rmse"],
    }


def table(report: Report) -> str:
    """Return the paper's table with ours beside it."""
    rows = []
    for n, cell in enumerate(report.data["cells"]):
        mean, truth, control = report.checks[3 * n : 3 * n + 3]
        words = "right" if mean.inside and truth.inside else "wrong"
        rows.append([
            f"{cell['noise']:g}", f"{100 * cell['impulses']:g} %", f"{cell['paper']:.3f}",
            f"{cell['robust']['mean']:.3f} ± {cell['robust']['spread']:.3f}",
            f"{cell['robust']['truth']:.3f}", f"{cell['robust']['rmse']:.3f}", words,
            f"{cell['svd']['truth']:.3f}, RMSE {cell['svd']['rmse']:.2f}: {control.words}",
        ])  # fmt: skip
    head = ["σ₀", "impulses", "paper prints", "**robust, mean**", "**robust, truth**", "RMSE / σ₀",
            "verdict", "control: plain SVD, truth"]  # fmt: skip
    return markdown_table(head, rows)


def draw(report: Report, figure: Figure) -> None:
    """Draw coverage against the share of impulses."""
    cells = report.data["cells"]
    noises = list(dict.fromkeys(cell["noise"] for cell in cells))
    figure.set_size_inches(3.4 * len(noises) + 0.6, 4.0)
    axes = figure.subplots(1, len(noises), sharey=True, squeeze=False)
    for ax, noise in zip(axes[0], noises, strict=True):
        mine = [cell for cell in cells if cell["noise"] == noise]
        x = [100 * cell["impulses"] for cell in mine]
        ax.axhspan(LOW, HIGH, color=plots.GREY, alpha=0.25, lw=0)
        ax.plot(x, [c["paper"] for c in mine], "x-", color=plots.INK, label="paper prints")
        ax.plot(x, [c["robust"]["mean"] for c in mine], "o-", color=plots.BLUE,
                label="robust, Monte Carlo mean")  # fmt: skip
        ax.plot(x, [c["robust"]["truth"] for c in mine], "o--", color=plots.BLUE, mfc="white",
                label="robust, truth")  # fmt: skip
        ax.plot(x, [c["svd"]["truth"] for c in mine], "s:", color=plots.VERMILION,
                label="plain SVD, truth (control)")  # fmt: skip
        ax.set_title(f"σ₀ = {noise:g}")
        ax.set_xlabel("impulses (%)")
        ax.set_ylim(0.55, 1.0)
    axes[0, 0].set_ylabel("coverage of the 95 % interval")
    axes[0, 0].legend(loc="lower left", fontsize=9)

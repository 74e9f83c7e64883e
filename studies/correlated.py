"""Noise correlated between bands: told to the estimator, or kept from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sigmacube.show import plots

from ._report import Check, Found, Report, markdown_table, span
from ._setting import Setting, at_95, pick

TITLE = "Noise correlated between bands"
QUESTION = "Is σ right when the noise is correlated between bands and differs from band to band?"

NOISE = 0.05
CORRELATIONS = (0.3, 0.6)
LOW, HIGH = 0.94, 0.96


def band_covariance(bands: int, correlation: float) -> np.ndarray:
    """Return a covariance with σ that rises along the spectrum and the correlation of neighbours.

    Examples
    --------
    >>> band_covariance(3, 0.5).round(6)
    array([[0.000625, 0.000625, 0.000469],
           [0.000625, 0.0025  , 0.001875],
           [0.000469, 0.001875, 0.005625]])
    """
    std = NOISE * np.linspace(0.5, 1.5, bands)
    lag = np.abs(np.subtract.outer(np.arange(bands), np.arange(bands)))
    return np.outer(std, std) * correlation**lag


def run(setting: Setting) -> Found:
    """Measure coverage with the full covariance told, and with its diagonal alone."""
    scene = setting.main_scene()
    rows: list[dict[str, Any]] = []
    checks = []
    for correlation in CORRELATIONS:
        covariance = band_covariance(scene.truth.shape[2], correlation)
        told = setting.measure(scene, covariance)["own"]
        hidden = setting.measure(scene, covariance, assumed=np.sqrt(np.diag(covariance)))["own"]
        rows.append({"correlation": correlation, "told": pick(told), "hidden": pick(hidden)})
        name = f"lag-1 correlation {correlation:g}"
        checks.append(Check(f"{name}: covariance told, mean", at_95(told), LOW, HIGH))
        truth = at_95(told, "truth_coverage")
        checks.append(Check(f"{name}: covariance told, truth", truth, LOW, HIGH))
        checks.append(Check(f"{name}: only σ per band told", at_95(hidden), LOW, HIGH,
                            kind="control"))  # fmt: skip
    return Found(
        settings={"scene": scene.name, "trials": setting.trials, "noise": NOISE},
        ours=f"mean {span([r['told']['mean'] for r in rows])}, "
        f"truth {span([r['told']['truth'] for r in rows])}",
        paper="white noise only",
        limit=f"{LOW} to {HIGH}",
        checks=tuple(checks),
        data={"rows": rows},
    )


def table(report: Report) -> str:
    """Return coverage and error, told and not told."""
    rows = []
    for n, row in enumerate(report.data["rows"]):
        checks = report.checks[3 * n : 3 * n + 3]
        for key, label in (("told", "covariance told"), ("hidden", "control: σ per band alone")):
            good = [c for c in checks if (c.kind == "control") == (key == "hidden")]
            words = good[0].words if len({c.words for c in good}) == 1 else "wrong"
            rows.append([f"{row['correlation']:g}", label, f"{row[key]['mean']:.3f}",
                         f"{row[key]['truth']:.3f}", f"{row[key]['rmse']:.3f}", words])  # fmt: skip
    head = ["correlation of neighbours", "", "**coverage, mean**", "**coverage, truth**",
            "RMSE / noise", "verdict"]  # fmt: skip
    return markdown_table(head, rows)


def draw(report: Report, figure: Figure) -> None:
    """Draw coverage and error, told and not told."""
    rows = report.data["rows"]
    figure.set_size_inches(9.4, 3.9)
    axes = figure.subplots(1, 2)
    for ax, key, label in zip(
        axes, ("mean", "rmse"), ("coverage of the 95 % interval", "RMSE / noise"), strict=True
    ):
        for shift, form, color, name in (
            (-0.2, "told", plots.BLUE, "covariance told"),
            (0.2, "hidden", plots.VERMILION, "σ per band alone (control)"),
        ):
            at = [n + shift for n in range(len(rows))]
            drawn = ax.bar(at, [r[form][key] for r in rows], width=0.38, color=color, label=name)
            ax.bar_label(drawn, fmt="%.3f", padding=2, fontsize=9)
        ax.set_xticks(range(len(rows)), [f"ρ = {r['correlation']:g}" for r in rows])
        ax.set_ylabel(label)
    axes[0].axhline(0.95, color=plots.GREY, lw=1, zorder=0)
    axes[0].set_ylim(0, 1.15)
    axes[1].set_ylim(0, 1.3 * max(max(r["told"]["rmse"], r["hidden"]["rmse"]) for r in rows))
    axes[1].legend(loc="upper left")
    figure.suptitle("Noise correlated between bands", weight="bold")

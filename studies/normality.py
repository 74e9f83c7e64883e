"""Are the errors normal? The paper's Q-Q plots and Shapiro-Wilk tests, over many elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtri

from sigmacube.check.montecarlo.judging import binomial_limits, shapiro_p
from sigmacube.show import plots

from ._paper import SHAPIRO
from ._report import Check, Found, Report, markdown_table, span
from ._setting import Setting, defaults

TITLE = "Q-Q plots and Shapiro-Wilk tests"
QUESTION = "Are the errors of the estimate normal, so that σ says all there is to say?"

NOISES = (0.05, 0.075, 0.1, 0.125)
# Elements of one scene share windows, so their tests are not independent: the share scatters more
# than a binomial one.
LARGEST = 0.075
# On real scenes components near the noise edge come and go, which no normal law describes.
LARGEST_REAL = 0.10


def run(setting: Setting) -> Found:
    """Test a random sample of elements per scene and noise level."""
    noises = (0.05, 0.125) if setting.quick else NOISES
    cells: list[dict[str, Any]] = []
    for name in setting.scene_names():
        scene = setting.scene(name)
        for noise in noises:
            found = defaults(setting, scene, noise)["own"]
            cells.append({
                "scene": name, "title": scene.title, "noise": noise, "real": scene.real,
                "paper_p": SHAPIRO.get(name, {}).get(noise),
                "rejected": found["shapiro_rejected"], "limits": found["shapiro_limits"],
                "rejected_z": found["shapiro_rejected_z"],
                "elements": found["shapiro_elements"], "qq": found["qq"],
            })  # fmt: skip
    control = _laplace_control(setting.trials)
    checks = [
        Check(f"{c['scene']} σ₀ {c['noise']:g}: share rejected", c["rejected_z"], 0.0,
              LARGEST_REAL if c["real"] else LARGEST)
        for c in cells
    ]  # fmt: skip
    name = "Laplace errors: share rejected"
    checks.append(Check(name, control, 0.0, LARGEST_REAL, kind="control"))
    printed = [c["paper_p"] for c in cells if c["paper_p"]]
    return Found(
        settings={"trials": setting.trials, "noise": list(noises)},
        ours=f"{span([100 * c['rejected_z'] for c in cells], 1)} % of elements with p < .05",
        paper=f"one p per cell, {span(printed, 2)}" if printed else "–",
        limit=f"5 % expected; at most {100 * LARGEST:g} % (real: {100 * LARGEST_REAL:g} %)",
        checks=tuple(checks),
        data={"cells": cells, "laplace": control},
    )


def _laplace_control(trials: int) -> float:
    """Return the share rejected among errors with the tails of a Laplace distribution."""
    z = np.random.default_rng(0).laplace(size=(1000, trials))
    return float(np.mean(shapiro_p(z) < 0.05))


def table(report: Report) -> str:
    """Return the shares rejected, beside the paper's p-values."""
    words = {check.name: check.words for check in report.checks}
    rows = []
    for c in report.data["cells"]:
        low, high = c["limits"]
        rows.append([
            c["title"], f"{c['noise']:g}", "–" if c["paper_p"] is None else f"{c['paper_p']:.2f}",
            f"{c['qq']['single_p'][1]:.2f}", f"{100 * c['rejected']:.1f} %",
            f"{100 * c['rejected_z']:.1f} %",
            f"{100 * low:.1f} to {100 * high:.1f} %",
            words[f"{c['scene']} σ₀ {c['noise']:g}: share rejected"],
        ])  # fmt: skip
    low, high = binomial_limits(0.05, 1000)
    share = f"{100 * report.data['laplace']:.0f} %"
    expected = f"{100 * low:.1f} to {100 * high:.1f} %"
    verdict = words["Laplace errors: share rejected"]
    rows.append(["control: Laplace errors", "–", "–", "–", share, share, expected, verdict])
    head = ["scene", "σ₀", "paper: p of one element", "ours: p of one element",
            "share with p < .05, estimates", "**over own σ**", "of normal, independent errors",
            "verdict"]  # fmt: skip
    return markdown_table(head, rows)


def draw(report: Report, figure: Figure) -> None:
    """Draw a Q-Q plot per scene: all sampled elements together, and three single ones."""
    cells = report.data["cells"]
    scenes = list(dict.fromkeys(c["scene"] for c in cells))
    figure.set_size_inches(3.9 * len(scenes), 4.4)
    axes = figure.subplots(1, len(scenes), squeeze=False)
    for ax, scene in zip(axes[0], scenes, strict=True):
        cell = next(c for c in cells if c["scene"] == scene)
        qq = cell["qq"]
        ax.axline((0, 0), slope=1, color=plots.GREY, lw=1)
        for n, values in enumerate(qq["single"]):
            share = (np.arange(1, len(values) + 1) - 0.375) / (len(values) + 0.25)
            ax.plot(ndtri(share), values, color=plots.VERMILION, lw=0.8, alpha=0.7,
                    label="single elements" if n == 0 else None)  # fmt: skip
        ax.plot(qq["theory"], qq["pooled"], "o", ms=3.4, color=plots.BLUE,
                label=f"{cell['elements']} elements")  # fmt: skip
        ax.set(xlim=(-4, 4), ylim=(-4, 4), aspect="equal", xlabel="normal quantile")
        ax.set_title(f"{cell['title']}\nσ₀ = {cell['noise']:g}", fontsize=10.5)
    axes[0, 0].set_ylabel("quantile of deviation / σ")
    axes[0, 0].legend(loc="upper left")

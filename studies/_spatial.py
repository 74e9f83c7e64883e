"""What the studies of the spatial estimator share: scenes in units of their noise, table, picture.

Every study is a list of checks. The table shows each beside its limits, the picture as a point on
the span that is right; controls are crosses, and lie outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtri

from sigmacube import synthetic
from sigmacube.api import denoise
from sigmacube.result import DenoisedCube
from sigmacube.show import plots

from ._report import Check, Found, Report, markdown_table
from ._setting import Setting

__all__ = ["Case", "cases", "covered", "draw", "errors", "found", "main_case", "observed",
           "solved", "table"]  # fmt: skip

DRAWS = 3


@dataclass(frozen=True, eq=False)
class Case:
    """A noise-free scene in units of the noise that it is observed with."""

    name: str
    truth: np.ndarray
    """(row, col, band)."""


def main_case(setting: Setting, noise: float = 0.1) -> Case:
    """Return the scene with sharp fields: the simulated one, or the built-in one."""
    scene = setting.main_scene()
    return Case(f"{scene.title}, σ₀ {noise:g}", scene.truth / noise)


def cases(setting: Setting) -> list[Case]:
    """Return sharp fields, smooth fields, fractal texture and rare materials.

    Examples
    --------
    >>> from pathlib import Path
    >>> setting = Setting(scratch=Path("."), quick=True)
    >>> [case.truth.shape for case in cases(setting)][1:]
    [(48, 52, 40), (48, 52, 40), (48, 52, 40)]
    """
    shape = (48, 52, 40) if setting.quick else (128, 120, 100)
    return [
        main_case(setting),
        Case("smooth fields, σ₀ 0.05", synthetic.smooth_fields(shape) / 0.05),
        Case("fractal texture, σ₀ 0.1", synthetic.fractal_texture(shape) / 0.1),
        Case("rare materials, σ₀ 0.05", synthetic.rare_materials(shape) / 0.05),
    ]


def draws(setting: Setting) -> range:
    """Return the seeds of the observations of a scene."""
    return range(1 if setting.quick else DRAWS)


def observed(case: Case, seed: int) -> np.ndarray:
    """Return a case with unit noise."""
    noise = np.random.default_rng([31, seed]).standard_normal(case.truth.shape)
    return np.asarray(case.truth + noise)


def solved(setting: Setting, case: Case, seed: int) -> DenoisedCube:
    """Return the default result of an observed case, its noise told."""
    return denoise(observed(case, seed), 1.0, workers=setting.workers)


def errors(result: DenoisedCube, case: Case) -> np.ndarray:
    """Return errors (row, col, band) in units of the claimed σ."""
    return np.asarray((result.estimate - case.truth) / result.std)


def covered(z: np.ndarray, level: float = 0.95) -> float:
    """Return the share of scores inside an interval.

    Examples
    --------
    >>> covered(np.array([-3.0, -1.0, 0.0, 1.9]))
    0.75
    """
    return float(np.mean(np.abs(z) <= ndtri((1 + level) / 2)))


def found(checks: Sequence[Check], ours: str, limit: str, settings: Mapping[str, object]) -> Found:
    """Return what a study found, of which the paper has nothing."""
    return Found(settings=settings, ours=ours, paper="–", limit=limit, checks=tuple(checks),
                 data={})  # fmt: skip


def table(report: Report) -> str:
    """Return every figure beside its limits."""
    rows = [
        [("control: " if check.kind == "control" else "") + check.name, f"{check.value:.3f}",
         _limits(check), check.words]
        for check in report.checks
    ]  # fmt: skip
    return markdown_table(["what", "measured", "right", "verdict"], rows)


def _limits(check: Check) -> str:
    if check.low == 0:
        return f"≤ {check.high:.3g}"
    return f"≥ {check.low:.3g}" if check.high in (1, 99) else f"{check.low:.3g} to {check.high:.3g}"


def draw(report: Report, figure: Figure) -> None:
    """Draw every figure as a point on the span that is right; controls beyond it at the edge."""
    checks = report.checks
    figure.set_size_inches(10.4, 1.3 + 0.27 * len(checks))
    ax = figure.subplots()
    ends = [x for c in checks for x in (c.low, c.high) if x not in (0, 99)]
    ends += [c.value for c in checks if c.kind != "control"]
    room = 0.25 * (max(ends) - min(ends))
    low, high = min(ends) - room, max(ends) + room
    for at, check in enumerate(checks):
        span = max(check.low, low), min(check.high, high)
        ax.plot(span, (at, at), color=plots.GREY, alpha=0.35, lw=7, solid_capstyle="butt")
        control = check.kind == "control"
        color = plots.INK if control else plots.BLUE if check.passed else plots.VERMILION
        mark = "o" if not control else "<" if check.value < low else (
            ">" if check.value > high else "x")  # fmt: skip
        inside = min(max(check.value, low), high)
        ax.plot(inside, at, mark, color=color, ms=7, mew=2, clip_on=False, zorder=3)
    labels = [("control: " if c.kind == "control" else "") + c.name for c in checks]
    ax.set_yticks(range(len(checks)), labels, fontsize=9)
    ax.set_ylim(len(checks) - 0.5, -0.5)
    ax.set_xlim(low, high)
    values = ax.secondary_yaxis("right")
    values.set_yticks(range(len(checks)), [f"{c.value:.3f}" for c in checks], fontsize=9)
    values.tick_params(length=0, pad=12)
    values.spines["right"].set_visible(False)
    figure.suptitle(report.title, weight="bold")
    figure.supxlabel("bar: what is right; point: measured, red where wrong; cross or arrow: "
                     "control, which must lie outside", fontsize=9)  # fmt: skip

"""Rank of every window: what the noise edge finds, against what noise lets be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sigmacube.api import denoise
from sigmacube.core.windows import WindowGrid
from sigmacube.show import plots
from sigmacube.synthetic import add_noise

from ._paper import NOISE_LEVELS
from ._report import Check, Found, Report, markdown_table, span
from ._setting import Setting

TITLE = "Rank of the windows"
QUESTION = "Does the noise edge keep the components that can be seen, and no noise?"

# Of the windows, so many must get the rank of the signal that noise lets be seen, give or take
# components within this factor of the edge, where chance decides.
LEAST_SHARE, TWILIGHT = 0.98, 1.15


def run(setting: Setting) -> Found:
    """Compare the ranks found in one observation with those of the noise-free windows."""
    scene = setting.main_scene()
    noises = (0.05, 0.125) if setting.quick else (0.001, *NOISE_LEVELS)
    strengths = _strengths(scene.truth)
    options: dict[str, Any] = {"prior": None, "uncertainty": False, "workers": setting.workers}
    rows: list[dict[str, Any]] = []
    checks = []
    for noise in noises:
        noisy = add_noise(scene.truth, noise, rng=0)
        found = denoise(noisy, noise, **options).ranks
        told_less = denoise(noisy, 0.8 * noise, **options).ranks
        row: dict[str, Any] = {
            "noise": noise,
            "found": _histogram(found),
            "mean": float(found.mean()),
            "true_rank": float(np.mean(np.sum(strengths > 1e-6 * strengths[..., :1], axis=-1))),
            "share": _agreement(found, strengths, noise, scene.truth.shape[2]),
            "control_mean": float(told_less.mean()),
            "control_share": _agreement(told_less, strengths, noise, scene.truth.shape[2]),
        }
        rows.append(row)
        name = f"σ₀ {noise:g}: windows with the rank that can be seen"
        checks.append(Check(name, row["share"], LEAST_SHARE, 1.0))
        checks.append(Check(f"{name}, noise told 20 % too low", row["control_share"], LEAST_SHARE,
                            1.0, kind="control"))  # fmt: skip
    return Found(
        settings={"scene": scene.name, "noise": list(noises)},
        ours=f"{span([100 * r['share'] for r in rows], 1)} % of windows right; "
        f"mean rank {span([r['mean'] for r in rows], 1)}",
        paper="7 everywhere",
        limit=f"at least {100 * LEAST_SHARE:.0f} %",
        checks=tuple(checks),
        data={"rows": rows},
    )


def _strengths(truth: np.ndarray) -> np.ndarray:
    """Return (window rows, window cols, 20) leading singular values of the noise-free windows."""
    grid = WindowGrid.create(truth.shape, window=20, step=4)
    strengths = np.zeros((*grid.shape[:2], 20))
    for i, j in np.ndindex(*grid.shape[:2]):
        patch = truth[grid.slices(i, j)].reshape(-1, truth.shape[2])
        values = np.sqrt(np.maximum(np.linalg.eigvalsh(patch.T @ patch)[::-1], 0))
        count = min(len(values), 20)
        strengths[i, j, :count] = values[:count]
    return strengths


def _agreement(ranks: np.ndarray, strengths: np.ndarray, noise: float, bands: int) -> float:
    """Return the share of windows whose rank is the number of components that can be seen.

    A component of strength x is seen at √(x² + n + P + nP/x²) once x exceeds (nP)^¼, all in units
    of the noise; the noise edge is √n + √P.
    """
    n, x = 400, strengths / noise
    edge = np.sqrt(n) + np.sqrt(bands)
    with np.errstate(divide="ignore"):
        seen = np.sqrt(x**2 + n + bands + n * bands / x**2)
    seen = np.where(x > (n * bands) ** 0.25, seen, 0.0)
    surely = np.sum(seen > TWILIGHT * edge, axis=-1)
    perhaps = np.sum(seen > 0, axis=-1)
    return float(np.mean((ranks >= surely) & (ranks <= perhaps)))


def _histogram(ranks: np.ndarray) -> dict[str, int]:
    values, counts = np.unique(ranks, return_counts=True)
    return {str(v): int(c) for v, c in zip(values, counts, strict=True)}


def table(report: Report) -> str:
    """Return mean rank and agreement by noise level."""
    words = {check.name: check.words for check in report.checks}
    rows = []
    for row in report.data["rows"]:
        name = f"σ₀ {row['noise']:g}: windows with the rank that can be seen"
        rows.append([
            f"{row['noise']:g}", f"{row['true_rank']:.2f}", f"{row['mean']:.2f}",
            f"{100 * row['share']:.1f} %", words[name],
            f"{row['control_mean']:.1f}; {100 * row['control_share']:.1f} %",
        ])  # fmt: skip
    head = ["σ₀", "spectra per window (mean)", "**mean rank found**",
            "**windows with the rank that can be seen**", "verdict",
            "control: noise told 20 % too low"]  # fmt: skip
    return markdown_table(head, rows)


def draw(report: Report, figure: Figure) -> None:
    """Draw histograms of the ranks."""
    rows = report.data["rows"]
    figure.set_size_inches(2.3 * len(rows) + 1, 3.2)
    axes = figure.subplots(1, len(rows), sharey=True)
    for ax, row in zip(np.atleast_1d(axes), rows, strict=True):
        ranks = [int(r) for r in row["found"]]
        ax.bar(ranks, row["found"].values(), color=plots.BLUE)
        ax.axvline(7, color=plots.VERMILION, lw=1.2, ls="--")
        ax.set_title(f"σ₀ = {row['noise']:g}", fontsize=10.5)
        ax.set_xlabel("rank")
        ax.set_xlim(0, 9)
        ax.set_xticks(range(1, 9, 2))
    np.atleast_1d(axes)[0].set_ylabel("windows")
    figure.suptitle("Rank of the windows by the noise edge (dashed: the paper's 7)", fontsize=11)

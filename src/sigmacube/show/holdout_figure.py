"""The picture of a hold-out check."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from sigmacube.show import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sigmacube.check.holdout import Holdout

__all__ = ["draw"]


def draw(check: Holdout) -> Figure:
    """Draw the calibration curve, coverage by band and coverage by brightness.

    Parameters
    ----------
    check
        What `sigmacube.check.holdout` returned.
    """
    from matplotlib.figure import Figure

    with plots.style():
        figure = Figure(figsize=(12.5, 4.9), layout="constrained")
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.05, 1.25, 0.9))
        share, error = check.coverage[0.95], max(check.coverage_error[0.95], 1e-6)
        plots.calibration(dict(check.coverage), samples=share * (1 - share) / error**2, ax=left)
        _by_band(check, middle)
        _by_brightness(check, right)
        first = check.verdict.split(" Note:")[0]
        figure.suptitle("\n".join(textwrap.wrap(first, 110)), fontsize=12.5)
    return figure


def _by_band(check: Holdout, ax: Axes) -> None:
    bands = np.arange(len(check.band_coverage))
    x = bands if check.wavelengths is None else np.asarray(check.wavelengths)
    share, error = 100 * check.band_coverage, 200 * check.band_coverage_error
    ax.axhline(95, color=plots.GREY, lw=1.0)
    ax.fill_between(x, share - error, share + error, color=plots.BLUE, alpha=0.25, lw=0)
    ax.plot(x, share, color=plots.BLUE, lw=1.3)
    ax.set_xlabel("band" if check.wavelengths is None else "wavelength (nm)")
    ax.set_ylabel("elements in their 95 % interval (%)")
    ax.set_title("By band (± 2 standard errors)")
    _limits(ax, share)


def _by_brightness(check: Holdout, ax: Axes) -> None:
    share = np.array([100 * part.coverage for part in check.brightness])
    error = np.array([200 * part.coverage_error for part in check.brightness])
    x = np.arange(1, len(share) + 1)
    ax.axhline(95, color=plots.GREY, lw=1.0)
    ax.errorbar(x, share, error, fmt="o", ms=7, color=plots.BLUE, mec="white", capsize=3)
    names = ["darkest", *[""] * max(len(x) - 2, 0), "brightest"][: len(x)]
    ax.set_xticks(x, names)
    ax.set_xlim(0.4, len(x) + 0.6)
    ax.set_xlabel("fifths of the pixels")
    ax.set_title("By brightness")
    _limits(ax, share)


def _limits(ax: Axes, share: np.ndarray) -> None:
    """Show the goal, 93 to 97 %, and what departs from it."""
    low, high = GOAL
    ax.axhspan(low, high, color=plots.GREY, alpha=0.12, lw=0)
    known = share[np.isfinite(share)]
    least = known.min() if len(known) else low
    ax.set_ylim(max(min(90.0, least - 2), 0.0), 100)


GOAL = (93.0, 97.0)

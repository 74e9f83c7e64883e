"""How far sigma can be trusted: calibration, Q-Q plots, hold-out and Monte Carlo checks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from matplotlib.ticker import MaxNLocator

from sigmacube.core.levels import LEVELS, half_width
from sigmacube.core.validity import finite_mean
from sigmacube.show.look import BLUE, GREY, VERMILION
from sigmacube.show.plots.maps import residual_map
from sigmacube.show.plots.sources import band_axis
from sigmacube.show.plots.spectra import with_gaps
from sigmacube.show.plots.theme import colorbar_of, new_axes, style, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Coverage (in percent) of a 95 % interval that counts as calibrated.
GOAL = (93.0, 97.0)
# Points of coverage that the label of one takes.
_LABEL = 4.2


def coverage(z: np.ndarray, levels: Sequence[float] = LEVELS) -> dict[float, float]:
    """Return the share of standardised errors inside the central interval of every level.

    Parameters
    ----------
    z
        (estimate - truth) / std, any shape; NaN does not count.
    levels
        Nominal levels between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> z = np.random.default_rng(0).standard_normal(100_000)
    >>> {level: round(share, 2) for level, share in plots.coverage(z).items()}
    {0.5: 0.5, 0.68: 0.68, 0.9: 0.9, 0.95: 0.95, 0.99: 0.99}
    """
    size = np.abs(np.asarray(z)[np.isfinite(z)])
    return {level: float(np.mean(size <= half_width(level))) for level in levels}


@styled
def calibration(
    source: Mapping[float, float] | np.ndarray,
    *,
    samples: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw achieved against nominal coverage, and the difference in an inset.

    Parameters
    ----------
    source
        Achieved coverage by nominal level, or standardised errors from which it is computed.
    samples
        Number of independent values behind it: the shaded band is two standard errors of a
        proportion to either side. Errors of neighbouring elements are correlated, so this is not
        the number of elements; the degrees of freedom of the estimate, the sum of (sigma / noise)
        squared, are a fair count. None draws no band.
    ax
        Axes to draw on.

    Examples
    --------
    >>> from sigmacube import plots
    >>> ax = plots.calibration({0.5: 0.501, 0.68: 0.678, 0.95: 0.949}, samples=20_000)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('claimed coverage (%)', 'achieved coverage (%)')
    """
    achieved = source if isinstance(source, Mapping) else coverage(np.asarray(source))
    if not achieved:
        raise ValueError("Invalid coverage: no level given. There must be at least one.")
    levels = np.array(sorted(achieved))
    shares = np.array([achieved[level] for level in levels])
    ax = new_axes() if ax is None else ax
    ax.plot([0, 100], [0, 100], color=GREY, lw=1.0, zorder=1)
    ax.plot(100 * levels, 100 * shares, "o", ms=7, color=BLUE, mec="white", mew=0.8, zorder=3)
    last = -np.inf
    for level, share in zip(levels, shares, strict=True):
        # The topmost points crowd: labels to the left of the line, one above the other, the inset
        # to its right.
        last = max(100 * share, last + _LABEL)
        ax.annotate(
            f"{100 * share:.1f}", (100 * level, last), xytext=(-9, 0), fontsize=9.5,
            textcoords="offset points", ha="right", va="center",
        )  # fmt: skip
    low = max(min(100 * min(levels.min(), shares.min()) - 14, 36.0), 0.0)
    ax.set(xlim=(low, 103), ylim=(low, 103), aspect="equal")
    ax.set_xlabel("claimed coverage (%)")
    ax.set_ylabel("achieved coverage (%)")
    ax.set_title("Calibration")
    _calibration_inset(ax, levels, shares, samples)
    return ax


def _calibration_inset(
    ax: Axes, levels: np.ndarray, shares: np.ndarray, samples: float | None
) -> None:
    """Show achieved minus claimed coverage: on the large axes a good result hides it."""
    inset = ax.inset_axes((0.60, 0.14, 0.39, 0.26))
    grid = np.linspace(0.01, 0.999, 200)
    gap = 100 * (shares - levels)
    reach = 1.3 * np.abs(gap).max()
    if samples:  # none where a check that hid next to nothing knows no error of its shares
        error = 200 * np.sqrt(grid * (1 - grid) / samples)
        inset.fill_between(100 * grid, -error, error, color=GREY, alpha=0.30, lw=0)
        reach = max(reach, 1.6 * error.max())
    inset.axhline(0, color=GREY, lw=1.0)
    inset.plot(100 * levels, gap, "o", ms=4.5, color=BLUE, mec="white", mew=0.5)
    inset.set(xlim=(min(45, 100 * levels.min() - 5), 101), ylim=(-max(reach, 0.1), max(reach, 0.1)))
    inset.set_title("difference (points)", fontsize=8.5, weight="normal", pad=3)
    inset.tick_params(labelsize=8)
    inset.yaxis.set_major_locator(MaxNLocator(3, symmetric=True))


@styled
def qq(z: np.ndarray, *, samples: float | None = None, ax: Axes | None = None) -> Axes:
    """Draw quantiles of the standardised errors against those of the normal distribution.

    Parameters
    ----------
    z
        (estimate - truth) / std, any shape; NaN does not count.
    samples
        Number of independent values, see `calibration`; by default the number of values. The
        shaded band holds each quantile with 95 % probability.
    ax
        Axes to draw on.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> ax = plots.qq(np.random.default_rng(0).standard_normal(2000))
    >>> ax.get_ylabel()
    'quantile of error / σ'
    """
    z = np.asarray(z, dtype=np.float64)
    z = z[np.isfinite(z)]
    if z.size < 2:
        raise ValueError(f"Invalid errors: {z.size} finite values. There must be at least 2.")
    # Enough points for a smooth line; evenly spaced in z, so that the tails get theirs.
    normal = NormalDist()
    edge = normal.inv_cdf(1 - 0.5 / z.size)
    theory = np.linspace(-edge, edge, min(z.size, 161))
    share = np.array([normal.cdf(q) for q in theory])
    density = np.array([normal.pdf(q) for q in theory])
    error = half_width(0.95) * np.sqrt(share * (1 - share) / (samples or z.size)) / density
    ax = new_axes() if ax is None else ax
    ax.fill_between(theory, theory - error, theory + error, color=GREY, alpha=0.30, lw=0)
    ax.plot([-edge, edge], [-edge, edge], color=GREY, lw=1.0)
    ax.plot(theory, np.quantile(z, share), "o", ms=3.2, color=BLUE, mew=0)
    # A few wild values must not shrink the rest to a dot: they are counted instead.
    reach = 1.05 * min(max(edge, float(np.abs(z).max())), 1.6 * edge)
    beyond = int(np.sum(np.abs(z) > reach))
    if beyond:
        text = f"{beyond} of {z.size} values\nbeyond ±{reach:.1f}"
        ax.text(0.97, 0.03, text, transform=ax.transAxes, ha="right", va="bottom", fontsize=9)
    ax.set(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
    ax.yaxis.set_major_locator(ax.xaxis.get_major_locator())
    ax.set_xlabel("quantile of the normal distribution")
    ax.set_ylabel("quantile of error / σ")
    ax.set_title("Q-Q plot")
    return ax


class _Holdout(Protocol):
    """What a hold-out check found, as far as it is drawn."""

    @property
    def coverage(self) -> Mapping[float, float]: ...
    @property
    def coverage_error(self) -> Mapping[float, float]: ...
    @property
    def band_coverage(self) -> np.ndarray: ...
    @property
    def band_coverage_error(self) -> np.ndarray: ...
    @property
    def brightness(self) -> Sequence[Any]: ...
    @property
    def wavelengths(self) -> np.ndarray | None: ...
    @property
    def verdict(self) -> str: ...


def holdout_figure(check: _Holdout) -> Figure:
    """Draw the calibration curve, coverage by band and coverage by brightness.

    Parameters
    ----------
    check
        What `sigmacube.holdout` returned.
    """
    import matplotlib.pyplot as plt

    with style():
        figure = plt.figure(figsize=(12.5, 4.9), layout="constrained")
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.05, 1.25, 0.9))
        share, error = check.coverage[0.95], max(check.coverage_error[0.95], 1e-6)
        calibration(dict(check.coverage), samples=share * (1 - share) / error**2, ax=left)
        _by_band(check, middle)
        _by_brightness(check, right)
        first = check.verdict.split(" Note:")[0]
        figure.suptitle("\n".join(textwrap.wrap(first, 110)), fontsize=12.5)
    return figure


def _by_band(check: _Holdout, ax: Axes) -> None:
    x, x_label = band_axis(check.wavelengths, len(check.band_coverage))
    share, error = 100 * check.band_coverage, 200 * check.band_coverage_error
    at, line, low, high = with_gaps(x, share, share - error, share + error)
    ax.axhline(95, color=GREY, lw=1.0)
    ax.fill_between(at, low, high, color=BLUE, alpha=0.25, lw=0)
    ax.plot(at, line, color=BLUE, lw=1.3)
    ax.set_xlabel(x_label)
    ax.set_ylabel("elements in their 95 % interval (%)")
    ax.set_title("By band (± 2 standard errors)")
    _show_goal(ax, share)


def _by_brightness(check: _Holdout, ax: Axes) -> None:
    share = np.array([100 * part.coverage for part in check.brightness])
    error = np.array([200 * part.coverage_error for part in check.brightness])
    x = np.arange(1, len(share) + 1)
    ax.axhline(95, color=GREY, lw=1.0)
    ax.errorbar(x, share, error, fmt="o", ms=7, color=BLUE, mec="white", capsize=3)
    names = ["darkest", *[""] * max(len(x) - 2, 0), "brightest"][: len(x)]
    ax.set_xticks(x, names)
    ax.set_xlim(0.4, len(x) + 0.6)
    ax.set_xlabel("fifths of the pixels")
    ax.set_title("By brightness")
    _show_goal(ax, share)


def _show_goal(ax: Axes, share: np.ndarray) -> None:
    """Shade the goal, and show what departs from it."""
    ax.axhspan(*GOAL, color=GREY, alpha=0.12, lw=0)
    known = share[np.isfinite(share)]
    least = known.min() if len(known) else GOAL[0]
    ax.set_ylim(max(min(90.0, least - 2), 0.0), 100)


class _Trials(Protocol):
    """What a Monte Carlo run found, as far as it is drawn."""

    @property
    def trials(self) -> int: ...
    @property
    def coverage(self) -> Mapping[float, float]: ...
    @property
    def degrees_of_freedom(self) -> float: ...
    @property
    def sample_z(self) -> np.ndarray: ...
    @property
    def std_ratio_map(self) -> np.ndarray: ...


def trials_figure(found: _Trials) -> Figure:
    """Draw calibration, Q-Q plot and the map of predicted over actual σ of a Monte Carlo run."""
    import matplotlib.pyplot as plt

    with style():
        figure, axes = plt.subplots(1, 3, figsize=(15, 4.8), layout="constrained")
        samples = found.degrees_of_freedom * found.trials
        calibration(found.coverage, samples=samples, ax=axes[0])
        trials_qq(found, ax=axes[1])
        trials_ratio_map(found, ax=axes[2])
    return figure


def trials_qq(found: _Trials, *, elements: int = 5, ax: Axes | None = None) -> Axes:
    """Draw the Q-Q plot of all sampled elements together, and of a few one by one."""
    z = found.sample_z
    ax = qq(z, samples=min(z.size, found.degrees_of_freedom * found.trials), ax=ax)
    # Blom's positions: the expected order statistics of a normal sample.
    share = (np.arange(1, found.trials + 1) - 0.375) / (found.trials + 0.25)
    expected = [NormalDist().inv_cdf(p) for p in share]
    for one in z[:: max(1, len(z) // max(elements, 1))][:elements]:
        ax.plot(expected, np.sort(one), color=VERMILION, lw=0.7, alpha=0.6, zorder=1)
    ax.set_title(f"Q-Q plot, {len(z)} elements × {found.trials} trials")
    ax.set_ylabel("quantile of deviation / σ")
    return ax


def trials_ratio_map(found: _Trials, *, ax: Axes | None = None) -> Axes:
    """Map the predicted over the actual standard deviation, mean over bands."""
    ax = residual_map(finite_mean(found.std_ratio_map), ax=ax)
    ax.set_title("Predicted / actual σ, mean over bands")
    colorbar_of(ax).set_label("predicted / actual σ")
    return ax

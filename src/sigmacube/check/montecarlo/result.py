"""What a Monte Carlo run found."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.card import Card
from sigmacube.io.atomic import staged

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Figures by level, and single ones, in the order of the JSON.
_BY_LEVEL = ["coverage", "coverage_spread", "spread_limit", "coverage_error"]
_BY_LEVEL += ["truth_coverage", "truth_coverage_error"]
_NUMBERS = ["std_ratio", "std_ratio_spread", "std_ratio_limit", "rmse", "relative_rmse", "bias"]
_NUMBERS += ["degrees_of_freedom", "shapiro_rejected", "shapiro_rejected_z"]
_JUDGES = {"first": "the σ of the first", "each": "its own σ"}


@dataclass(frozen=True, eq=False)
class MonteCarlo(Card):
    """Coverage of the closed form over repeated noise, with the limits that sampling sets."""

    trials: int
    """Number of trials."""
    noise: float | np.ndarray
    """Noise that was added."""
    impulses: float
    """Share of elements that were replaced by impulses."""
    sigma: str
    """``"first"``: one closed form for all trials; ``"each"``: every trial its own."""
    options: Mapping[str, Any]
    """Options of `denoise`."""
    coverage: Mapping[float, float]
    """By level: share of trials inside the interval around the Monte Carlo mean, over elements."""
    coverage_spread: Mapping[float, float]
    """By level: standard deviation of that share over elements."""
    spread_limit: Mapping[float, float]
    """By level: the spread √(p(1 − p)/T) that sampling alone gives; no closed form goes below."""
    coverage_error: Mapping[float, float]
    """By level: standard error of ``coverage``, from its scatter over trials."""
    truth_coverage: Mapping[float, float]
    """By level: share inside the interval around the truth."""
    truth_coverage_error: Mapping[float, float]
    """By level: standard error of ``truth_coverage``."""
    std_ratio: float
    """Predicted over actual standard deviation, mean over elements, free of small-sample bias."""
    std_ratio_spread: float
    """Standard deviation of that ratio over elements."""
    std_ratio_limit: float
    """The spread that the sampling of the actual standard deviation alone gives."""
    std_ratio_map: np.ndarray
    """(row, col, band) the ratio of every element; NaN where there is no estimate."""
    rmse: float
    """Root mean square error of the estimates, in the units of the data."""
    bias: float
    """Root mean square of the mean error: what no number of trials averages away."""
    degrees_of_freedom: float
    """Sum of (σ / noise)², a fair count of the independent errors in one trial."""
    shapiro_p: np.ndarray
    """p-values of the Shapiro-Wilk tests of the sampled elements' estimates."""
    shapiro_rejected: float
    """Share of them below .05; 5 % are expected of normal errors."""
    shapiro_rejected_z: float
    """The same for deviations over σ; it differs where every trial has its own σ."""
    shapiro_limits: tuple[float, float]
    """Where that share lies with 95 % probability if all errors are normal."""
    sample_positions: np.ndarray
    """(elements, 3) row, col and band of the sampled elements."""
    sample_z: np.ndarray
    """(elements, trials) their deviations from the mean, over σ."""

    def _facts(self) -> Mapping[str, str]:
        def shares(by_level: Mapping[float, float]) -> str:
            return ", ".join(f"{100 * p:g} %: {100 * s:.1f} %" for p, s in by_level.items())

        return {
            "trials": f"{self.trials}, each judged by {_JUDGES.get(self.sigma, self.sigma)}",
            "coverage (mean)": shares(self.coverage),
            "coverage (truth)": shares(self.truth_coverage),
            "predicted/actual σ": f"{self.std_ratio:.3f} ± {self.std_ratio_spread:.3f}",
            "RMSE": f"{self.rmse:.4g}, {100 * self.relative_rmse:.0f} % of the noise",
            "not normal": f"{100 * self.shapiro_rejected:.1f} % of elements (5 % by chance)",
        }

    @property
    def relative_rmse(self) -> float:
        """Error of the estimates over the noise of the observations (rms over bands)."""
        noise = np.asarray(self.noise, dtype=np.float64)
        variance = np.diag(noise) if noise.ndim == 2 else np.square(noise)
        return self.rmse / float(np.sqrt(np.mean(variance)))

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, without the maps, as JSON holds them."""
        noise = np.asarray(self.noise)
        return {
            "trials": self.trials,
            "noise": noise.tolist() if noise.ndim < 2 else f"covariance of {len(noise)} bands",
            "impulses": self.impulses,
            "sigma": self.sigma,
            "options": {name: str(value) for name, value in self.options.items()},
            **{name: _keys(getattr(self, name)) for name in _BY_LEVEL},
            **{name: _number(getattr(self, name)) for name in _NUMBERS},
            "shapiro_limits": [_number(limit) for limit in self.shapiro_limits],
            "shapiro_elements": len(self.shapiro_p),
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the figures as JSON text, and write it to a file where one is named."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        if path is not None:
            with staged([Path(path)], overwrite=True) as (temporary,):
                temporary.write_text(text, encoding="utf-8")
        return text

    def plot_qq(self, *, elements: int = 5, ax: Axes | None = None) -> Axes:
        """Draw the Q-Q plot of all sampled elements together, and of a few one by one.

        Parameters
        ----------
        elements
            Single elements to draw as thin lines.
        ax
            Axes to draw on.
        """
        from sigmacube.show import plots

        return plots.trials_qq(self, elements=elements, ax=ax)

    def plot_calibration(self, *, ax: Axes | None = None) -> Axes:
        """Draw achieved against claimed coverage of the Monte Carlo mean."""
        from sigmacube.show import plots

        samples = self.degrees_of_freedom * self.trials
        return plots.calibration(self.coverage, samples=samples, ax=ax)

    def plot_ratio(self, *, ax: Axes | None = None) -> Axes:
        """Map the predicted over the actual standard deviation, mean over bands."""
        from sigmacube.show import plots

        return plots.trials_ratio_map(self, ax=ax)

    def plot(self) -> Figure:
        """Draw calibration, Q-Q plot and the map of predicted over actual σ on one figure."""
        from sigmacube.show import plots

        return plots.trials_figure(self)


def _keys(by_level: Mapping[float, float]) -> dict[str, float | None]:
    return {f"{level:g}": _number(value) for level, value in by_level.items()}


def _number(value: float) -> float | None:
    """Return a figure with six significant digits; None where it is not known."""
    return float(f"{value:.6g}") if math.isfinite(value) else None

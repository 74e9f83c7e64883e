"""One verdict from all tests of a hold-out check, with one next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr

from sigmacube.core.levels import LEVELS, half_width

__all__ = ["GOOD_50", "GOOD_95", "judge"]

# What counts as calibrated, at 95 and at 50 %.
GOOD_95, GOOD_50 = (0.93, 0.97), (0.45, 0.56)
# Predicted coverage of the truth at 95 % below which σ is not trusted.
GOOD_TRUTH = 0.93
# Ratio of z between brightness classes or bands that points at the noise model.
UNEVEN = 1.3


def judge(facts: Mapping[str, Any], sigma: float) -> tuple[dict[float, float], bool, str]:
    """Return predicted coverage of the truth by level, whether to trust σ, and the verdict.

    Parameters
    ----------
    facts
        The figures of a `Holdout`.
    sigma
        Typical σ over the noise.

    Notes
    -----
    Signal that was removed is smooth in space: with b² its share of the noise variance, taken from
    the correlation of neighbours in what was removed, intervals of level p hold the truth with
    probability 2Φ(z_p / √(1 + b²/σ²)) − 1.
    """
    lost = max(facts["removed_lag1"] - max(facts["noise_lag1"], 0.0), 0.0)
    grown = np.sqrt(1 + lost / max(sigma, 1e-3) ** 2) * max(facts["z_std"], 1e-6)
    truth = {p: float(2 * ndtr(half_width(p) / grown) - 1) for p in LEVELS}
    share = f"95 % intervals cover {100 * facts['coverage'][0.95]:.1f} % of hidden elements"
    faults = _faults(facts, truth)
    if not faults:
        return truth, True, f"{share}: trust them."
    causes = "; ".join(_causes(facts, lost)) or "the noise level"
    return truth, False, f"{share}: {faults[0]}; likely cause: {causes}."


def _faults(facts: Mapping[str, Any], truth: Mapping[float, float]) -> Sequence[str]:
    """Return what is wrong, most telling first."""
    low, high = GOOD_95
    at_95, at_50 = facts["coverage"][0.95], facts["coverage"][0.5]
    if at_95 < low:
        return [f"σ is too small by a factor {facts['factor']:.2g}"]
    if at_95 > high:
        return [f"σ is too large by a factor {1 / facts['factor']:.2g}"]
    if not GOOD_50[0] <= at_50 <= GOOD_50[1]:
        return [f"but 50 % intervals cover {100 * at_50:.0f} %, errors are not Gaussian"]
    if not np.isfinite(facts["removed_lag1"]):
        return ["but whether signal was lost could not be tested, so do not trust them yet"]
    if truth[0.95] < GOOD_TRUTH:
        return [f"but the truth is held by about {100 * truth[0.95]:.0f} % only"]
    return []


def _causes(facts: Mapping[str, Any], lost: float) -> list[str]:
    """Return what the figures point at, most telling first."""
    causes = []
    if lost > 0.005:
        causes.append(
            f"signal was removed (what was removed is smooth in space, lag-1 "
            f"{facts['removed_lag1']:+.3f}): the noise is set too high"
        )
    spread = np.array([part.z_std for part in facts["brightness"]])
    if len(spread) and spread.max() > UNEVEN * spread.min():
        causes.append(
            "noise that depends on the brightness (from "
            f"{spread[0]:.2f} of the assumed in dark to {spread[-1]:.2f} in bright pixels)"
        )
    known = facts["band_factors"][np.isfinite(facts["band_factors"])]
    low, high = np.percentile(known, (5, 95)) if len(known) else (1.0, 1.0)
    if high > UNEVEN * low:
        causes.append(f"noise that differs between bands ({low:.2f} to {high:.2f} of assumed)")
    if facts["coverage"][0.5] > 0.53 and facts["coverage"][0.99] < 0.985:
        causes.append("outliers or impulses (heavy tails): solver='robust' may help")
    return causes

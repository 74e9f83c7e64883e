"""One verdict from all tests of a hold-out check, with one next step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from sigmacube.core.levels import LEVELS, half_width
from sigmacube.noise.caveats import ALIKE, CLIPPED, FEW_BANDS, WILD

__all__ = ["GOOD_50", "GOOD_95", "Fault", "is_beyond_scaling", "judge", "predicted"]

# What counts as calibrated, at 95 and at 50 %.
GOOD_95, GOOD_50 = (0.93, 0.97), (0.45, 0.56)
# Predicted coverage of the truth at 95 % below which σ is not trusted.
GOOD_TRUTH = 0.93
# Where bands share noise, hidden elements share it with the estimate: more may lie inside, at 95
# and at 50 %, than σ deserves.
TOLERATED = (0.985, 0.6)
# Scatter of the noise between bands, or classes of brightness, over the assumed and beyond
# sampling, from which on single bands or pixels are off whatever the mean is: 95 % intervals of one
# that is so much off hold .91; and from which on it is told.
UNEVEN, TOLD = 0.15, 0.05
# A hidden element further off than this counts as if it were there: single values must not outvote
# all others.
FARTHEST = 4.0
# Correlation of neighbours in what was removed that stripes can leave, how many standard errors of
# it, and how well that of the noise itself is known.
CHANCE_LAG, SIGNIFICANT, UNSURE_LAG = 0.02, 3.0, 0.25
# Share of all directions that a scene's spectra need, from which on it shows no noise.
FULL = 0.8
# Offsets of lines, over the noise, beyond which what is left of them is known too badly.
LARGE_OFFSETS = 3.0
# Steps of quantisation over the noise from which on σ was off in trials.
COARSE = 2.0
# Elements that a verdict needs, and σ over the noise that no estimate reaches.
FEWEST, NO_SIGMA = 500, 1e-6


@dataclass(frozen=True)
class Fault:
    """Something that a check found."""

    what: str
    """What is wrong, to follow a colon."""
    step: str
    """What to do next; empty where nothing is known to help."""


@dataclass(frozen=True, eq=False)
class Levels:
    """How large errors are over what is claimed, as hidden elements show it."""

    factor: np.ndarray
    """(elements,) by band and brightness, as far as sampling lets them be told apart."""
    bands: float
    """Relative scatter between bands beyond sampling."""
    light: float
    """Relative scatter between classes of brightness beyond sampling."""

    @classmethod
    def of(cls, z: np.ndarray, band: np.ndarray, light: np.ndarray) -> Levels:
        """Return them from standardised errors, their bands and classes of brightness."""
        square = np.minimum(np.square(z), FARTHEST**2)
        (by_band, bands), (by_light, lights) = (_relative(square, x) for x in (band, light))
        return cls(np.sqrt(np.mean(square) * by_band * by_light), bands, lights)


def _relative(square: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the mean of each element's group over that of all, and how groups scatter."""
    group = group.astype(np.intp)
    count = np.maximum(np.bincount(group), 1)
    mean = max(float(np.mean(square)), 1e-12)
    away = np.where(np.bincount(group) > 0, np.bincount(group, square) / count / mean - 1, 0.0)
    chance = np.var(square) / mean**2 / count
    beyond = max(float(np.average(away**2 - chance, weights=np.bincount(group))), 0.0)
    share = beyond / np.maximum(beyond + chance, 1e-12)
    return np.maximum(1 + share * away, 1e-3)[group], float(np.sqrt(beyond)) / 2


def predicted(facts: Mapping[str, Any]) -> dict[float, float]:
    """Return the predicted coverage of the truth by level.

    Signal that was removed is smooth in space: with b² its share of the noise variance, taken from
    the correlation of neighbours in what was removed, and f what noise is over the assumed,
    intervals of level p hold the truth with probability 2Φ(z_p / f√(1 + b²/σ²)) − 1. All elements
    count alike.
    """
    own = max(facts["noise_lag1"], 0.0)
    chance = max(CHANCE_LAG, SIGNIFICANT * facts["chance_lag"]) + UNSURE_LAG * own
    lost = max(facts["removed_lag1"] - own - chance, 0.0)
    grown = np.sqrt(1 + lost / max(facts["sigma"], 1e-3) ** 2) * facts["levels"].factor
    return {p: float(np.mean(2 * ndtr(half_width(p) / grown) - 1)) for p in LEVELS}


def judge(facts: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether to trust σ, and the verdict.

    Parameters
    ----------
    facts
        The figures of a `Holdout`; ``sigma``, the typical σ over the noise; and ``known``, what the
        survey found: see `sigmacube.noise.caveats.caveats`.
    """
    share = f"95 % intervals cover {100 * facts['coverage'][0.95]:.1f} % of hidden elements"
    fault = next(_faults(facts), None)
    if fault is None:
        note = next(_uneven(facts, TOLD), None)
        return True, f"{share}: trust them" + (f", {note.what}." if note else ".")
    return False, f"{share}: {fault.what}." + (f" {fault.step}." if fault.step else "")


def is_beyond_scaling(facts: Mapping[str, Any]) -> bool:
    """Tell whether something is wrong that no factor on σ can mend; clipping is such a thing."""
    if facts["known"].get("clipped_share", 0.0) >= CLIPPED:
        return True
    return any(True for _ in _untested(facts)) or any(True for _ in _known(facts))


def _faults(facts: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong, most telling first."""
    yield from _untested(facts)
    if facts["coverage"][0.95] < GOOD_95[0]:
        yield from _uneven(facts)
        yield from _level(facts)
    yield from _known(facts)
    yield from _uneven(facts)
    yield from _level(facts)
    yield from _lost(facts)
    if facts["known"].get("shared_doubtful"):
        yield Fault(
            "but this scene cannot tell texture from noise that all bands of a pixel share",
            "Trust them if the instrument has none; else give its covariance as noise",
        )


def _untested(facts: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what could not be tested, so that there is nothing to trust."""
    if facts["n_elements"] < FEWEST:
        yield Fault(
            f"but {facts['n_elements']} elements are too few to tell, so do not trust them yet",
            "Check a larger part of the scene, or hide a larger share",
        )
    if not facts["sigma"] > NO_SIGMA:
        yield Fault("but σ is zero in most places: windows hold no signal", "Lower the noise")
    if facts["known"]["bands"] < FEW_BANDS and facts["noise_source"] != "given":
        yield Fault(
            f"but {facts['known']['bands']} bands are too few to tell signal from noise",
            "Give the noise",
        )
    if facts["known"].get("directions", 0.0) > FULL:
        yield Fault(
            "but the scene's spectra need almost as many directions as there are bands, so that it "
            "shows no noise",
            "Give the noise where it is known",
        )
    if not np.isfinite(facts["removed_lag1"]):
        yield Fault("but whether signal was lost could not be tested, so do not trust them yet", "")


def _known(facts: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what the survey of the scene found, and hidden elements cannot show."""
    known = facts["known"]
    if known.get("wild_share", 0.0) >= WILD and known.get("solver") != "robust":
        yield Fault(
            f"but {100 * known['wild_share']:.2g} % of the values lie far outside the noise "
            "(impulses, or heavy tails)",
            "Use solver='robust'",
        )
    if known.get("clipped_share", 0.0) >= CLIPPED and not known.get("clipped_expected"):
        yield Fault(
            f"but {100 * known['clipped_share']:.2g} % of the values were clipped, and estimates "
            "near the bounds are off by more than σ",
            "",
        )
    if known.get("step_over_noise", 0.0) >= COARSE:
        yield Fault(
            f"but values are rounded to steps of {known['step_over_noise']:.2g} times the noise, "
            "and what rounding does is not noise",
            "",
        )
    yield from _known_of_noise(facts)


def _known_of_noise(facts: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what the survey found about the noise."""
    known = facts["known"]
    alike = (*known.get("band_correlation", ()), 0.0, 0.0)[1]
    if known.get("prior") == "spatial" and alike >= ALIKE:
        yield Fault(
            f"but the noise of neighbouring bands is almost the same (correlation {alike:.2f}), so "
            "most of it lies where the signal does",
            "Give the noise where it is known",
        )
    if known.get("kept_noise"):
        yield Fault(
            f"but noise was kept as signal: bands share {known['kept_noise']:.2g} times the noise, "
            "white in space",
            "Leave the noise to be estimated (noise=None), which looks for it",
        )
    if "offsets" in known and known["offsets"][1] > LARGE_OFFSETS:
        lines, size = known["offsets"]
        yield Fault(
            f"but {lines} carry offsets of {size:.2g} times the noise, and what is left of them is "
            "known too badly",
            "Take them out by the instrument's own calibration first",
        )
    if known.get("prior") is None and facts["noise_lag1"] > 0.05:
        yield Fault(
            "but the noise is correlated between neighbouring pixels (lag-1 "
            f"{facts['noise_lag1']:.2f}), which low-rank windows do not know",
            "Use prior='spatial'",
        )


def _uneven(facts: Mapping[str, Any], least: float = UNEVEN) -> Iterator[Fault]:
    """Yield where the noise is not as assumed."""
    estimated, levels = facts["noise_source"] != "given", facts["levels"]
    if levels.bands > least:
        factors = facts["band_factors"][np.isfinite(facts["band_factors"])]
        low, high = np.percentile(factors, (5, 95))
        step = "Use calibrate=True" if estimated else "Leave the noise to be estimated"
        yield Fault(
            f"but noise differs between bands from the assumed ({low:.2f} to {high:.2f} of it)",
            step,
        )
    if levels.light > least:
        dark, bright = (facts["brightness"][n].z_std for n in (0, -1))
        step = "" if estimated else "Leave the noise to be estimated, or give a SignalNoise"
        yield Fault(
            f"but noise depends on the brightness ({dark:.2f} of the assumed in dark, "
            f"{bright:.2f} in bright pixels)",
            step,
        )


def _level(facts: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what hidden elements show themselves."""
    at_95, at_50 = facts["coverage"][0.95], facts["coverage"][0.5]
    estimated = facts["noise_source"] != "given"
    step = "" if estimated else "Leave the noise to be estimated (noise=None)"
    if at_95 < GOOD_95[0]:
        yield Fault(f"σ is too small by a factor {facts['factor']:.2g}", step)
    high_95, high_50 = TOLERATED if facts["known"].get("correlated") else (GOOD_95[1], GOOD_50[1])
    if at_95 > high_95:
        yield Fault(f"σ is too large by a factor {1 / facts['factor']:.2g}", step)
    if not GOOD_50[0] <= at_50 <= high_50:
        yield Fault(
            f"but 50 % intervals cover {100 * at_50:.0f} %, errors are not Gaussian",
            "" if facts["known"].get("solver") == "robust" else "Use solver='robust'",
        )


def _lost(facts: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield signal that was removed with the noise."""
    at_95 = facts["truth_coverage"][0.95]
    if at_95 < GOOD_TRUTH:
        step = "Use prior='spatial'" if facts["known"].get("prior") is None else ""
        yield Fault(
            "but signal was removed with the noise (what was removed is smooth in space, lag-1 "
            f"{facts['removed_lag1']:+.3f}): the truth is held by about {100 * at_95:.0f} % only",
            step,
        )

"""What σ does not hold on a scene, in plain sentences, from what is known of it.

The same sentences stand in files, reports, the viewer, notebooks and on the terminal: they are made
here, once, and kept with the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sigmacube.core.card import count_of

__all__ = ["ALIKE", "CLIPPED", "COARSE", "FEW_BANDS", "WILD", "caveats"]

# From which on the user is told: share of values on the bounds of their band, step of quantisation
# over the noise, bands, share of values far outside the noise, correlation of neighbouring pixels.
CLIPPED, COARSE, FEW_BANDS, WILD, CORRELATED = 0.005, 1.5, 8, 0.001, 0.05
# Correlation of neighbouring bands from which on little of the noise shows outside the signal.
ALIKE = 0.7


def caveats(facts: Mapping[str, Any]) -> list[str]:
    """Return sentences on what σ does not hold.

    Parameters
    ----------
    facts
        What is known, by name: what the noise estimate found, ``offsets`` (lines and size),
        ``bands``, ``prior``, ``solver``. Unknown names are passed over.

    Examples
    --------
    >>> caveats({"spatial_lag1": 0.0})
    []
    >>> print(caveats({"clipped_share": 0.04})[0])
    4 % of the values lie on the very bounds of their band: they were clipped, and σ takes them as \
measured.
    """
    return [*_of_values(facts), *_of_noise(facts), *_of_bands(facts)]


def _of_values(facts: Mapping[str, Any]) -> list[str]:
    """Return what the values themselves show: clipping, rounding, impulses, offsets of lines."""
    clipped, step, wild = (
        facts.get(name, 0.0) for name in ("clipped_share", "step_over_noise", "wild_share")
    )
    lines, size = facts.get("offsets", ("", 0.0))
    cases = (
        (
            clipped >= CLIPPED,
            f"{100 * clipped:.2g} % of the values lie on the very bounds of their band: they were "
            "clipped, and "
            + (
                "what is to be expected beyond stands for them; σ of these is a little too small."
                if facts.get("clipped_expected")
                else "σ takes them as measured."
            ),
        ),
        (
            step >= COARSE,
            f"Values are rounded to steps of {step:.2g} times the noise: what rounding does is not "
            "noise, and σ takes it for that.",
        ),
        (
            wild >= WILD and facts.get("solver") != "robust",
            f"{100 * wild:.2g} % of the values lie far outside the noise: impulses, or tails that "
            "no Gaussian has. "
            + (
                "They were set aside as missing; solver='robust' looks closer and lists them."
                if facts.get("wild_aside")
                else "solver='robust' sets them aside."
            ),
        ),
        (
            "offsets" in facts,
            f"{lines.capitalize()} carry offsets of their own, about {size:.2g} times the noise. "
            "They were estimated and taken out; σ of single values holds what is left of them, σ "
            f"of means along {lines} does not.",
        ),
    )
    return [sentence for holds, sentence in cases if holds]


def _of_noise(facts: Mapping[str, Any]) -> list[str]:
    """Return what is doubtful about the noise."""
    shared = facts.get("shared") or 0.0
    spatial, lag1 = facts.get("prior") == "spatial", facts.get("spatial_lag1", 0.0)
    cases = (
        (
            shared,
            f"All bands of a pixel share noise {shared:.2g} times their own (common mode or "
            "gain). It is as strong everywhere and white in space, so it counts as noise.",
        ),
        (
            facts.get("shared_doubtful"),
            "Part of what changes from pixel to pixel may be noise that all bands share (common "
            "mode, gains), or texture; this scene cannot tell, and σ takes some of it for signal. "
            "If the instrument has such noise, give its covariance as noise.",
        ),
        (
            not spatial and lag1 > CORRELATED,
            # A smooth component averages neighbours: its variance grows by their correlations.
            f"The noise is correlated between neighbouring pixels (lag-1 {lag1:.2f}; was the "
            "product resampled to a map grid?): σ takes pixels as independent and is too small by "
            f"a factor of up to {math.sqrt(1 + 4 * max(lag1, 0)):.2f} where the signal is smooth.",
        ),
        (
            spatial
            and facts.get("grows_with_signal")
            and (
                facts.get("solver") == "robust"
                or facts.get("wild_aside")
                or facts.get("clipped_share", 0.0) > 0
            ),
            "The noise grows with the signal, and values are set aside or were clipped: it enters "
            "as one factor per pixel, and σ of single bands may be off by a tenth or more.",
        ),
    )
    return [sentence for holds, sentence in cases if holds]


def _of_bands(facts: Mapping[str, Any]) -> list[str]:
    """Return what bands do not tell: noise they share, too few of them, none measured."""
    bands, constant = facts.get("bands", FEW_BANDS), len(facts.get("constant_bands", ()))
    alike = (*facts.get("band_correlation", ()), 0.0, 0.0)[1]
    cases = (
        (
            alike >= ALIKE,
            f"The noise of neighbouring bands is almost the same (correlation {alike:.2f}): most "
            "of it lies where the signal does and is inferred, so σ may be too small. Give the "
            "noise where it is known.",
        ),
        (
            bands < FEW_BANDS and facts.get("source") != "given",
            f"With {count_of(bands, 'band')} signal and noise can hardly be told apart: the noise "
            "is uncertain, and so is σ. Give the noise where it is known.",
        ),
        (constant == 1, "1 band has one value only and counts as not measured."),
        (constant > 1, f"{constant} bands have one value only and count as not measured."),
    )
    return [sentence for holds, sentence in cases if holds]

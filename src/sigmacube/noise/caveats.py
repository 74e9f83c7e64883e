"""What σ does not hold on a scene, in plain sentences, from what is known of it.

The same sentences stand in files, reports, the viewer, notebooks and on the terminal: they are made
here, once, and kept with the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CLIPPED", "COARSE", "FEW_BANDS", "WILD", "caveats"]

# From which on the user is told: share of values on the bounds of their band, step of quantisation
# over the noise, bands, share of values far outside the noise, correlation of neighbouring pixels.
CLIPPED, COARSE, FEW_BANDS, WILD, CORRELATED = 0.005, 1.5, 8, 0.001, 0.05


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
    found = (_clipped, _coarse, _wild, _offsets, _shared, _doubtful, _in_space, _grows, _few,
             _constant)  # fmt: skip
    return [sentence for make in found for sentence in make(facts)]


def _clipped(facts: Mapping[str, Any]) -> list[str]:
    share = facts.get("clipped_share", 0.0)
    if share < CLIPPED:
        return []
    return [
        f"{100 * share:.2g} % of the values lie on the very bounds of their band: they were "
        "clipped, and σ takes them as measured."
    ]


def _coarse(facts: Mapping[str, Any]) -> list[str]:
    step = facts.get("step_over_noise", 0.0)
    if step < COARSE:
        return []
    return [
        f"Values are rounded to steps of {step:.2g} times the noise: what rounding does is not "
        "noise, and σ takes it for that."
    ]


def _wild(facts: Mapping[str, Any]) -> list[str]:
    share = facts.get("wild_share", 0.0)
    if share < WILD or facts.get("solver") == "robust":
        return []
    return [
        f"{100 * share:.2g} % of the values lie far outside the noise: impulses, or tails that no "
        "Gaussian has. solver='robust' sets them aside."
    ]


def _offsets(facts: Mapping[str, Any]) -> list[str]:
    if "offsets" not in facts:
        return []
    lines, size = facts["offsets"]
    return [
        f"{lines.capitalize()} carry offsets of their own, about {size:.2g} times the noise. They "
        f"were estimated and taken out; σ of single values holds what is left of them, σ of means "
        f"along {lines} does not."
    ]


def _shared(facts: Mapping[str, Any]) -> list[str]:
    if not facts.get("shared"):
        return []
    return [
        f"All bands of a pixel share noise {facts['shared']:.2g} times their own (common mode or "
        "gain). It is as strong everywhere and white in space, so it counts as noise."
    ]


def _doubtful(facts: Mapping[str, Any]) -> list[str]:
    if not facts.get("shared_doubtful"):
        return []
    return [
        "Part of what changes from pixel to pixel may be noise that all bands share, or texture; "
        "this scene cannot tell, and σ takes it for signal. If the instrument has such noise, give "
        "its covariance as noise."
    ]


def _in_space(facts: Mapping[str, Any]) -> list[str]:
    lag1 = facts.get("spatial_lag1", 0.0)
    if facts.get("prior") == "spatial" or lag1 <= CORRELATED:
        return []
    from sigmacube.noise.estimation import spatial_warning

    text = spatial_warning(lag1)
    return [f"{text[0].upper()}{text[1:]}."]


def _grows(facts: Mapping[str, Any]) -> list[str]:
    if facts.get("prior") != "spatial" or not facts.get("grows_with_signal"):
        return []
    return [
        "The noise grows with the signal and enters as one factor per pixel, itself estimated: "
        "95 % intervals held .86 to .95 of the truth in trials. prior=None does not lean on "
        "neighbouring pixels and held .95."
    ]


def _few(facts: Mapping[str, Any]) -> list[str]:
    bands = facts.get("bands", FEW_BANDS)
    if bands >= FEW_BANDS or facts.get("source") == "given":
        return []
    return [
        f"With {bands} bands signal and noise can hardly be told apart: the noise is uncertain, "
        "and so is σ. Give the noise where it is known."
    ]


def _constant(facts: Mapping[str, Any]) -> list[str]:
    count = len(facts.get("constant_bands", ()))
    if not count:
        return []
    if count == 1:
        return ["1 band has one value only and counts as not measured."]
    return [f"{count} bands have one value only and count as not measured."]

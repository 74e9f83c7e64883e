"""Settings that several studies share, so that one Monte Carlo run serves them all."""

from __future__ import annotations

from typing import Any

from sigmacube.studies._scenes import Scene
from sigmacube.studies._setting import Setting

__all__ = ["defaults", "paper_setting"]


def defaults(setting: Setting, scene: Scene, noise: float) -> dict[str, dict[str, Any]]:
    """Return the figures of our defaults, and of two controls on the same trials.

    On a real scene components near the noise edge come and go with the noise, so that the σ of one
    observation is not that of another. There each trial is judged by its own σ, as users have it;
    ``"first"`` holds what the σ of the first observation says of all trials.
    """
    if scene.real:
        forms = ("own", "first", "halved", "independent")
        return setting.measure(scene, noise, forms, sigma="each")
    found = setting.measure(scene, noise, ("own", "halved", "independent"))
    return {**found, "first": found["own"]}


def paper_setting(
    setting: Setting, scene: Scene, noise: float, rank: int = 7
) -> dict[str, dict[str, Any]]:
    """Return the figures of the paper's estimator with three closed forms on the same trials."""
    options = {"rank": rank, "weights": "uniform"}
    return setting.measure(scene, noise, ("own", "paper", "first order"), options=options)


def at_95(figures: dict[str, Any], what: str = "coverage") -> float:
    """Return one figure at the 95 % level."""
    return float(figures[what]["0.95"])

"""Studies that put the claims to the test: the tables and figures of Song et al. (2021), and ours.

One file per study. Each runs a measurement, compares it with limits that were set beforehand, and
carries a negative control: something known to be wrong that the same comparison must catch.
"""

from __future__ import annotations

from importlib import import_module

from sigmacube.studies._report import Check, Report, Study

__all__ = ["Check", "Report", "Study", "NAMES", "load"]

NAMES = (
    "coverage",
    "rank",
    "normality",
    "timing",
    "impulses",
    "calibration",
    "spread",
    "weights",
    "ranks",
    "correlated",
    "functionals",
)
"""All studies, those of the paper first."""


def load(name: str) -> Study:
    """Return a study by its name.

    Examples
    --------
    >>> load("coverage").title
    'Coverage by noise level and scene'
    """
    if name not in NAMES:
        raise ValueError(f"Invalid study {name!r}. It must be one of {', '.join(NAMES)}.")
    study: Study = import_module(f"sigmacube.studies.{name}").STUDY
    return study

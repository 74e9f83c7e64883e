"""Studies that put the claims to the test: the tables and figures of Song et al. (2021), and ours.

One file per study, beside the results that are kept of it; `names` lists the folder. Each has a
``TITLE``, a ``QUESTION``, ``run`` (measure, and hold the figures to limits that were set
beforehand), ``table`` and ``draw``, and carries a negative control: something known to be wrong
that the same comparison must catch.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ._report import Check, Found, Report, Study

__all__ = ["Check", "Found", "Report", "Study", "names", "load"]


def names() -> list[str]:
    """Return the names of all studies."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))


def load(name: str) -> Study:
    """Return a study by its name.

    Examples
    --------
    >>> load("coverage").title
    'Coverage by noise level and scene'
    """
    if name not in names():
        raise ValueError(f"Invalid study {name!r}. It must be one of {', '.join(names())}.")
    found = import_module(f"{__name__}.{name}")
    return Study(name, found.TITLE, found.QUESTION, found.run, found.draw, found.table)

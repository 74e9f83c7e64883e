"""Deliberate crashes, for the tests that kill a run and resume it.

With ``SIGMACUBE_FAULT=point:count`` in the environment the process kills itself, as by kill −9, the
``count``-th time it passes ``point``. Nothing else reads the variable; without it `passing` does
nothing.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "run-before",
    "run-after",
    "survey-before",
    "survey-after",
    "arrays-after",
    "tile-before",
    "chunk-before",
    "chunk-during",
    "chunk-after",
    "manifest-before",
    "manifest-during",
    "manifest-after",
    "metadata-before",
    "metadata-during",
    "metadata-after",
    "rename-before",
    "rename-after",
    "remove-before",
)
"""Points that a run passes, in their order."""

FACTOR_POINTS = ("factors-before", "factors-during", "factors-after", "packing-during")
"""Points that a run passes besides, where window factors are kept."""

_seen: dict[str, int] = {}


def passing(point: str) -> None:
    """Kill this process if the environment says so."""
    wanted, _, count = os.environ.get("SIGMACUBE_FAULT", "").partition(":")
    if wanted == point:
        _seen[point] = _seen.get(point, 0) + 1
        if _seen[point] == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)

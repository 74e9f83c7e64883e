"""The attack on the attacks: cases that crash, hang, eat memory or fail must be counted as bad."""

from __future__ import annotations

import ctypes
import time
import warnings
from pathlib import Path

import numpy as np

from attacks._worker import MEMORY

#: What the cases do, in their order; the first and the last are clean.
WAYS = ("clean", "crash", "hang", "memory", "raise", "warn", "clean")


def parts(number: int) -> list[str]:
    """Return what a case does."""
    return ["clean", WAYS[number], "clean"]


def attempt(ways: list[str], number: int, folder: Path) -> str:
    """Do what must not be done."""
    for way in ways:
        (folder / "made-of.txt").write_text(way)
        _do(way)
    return "clean"


def case(number: int, folder: Path) -> str:
    """Do one thing that must not be done."""
    return attempt([WAYS[number]], number, folder)


def _do(way: str) -> None:
    if way == "crash":
        ctypes.string_at(0)
    elif way == "hang":
        time.sleep(600)
    elif way == "memory":
        np.ones(2 * MEMORY // 8)
    elif way == "raise":
        raise KeyError("raw")
    elif way == "warn":
        warnings.warn("of a library", RuntimeWarning, stacklevel=1)

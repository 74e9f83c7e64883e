"""How long work says how far it is."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress"]

Progress = Callable[[int, int], None]
"""Called with the pieces done and the pieces in all."""

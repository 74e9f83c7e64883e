"""What the makers of scenes refuse."""

from __future__ import annotations

import numpy as np

__all__ = ["check_shape", "check_share", "is_int"]


def check_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return ``shape`` if it has three positive axes, or say what is wrong with it."""
    if len(shape) != 3 or not all(is_int(n) and n > 0 for n in shape):
        raise ValueError(f"Invalid shape {shape}. It must be (rows, cols, bands), each at least 1.")
    rows, cols, bands = shape
    return rows, cols, bands


def check_share(name: str, share: float) -> None:
    """Refuse a share outside 0..1."""
    if not 0 <= share <= 1:
        raise ValueError(f"Invalid {name} {share}. It must be a share between 0 and 1.")


def is_int(value: object) -> bool:
    """Tell whether a value is a whole number, and no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)

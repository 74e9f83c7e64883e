"""Coverage near borders of fields and far from them."""

from __future__ import annotations

import numpy as np

from ._report import Check, Found, span
from ._setting import Setting
from ._spatial import covered, draw, draws, errors, found, main_case, solved, table

__all__ = ["draw", "near_borders", "run", "table"]

TITLE = "Borders of fields"
QUESTION = "Does σ follow borders, where windows mix two fields?"

LEAST, MOST = 0.93, 0.962


def run(setting: Setting) -> Found:
    """Measure coverage within a pixel of borders; one σ for the whole scene is the control."""
    checks, near_all = [], []
    room = 0.015 if setting.quick else 0.0
    least, most = LEAST - room, MOST + room
    for noise in (0.05, 0.1):
        case = main_case(setting, noise)
        near = near_borders(case.truth)
        at, far, flat = [], [], []
        for seed in draws(setting):
            result = solved(setting, case, seed)
            z = errors(result, case)
            one = float(np.sqrt(np.mean(np.asarray(result.std, dtype=np.float64) ** 2)))
            at.append(covered(z[near]))
            far.append(covered(z[~near]))
            flat.append(covered((result.estimate - case.truth)[near] / one))
        near_all.append(float(np.mean(at)))
        checks += [
            Check(f"{case.name}: within a pixel of a border", near_all[-1], least, 1.0),
            Check(f"{case.name}: one σ for all, same pixels", float(np.mean(flat)), least,
                  1.0, kind="control"),
            Check(f"{case.name}: far from borders", float(np.mean(far)), least, most),
        ]  # fmt: skip
    return found(checks, f"near borders {span(near_all)}", f"≥ {LEAST} near, ≤ {MOST} far",
                 {"noise": "told", "draws": len(draws(setting))})  # fmt: skip


def near_borders(truth: np.ndarray) -> np.ndarray:
    """Return (row, col) which pixels differ from one of their four neighbours.

    Examples
    --------
    >>> near_borders(np.array([[[0.0], [0.0], [1.0], [1.0]]]))
    array([[False,  True,  True, False]])
    """
    near = np.zeros(truth.shape[:2], dtype=bool)
    down = np.abs(np.diff(truth, axis=0)).max(axis=2) > 1e-9
    across = np.abs(np.diff(truth, axis=1)).max(axis=2) > 1e-9
    near[1:] |= down
    near[:-1] |= down
    near[:, 1:] |= across
    near[:, :-1] |= across
    return near

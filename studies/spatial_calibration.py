"""Coverage of the truth at five levels by the spatial estimator."""

from __future__ import annotations

import numpy as np

from ._report import Check, Found, span
from ._setting import Setting
from ._spatial import cases, covered, draw, draws, errors, found, solved, table

__all__ = ["draw", "run", "table"]

TITLE = "Calibration of the spatial estimator"
QUESTION = "Do its intervals hold the truth as often as they say, on scenes of every kind?"

# Levels, and how far from them coverage may be.
MARGINS = {0.5: 0.03, 0.68: 0.03, 0.9: 0.02, 0.95: 0.012, 0.99: 0.01}


def run(setting: Setting) -> Found:
    """Measure coverage over some draws of the noise; σ halved is the control."""
    checks, at_95 = [], []
    wider = 2.5 if setting.quick else 1.0  # small scenes have few independent errors
    for case in cases(setting):
        z = [errors(solved(setting, case, seed), case) for seed in draws(setting)]
        for level, margin in MARGINS.items():
            value = float(np.mean([covered(one, level) for one in z]))
            limits = level - wider * margin, level + wider * margin
            checks.append(Check(f"{case.name}: at {100 * level:g} %", value, *limits))
            if level == 0.95:
                at_95.append(value)
                halved = float(np.mean([covered(2 * one, level) for one in z]))
                name = f"{case.name}: σ halved, at 95 %"
                checks.append(Check(name, halved, *limits, kind="control"))
    return found(checks, f"95 % holds {span(at_95)}", "± .03/.03/.02/.012/.01",
                 {"noise": "told", "draws": len(draws(setting))})  # fmt: skip

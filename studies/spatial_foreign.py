"""Single pixels with a spectrum from elsewhere: whether denoising eats them, and σ knows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ._report import Check, Found, span
from ._setting import Setting
from ._spatial import Case, covered, draw, errors, found, main_case, solved, table

__all__ = ["draw", "run", "table"]

TITLE = "Foreign pixels"
QUESTION = "Does σ hold at single pixels whose spectrum no neighbour has?"

LEAST = 0.9
RATIOS = (0.5, 1, 2, 4, 8)
APART = 15


def run(setting: Setting) -> Found:
    """Implant spectra from elsewhere; the σ that the same places have without is the control."""
    case = main_case(setting)
    plain = solved(setting, case, 0)
    known, least = np.asarray(plain.std), 0.7 if setting.quick else LEAST
    checks, ours = [], []
    for snr in RATIOS[1:] if setting.quick else RATIOS:  # a small scene tells too little of .5
        odd, places = implanted(case, snr)
        result = solved(setting, odd, 0)
        ours.append(covered(errors(result, odd)[places]))
        size = float(np.sqrt(np.mean(np.square((result.estimate - odd.truth)[places]))))
        name = f"SNR {snr:g} per band"
        checks.append(Check(f"{name}: 95 % holds", ours[-1], least, 1.0))
        checks.append(Check(f"{name}: error in units of the noise", size, 0.0, 1.0))
        if snr in (2, 4):
            ignorant = (result.estimate - odd.truth)[places] / known[places]
            checks.append(Check(f"{name}: σ of the scene without them", covered(ignorant), least,
                                1.0, kind="control"))  # fmt: skip
    return found(checks, f"95 % holds {span(ours)}", f"≥ {LEAST}, error ≤ 1",
                 {"scene": case.name, "pixels": len(places[0])})  # fmt: skip


def implanted(case: Case, snr: float) -> tuple[Case, tuple[np.ndarray, np.ndarray]]:
    """Return a case with spectra from elsewhere in single pixels, and where they are.

    Parameters
    ----------
    snr
        Size of the contrast to what was there, per band, in units of the noise.
    """
    rng = np.random.default_rng(17)
    rows, cols, bands = case.truth.shape
    truth, places = case.truth.copy(), []
    for r in range(APART // 2, rows - APART // 2, APART):
        for c in range(APART // 2, cols - APART // 2, APART):
            other = case.truth[rng.integers(rows), rng.integers(cols)]
            contrast = other - case.truth[r, c]
            size = float(np.linalg.norm(contrast))
            if size > 1e-6:
                truth[r, c] += contrast * (snr * math.sqrt(bands) / size)
                places.append((r, c))
    at = np.array(places)
    return replace(case, truth=truth), (at[:, 0], at[:, 1])

"""Hidden elements of real scenes: whether they are covered, and what the verdict says.

Usage: python benchmarks/hidden.py [--data FOLDER] [--json FILE] [--page FILE]

Three per cent of the elements of every real scene are hidden, the scene is denoised without them
with defaults, and each is compared with its estimate and σ, to which its own noise is added: once
with the noise estimated on the complete cube (`holdout`), once on the cube with the holes. 95 %
intervals must hold .93 to .97 of them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sigmacube as sc
from honesty import DATA, MADE_SCENES, SCENES
from pages import markdown, put_tables

KEPT = Path(__file__).parent / "results" / "hidden.json"
SHARE = 0.03
RIGHT = (0.93, 0.97)


def growth_of_noise(result: sc.DenoisedCube) -> np.ndarray:
    """Return (row, col, band) the noise of every element over that of its band."""
    errors = result.error_model
    if errors.gap_factor is None:  # values were set aside: one factor per pixel
        return np.asarray(result.noise_scale)[..., None]
    factor = np.full(result.estimate.shape, np.nan)
    factor[..., errors.bands] = errors.gap_factor
    return factor


def with_holes(cube: np.ndarray) -> float:
    """Return the share of hidden elements inside 95 %, noise estimated from the cube with holes."""
    hidden = np.random.default_rng(1).random(cube.shape) < SHARE
    result = sc.denoise(np.where(hidden, np.nan, cube), workers=1)
    assert result.std is not None
    noise = np.asarray(result.noise)
    noise = np.sqrt(np.diag(noise)) if noise.ndim == 2 else noise
    own = np.broadcast_to(noise, cube.shape)
    if result.noise_scale is not None:
        own = own * growth_of_noise(result)
    z = (cube - result.estimate) / np.hypot(result.std, own)
    tested = hidden & np.isfinite(z)
    return float(np.mean(np.abs(z[tested]) <= 1.96))


def check_scene(name: str, data: Path) -> dict[str, Any]:
    """Return coverage both ways, and the verdict."""
    cube = np.asarray(SCENES[name](data, False), dtype=np.float64)
    cube = cube[..., np.ptp(cube, axis=(0, 1)) > 0]
    check = sc.holdout(cube, share=SHARE, workers=1)
    return {
        "complete": round(check.coverage[0.95], 4),
        "with_holes": round(with_holes(cube), 4),
        "trusted": bool(check.trusted),
        "verdict": check.verdict,
    }


def met(row: Mapping[str, Any]) -> bool:
    return all(RIGHT[0] <= row[way] <= RIGHT[1] for way in ("complete", "with_holes"))


def write_page(page: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Put the table into the page."""
    table = [
        [name, f"{row['complete']:.3f}", f"{row['with_holes']:.3f}", "yes" if met(row) else "no",
         row["verdict"]]
        for name, row in rows.items()
    ]  # fmt: skip
    head = ["scene", "noise of the complete cube", "noise of the cube with holes", "met", "verdict"]
    put_tables(page, {"hidden": markdown(head, table)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", type=Path, default=KEPT)
    parser.add_argument("--page", type=Path, help="Only put the kept table into this page.")
    options = parser.parse_args()
    if options.page is not None:
        write_page(options.page, json.loads(options.json.read_text()))
        return
    warnings.simplefilter("ignore")
    rows = {}
    print(f"{'scene':<10} complete  with holes")
    for name in SCENES:
        if name in MADE_SCENES:
            continue
        row = rows[name] = check_scene(name, options.data)
        print(f"{name:<10} {row['complete']:.3f}     {row['with_holes']:.3f}   "
              f"{'met   ' if met(row) else 'missed'} {row['verdict']}", flush=True)  # fmt: skip
    options.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

"""Hidden elements of real scenes: whether they are covered, and what the verdict says.

Usage: python benchmarks/hidden.py [--data FOLDER] [--json FILE]

Three per cent of the elements of every real scene are hidden, the scene is denoised without them
with defaults, and each is compared with its estimate and σ, to which its own noise is added: once
with the noise estimated on the complete cube (`holdout`), once on the cube with the holes. 95 %
intervals must hold .93 to .97 of them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import sigmacube as sc
from honesty import DATA, MADE_SCENES, SCENES

KEPT = Path(__file__).parent / "results" / "hidden.json"
SHARE = 0.03
RIGHT = (0.93, 0.97)


def with_holes(cube: np.ndarray) -> float:
    """Return the share of hidden elements inside 95 %, noise estimated from the cube with holes."""
    hidden = np.random.default_rng(1).random(cube.shape) < SHARE
    result = sc.denoise(np.where(hidden, np.nan, cube), workers=1)
    assert result.std is not None
    noise = np.asarray(result.noise)
    noise = np.sqrt(np.diag(noise)) if noise.ndim == 2 else noise
    own = np.broadcast_to(noise, cube.shape)
    if result.noise_scale is not None:
        own = own * result.noise_scale[..., None]
    z = (cube - result.estimate) / np.hypot(result.std, own)
    tested = hidden & np.isfinite(z)
    return float(np.mean(np.abs(z[tested]) <= 1.96))


def check_scene(name: str, data: Path) -> dict[str, Any]:
    """Return coverage both ways, and the verdict."""
    cube = np.asarray(SCENES[name](data), dtype=np.float64)
    cube = cube[..., np.ptp(cube, axis=(0, 1)) > 0]
    check = sc.holdout(cube, share=SHARE, workers=1)
    return {
        "complete": round(check.coverage[0.95], 4),
        "with_holes": round(with_holes(cube), 4),
        "trusted": bool(check.trusted),
        "verdict": check.verdict,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", type=Path, default=KEPT)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = {}
    print(f"{'scene':<10} complete  with holes")
    for name in SCENES:
        if name in MADE_SCENES:
            continue
        row = rows[name] = check_scene(name, options.data)
        met = all(RIGHT[0] <= row[way] <= RIGHT[1] for way in ("complete", "with_holes"))
        print(f"{name:<10} {row['complete']:.3f}     {row['with_holes']:.3f}   "
              f"{'met   ' if met else 'missed'} {row['verdict']}", flush=True)  # fmt: skip
    options.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

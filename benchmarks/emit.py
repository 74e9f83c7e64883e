"""A cube of the size of an EMIT granule, made and denoised end to end in bounded memory.

1280 × 1242 × 285 values of float32 (1.8 GB): one synthetic scene, mirrored side by side, with fresh
noise everywhere. It is denoised by `sigmacube denoise` in a process of its own; time, peak memory
(the process and its workers, shared pages counted once) and disk are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sigmacube as sc
from scale import family, used_bytes

SHAPE = (1280, 1242, 285)
SIDE = 160
NOISE = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=3, default=SHAPE, metavar=("R", "C", "B"))
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--folder", type=Path, help="where to put cube and result; temporary")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        figures = measured(Path(name), tuple(options.shape), options.memory, options.workers)
    for label, value in figures.items():
        print(f"{label:44s} {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def measured(
    folder: Path, shape: tuple[int, ...], memory: str, workers: str
) -> dict[str, float | str]:
    """Make the cube, denoise it, and return what it took."""
    source, output = write_cube(folder / "granule.npy", shape), folder / "clean.zarr"
    command = [sys.executable, "-m", "sigmacube.cli", "denoise", str(source), str(output),
               "--prior", "spatial", "--memory", memory, "--workers", workers]  # fmt: skip
    begin, peak, most = time.perf_counter(), 0.0, 0
    before = os.times()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while child.poll() is None:
        peak = max(peak, used_bytes(family(child.pid)))
        most = max(most, on_disk(folder) - source.stat().st_size)
        time.sleep(0.5)
    seconds = time.perf_counter() - begin
    after = os.times()
    assert child.stdout is not None
    print(child.stdout.read())
    if child.returncode:
        raise SystemExit(child.returncode)
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return {
        "cube": f"{'×'.join(map(str, shape))} float32, {source.stat().st_size / 1e9:.2f} GB",
        "options": f"--memory {memory} --workers {workers}",
        "seconds": round(seconds, 1),
        "processor seconds": round(spent, 1),
        "processor seconds per million elements": round(spent / np.prod(shape) * 1e6, 3),
        "peak memory, GB": round(peak / 1e9, 3),
        "output on disk, GB": round(on_disk(output) / 1e9, 3),
        "most on disk beside the cube, GB": round(most / 1e9, 3),
        "load average at the end": round(os.getloadavg()[0], 1),
    }


def write_cube(path: Path, shape: tuple[int, ...]) -> Path:
    """Write a noisy cube, strip by strip."""
    scene = sc.synthetic.scene((SIDE, SIDE, shape[2]), endmembers=12, rng=0).values
    scene = np.asarray(scene, dtype=np.float32)
    rng = np.random.default_rng(1)
    rows, cols = (mirrored(n) for n in shape[:2])
    cube = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    for start in range(0, shape[0], 40):
        part = scene[rows[start : start + 40]][:, cols]
        noise = rng.standard_normal(part.shape, dtype=np.float32)
        cube[start : start + 40] = part + np.float32(NOISE) * noise
    cube.flush()
    return path


def mirrored(length: int) -> np.ndarray:
    """Return positions in the small scene, there and back again."""
    there = np.arange(length) % (2 * SIDE)
    return np.minimum(there, 2 * SIDE - 1 - there)


def on_disk(folder: Path) -> int:
    """Return the bytes of all files below a folder, or of a file."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:  # renamed meanwhile
                continue
    return total


if __name__ == "__main__":
    main()

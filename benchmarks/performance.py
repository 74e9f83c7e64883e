"""How time grows with a scene and with the settings, and where it goes: the plots of a page.

Processor seconds of one thread, on synthetic scenes with noise; the noise is given. One thing is
varied at a time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import sigmacube as sc

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PICTURES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images"
BASE = {"side": 96, "bands": 96, "endmembers": 8, "window": 20, "step": 4}
VARIED: dict[str, tuple[int, ...]] = {
    "side": (48, 72, 96, 144, 192),
    "bands": (24, 48, 96, 192, 288),
    "endmembers": (2, 4, 8, 16, 32),
    "window": (10, 14, 20, 28),
    "step": (2, 3, 4, 5, 8),
}
LABELS = {"side": "pixels", "bands": "bands", "endmembers": "spectra in the scene",
          "window": "window, pixels along a side", "step": "step, pixels"}  # fmt: skip
LIMITS = ("300MB", "450MB", "700MB", "1GB")
#: Processor seconds on the simulated Indian Pines scene, one thread, no σ unless said: measured
#: with the same data, see the page.
PEERS = {"FastHyDe (HyDe 0.4.3)": 15.0, "RCTV": 28.0, "NGmeet": 37.0, "WNLRATV": 728.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=("growth", "memory", "plots"),
                        default=("growth", "memory", "plots"))  # fmt: skip
    parser.add_argument("--json", type=Path, default=RESULTS / "performance.json")
    options = parser.parse_args()
    known = json.loads(options.json.read_text()) if options.json.exists() else {}
    if "growth" in options.only:
        known["growth"] = growth()
    if "memory" in options.only:
        known["memory"] = memory()
    options.json.write_text(json.dumps(known, indent=1) + "\n")
    if "plots" in options.only:
        draw_growth(known["growth"])
        if "memory" in known:
            draw_memory(known["memory"])
        bench = RESULTS / "bench.json"
        if bench.exists():
            draw_steps(json.loads(bench.read_text()))


def growth() -> dict[str, list[list[float]]]:
    """Return [value, seconds with σ, seconds without] for every value of every setting."""
    found: dict[str, list[list[float]]] = {}
    seconds({**BASE, "side": 48}, True)  # what is loaded on first use
    for name, values in VARIED.items():
        found[name] = []
        for value in values:
            chosen = {**BASE, name: value}
            both = [seconds(chosen, uncertainty) for uncertainty in (True, False)]
            found[name].append([value, *both])
            print(f"{name:10s} {value:4d} {both[0]:7.2f} s with σ {both[1]:7.2f} s without",
                  flush=True)  # fmt: skip
    return found


def seconds(chosen: dict[str, int], uncertainty: bool) -> float:
    shape = (chosen["side"], chosen["side"] + 4, chosen["bands"])
    scene = sc.synthetic.scene(shape, endmembers=chosen["endmembers"], rng=0)
    noisy = np.asarray(sc.synthetic.add_noise(scene, 0.02, rng=1).values)
    begin = time.process_time()
    sc.denoise(noisy, 0.02, window=chosen["window"], step=chosen["step"], workers=1,
               prior="spatial", uncertainty=uncertainty)  # fmt: skip
    return time.process_time() - begin


MEMORY = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import numpy as np, sigmacube as sc, tempfile
from scale import CHILD, watched
with tempfile.TemporaryDirectory() as name:
    path = Path(name, "cube.npy")
    scene = sc.synthetic.scene((400, 420, 96), endmembers=8, rng=0)
    np.save(path, np.asarray(sc.synthetic.add_noise(scene, 0.02, rng=1).values, dtype=np.float32))
    for limit in sys.argv[2:]:
        options = {"source": str(path), "output": str(Path(name, "a.zarr")), "noise": 0.02,
                   "prior": "spatial", "memory": limit, "workers": 1, "overwrite": True}
        peak, (whole, tiles) = watched(path, CHILD, options)
        print(json.dumps([limit, peak, tiles]), flush=True)
"""


def memory() -> list[list[Any]]:
    """Return [limit, peak bytes, seconds of the tiles] of a scene in several limits."""
    ran = subprocess.run([sys.executable, "-c", MEMORY, str(Path(__file__).parent), *LIMITS],
                         stdout=subprocess.PIPE, text=True, check=True)  # fmt: skip
    print(ran.stdout)
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]


def figure(columns: int, width: float = 3.1) -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(1, columns, figsize=(width * columns, 3.2), layout="constrained")


def draw_growth(found: dict[str, list[list[float]]]) -> None:
    """Draw time against pixels, bands, spectra, window and step."""
    drawn, axes = figure(len(found))
    for axis, (name, rows) in zip(axes, found.items(), strict=True):
        values, with_sigma, without = np.array(rows).T
        x = values * (values + 4) if name == "side" else values
        axis.plot(x, with_sigma, "o-", label="with σ")
        axis.plot(x, without, "o--", label="estimate alone")
        axis.set(xlabel=LABELS[name], ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("processor seconds")
    axes[0].legend(frameon=False)
    drawn.savefig(PICTURES / "performance_growth.png", dpi=110)


def draw_memory(rows: list[list[Any]]) -> None:
    """Draw peak memory against what was allowed."""
    from sigmacube.tiles.plan import parse_memory

    drawn, axis = figure(1)
    allowed = [parse_memory(limit) / 1e6 for limit, _, _ in rows]
    axis.plot(allowed, [peak / 1e6 for _, peak, _ in rows], "o-", label="measured")
    axis.plot(allowed, allowed, "k:", label="--memory")
    axis.set(xlabel="--memory, MB", ylabel="peak memory, MB", xlim=(0, None), ylim=(0, None))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    drawn.savefig(PICTURES / "performance_memory.png", dpi=110)


def draw_steps(every: dict[str, Any]) -> None:
    """Draw where the time goes, and what others take on the simulated scene."""
    drawn, (left, right) = figure(2, 4.6)
    parts = [
        ("noise", lambda s: s["noise"]),
        ("estimate, size of errors", lambda s: s["no sigma"]),
        ("σ", lambda s: max(s["noise given"] - s["no sigma"], 0)),
        ("saving", lambda s: s["saving"]),
    ]
    names, bottom = list(every), np.zeros(len(every))
    own = [{k: both[0] for k, both in f["seconds"].items()} for f in every.values()]
    million = np.array([f["elements"] / 1e6 for f in every.values()])
    for label, part in parts:
        height = np.array([part(s) for s in own]) / million
        left.bar(names, height, bottom=bottom, label=label)
        bottom += height
    left.set_ylabel("processor seconds / million elements")
    left.legend(frameon=False, fontsize="small")
    draw_peers(right, every)
    drawn.savefig(PICTURES / "performance_steps.png", dpi=110)


def draw_peers(axis: Any, every: dict[str, Any]) -> None:
    bars: Iterable[tuple[str, float]] = PEERS.items()
    if "simulated" in every:
        found = every["simulated"]["seconds"]
        mine = [("sigmacube, with σ", found["denoise"][0]), ("SVD loop", found["svd loop"][0])]
        if "first release" in found:
            mine.append(("first release, with σ", found["first release"][0]))
        bars = [*mine, *bars]
    names, values = zip(*bars, strict=True)
    axis.barh(names[::-1], values[::-1])
    axis.set(xscale="log", xlabel="processor seconds, simulated scene")


if __name__ == "__main__":
    main()

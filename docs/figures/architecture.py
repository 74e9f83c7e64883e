"""Draw how one call walks through the house: rooms from top to bottom, functions in order.

Run from the root of the repository: ``python docs/figures/architecture.py``. Follows
``denoise(array, noise)`` as ``make walk`` does, and saves ``docs/images/architecture.svg``.
"""

from __future__ import annotations

import sys
from itertools import groupby, pairwise
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from sigmacube.show.look import INK
from sigmacube.show.plots import style

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from walk import Walk, walk_denoise  # noqa: E402

IMAGE = ROOT / "docs" / "images" / "architecture.svg"
ROOMS = (
    ("api", "any input; memory, Dask or file"),
    ("settings", "the options, checked once"),
    ("cube", "values, mask, wavelengths"),
    ("pipeline", "survey_scene, denoise_region"),
    ("survey", "the whole scene; blocks of it"),
    ("correction", "offsets of columns and rows"),
    ("estimators", "one file per prior"),
    ("noise", "models, estimators, advice"),
    ("core.spatial", "subspace, windows, shrinkage"),
    ("core.lowrank", "solvers, overlapping windows"),
    ("core", "geometry, whitening, threads"),
)


def room_of(module: str) -> int:
    """Return the number of the room that a module lies in."""
    name = module.removeprefix("sigmacube.")
    for number, (room, _) in enumerate(ROOMS):
        if name == room or name.startswith(f"{room}."):
            return number
    return len(ROOMS) - 1


def draw(walk: Walk) -> plt.Figure:
    """Draw one dot per function, in the order of the first visit, in the lane of its room."""
    places = [room_of(module) for module, _ in walk.visited]
    rooms = sorted(set(places))
    lane = {room: -number for number, room in enumerate(rooms)}
    figure, ax = plt.subplots(figsize=(10.5, 0.5 * len(rooms) + 0.9), layout="constrained")
    for number in range(0, len(rooms), 2):
        ax.axhspan(-number - 0.5, -number + 0.5, color="0.955", lw=0)
    ax.plot(range(len(places)), [lane[p] for p in places], color="0.75", lw=0.8, zorder=1)
    for room, group in groupby(range(len(places)), key=lambda n: places[n]):
        steps = list(group)
        color = f"C{rooms.index(room) % 10}"
        ax.plot(steps, [lane[room]] * len(steps), "o", ms=3.6, color=color, zorder=2)
    for room in rooms:
        name, about = ROOMS[room]
        count = places.count(room)
        modules = len({m for m, _ in walk.visited if room_of(m) == room})
        size = f"{count} function{'s' * (count > 1)}"
        size += f" in {modules} modules" if modules > 1 else ""
        ax.text(-2, lane[room] + 0.13, name, ha="right", va="center", weight="bold", size=9.5)
        ax.text(-2, lane[room] - 0.24, f"{about} · {size}", ha="right", va="center", size=7.5)
    changes = sum(a != b for a, b in pairwise(places))
    ax.set_xlabel(
        f"{len(places)} functions in the order of their first call; {changes} changes of the room",
        loc="right",
    )
    ax.set(yticks=[], xlim=(-1, len(places)), ylim=(-len(rooms) + 0.4, 0.6))
    ax.spines["left"].set_visible(False)
    ax.tick_params(colors=INK)
    return figure


def main() -> None:
    """Follow the call and save the picture."""
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "architecture"
    with style():
        draw(walk_denoise()).savefig(IMAGE, metadata={"Date": None})
    print(IMAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()

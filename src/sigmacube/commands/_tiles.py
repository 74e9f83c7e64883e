"""``sigmacube denoise`` tile by tile: its options, and when it is used."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from sigmacube.commands._options import Parsed, given_mask, given_noise, reading, together
from sigmacube.io.places import address_of

if TYPE_CHECKING:
    from sigmacube.tiles import Outcome

#: Memory that a whole cube takes while it is denoised, in cubes of float64; measured.
CUBES = 8


def _tile(value: Any) -> tuple[int, int]:
    from sigmacube.tiles.plan import parse_tile

    return parse_tile(value)


def _memory(value: Any) -> float:
    from sigmacube.tiles.plan import parse_memory

    return parse_memory(value)


#: How much is in memory at a time.
size_options = together(
    click.option("--tile", type=Parsed("rows x cols", _tile), metavar="ROWSxCOLS",
                 help="Work tile by tile, of this size in pixels."),
    click.option("--memory", type=Parsed("memory", _memory), metavar="SIZE",
                 help="Work tile by tile, within this memory for all workers, such as 2GB."),
)  # fmt: skip
#: What makes `denoise` work tile by tile.
tiling_options = together(
    size_options,
    click.option("--threads", is_flag=True,
                 help="Tiles one by one, solved by threads: slower, in less memory."),
    click.option("--scheduler", metavar="ADDRESS",
                 help="Tiles by Dask: tcp://host:port, or 'local' for --workers processes."),
    click.option("--resume", is_flag=True, help="Go on with a run over tiles that was stopped."),
)  # fmt: skip


def uses_tiles(source: str, output: str, options: Mapping[str, Any]) -> bool:
    """Tell whether the user asks for tiles."""
    asked = [key for key in ("tile", "memory", "threads", "scheduler", "resume") if options[key]]
    stores = [p for p in (source, output) if address_of(p) and (p == output or p.endswith(".zarr"))]
    asked += ["an address"] if stores else []
    if asked and "-" in (source, output):
        raise ValueError(f"-: standard input and output cannot be used with {asked[0]}.")
    return bool(asked)


def too_large(source: str, options: dict[str, Any]) -> bool:
    """Tell whether a cube would not fit in the free memory; then set a limit and say so."""
    from sigmacube import io

    rows, cols, bands = io.open_source(source, **reading(options)).shape
    return limited(source, CUBES * 8 * rows * cols * bands, options)


def limited(source: object, needed: float, options: dict[str, Any]) -> bool:
    """Tell whether so many bytes are not free; then set a limit and say so."""
    from sigmacube.console import note

    try:
        there = float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # nobody can tell
        return False
    if needed < 0.8 * there:
        return False
    options["memory"] = 0.5 * there
    note(
        f"{source} would take {needed / 1e9:.1f} GB in memory; working tile by tile in "
        f"{0.5 * there / 1e9:.1f} GB. --memory sets another limit."
    )
    return True


def run_tiled(
    source: str, output: str, options: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """Denoise tile by tile and say what was done."""
    from sigmacube import io
    from sigmacube.console import note, progress, quiet
    from sigmacube.tiles import denoise_file

    start = time.perf_counter()
    read = reading(options)
    opened = io.open_source(source, **read)
    for text in opened.metadata.get("notes", []):
        note(f"{source}: {text}.")
    try:
        with progress("Opening the scene") as moved:
            outcome = denoise_file(
                source,
                output,
                given_noise(options["noise"], opened.shape[2]),
                mask=given_mask(options["mask"], opened),
                reading=read,
                tile=options["tile"],
                memory=options["memory"],
                mode="threads" if options["threads"] else "processes",
                scheduler=options["scheduler"],
                resume=options["resume"],
                overwrite=options["overwrite"],
                dtype=options["dtype"],
                keep_factors=options["keep_factors"],
                progress=moved,
                **settings,
            )
    except KeyboardInterrupt:
        note("finished tiles are kept; --resume goes on from there.")
        raise
    if not quiet():
        _tell(outcome, output, time.perf_counter() - start)


def _tell(outcome: Outcome, output: str, seconds: float) -> None:
    """Print what was done, and what a user should know of it."""
    from sigmacube.commands._summary import Summary
    from sigmacube.console import table

    summary = Summary.of_outcome(outcome)
    if summary is None:
        table([("written", output)])
        return
    windows = summary.ranks.size * outcome.computed / max(outcome.tiles, 1)
    kept = outcome.tiles - outcome.computed
    before = f", {kept} of them before" if kept else ""
    rows, cols = outcome.tile
    told = [
        ("written", output),
        ("time", f"{seconds:.1f} s; {windows / max(seconds, 1e-9):,.0f} windows/s"),
        ("tiles", f"{outcome.tiles} of {rows} × {cols} pixels{before}"),
    ]
    factors = [("factors", f"{outcome.factor_bytes / 1e6:,.1f} MB before compression")]
    summary.tell(told, factors if outcome.factor_bytes else [])

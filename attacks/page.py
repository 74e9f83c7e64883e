"""Write docs/attacks.md from the kept counts of the attacks."""

from __future__ import annotations

from importlib import import_module

from attacks.__main__ import ATTACKS
from attacks._worker import ROOT
from attacks.kept import Run, runs, total

PAGE = ROOT / "docs" / "attacks.md"
_HEAD = """# Attacks

What was tried to break sigmacube, how often, and how it ended. Every case is made from its number
alone, so that each line can be run again; `make attack` runs them all,
`python -m attacks NAME --first N --count 1` one case. A case that ends badly is kept in
`attacks/found` with what it was made of and, where it has parts, the fewest of them that suffice.
What is promised, and what is not, stands in [security](security.md).

| attack | wanted | tried | clean | bad | of which |
|---|---|---|---|---|---|
"""
_RUNS = """
The runs behind these counts (a plus: the code had changes that were not committed yet). Each goes
on behind the cases of the former ones; `--fresh` begins anew.

| command | cases | bad | minutes | date | commit |
|---|---|---|---|---|---|
"""
_AGAIN = """
`python -m attacks.page` writes this page from `attacks/results`.

## What they found

All of this is mended, each with a test:

* files: an HDF5 attribute whose four damaged bytes took 1.9 GB; an HDF5 heap that the library never
  left; values of 1e38 and more, whose squares overflowed;
* cubes: windows of which most is missing, whose estimate ran away, up to an error of LAPACK; noise
  that came out as zero or NaN, or where all that differs is an impulse; scenes of one band with
  nothing to tell outliers from, or of one valid pixel, whose power rounding made negative;
* kills: a local Dask cluster ended by SIGTERM printed tracebacks of its workers; Ctrl-C
  while a Zarr store was written could leave a part of it, which threads of the library wrote on;
  SIGTERM while `--overwrite` removed a former Zarr store left half of that under its name;
* guided: band numbers of many digits, an `OverflowError`;
* browsers: of 200 users at once some waited for the pages of others;
* reading the promises again: a VRT that showed any file of the machine; the dashboard of
  `--scheduler local`, which listened on all interfaces; pipes inside Zarr stores and product
  folders and beside GeoTIFFs, for which the libraries wait for ever; names of systems of
  coordinates that hold no WKT, null characters or orders to the terminal; Ctrl-C while worker
  processes start, some of which printed a traceback.

## The attacks

"""


def page() -> str:
    """Return the page."""
    sums, lines, abouts = [], [], []
    for name, about in ATTACKS.items():
        kept = runs(name)
        tally = total(kept, name)
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(tally.kinds.items()))
        wanted = f"{about.full:,} {' or '.join(about.counted)}".strip()
        sums.append(f"| {name} | {wanted} | {tally.tried:,} | {tally.clean:,} | {len(tally.bad)} "
                    f"| {kinds} |")  # fmt: skip
        lines += [_line(run) for run in kept]
        text = (import_module(f"attacks.{name}").__doc__ or "").strip()
        abouts.append(f"**{name}.** {text}\n")
    return (
        _HEAD + "\n".join(sums) + "\n" + _RUNS + "\n".join(lines) + "\n" + _AGAIN
        + "\n".join(abouts)
    )  # fmt: skip


def _line(run: Run) -> str:
    minutes = f"{run.seconds / 60:.1f}"
    return (
        f"| `{run.command}` | {run.first} to {run.next - 1} | {len(run.bad)} | {minutes} "
        f"| {run.date} | {run.commit} |"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

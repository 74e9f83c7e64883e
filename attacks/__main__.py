"""Run attacks and print what they found."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from attacks._worker import ROOT, Tally, run_cases

#: How many cases of each attack make a full run, and a short one; seconds that one case may take.
COUNTS = {
    "files": (10_000, 150, 10.0),
    "cubes": (10_000, 60, 120.0),
    "commands": (500, 40, 60.0),
    "kills": (1_000, 8, 120.0),
    "disks": (120, 8, 60.0),
    "browsers": (700, 120, 120.0),
    "parsers": (200_000, 5_000, 60.0),
}
FOUND = ROOT / "attacks" / "found"
RESULTS = ROOT / "attacks" / "results"


def attack(name: str, count: int, first: int, budget: float | None) -> Tally:
    """Run one attack."""
    module = import_module(f"attacks.{name}")
    batch = getattr(module, "BATCH", 1)  # cases that one number stands for
    FOUND.mkdir(exist_ok=True)
    return run_cases(name, -(-count // batch), first=first, budget=budget, found=FOUND,
                     seconds=COUNTS[name][2])  # fmt: skip


def show(tally: Tally) -> None:
    """Print one line of the table, and the bad cases."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.kinds.items()))
    print(
        f"{tally.name:10s} {tally.tried:8,d} {tally.clean:8,d} {len(tally.bad):5d} "
        f"{tally.seconds:7.0f} s  {kinds}", flush=True,
    )  # fmt: skip
    for bad in tally.bad[:20]:
        print(f"    {tally.name}-{bad['case']}: {bad['reason']}", flush=True)


def keep(tally: Tally, first: int) -> None:
    """Keep a run for docs/attacks.md."""
    RESULTS.mkdir(exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True,
                            capture_output=True).stdout.strip()  # fmt: skip
    made = {
        "tried": tally.tried, "clean": tally.clean, "bad": tally.bad, "kinds": tally.kinds,
        "seconds": round(tally.seconds), "first": first, "commit": commit,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": f"python -m attacks {tally.name} --count {tally.tried}",
    }  # fmt: skip
    (RESULTS / f"{tally.name}.json").write_text(json.dumps(made, indent=1) + "\n")


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m attacks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*COUNTS, []], help="attacks; all by default")
    parser.add_argument("--count", type=int, help="cases of each attack")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seconds", type=float, help="end each attack after this time")
    parser.add_argument("--quick", action="store_true", help="few cases, in about half a minute")
    parser.add_argument("--keep", action="store_true", help="keep the counts for the page")
    options = parser.parse_args()
    print(f"{'attack':10s} {'tried':>8s} {'clean':>8s} {'bad':>5s}")
    bad = 0
    for name in options.names or COUNTS:
        count = options.count or COUNTS[name][1 if options.quick else 0]
        tally = attack(name, count, options.first, options.seconds)
        show(tally)
        bad += len(tally.bad)
        if options.keep:
            keep(tally, options.first)
    if bad:
        print(f"{bad} bad cases; what they were made of lies in {FOUND.relative_to(Path.cwd())}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Run attacks and print what they found."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from attacks._worker import ROOT, Runner, Tally
from attacks.kept import Keeper, runs, total


@dataclass(frozen=True)
class Attack:
    """Cases of a full and of a short run, seconds for one case, and the kinds that count."""

    full: int
    short: int
    seconds: float
    counted: tuple[str, ...] = ()


ATTACKS = {
    "files": Attack(10_000, 150, 10.0),
    "cubes": Attack(10_000, 60, 120.0, ("denoised",)),
    "commands": Attack(500, 40, 60.0),
    "kills": Attack(1_000, 8, 120.0, ("killed",)),
    "disks": Attack(200, 8, 60.0),
    "browsers": Attack(500, 60, 120.0, ("refused", "closed")),
    "parsers": Attack(200_000, 5_000, 60.0),
    "guided": Attack(200_000, 20_000, 600.0),
}
FOUND = ROOT / "attacks" / "found"


def attack(name: str, options: argparse.Namespace) -> Tally:
    """Run one attack."""
    about = ATTACKS[name]
    count = options.count or (about.short if options.quick else about.full)
    former = runs(name) if options.keep and not options.fresh else []
    before = total(former, name)
    first = before.next if options.first is None else options.first
    runner = Runner(name, count - before.of(about.counted), about.counted, first=first,
                    budget=options.seconds, found=FOUND, seconds=about.seconds)  # fmt: skip
    if options.keep:
        again = f"python -m attacks {name} --keep"
        runner.told = Keeper(name, former, again, first)
    return runner.run()


def show(tally: Tally) -> None:
    """Print one line of the table, and the bad cases."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(tally.kinds.items()))
    print(
        f"{tally.name:10s} {tally.tried:8,d} {tally.clean:8,d} {len(tally.bad):5d} "
        f"{tally.seconds:7.0f} s  {kinds}", flush=True,
    )  # fmt: skip
    for bad in tally.bad[:20]:
        print(f"    {tally.name}-{bad['case']}: {bad['reason']}", flush=True)


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m attacks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ATTACKS, []], help="attacks; all by default")
    parser.add_argument("--count", type=int, help="cases of each attack")
    parser.add_argument("--first", type=int, help="number of the first case")
    parser.add_argument("--seconds", type=float, default=float("inf"),
                        help="end each attack after this time")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="few cases, in about a minute")
    parser.add_argument("--keep", action="store_true", help="keep the counts, go on behind them")
    parser.add_argument("--fresh", action="store_true", help="with --keep: begin anew")
    options = parser.parse_args()
    print(f"{'attack':10s} {'tried':>8s} {'clean':>8s} {'bad':>5s}")
    bad = 0
    for name in options.names or ATTACKS:
        lacking = getattr(import_module(f"attacks.{name}"), "needs", lambda: None)()
        if lacking:
            print(f"{name:10s} left out; it needs: {lacking}")
            continue
        tally = attack(name, options)
        show(tally)
        bad += len(tally.bad)
    if bad:
        place = FOUND.relative_to(Path.cwd()) if FOUND.is_relative_to(Path.cwd()) else FOUND
        print(f"{bad} bad cases; what they were made of lies in {place}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

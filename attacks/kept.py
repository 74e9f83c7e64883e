"""Counts that are kept: how many cases were tried, when, on which commit, by which command.

A file of ``attacks/results`` holds the runs of one attack. A run that goes on where the former one
ended adds to its cases; none is counted twice.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attacks._worker import ROOT, Tally

RESULTS = ROOT / "attacks" / "results"


@dataclass
class Run:
    """One run of an attack: cases from ``first`` up to, without, ``next``."""

    command: str
    commit: str
    date: str
    first: int
    next: int
    seconds: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    bad: list[dict[str, Any]] = field(default_factory=list)


def runs(name: str) -> list[Run]:
    """Return the kept runs of an attack."""
    file = RESULTS / f"{name}.json"
    return [Run(**run) for run in json.loads(file.read_text())] if file.is_file() else []


def total(kept: list[Run], name: str) -> Tally:
    """Return the counts of runs together."""
    tally = Tally(name)
    for run in kept:
        tally.add(run.kinds)
        tally.bad += run.bad
        tally.seconds += run.seconds
        tally.next = max(tally.next, run.next)
    return tally


class Keeper:
    """Writes a run into the file of its attack, again and again while it goes on.

    Parameters
    ----------
    name
        Of the attack.
    former
        Runs that it adds to.
    command
        How to run it again.
    first
        Number of its first case.
    """

    def __init__(self, name: str, former: list[Run], command: str, first: int) -> None:
        self.file = RESULTS / f"{name}.json"
        self.former, self.command, self.first = former, command, first
        self.commit = _commit()  # of the code that is loaded, whatever comes later

    def __call__(self, tally: Tally) -> None:
        """Write what was counted so far."""
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        run = Run(self.command, self.commit, date, self.first, tally.next, round(tally.seconds),
                  tally.kinds, tally.bad)  # fmt: skip
        RESULTS.mkdir(exist_ok=True)
        partial = Path(f"{self.file}.partial")
        partial.write_text(json.dumps([asdict(one) for one in [*self.former, run]], indent=1))
        partial.replace(self.file)


def _commit() -> str:
    """Return the commit, with a plus where the code differs from it."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *words], cwd=ROOT, text=True, capture_output=True, check=False
        )

    changed = git("diff", "--quiet", "HEAD", "--", "src", "attacks/*.py").returncode
    return git("rev-parse", "--short", "HEAD").stdout.strip() + "+" * (changed == 1)

"""What a study reports: figures, the limits they were held to, and a verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from sigmacube._version import __version__
from sigmacube.io.atomic import staged
from sigmacube.show import plots

if TYPE_CHECKING:
    from ._setting import Setting

__all__ = ["Check", "Found", "Report", "Study"]

KINDS = ("ours", "paper", "control")


@dataclass(frozen=True)
class Check:
    """One figure and the limits it is held to.

    Examples
    --------
    >>> Check("coverage", 0.949, 0.944, 0.956).words
    'right'
    >>> Check("σ halved", 0.673, 0.944, 0.956, kind="control").words
    'wrong, as it must be'
    """

    name: str
    """What was measured."""
    value: float
    """The figure."""
    low: float
    """Smallest value that is right."""
    high: float
    """Largest value that is right."""
    kind: str = "ours"
    """``"ours"`` must be right; ``"control"`` must be wrong; ``"paper"`` is only reported."""
    paper: float | None = None
    """The paper's figure, where it prints one."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"Invalid kind {self.kind!r}. It must be one of {', '.join(KINDS)}.")

    @property
    def inside(self) -> bool:
        """Whether the figure lies within its limits."""
        return self.low <= self.value <= self.high

    @property
    def passed(self) -> bool:
        """Whether the figure is what it must be."""
        return {"ours": self.inside, "paper": True, "control": not self.inside}[self.kind]

    @property
    def words(self) -> str:
        """The verdict in words."""
        if self.kind == "control":
            return "NOT CAUGHT" if self.inside else "wrong, as it must be"
        return "right" if self.inside else "wrong"


@dataclass(frozen=True)
class Found:
    """What running a study gives."""

    settings: Mapping[str, Any]
    """How it was done."""
    ours: str
    """Our figure, for one row of the results page."""
    paper: str
    """The paper's figure."""
    limit: str
    """What ours is held to."""
    checks: Sequence[Check]
    """Figures held to limits."""
    data: Mapping[str, Any]
    """All figures, for tables and pictures."""


@dataclass(frozen=True)
class Report:
    """The outcome of a study."""

    study: str
    """Name of the study."""
    title: str
    """What it is about."""
    question: str
    """What it asks."""
    quick: bool
    """Whether this was the short version."""
    settings: Mapping[str, Any]
    """How it was done."""
    summary: Mapping[str, str]
    """One row of the results page: ``ours``, ``paper``, ``limit``."""
    checks: tuple[Check, ...]
    """Figures held to limits."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """All figures, for tables and pictures."""
    seconds: float = 0.0
    """Time it took."""
    version: str = ""
    """Version of sigmacube."""

    @property
    def passed(self) -> bool:
        """Whether all figures are right and all controls were caught."""
        return all(check.passed for check in self.checks)

    @property
    def verdict(self) -> str:
        """``right``, or what is wrong."""
        wrong = [check.name for check in self.checks if not check.passed]
        if not wrong:
            return "right"
        few = "; ".join(wrong[:3]) + ("; …" if len(wrong) > 3 else "")
        return f"wrong in {len(wrong)} of {len(self.checks)}: {few}"

    @property
    def command(self) -> str:
        """The command that makes this report."""
        return f"sigmacube study {self.study}" + (" --quick" if self.quick else "")

    def markdown_row(self) -> str:
        """Return the row of the results page."""
        cells = (
            self.title,
            *(self.summary.get(key, "–") for key in ("ours", "paper", "limit")),
            self.verdict,
            f"`{self.command}`",
        )
        return "| " + " | ".join(cells) + " |"

    def to_json(self) -> str:
        """Return the report as JSON text."""
        record = asdict(self)
        record["checks"] = [{**asdict(check), "verdict": check.words} for check in self.checks]
        record |= {"verdict": self.verdict, "command": self.command}
        return json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report that a JSON text holds; verdicts are found anew from the figures."""
        record = json.loads(text)
        checks = tuple(
            Check(**{k: v for k, v in check.items() if k != "verdict"})
            for check in record.pop("checks")
        )
        for derived in ("verdict", "command"):
            record.pop(derived, None)
        return cls(checks=checks, **record)

    def write(self, folder: Path, draw: Callable[[Report, Figure], None]) -> list[Path]:
        """Write ``<study>.json``, ``.png`` and ``.md`` to a folder; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.study}.{suffix}" for suffix in ("json", "png", "md")]
        with plots.style(), staged(paths, overwrite=True) as (record, picture, row):
            figure = Figure(layout="constrained")
            draw(self, figure)
            figure.savefig(picture, format="png", dpi=140)
            row.write_text(self.markdown_row() + "\n", encoding="utf-8")
            record.write_text(self.to_json(), encoding="utf-8")
        return paths


@dataclass(frozen=True)
class Study:
    """One study: what it asks, how it is run, drawn and tabulated."""

    name: str
    title: str
    question: str
    run: Callable[[Setting], Found]
    draw: Callable[[Report, Figure], None]
    """Draw the picture from the report alone."""
    table: Callable[[Report], str]
    """Return the Markdown table of the results page from the report alone."""

    def report(self, setting: Setting) -> Report:
        """Run the study and return its report."""
        start = time.perf_counter()
        found = self.run(setting)
        return Report(
            study=self.name,
            title=self.title,
            question=self.question,
            quick=setting.quick,
            settings=found.settings,
            summary={"ours": found.ours, "paper": found.paper, "limit": found.limit},
            checks=tuple(found.checks),
            data=found.data,
            seconds=round(time.perf_counter() - start, 1),
            version=__version__,
        )


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with staged([path], overwrite=True) as (temporary,):
        temporary.write_text(text, encoding="utf-8")


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table.

    Examples
    --------
    >>> print(markdown_table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def span(values: list[float], digits: int = 3) -> str:
    """Return the range of some figures as text.

    Examples
    --------
    >>> span([0.9512, 0.9488]), span([0.95])
    ('0.949 to 0.951', '0.950')
    """
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"

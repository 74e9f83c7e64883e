"""Tables of figures that benchmarks put into pages of the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["markdown", "put_tables"]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def put_tables(page: Path, tables: Mapping[str, str]) -> None:
    """Put tables between the marks <!-- name --> and <!-- end --> of a page."""
    text = page.read_text()
    for name, table in tables.items():
        before, found, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not found or not end:
            raise ValueError(f"{page}: no place for {name!r}. There must be a mark for it.")
        text = f"{before}{found}\n{table}\n\n{end}{after}"
    page.write_text(text)

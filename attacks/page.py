"""Write docs/attacks.md from the kept counts of the attacks."""

from __future__ import annotations

import json
from importlib import import_module

from attacks.__main__ import COUNTS, RESULTS
from attacks._worker import ROOT

PAGE = ROOT / "docs" / "attacks.md"
_HEAD = """# Attacks

What was tried to break sigmacube, how often, and how it ended. Every case is made from its number
alone, so that each line can be run again; `make attack` runs them all,
`python -m attacks NAME --first N --count 1` one case. A case that ends badly is kept in
`attacks/found` with what it was made of. What is promised, and what is not, stands in
[security](security.md).

| attack | tried | clean | bad | kinds | date | commit |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    lines, abouts = [], []
    for name in COUNTS:
        file = RESULTS / f"{name}.json"
        about = (import_module(f"attacks.{name}").__doc__ or "").strip()
        abouts.append(f"**{name}.** {about}\n")
        if not file.is_file():
            lines.append(f"| {name} | not run at scale yet | | | | | |")
            continue
        kept = json.loads(file.read_text())
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kept["kinds"].items()))
        lines.append(
            f"| {name} | {kept['tried']:,} | {kept['clean']:,} | {len(kept['bad'])} | {kinds} | "
            f"{kept['date']} | {kept['commit']} |"
        )
    again = "Run again: `python -m attacks --keep`, then `python -m attacks.page`.\n"
    return _HEAD + "\n".join(lines) + "\n\n" + again + "\n## The attacks\n\n" + "\n".join(abouts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

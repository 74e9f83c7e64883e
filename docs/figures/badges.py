"""Draw the badges of README from what the project states: ``python docs/figures/badges.py``.

They lie in the repository: no page asks a server for them, and a test holds them to the facts.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">
<title>{label}: {text}</title>
<rect width="{width}" height="20" rx="3" fill="#0072B2"/>
<path d="M3 0h{inner}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#444"/>
<g fill="#fff" font-family="DejaVu Sans,Verdana,sans-serif" font-size="11" text-anchor="middle">
<text x="{left:g}" y="14">{label}</text>
<text x="{right:g}" y="14">{text}</text>
</g>
</svg>
"""


def badge(label: str, text: str) -> str:
    """Return a badge as SVG; letters are taken to be 6.6 pixels wide."""
    first, second = (round(6.6 * len(part)) + 14 for part in (label, text))
    return _SVG.format(
        label=label, text=text, width=first + second, inner=first - 3, left=first / 2,
        right=first + second / 2,
    )  # fmt: skip


def badges() -> dict[str, str]:
    """Return the badges by the names of their files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = (re.search(r"Python :: (3\.\d+)$", line) for line in project["classifiers"])
    versions = [match[1] for match in found if match]
    typed = (ROOT / "src" / "sigmacube" / "py.typed").exists()
    return {
        "badge-python.svg": badge("Python", f"{versions[0]} to {versions[-1]}"),
        "badge-licence.svg": badge("licence", project["license"]),
        "badge-types.svg": badge("type hints", "checked" if typed else "none"),
    }


if __name__ == "__main__":
    for name, drawn in badges().items():
        (IMAGES / name).write_text(drawn, encoding="utf-8")
        print(IMAGES / name)

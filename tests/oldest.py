"""Print the oldest allowed version of every dependency, as requirements for pip."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

GROUPS = ("scale", "view")
TOOLS = ("pytest", "hypothesis", "pytest-xdist")


def main() -> None:
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())
    wanted = list(project["project"]["dependencies"])
    extras = project["project"]["optional-dependencies"]
    for group in GROUPS:
        wanted += extras[group]
    for line in wanted:
        print(re.sub(r">=([\w.]+)", lambda m: f"=={m[1]}" + ".*" * (m[1].count(".") < 2), line))
    print(*TOOLS, sep="\n")


if __name__ == "__main__":
    main()

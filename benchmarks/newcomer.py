"""Follow README to the letter in a fresh clone, as a newcomer would, and say what each step took.

Usage: python benchmarks/newcomer.py [--test]

Clones the repository into an empty folder, then runs the commands of README's first block (``make
test`` only with ``--test``: it takes minutes), the block of commands and the block of Python on a
scene, from the environment that ``make demo`` made. Ends with exit code 1 where one fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCENE = """
import sigmacube as sc
for name in ("scene", "line"):
    sc.datasets.load("detectors").save(name + ".hdr")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        clone = Path(name) / "sigmacube"
        step("git clone", ["git", "clone", "--quiet", str(ROOT), str(clone)], Path(name))
        text = (clone / "README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)
        plain = [body for language, body in blocks if language == ""]
        for line in plain[0].splitlines():
            command = line.split("#")[0].strip()
            if command != "make test" or "--test" in sys.argv:
                step(command, command.split(), clone)
        python = clone / ".venv" / "bin" / "python"
        step("a scene", [str(python), "-c", SCENE], clone)
        for command in commands(plain):
            step(command, command, clone)
        code = next(body for language, body in blocks if language == "python")
        step("the Python of README", [str(python), "-c", code], clone)


def commands(blocks: list[str]) -> list[str]:
    """Return README's commands that end by themselves, with what it says beside them."""
    lines = [line for block in blocks for line in block.splitlines()]
    found = [line.split("  #")[0].strip() for line in lines if line.startswith("sigmacube ")]
    found = [line for line in found if " view " not in line]
    kept = "sigmacube denoise scene.hdr scene_clean.nc"
    return [f"{line} --keep-factors" if line == kept else line for line in found]


def step(label: str, command: list[str] | str, folder: Path) -> None:
    """Run a step and tell what it took."""
    begin = time.perf_counter()
    tools = folder / ".venv" / "bin"
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = f"{tools}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env=environment, shell=isinstance(command, str),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(f"{time.perf_counter() - begin:7.1f} s  {label}", flush=True)
    if done.returncode:
        raise SystemExit(f"Error: {label}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()

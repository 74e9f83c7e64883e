"""Follow README to the letter in a fresh clone, as a newcomer would, and say what each step took.

Usage: python benchmarks/newcomer.py [--test] [--no-pip]

Clones the repository into an empty folder, then runs every command of README, in its order: those
of ``make`` (``make test`` only with ``--test``: it takes minutes), the two lines of pip, each in an
empty environment of its own (not with ``--no-pip``), the commands on a scene, with the viewer asked
for its page, and the block of Python. Ends with exit code 1 where one fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
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
        lines = [line for language, body in blocks if not language for line in body.splitlines()]
        commands = [re.split(r"\s+#", line)[0] for line in lines]
        for command in (line for line in commands if line.startswith("make ")):
            if command != "make test" or "--test" in sys.argv:
                step(command, command, clone)
        step("make shell", "echo 'sigmacube --version' | make shell", clone)
        step(". .venv/bin/activate", ". .venv/bin/activate && sigmacube --version", clone)
        if "--no-pip" not in sys.argv:
            installs([line for line in commands if line.startswith("python -m pip")], clone)
        step("a scene", ["python", "-c", SCENE], clone)
        for command in (line for line in commands if line.startswith("sigmacube ")):
            view(command, clone) if " view " in command else step(command, command, clone)
        code = next(body for language, body in blocks if language == "python")
        step("the Python of README", ["python", "-c", code], clone)


def installs(lines: list[str], clone: Path) -> None:
    """Run lines of pip, each in an empty environment; a wheel is built first, as README says."""
    tools = clone / ".venv" / "bin"
    step("pip install build", [str(tools / "python"), "-m", "pip", "install", "-q", "build"], clone)
    step("a wheel", [str(tools / "python"), "-m", "build", "--wheel", "--outdir", "."], clone)
    for number, line in enumerate(lines):
        place = f".empty{number}"
        step(f"an empty environment, {number + 1}", ["python3", "-m", "venv", place], clone)
        command = f". {place}/bin/activate && {line} && sigmacube demo --out {place}/demo"
        step(line, command, clone)


def view(command: str, clone: Path) -> None:
    """Start the viewer as README does, where no browser is, and fetch its page."""
    begin = time.perf_counter()
    server = subprocess.Popen(
        command.split(), cwd=clone, env=environment(clone) | {"BROWSER": "true"},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        for line in server.stdout:
            found = re.search(r"http://\S+", line)
            if found:
                with urllib.request.urlopen(found[0], timeout=60) as page:
                    assert page.status == 200
                break
        else:
            raise SystemExit(f"Error: {command}: no address was told.")
    finally:
        server.terminate()
        server.wait(30)
    print(f"{time.perf_counter() - begin:7.1f} s  {command}", flush=True)


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a shell in which the clone's environment is at hand."""
    found = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return found | {"PATH": f"{folder / '.venv' / 'bin'}{os.pathsep}{found['PATH']}"}


def step(label: str, command: list[str] | str, folder: Path) -> None:
    """Run a step and tell what it took."""
    begin = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), shell=isinstance(command, str),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(f"{time.perf_counter() - begin:7.1f} s  {label}", flush=True)
    if done.returncode:
        raise SystemExit(f"Error: {label}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()

"""The smallest example of a bad case: parts of it are left out as long as it stays bad.

An attack whose cases consist of parts says so by two functions: ``parts(number)`` returns them as a
list, ``attempt(parts, number, folder)`` tries the case that they make. Every attempt runs in a
process of its own, which may crash or hang like the case itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from attacks._worker import ROOT, limit

#: Seconds that the search may take.
PATIENCE = 120.0


def write_smallest(name: str, number: int, kept: Path, seconds: float) -> None:
    """Write the smallest example beside what a bad case was made of, where parts are known."""
    if not hasattr(import_module(f"attacks.{name}"), "parts"):
        return
    words = [sys.executable, "-m", "attacks._smallest", name, str(number), str(kept)]
    child = subprocess.Popen([*words, str(seconds)], cwd=ROOT, start_new_session=True,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def smallest(parts: list[Any], is_bad: Any) -> list[Any]:
    """Leave out one part after another as long as the rest is bad.

    Examples
    --------
    >>> smallest([1, 2, 3, 4], lambda parts: 3 in parts)
    [3]
    """
    at = 0
    while at < len(parts) and len(parts) > 1:
        fewer = parts[:at] + parts[at + 1 :]
        if is_bad(fewer):
            parts = fewer
        else:
            at += 1
    return parts


def _is_bad(name: str, number: int, parts: list[Any], folder: Path, seconds: float) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            limit()
            signal.alarm(int(seconds) + 1)
            import_module(f"attacks.{name}").attempt(parts, number, folder)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] != 0


def _main(name: str, number: int, kept: Path, seconds: float) -> None:
    folder = kept / "smallest"
    parts = import_module(f"attacks.{name}").parts(number)
    parts = smallest(parts, lambda fewer: _is_bad(name, number, fewer, folder, seconds))
    _is_bad(name, number, parts, folder, seconds)
    (kept / "smallest.txt").write_text("\n".join(repr(part) for part in parts) + "\n")


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))

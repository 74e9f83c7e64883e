"""Full disks, read-only folders, inputs that vanish, clocks that jump: one line, nothing left.

Disks are small file systems in memory where they may be mounted; elsewhere a limit on the size of
files fails alike.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np

from attacks import kills
from attacks._worker import Bad

_OUTPUTS = ("out.nc", "out.zarr", "out.hdr", "out.tif")
_SOLVING = ("--noise", "0.05", "--window", "5", "--step", "2", "--prior", "none", "--quiet")


def case(number: int, folder: Path) -> str:
    """Try one kind of trouble."""
    rng = np.random.default_rng([19, number])
    np.save(folder / "in.npy", kills._cube())
    output = _OUTPUTS[rng.integers(len(_OUTPUTS))]
    words = ["denoise", str(folder / "in.npy"), output, *_SOLVING]
    if rng.random() < 0.4:
        words += ["--tile", "20x18", "--threads", "--workers", "1"]
    elif output in ("out.nc", "out.zarr") and rng.random() < 0.5:
        words += ["--keep-factors"]
    kind = ("full", "full", "full", "limit", "limit", "read-only", "vanished", "clock")[number % 8]
    place = folder / "disk"
    place.mkdir()
    if kind in ("full", "read-only") and not _mount(place, int(rng.integers(4, 120)) * 1024):
        kind = "limit"
    try:
        return _TROUBLE[kind](folder, place, words, rng)
    finally:
        subprocess.run(["umount", "-q", str(place)], capture_output=True, check=False)


def _mount(place: Path, size: int) -> bool:
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=400", "tmpfs", str(place)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _check(place: Path, folder: Path, code: int, allowed: tuple[int, ...], words: list[str]) -> str:
    """Check an exit code, what was said, and what is left."""
    said = (folder / "said.txt").read_text(errors="replace")
    told = [line for line in said.splitlines() if line.startswith("Error: ")]
    shown = " ".join(words[2:])
    if code == 0:
        return "done"
    if code not in allowed or len(told) != 1 or "Traceback" in said:
        raise Bad(f"exit code {code}: {shown}: {said[-300:]!r}")
    left = [path.name for path in place.iterdir() if not path.name.endswith(".run")]
    if left:
        raise Bad(f"left {left}: {shown}")
    return "told"


def _run(folder: Path, place: Path, words: list[str], limit: int | None = None) -> int:
    """Run a command with a disk as the current folder."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            said = os.open(folder / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.chdir(place)
            if limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            from sigmacube.cli import main

            main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            os._exit(code)
    end = time.monotonic() + 300
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise Bad(f"hung: {' '.join(words)}")


def _full(folder: Path, place: Path, words: list[str], rng: np.random.Generator) -> str:
    return _check(place, folder, _run(folder, place, words), (1,), words)


def _limit(folder: Path, place: Path, words: list[str], rng: np.random.Generator) -> str:
    limit = int(rng.integers(1, 60)) * 1024
    return _check(place, folder, _run(folder, place, words, limit), (1,), words)


def _read_only(folder: Path, place: Path, words: list[str], rng: np.random.Generator) -> str:
    subprocess.run(["mount", "-o", "remount,ro", str(place)], capture_output=True, check=False)
    return _check(place, folder, _run(folder, place, words), (1, 2), words)


def _vanished(folder: Path, place: Path, words: list[str], rng: np.random.Generator) -> str:
    """Remove the input while it is read; a cube that was mapped before may still be done."""
    timer = threading.Timer(float(rng.uniform(0, 0.8)), (folder / "in.npy").unlink)
    timer.start()
    try:
        return _check(place, folder, _run(folder, place, words), (1, 2), words)
    finally:
        timer.join()


def _clock(folder: Path, place: Path, words: list[str], rng: np.random.Generator) -> str:
    """Let the input come from the past or the future, and change between two runs."""
    moment = float(rng.choice([0, 1, 4e9, 2**31 - 1, 2**33]))
    os.utime(folder / "in.npy", (moment, moment))
    told = _check(place, folder, _run(folder, place, words), (), words)
    os.utime(folder / "in.npy", (0, 0))
    again = [*words, "--overwrite"]
    _check(place, folder, _run(folder, place, again), (), again)
    return told


_TROUBLE = {
    "full": _full, "limit": _limit, "read-only": _read_only, "vanished": _vanished, "clock": _clock,
}  # fmt: skip

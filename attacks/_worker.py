"""Cases in a process of their own: it may crash, hang or eat memory without ending the attack.

The child says when a case begins and how it ended. The parent waits, kills what takes too long,
counts, and starts another child behind a case that ended its own.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Seconds, bytes of address space, and bytes of real memory that one case may take.
SECONDS, ADDRESSES, MEMORY = 20.0, 6 * 2**30, 600 * 2**20


class Bad(AssertionError):
    """A case did not end as promised."""


@dataclass
class Tally:
    """How many cases were tried, and which of them were bad."""

    name: str
    tried: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    bad: list[dict[str, object]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, kind: str, count: int = 1) -> None:
        """Count cases that ended as promised."""
        self.tried += count
        self.kinds[kind] = self.kinds.get(kind, 0) + count

    def fail(self, case: int | str, reason: str) -> None:
        """Count a bad case."""
        self.tried += 1
        self.bad.append({"case": case, "reason": reason})

    @property
    def clean(self) -> int:
        """Cases that ended as promised."""
        return self.tried - len(self.bad)


def run_cases(
    name: str,
    count: int,
    *,
    first: int = 0,
    budget: float | None = None,
    found: Path | None = None,
    seconds: float = SECONDS,
) -> Tally:
    """Run ``count`` cases of an attack, or as many as fit in ``budget`` seconds."""
    tally, start = Tally(name), time.monotonic()
    number, last = first, first + count
    while number < last and not _over(start, budget):
        number = _one_child(tally, number, last, start, budget, found, seconds)
    tally.seconds = time.monotonic() - start
    return tally


def _over(start: float, budget: float | None) -> bool:
    return budget is not None and time.monotonic() - start > budget


def _one_child(
    tally: Tally,
    number: int,
    last: int,
    start: float,
    budget: float | None,
    found: Path | None,
    seconds: float,
) -> int:
    """Run cases in one child until it or the time ends; return the number to go on with."""
    words = [sys.executable, "-m", "attacks._worker", tally.name, str(number), str(last)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if found is not None:
        environment["SIGMACUBE_FOUND"] = str(found)
    current: int | None = None
    with tempfile.TemporaryFile("w+") as complaints:
        child = subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=complaints, env=environment
        )
        try:
            for line in _lines(child, seconds):
                what, _, rest = line.partition(" ")
                if what == "begin":
                    current = int(rest)
                elif what == "end":
                    kind, _, many = rest.partition(" ")
                    tally.add(kind, int(many or 1))
                    number, current = (current or number) + 1, None
                elif what == "bad":
                    tally.fail(current if current is not None else -1, rest)
                    number, current = (current or number) + 1, None
                if _over(start, budget) and current is None:
                    return last
            if current is not None:
                tally.fail(current, _last_words(child, complaints))
                return current + 1
            if child.wait() != 0:
                tally.fail(number, _last_words(child, complaints))
                return number + 1
        finally:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
    return max(number, last)


def _lines(child: subprocess.Popen[bytes], seconds: float) -> Iterator[str]:
    """Yield lines of a child until it ends or says nothing for too long.

    Its processor time counts, not that of the clock: the machine may be busy with other things.
    """
    assert child.stdout is not None
    pending, patience = b"", seconds + 60.0  # the first case waits for imports
    began, used = time.monotonic(), _processor_time(child.pid)
    while True:
        ready, _, _ = select.select([child.stdout], [], [], 1.0)
        if not ready:
            waited = time.monotonic() - began
            if _processor_time(child.pid) - used > patience or waited > 10 * patience:
                child.send_signal(signal.SIGKILL)
                return
            continue
        read = os.read(child.stdout.fileno(), 65536)
        if not read:
            return
        *whole, pending = (pending + read).split(b"\n")
        began, used, patience = time.monotonic(), _processor_time(child.pid), seconds
        yield from (line.decode("utf-8", "replace") for line in whole)


def _processor_time(process: int) -> float:
    """Return the seconds of a process, without those of its children."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _last_words(child: subprocess.Popen[bytes], complaints: object) -> str:
    code = child.wait()
    complaints.seek(0)  # type: ignore[attr-defined]
    tail = complaints.read()[-300:]  # type: ignore[attr-defined]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    reason = "hung" if code == -signal.SIGKILL else f"process ended with {how}"
    return " ".join(f"{reason}. {tail}".split())


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Raise `Bad` where more real memory was taken at once than a case may."""
    before = _resident("VmRSS")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the former peak
    except OSError:
        yield
        return
    yield
    grown = _resident("VmHWM") - before
    if grown > MEMORY:
        raise Bad(f"took {grown / 2**20:.0f} MB")


def _resident(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def _child(name: str, first: int, last: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What libraries print must not be taken for what the worker says.
    says = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    case = import_module(f"attacks.{name}").case
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(first, last):
            print("begin", number, file=says, flush=True)
            folder = Path(scratch, str(number))
            folder.mkdir()
            try:
                with bounded_memory():
                    told = case(number, folder)
                print("end", told, file=says, flush=True)
            except BaseException as error:
                _keep(name, number, folder, error)
                reason = f"{type(error).__name__}: {error}"
                print("bad", " ".join(reason.split())[:500], file=says, flush=True)
            _clear(folder)


def _keep(name: str, number: int, folder: Path, error: BaseException) -> None:
    """Keep what a bad case was made of."""
    import shutil

    place = os.environ.get("SIGMACUBE_FOUND")
    if place is None:
        return
    kept = Path(place, f"{name}-{number}")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(folder, kept, ignore=lambda _, names: [n for n in names if n == "pipe"])
    text = "\n" + "".join(traceback.format_exception(error))
    again = f"python -m attacks {name} --first {number} --count 1\n"
    (kept / "reason.txt").write_text(again + text)


def _clear(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

"""Cases in a process of their own: it may crash, hang or eat memory without ending the attack.

One process tries case after case. It says when a case begins and how it ended; the parent waits,
kills what takes too long, counts, and starts another process behind a case that ended its own.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Seconds, bytes of address space, and bytes of real memory that one case may take.
SECONDS, ADDRESSES, MEMORY = 20.0, 6 * 2**30, 600 * 2**20


class Bad(AssertionError):
    """A case did not end as promised.

    Parameters
    ----------
    reason
        What happened instead.
    kinds
        Cases of the same batch that ended as promised before it.
    """

    def __init__(self, reason: str, kinds: dict[str, int] | None = None) -> None:
        super().__init__(reason)
        self.kinds = kinds or {}


@dataclass
class Tally:
    """How many cases were tried, and which of them were bad.

    Parameters
    ----------
    name
        Of the attack.
    kinds
        How cases ended that ended as promised, and how many.
    bad
        The other ones.
    next
        Number of the first case that was not tried.
    seconds
        Duration.
    """

    name: str
    kinds: dict[str, int] = field(default_factory=dict)
    bad: list[dict[str, Any]] = field(default_factory=list)
    next: int = 0
    seconds: float = 0.0

    def add(self, kinds: dict[str, int]) -> None:
        """Count cases that ended as promised."""
        for kind, count in kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count

    def of(self, kinds: tuple[str, ...]) -> int:
        """Return the cases of some kinds; of all, with the bad ones, where none is named."""
        return sum(self.kinds.get(kind, 0) for kind in kinds) if kinds else self.tried

    @property
    def clean(self) -> int:
        """Cases that ended as promised."""
        return sum(self.kinds.values())

    @property
    def tried(self) -> int:
        """All cases."""
        return self.clean + len(self.bad)


@dataclass
class Runner:
    """Runs cases of one attack until enough were tried.

    Parameters
    ----------
    name
        Of the attack.
    count
        Cases that are wanted.
    counted
        Kinds of cases that count; all by default.
    first, last
        Numbers of the first case and of the one after the last.
    budget
        Seconds after which no further case is begun.
    found
        Folder for what bad cases were made of.
    seconds
        Processor time that one case may take.
    told
        Called with the tally, now and then.
    """

    name: str
    count: int
    counted: tuple[str, ...] = ()
    first: int = 0
    last: int = sys.maxsize
    budget: float = float("inf")
    found: Path | None = None
    seconds: float = SECONDS
    told: Callable[[Tally], None] = lambda tally: None

    def run(self) -> Tally:
        """Run the cases."""
        self.tally = Tally(self.name, next=self.first)
        self.start = time.monotonic()
        while not self._is_done():
            with tempfile.TemporaryDirectory(prefix="attack-") as scratch:
                self._one_child(Path(scratch))
        self.tally.seconds = time.monotonic() - self.start
        self.told(self.tally)
        return self.tally

    def _is_done(self) -> bool:
        return (
            self.tally.of(self.counted) >= self.count
            or self.tally.next >= self.last
            or time.monotonic() - self.start > self.budget
        )

    def _one_child(self, scratch: Path) -> None:
        """Try cases in one process until it, the time or the cases end."""
        words = [sys.executable, "-m", "attacks._worker", self.name, str(self.tally.next)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
                       "TMPDIR": str(scratch)}  # fmt: skip
        state, heard = "", time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
            child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=complaints,
                                     env=environment, start_new_session=True)  # fmt: skip
            try:
                for line in _lines(child, self.seconds):
                    state = self._hear(json.loads(line), scratch)
                    if time.monotonic() - heard > 20:
                        heard = time.monotonic()
                        self.tally.seconds = heard - self.start
                        self.told(self.tally)
                    if state != "begin" and self._is_done():
                        return
                if state != "bad":  # it ended by itself
                    reason = _last_words(child, complaints)
                    if not state:
                        raise RuntimeError(f"The attack {self.name} does not start: {reason}")
                    self._bad({"bad": reason, "trace": reason}, scratch)
            finally:
                _end(child)

    def _hear(self, said: dict[str, Any], scratch: Path) -> str:
        """Count what a process said; return whether a case begins, ended, or ended badly."""
        if "begin" in said:
            return "begin"
        self.tally.add(said["kinds"])
        if "bad" in said:
            self._bad(said, scratch)
            return "bad"
        self.tally.next += 1
        return "end"

    def _bad(self, said: dict[str, Any], scratch: Path) -> None:
        number = self.tally.next
        self.tally.next += 1
        self.tally.bad.append({"case": number, "reason": said["bad"]})
        if self.found is None:
            return
        kept = self.found / f"{self.name}-{number}"
        shutil.rmtree(kept, ignore_errors=True)
        with suppress(shutil.Error, FileNotFoundError):
            shutil.copytree(scratch / str(number), kept, symlinks=True, ignore=_no_pipes)
        kept.mkdir(parents=True, exist_ok=True)
        again = f"python -m attacks {self.name} --first {number} --count 1\n"
        (kept / "reason.txt").write_text(f"{again}\n{said['trace']}\n", encoding="utf-8")
        from attacks._smallest import write_smallest

        write_smallest(self.name, number, kept, self.seconds)


def _no_pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_fifo()]


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


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


def _last_words(child: subprocess.Popen[bytes], complaints: Any) -> str:
    code = child.wait()
    complaints.seek(0)
    tail = complaints.read()[-300:]
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


def limit() -> None:
    """Bound what this process may take, and let it fail at any warning."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("error")


def _child(name: str, first: int) -> None:
    # What libraries print must not be taken for what the worker says.
    says = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    case = import_module(f"attacks.{name}").case
    limit()
    number = first
    while True:  # until the parent has enough
        print(json.dumps({"begin": number}), file=says, flush=True)
        folder = Path(tempfile.gettempdir(), str(number))
        folder.mkdir()
        try:
            with bounded_memory():
                told = case(number, folder)
            said: dict[str, Any] = {"kinds": told if isinstance(told, dict) else {told: 1}}
        except BaseException as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            said = {"kinds": getattr(error, "kinds", {}), "bad": reason}
            said["trace"] = "".join(traceback.format_exception(error))[-20_000:]
        print(json.dumps(said), file=says, flush=True)
        if "bad" in said:
            return  # the parent takes what it was made of, and begins anew
        shutil.rmtree(folder, ignore_errors=True)
        number += 1


if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]))

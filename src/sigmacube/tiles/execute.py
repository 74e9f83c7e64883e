"""Who computes the tiles: threads of this process, processes of this machine, or Dask workers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sigmacube.core.parallel import default_workers
from sigmacube.io.atomic import signals_put_off

Work = Callable[[int], Any]
"""Computes the tile of a number; other processes must be able to load it."""
Done = Callable[[Any], None]
"""Takes what was computed."""
#: How often a tile is handed to Dask, which itself gives up after the loss of four workers.
ROUNDS = 3
#: Seconds without any worker after which a run on a cluster ends, and between looks at it.
PATIENCE = 120.0
POLL = 0.1
LOOPBACK = "127.0.0.1"
#: What Dask can be reached by; anything else it would try for a long time.
_SCHEDULER = re.compile(r"(tcp|tls|ws|wss|ucx|ucxx)://[^\s/]+:\d{1,5}/?|inproc://\S+")


@dataclass(frozen=True)
class Execution:
    """Who computes tiles: this process one by one, other processes, or workers of Dask."""

    mode: str = "threads"
    """``"threads"``: one tile at a time, in this process; ``"processes"``: one for each worker."""
    workers: int = 1
    scheduler: str | None = None
    """Address of a Dask scheduler, or ``"local"``; it takes the place of ``mode``."""

    @classmethod
    def create(cls, mode: str, workers: int | None, scheduler: str | None = None) -> Execution:
        """Check who is to do the work; as many workers as processors by default."""
        if mode not in ("threads", "processes"):
            raise ValueError(f"Invalid mode {mode!r}. It must be one of 'threads', 'processes'.")
        if workers is not None and workers < 1:
            raise ValueError(f"Invalid workers {workers}. There must be at least one.")
        if scheduler is not None:
            _distributed()
            if scheduler != "local" and not _SCHEDULER.fullmatch(scheduler):
                raise ValueError(
                    f"Invalid scheduler {scheduler!r}. It must be an address such as "
                    "tcp://host:8786, or 'local'."
                )
        return cls(mode, default_workers() if workers is None else workers, scheduler)

    @property
    def here(self) -> bool:
        """Whether this process computes all tiles itself."""
        return self.scheduler is None and (self.mode == "threads" or self.workers == 1)

    @property
    def threads(self) -> int:
        """Threads that solve a tile together."""
        return self.workers if self.here else 1

    @property
    def at_once(self) -> int:
        """How many tiles are in the memory of this machine at a time."""
        return 1 if self.here or self.scheduler not in (None, "local") else self.workers

    def within(self, memory: float, least: float) -> Execution:
        """Return itself, or threads on one tile where processes would not find ``least`` each."""
        fits = self.at_once == 1 or self.scheduler is not None or memory >= self.at_once * least
        return self if fits else replace(self, mode="threads")


def run_tiles(work: Work, numbers: Iterable[int], how: Execution, done: Done) -> None:
    """Compute tiles in any order; ``done`` takes what ``work`` made of each, in this process.

    The one loop over tiles: denoising, the hold-out check and products differ in what they do with
    a tile, and in nothing else.
    """
    if how.scheduler is not None:
        _by_dask(work, list(numbers), how.workers, how.scheduler, done)
    elif how.here:
        for number in numbers:
            done(work(number))
    else:
        _by_processes(work, list(numbers), how.workers, done)


def _by_processes(work: Work, numbers: list[int], workers: int, done: Done) -> None:
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    # A forked copy of a process with threads may hang; a fresh one reads all it needs itself.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, max(len(numbers), 1)), context, _begin_worker)
    try:
        with _uninterrupted():
            futures = [pool.submit(work, number) for number in numbers]
        for future in as_completed(futures):
            done(future.result())
    except BrokenProcessPool:
        raise RuntimeError(
            "a worker process was killed, perhaps for lack of memory. The run goes on with --resume"
        ) from None
    except BaseException:
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()  # a tile takes minutes; the unfinished ones are done again
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off while worker processes start: they inherit it blocked until they ignore it.

    This process is told all the same, by any of its threads that do not block it.
    """
    with signals_put_off():
        if not hasattr(signal, "pthread_sigmask"):  # pragma: no cover - not on Windows
            yield
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    """Hold BLAS of a worker to one thread, and leave Ctrl-C to the process that asked for it.

    A worker ends with that process, however it ends: left alone it would wait for work for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise ValueError(
            "A scheduler needs the dask and distributed packages. "
            "They are installed with: pip install 'sigmacube[scale]'"
        ) from None
    return distributed


@contextmanager
def _client(scheduler: str, workers: int) -> Iterator[Any]:
    distributed = _distributed()
    if scheduler != "local":
        try:
            client = distributed.Client(scheduler, timeout="20s", set_as_default=False)
        except Exception:  # each protocol raises its own kinds, also where it is not installed
            raise ConnectionError(f"{scheduler}: no Dask scheduler answers there.") from None
        with client:
            yield client
        return
    # A port without an address is one on all interfaces. Workers that are ended say so at length.
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host=LOOPBACK,
            dashboard_address=f"{LOOPBACK}:0",
            worker_dashboard_address=f"{LOOPBACK}:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def _by_dask(work: Work, numbers: list[int], workers: int, scheduler: str, done: Done) -> None:
    """Submit one task per tile.

    A worker that goes away takes no result with it: Dask gives its tile to another one.
    """
    with _client(scheduler, workers) as client:
        for _ in range(ROUNDS):
            numbers = _dask_round(client, work, numbers, done)
            if not numbers:
                return
    raise RuntimeError(
        "workers were lost again and again on one tile, perhaps for lack of memory. The run goes "
        "on with --resume"
    )


def _dask_round(client: Any, work: Work, numbers: list[int], done: Done) -> list[int]:
    """Compute tiles; return those that Dask gave up after it had lost several workers on them."""
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    futures = client.map(work, numbers, pure=False)
    number_of = dict(zip((future.key for future in futures), numbers, strict=True))
    ready = as_completed(futures, loop=client.loop)
    lost, seen = [], time.monotonic()
    try:
        while not ready.is_empty():
            batch = ready.next_batch(block=False)
            for future in batch:
                try:
                    done(future.result())
                except KilledWorker:
                    lost.append(number_of[future.key])
            if batch or client.scheduler_info()["workers"]:
                seen = time.monotonic()
            elif time.monotonic() - seen > PATIENCE:
                raise RuntimeError(
                    f"the Dask scheduler has had no workers for {PATIENCE:.0f} s. The run goes on "
                    "with --resume"
                )
            if not batch:
                time.sleep(POLL)
    finally:
        client.cancel(futures)
    return lost

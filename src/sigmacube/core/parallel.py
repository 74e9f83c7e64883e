"""Threads over windows, each with one BLAS thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Protocol


class ParallelMap(Protocol):
    """A map over items that may run in parallel, with results in the order of the items."""

    def __call__(
        self,
        function: Callable[[Any], Any],
        items: Iterable,
        done: Callable[[int], None] | None = None,
    ) -> list:
        """Return ``[function(item) for item in items]``; ``done(n)`` when n of them are ready."""
        ...


def default_workers() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def parallel(workers: int | None = None) -> Iterator[ParallelMap]:
    """Yield ``run(function, items, done=None)``, which maps a function over items in threads.

    BLAS is held to one thread: on matrices as small as a window two are slower than one. Results
    come in the order of the items. ``done(n)`` is called from this thread now and then, and in the
    end, with the number of those that are ready.

    Examples
    --------
    >>> with parallel(2) as run:
    ...     run(lambda x: x * x, [1, 2, 3])
    [1, 4, 9]
    """
    from threadpoolctl import threadpool_limits

    count = default_workers() if workers is None else workers
    if count < 1:
        raise ValueError(f"Invalid workers {count}. There must be at least one.")
    with threadpool_limits(limits=1):
        if count == 1:
            yield in_turn
            return
        pool = ThreadPoolExecutor(count - 1)
        try:
            yield partial(_among, pool, count - 1)
        finally:
            pool.shutdown(cancel_futures=True)


def _among(
    pool: ThreadPoolExecutor,
    helpers: int,
    function: Callable[[Any], Any],
    items: Iterable,
    done: Callable[[int], None] | None = None,
) -> list:
    """Map a function over items in this thread and helpers; each takes the next item in turn.

    One future per item would wake this thread for every one of them, which costs more than many a
    small item itself.
    """
    items = list(items)
    results: list[Any] = [None] * len(items)
    finished: list[int] = []
    # `next` of it is one step for the interpreter. The first item is for this thread, whose own
    # maps find helpers: it may be a task made of such.
    turns = iter(range(1, len(items)))

    def work(first: range, report: Callable[[int], None] | None = None) -> None:
        try:
            for turn in chain(first, turns):
                results[turn] = function(items[turn])
                finished.append(turn)
                if report is not None:
                    report(len(finished))
        finally:
            for _ in turns:  # after an error nothing is left for the others
                pass

    tasks: list[Future] = []
    try:
        for _ in range(min(helpers, len(items) - 1)):
            tasks.append(pool.submit(work, range(0)))
        work(range(min(len(items), 1)), done)
    finally:
        for _ in turns:
            pass
        # A helper that is itself at work in a map must not wait for one that never gets a turn.
        wait([task for task in tasks if not task.cancel()])
    for task in tasks:
        if not task.cancelled():
            task.result()
    if done is not None and items:
        done(len(items))
    return results


def strips(first: int, stop: int, height: int) -> list[slice]:
    """Return rows of a scene in strips of a height, which start at its multiples.

    Examples
    --------
    >>> strips(3, 12, 5)
    [slice(3, 5, None), slice(5, 10, None), slice(10, 12, None)]
    """
    return [
        slice(max(top, first), min(top + height, stop))
        for top in range(first // height * height, stop, height)
    ]


def at_once(run: ParallelMap, *tasks: Callable[[], Any]) -> list[Any]:
    """Return what several tasks return, which may run at the same time; the longest comes first.

    Examples
    --------
    >>> at_once(in_turn, lambda: 1, lambda: 2)
    [1, 2]
    """
    return run(lambda task: task(), tasks)


def in_turn(
    function: Callable[[Any], Any], items: Iterable, done: Callable[[int], None] | None = None
) -> list:
    """Map a function over items in this thread: a `ParallelMap` where others are at work already.

    Examples
    --------
    >>> in_turn(abs, [-1, 2])
    [1, 2]
    """
    results = []
    for item in items:
        results.append(function(item))
        if done is not None:
            done(len(results))
    return results

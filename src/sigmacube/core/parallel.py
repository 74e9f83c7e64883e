"""Threads over windows, each with one BLAS thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["ParallelMap", "default_workers", "parallel"]


class ParallelMap(Protocol):
    """A map over items that may run in parallel, with results in the order of the items."""

    def __call__(
        self,
        function: Callable[[Any], Any],
        items: Iterable,
        done: Callable[[int], None] | None = None,
    ) -> list:
        """Return ``[function(item) for item in items]``; ``done(n)`` as the n-th is ready."""
        ...


def default_workers() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def parallel(workers: int | None = None) -> Iterator[ParallelMap]:
    """Yield ``run(function, items, done=None)``, which maps a function over items in threads.

    BLAS is held to one thread: on matrices as small as a window two are slower than one. Results
    come in the order of the items, and ``done(n)`` is called as the n-th of them is ready.

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
            yield _in_turn
            return
        pool = ThreadPoolExecutor(count)

        def run(
            function: Callable[[Any], Any],
            items: Iterable,
            done: Callable[[int], None] | None = None,
        ) -> list:
            results = []
            for result in pool.map(function, items):
                results.append(result)
                if done is not None:
                    done(len(results))
            return results

        try:
            yield run
        finally:
            pool.shutdown(cancel_futures=True)


def _in_turn(
    function: Callable[[Any], Any], items: Iterable, done: Callable[[int], None] | None = None
) -> list:
    results = []
    for item in items:
        results.append(function(item))
        if done is not None:
            done(len(results))
    return results

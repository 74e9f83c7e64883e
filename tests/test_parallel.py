"""The map over items in threads: order, progress, and what happens when an item fails."""

from __future__ import annotations

import threading
import time

import pytest

from sigmacube.core.parallel import at_once, in_turn, parallel, strips


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    def slow_first(item: int) -> int:
        time.sleep(0.02 if item == 0 else 0)
        return item * item

    with parallel(workers) as run:
        assert run(slow_first, range(20)) == [item * item for item in range(20)]
        assert run(slow_first, []) == []
        assert run(slow_first, iter([3])) == [9]


def test_several_threads_take_part() -> None:
    meeting = threading.Barrier(3, timeout=20)

    def meet(_: int) -> str:
        meeting.wait()  # only three at once get past
        return threading.current_thread().name

    with parallel(3) as run:
        assert len(set(run(meet, range(3)))) == 3


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_is_told_from_the_calling_thread_and_ends_with_all(workers: int) -> None:
    told = []

    def report(count: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        told.append(count)

    with parallel(workers) as run:
        run(lambda item: time.sleep(0.001), range(30), done=report)
    assert told == sorted(told)
    assert told[-1] == 30


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("bad", [0, 7])
def test_an_item_that_fails_stops_the_rest_and_is_told(workers: int, bad: int) -> None:
    started = []

    def work(item: int) -> None:
        started.append(item)
        if item == bad:
            raise ValueError(f"item {item}")
        time.sleep(0.002)

    with parallel(workers) as run:
        with pytest.raises(ValueError, match=f"item {bad}"):
            run(work, range(1000))
        assert len(started) < 100
        assert run(lambda item: item + 1, [1, 2]) == [2, 3]  # and the map can be used again


def test_an_interrupt_stops_the_helpers() -> None:
    caller, done = threading.current_thread(), []

    def work(item: int) -> None:
        if threading.current_thread() is caller:
            raise KeyboardInterrupt
        time.sleep(0.002)
        done.append(item)

    with parallel(3) as run, pytest.raises(KeyboardInterrupt):
        run(work, range(1000))
    assert len(done) < 100


def test_no_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"), parallel(0):
        pass


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_map_inside_a_map_waits_for_no_helper_that_is_busy(workers: int) -> None:
    with parallel(workers) as run:

        def nested(item: int) -> list[int]:
            return run(lambda other: item * other, range(5))

        found = run(nested, range(7))
        assert found == [[item * other for other in range(5)] for item in range(7)]
        assert at_once(run, lambda: nested(2), lambda: "other") == [[0, 2, 4, 6, 8], "other"]


def test_the_first_item_is_for_the_thread_that_asks() -> None:
    with parallel(3) as run:
        names = run(lambda _: threading.current_thread(), range(30))
    assert names[0] is threading.current_thread()
    assert in_turn(len, ["", "a"]) == [0, 1]


def test_strips_cover_all_rows_once_and_start_where_the_scene_says() -> None:
    for first, stop in ((0, 1), (0, 16), (5, 23), (8, 9)):
        parts = strips(first, stop, 8)
        assert [row for part in parts for row in range(part.start, part.stop)] == list(
            range(first, stop)
        )
        assert all(part.start % 8 == 0 for part in parts[1:])
    assert strips(0, 0, 8) == []

"""How long work says how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[int, int], None]
"""Called with the pieces done and the pieces in all."""


@contextmanager
def shown(progress: Progress | bool | None, label: str, unit: str) -> Iterator[Progress | None]:
    """Yield what reports progress: a user's function as it is, a bar for True, None for nothing.

    Examples
    --------
    >>> with shown(None, "Denoising", "windows") as move:
    ...     print(move)
    None
    """
    if progress is True:
        from rich.console import Console

        with bar(Console(stderr=True), label, unit) as move:
            yield move
    else:
        yield progress or None


def phase(progress: Any, name: str) -> Progress | None:
    """Begin a phase of the work; return what shows how far it is, if it can show names.

    A user's function counts one kind of pieces and knows no phases: it is told of none.

    Examples
    --------
    >>> phase(print, "Reading the scene") is None
    True
    """
    begin = getattr(progress, "phase", None)
    if begin is None:
        return None
    begin(name)
    moved: Progress = progress
    return moved


@contextmanager
def bar(console: Any, label: str, unit: str) -> Iterator[Progress]:
    """Yield a function ``(done, total)`` that moves a bar with a rate and the time left."""
    from rich import progress as parts

    drawn = parts.Progress(
        parts.SpinnerColumn(),
        parts.TextColumn("{task.description}"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TextColumn("{task.fields[rate]}"),
        parts.TimeRemainingColumn(),
        parts.TextColumn("left"),
        console=console,
        transient=True,
    )
    task, told = drawn.add_task(label, total=None, rate=""), [label]

    def begin(name: str) -> None:
        told[0] = name
        drawn.reset(task, total=None, description=name, rate="")

    def move(done: int, total: int) -> None:
        elapsed = drawn.tasks[0].elapsed or 0.0
        digits = 0 if done > 10 * elapsed else 1
        rate = f"{done / elapsed:,.{digits}f} {unit}/s" if elapsed > 0 and done else ""
        # After its last window a cube is still put together, which takes a while.
        what = "Combining" if done == total and unit == "windows" else told[0]
        drawn.update(task, completed=done, total=total, rate=rate, description=what)

    move.phase = begin  # type: ignore[attr-defined]
    with drawn:
        yield move

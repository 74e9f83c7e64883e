"""What the commands say on the terminal: notes, progress, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

__all__ = ["quiet", "note", "progress", "working", "table"]


def quiet() -> bool:
    """Return whether the user asked for silence with ``--quiet``."""
    context = click.get_current_context(silent=True)
    return bool(context and (context.find_root().obj or {}).get("quiet"))


def note(message: str) -> None:
    """Say something that the user should know, on one line of standard error."""
    if not quiet():
        click.echo(f"Note: {' '.join(message.split())}", err=True)


def table(rows: Iterable[tuple[str, str]], *, title: str | None = None, err: bool = False) -> None:
    """Print pairs of a label and a text as two columns."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(stderr=err, highlight=False, soft_wrap=False)
    grid = Table(
        box=None, show_header=False, padding=(0, 2, 0, 0), title=title, title_justify="left"
    )
    grid.add_column(style="bold cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(escape(label), escape(text))
    console.print(grid)


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function ``(done, total)`` that moves a bar with windows per second and time left.

    None where nobody would see it: with ``--quiet``, or when standard error is no terminal.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if quiet() or not console.is_terminal:
        yield None
        return
    bar = _bar(console)
    task = bar.add_task(label, total=None, rate="")

    def move(done: int, total: int) -> None:
        elapsed = bar.tasks[0].elapsed or 0.0
        rate = f"{done / elapsed:,.0f} windows/s" if elapsed > 0 and done else ""
        what = label if done < total else "Combining"
        bar.update(task, completed=done, total=total, rate=rate, description=what)

    with bar:
        yield move


@contextmanager
def working(label: str) -> Iterator[None]:
    """Show that something is being done, where somebody would see it."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet() or not console.is_terminal:
        yield
        return
    with console.status(label):
        yield


def _bar(console: Any) -> Any:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
    )

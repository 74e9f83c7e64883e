"""What the commands say on the terminal: notes, progress, tables."""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click

from sigmacube.core.progress import Progress, bar


def quiet() -> bool:
    """Return whether the user asked for silence with ``--quiet``."""
    context = click.get_current_context(silent=True)
    return bool(context and (context.find_root().obj or {}).get("quiet"))


def say(line: str, *, err: bool = True, bold: bool = False) -> None:
    """Print a line; a terminal gets it broken between words, not inside them."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(line, max(width, 20), break_long_words=False, break_on_hyphens=False)
    click.secho(line, err=err, bold=bold)


def percent(share: float, digits: int = 1) -> str:
    """Return a share as people read it.

    Examples
    --------
    >>> percent(0.0182), percent(1.0, 0)
    ('1.8 %', '100 %')
    """
    return f"{100 * share:.{digits}f} %"


def shown(text: str) -> str:
    r"""Return a text without what would move the cursor or set colours: files can hold that.

    Examples
    --------
    >>> shown("UTM \x1b[2J zone 33")
    'UTM �[2J zone 33'
    """
    mark = "\N{REPLACEMENT CHARACTER}"
    return "".join(c if c.isprintable() or c == "\n" else mark for c in text)


def note(message: str) -> None:
    """Say something that the user should know, once, on one line of standard error."""
    text = shown(" ".join(message.split()))
    context = click.get_current_context(silent=True)
    said = (
        set() if context is None else context.find_root().meta.setdefault("sigmacube.said", set())
    )
    if not quiet() and text not in said:
        said.add(text)
        say(f"Note: {text}")


class Notes(logging.Handler):
    """Shows what the package logs as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show one message."""
        text = record.getMessage()
        note(f"{text[:1].upper()}{text[1:]}.")


def table(rows: Iterable[tuple[str, str]], *, err: bool = False) -> None:
    """Print pairs of a label and a text as two columns."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(stderr=err, highlight=False, soft_wrap=False)
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)  # colours are lost on white or on black
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(escape(shown(label)), escape(shown(text)))
    console.print(grid)


def _seen(show: Callable[[Any], AbstractContextManager[Any]]) -> AbstractContextManager[Any]:
    """Return what shows on a console; nothing with ``--quiet``, or where there is no terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    return nullcontext() if quiet() or not console.is_terminal else show(console)


def progress(label: str, *, unit: str = "windows") -> AbstractContextManager[Progress | None]:
    """Yield a function ``(done, total)`` that moves a bar with a rate and the time left.

    None where nobody would see it: with ``--quiet``, or when standard error is no terminal.
    """
    return _seen(lambda console: bar(console, label, unit))


def working(label: str) -> AbstractContextManager[Any]:
    """Show that something is being done, where somebody would see it."""
    return _seen(lambda console: console.status(label))

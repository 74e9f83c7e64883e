"""``sigmacube count``: a command; its file is all there is to it."""

from __future__ import annotations

import click


@click.command("count")
@click.argument("source", metavar="FILE")
def command(source: str) -> None:
    """Count the elements of a cube."""
    from sigmacube import io

    rows, cols, bands = io.open_source(source).shape
    click.echo(f"{rows * cols * bands} elements")

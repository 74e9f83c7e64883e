"""``sigmacube demo``: the built-in scene, end to end."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("demo", short_help="Denoise the built-in scene and check it against its truth.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="Folder for the picture and the result.",
)
def command(out: Path) -> None:
    """Denoise the built-in scene, check the intervals against its truth, and draw a picture."""
    from rich.console import Console

    from sigmacube import demo
    from sigmacube.console import quiet

    demo.run(out, console=Console(highlight=False, quiet=quiet()))

"""``sigmacube view``: look at a result in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from sigmacube.commands._options import PATH


@click.command("view", short_help="Look at a result in the browser, pixel by pixel.")
@click.argument("result", metavar="RESULT", type=PATH)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    show_default=True,
    help="Port on 127.0.0.1; 0 takes a free one.",
)
@click.option(
    "--observed",
    metavar="FILE",
    type=PATH,
    help="The noisy input, shown beside the estimate.  [default: found beside RESULT]",
)
@click.option("--browser/--no-browser", default=True, help="Whether to open the page.")
def command(result: Path, port: int, observed: Path | None, browser: bool) -> None:
    """Show a result in the browser: click a pixel, see its spectrum with the 95 % interval.

    The page is served to this computer alone, needs no network, and ends with Ctrl-C.
    """
    if not result.exists():
        raise FileNotFoundError(f"{result}: no such file.")
    from sigmacube.console import quiet
    from sigmacube.show.viewer import serve

    say = (lambda line: None) if quiet() else click.echo
    serve(result, port, browser, observed=observed, say=say)

"""``sigmacube report``: one page about a result."""

from __future__ import annotations

from pathlib import Path

import click

from sigmacube.commands._options import PATH


@click.command("report", short_help="Write a self-contained page about a result.")
@click.argument("result", metavar="RESULT", type=PATH)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page.  [default: RESULT's name with _report.html]",
)
@click.option(
    "--observed",
    metavar="FILE",
    type=PATH,
    help="The noisy input, for the picture before.  [default: found beside RESULT]",
)
@click.option(
    "--calibration",
    metavar="JSON",
    type=PATH,
    help="File with the coverage that 'sigmacube validate' found.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing page.")
def command(
    result: Path, out: Path | None, observed: Path | None, calibration: Path | None, overwrite: bool
) -> None:
    """Write one HTML page about a result: the scene and its σ, spectra, ranks, noise, settings.

    The page holds its pictures, needs no network, and prints well.
    """
    from sigmacube.console import quiet
    from sigmacube.show.report import write_report

    out = out or result.with_name(f"{result.stem}_report.html")
    write_report(result, out, observed=observed, calibration=calibration, overwrite=overwrite)
    if not quiet():
        click.echo(f"{out}  {out.stat().st_size / 1e6:.1f} MB, open it in any browser")

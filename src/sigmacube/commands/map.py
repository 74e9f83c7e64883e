"""``sigmacube map``: a result as GeoTIFFs that open in the right place."""

from __future__ import annotations

from pathlib import Path

import click

from sigmacube.commands._options import PATH, ortho_option


@click.command("map", short_help="Write a result as GeoTIFF maps, with styles for QGIS.")
@click.argument("result", metavar="RESULT", type=PATH)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="The map (.tif); σ goes beside it, name_uncert.tif.  [default: RESULT's name, _map.tif]",
)
@click.option("--bands", metavar="LIST", help="Bands to write: 0:50,60 or 450nm:900nm.")
@ortho_option
@click.option("--overwrite", is_flag=True, help="Replace existing maps.")
def command(
    result: Path, output: Path | None, bands: str | None, ortho: bool, overwrite: bool
) -> None:
    """Write RESULT as cloud-optimised GeoTIFFs, the estimate and its σ, band by band.

    QGIS takes the style (.qml) beside each of them by itself.
    """
    from sigmacube.console import quiet
    from sigmacube.io.atomic import check_not_input
    from sigmacube.io.maps import write_result

    output = output or result.with_name(f"{result.stem}_map.tif")
    check_not_input([output], [result])
    write_result(result, output, bands=bands, ortho=ortho, overwrite=overwrite)
    if not quiet():
        click.echo(f"{output}  {output.stat().st_size / 1e6:.1f} MB, with {output.stem}_uncert.tif")

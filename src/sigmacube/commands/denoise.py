"""``sigmacube denoise``: a cube in, an estimate with its standard deviation out."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sigmacube.commands._options import (
    FILE,
    PATH,
    given_mask,
    given_noise,
    local_file,
    ortho_option,
    reading,
    reading_options,
    solving,
    solving_options,
)
from sigmacube.commands._tiles import run_tiled, tiling_options, too_large, uses_tiles
from sigmacube.settings import Settings

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube


@click.command("denoise", short_help="Denoise a cube; every value gets its standard deviation.")
@click.argument("source", metavar="IN", type=FILE)
@click.argument("output", metavar="OUT", type=FILE)
@solving_options
@click.option(
    "--mask",
    type=PATH,
    help="Image or .npy, not 0 where pixels are valid; joins the file's own mask.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Processor cores.  [default: all; in memory one for small windows]",
)
@tiling_options
@reading_options
@click.option(
    "--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True
)
@click.option(
    "--keep-factors",
    is_flag=True,
    help="Keep what 'sigmacube product' needs, in .nc and .zarr; the size is told.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Scale σ of every band by what hiding elements shows; the factors are recorded.",
)
@ortho_option
@click.option("--overwrite", is_flag=True, help="Replace an existing output.")
def command(source: str, output: str, **options: Any) -> None:
    """Denoise the cube IN and write OUT, an estimate with the standard deviation of every value.

    IN: ENVI, GeoTIFF, VRT, netCDF, HDF5, MATLAB, Zarr, .npy or .npz; products of EMIT, PRISMA,
    EnMAP, DESIS, AVIRIS, NEON, PACE and Tanager; an address of a GeoTIFF, netCDF, HDF5 or Zarr; -
    is standard input.

    OUT: .nc, .zarr, .hdr (ENVI) or .tif; - is netCDF on standard output.
    """
    from sigmacube import api, io
    from sigmacube.console import note, progress, quiet, working

    start = time.perf_counter()
    _check(source, output, options)
    settings = {**solving(options), "workers": options["workers"]}
    in_files = "-" not in (source, output)
    if uses_tiles(source, output, options) or (in_files and too_large(source, options)):
        if options["calibrate"]:
            raise ValueError("--calibrate needs the scene in memory; it does not go with tiles.")
        if options["ortho"]:
            raise ValueError(
                "--ortho needs the scene in memory. Tiles: 'sigmacube map' afterwards."
            )
        run_tiled(source, output, options, settings)
        return
    with local_file(source) as path:
        cube = io.read(path, **reading(options))
        for text in cube.metadata.get("notes", []):
            note(f"{source}: {text}.")
        noise = given_noise(options["noise"], cube.shape[2])
        mask = given_mask(options["mask"], cube)
        if "denoised" in cube.metadata:
            note(f"{source} has been denoised before; its noise is no longer independent.")
        begin = time.perf_counter()
        with progress("Denoising") as moved:
            result = api.denoise(
                cube, noise, mask=mask, calibrate=options["calibrate"], progress=moved, **settings
            )
        seconds = time.perf_counter() - begin
    if options["ortho"]:
        from sigmacube.io.ortho import on_map

        result = on_map(result)
    with working(f"Writing {output}"):
        _save(result, output, options)
    if not quiet():
        _summary(result, output, (time.perf_counter() - start, seconds))


def _check(source: str, output: str, options: dict[str, Any]) -> None:
    """Check what can be checked before the work starts."""
    from sigmacube import io
    from sigmacube.io.atomic import check_not_input
    from sigmacube.io.places import check_plain

    Settings(**solving(options))
    if options["axes"] is not None:
        from sigmacube.io.variables import parse_axes

        parse_axes(options["axes"])
    if options["mask"] is not None:
        check_plain(options["mask"])
        if not options["mask"].exists():
            raise FileNotFoundError(f"{options['mask']}: no such file.")
    if options["calibrate"] and not options["uncertainty"]:
        raise ValueError("--calibrate scales sigma; it does not go with --no-uncertainty.")
    if options["keep_factors"]:
        if options["ortho"]:
            raise ValueError("--keep-factors is about pixels of the scene; not with --ortho.")
        named = "standard_output.nc" if output == "-" else output
        io.check_keeps_factors(named, uncertainty=options["uncertainty"])
    noise = options["noise"] if isinstance(options["noise"], Path) else None
    inputs = [source, options["mask"], noise]
    if uses_tiles(source, output, options):
        check_not_input([output], inputs[1:])
        return  # the run itself checks its output, which it may have begun before
    if output == "-":
        if sys.stdout is None:
            raise ValueError("-: standard output is closed.")
        if sys.stdout.isatty():
            raise ValueError("-: netCDF is not written to a terminal. It must be redirected.")
        return
    files = io.output_files(
        output,
        uncertainty=options["uncertainty"],
        rejected=options["solver"] != "svd",
        overwrite=options["overwrite"],
    )
    check_not_input(files, inputs)


def _save(result: DenoisedCube, output: str, options: dict[str, Any]) -> None:
    from sigmacube.console import note

    how = {"dtype": options["dtype"], "keep_factors": options["keep_factors"]}
    if options["keep_factors"]:
        from sigmacube.io.error_models import factor_bytes

        cubes = 2 * result.estimate.size * (4 if options["dtype"] == "float32" else 8)
        note(
            f"the window factors take {factor_bytes(result) / 1e6:,.1f} MB beside "
            f"{cubes / 1e6:,.1f} MB of estimate and σ, before compression."
        )
    if output != "-":
        result.save(output, overwrite=options["overwrite"], **how)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = result.save(Path(folder, "result.nc"), **how)
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _summary(result: DenoisedCube, output: str, seconds: tuple[float, float]) -> None:
    """Tell what was done; ``seconds`` are those of the whole run and of denoising alone."""
    from sigmacube.commands._summary import Summary
    from sigmacube.core.card import count_of

    windows, (whole, solving) = result.ranks.size, seconds
    rate = windows / max(solving, 1e-9)
    told = [
        ("written", "standard output" if output == "-" else output),
        ("time", f"{whole:.1f} s; {count_of(windows, 'window')} in {solving:.1f} s, "
                 f"{rate:,.0f} windows/s"),
    ]  # fmt: skip
    Summary.of_result(result).tell(told, err=output == "-")

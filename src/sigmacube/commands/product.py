"""``sigmacube product``: indices, means and other bands of a denoised cube, with their sigma."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sigmacube.commands._options import PATH, image_in, ortho_option
from sigmacube.commands._tiles import limited, size_options
from sigmacube.console import percent, progress, quiet, table

if TYPE_CHECKING:
    import numpy as np

    from sigmacube.products import Product
    from sigmacube.result import DenoisedCube


@click.command("product", short_help="Indices and means of a denoised cube, with their sigma.")
@click.argument("source", metavar="IN", type=PATH)
@click.option("--index", "name", metavar="NAME", help="ndvi, ndwi, evi, pri or nbr.")
@click.option(
    "--expr", metavar="TEXT", help='Such as "(b842-b665)/(b842+b665)": bands by wavelength in nm.'
)
@click.option(
    "--aggregate", type=click.IntRange(1), metavar="N", help="Means over blocks of N x N pixels."
)
@click.option(
    "--labels", type=PATH, help="Image or .npy of integers: means over regions, 0 for none."
)
@click.option(
    "--of",
    type=click.Choice(["mean spectrum", "pixels"]),
    default="mean spectrum",
    show_default=True,
    help="With --labels: index of the mean spectrum, or mean of the pixels' indices.",
)
@click.option(
    "--resample", type=PATH, help="Text file with the centre and fwhm (nm) of one band per line."
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    help="Farthest that a band may be from the wavelength asked for, in nm.",
)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processor cores.  [default: all]"
)
@size_options
@click.option(
    "-o",
    "--output",
    type=PATH,
    help=".nc, .zarr, .tif (a map), or .csv for regions.  [default: IN with the product's name, "
    ".nc]",
)
@ortho_option
@click.option("--overwrite", is_flag=True, help="Replace an existing output.")
def command(source: Path, output: Path | None, overwrite: bool, **options: Any) -> None:
    """Make a product of IN, a result that 'sigmacube denoise --keep-factors' wrote.

    Give one of --index, --expr and --resample, or --aggregate or --labels for means of all bands;
    --aggregate and --labels also go with --index and --expr.
    """
    from sigmacube.io import product as files
    from sigmacube.io.atomic import check_not_input, check_output

    what = _what(options)
    target = output or source.with_name(f"{source.stem}_{what}.nc")
    files.check(("region",) if options["labels"] else ("row", "col"), target)
    check_output([target], overwrite=overwrite)
    check_not_input([target], [source, options["labels"]])
    if _by_tiles(source, options):
        made = _make_tiles(source, target, overwrite, options)
    else:
        made = _make(_read(source), options)
        made.save(target, overwrite=overwrite, ortho=options["ortho"])
    if not quiet():
        table(_rows(made, target))


def _what(options: dict[str, Any]) -> str:
    """Check that the options go together; return a name for the output."""
    main = [key for key in ("name", "expr", "resample") if options[key]]
    places = [key for key in ("aggregate", "labels") if options[key]]
    spelled = {"name": "--index", "expr": "--expr", "resample": "--resample"}
    if len(main) > 1:
        raise click.UsageError(f"Give one of {' and '.join(spelled[key] for key in main)}.")
    if len(places) > 1:
        raise click.UsageError("Give one of --aggregate and --labels.")
    if not main and not places:
        raise click.UsageError("Give one of --index, --expr, --resample, --aggregate or --labels.")
    if main == ["resample"] and places:
        raise click.UsageError("--resample does not go with --aggregate or --labels.")
    parts = [options["name"].lower()] if options["name"] else []
    parts += ["index"] if options["expr"] else []
    parts += ["resampled"] if options["resample"] else []
    parts += [f"{options['aggregate']}x{options['aggregate']}"] if options["aggregate"] else []
    parts += ["regions"] if options["labels"] else []
    return "_".join("".join(c for c in part if c.isalnum()) for part in parts)


def _by_tiles(source: Path, options: dict[str, Any]) -> bool:
    """Tell whether to work tile by tile: where it is asked for, or the result is too large."""
    asked = [f"--{key}" for key in ("tile", "memory") if options[key]]
    if asked and options["labels"]:
        raise ValueError(
            f"{asked[0]} does not go with --labels: regions may reach over the whole scene, so "
            "they need the result in memory."
        )
    if asked:
        return True
    if options["labels"] or not source.exists():
        return False
    from sigmacube.io.result_file import open_result

    with open_result(source) as opened:
        return limited(source, opened.bytes_in_memory(), options)


def _make_tiles(source: Path, target: Path, overwrite: bool, options: dict[str, Any]) -> Product:
    from sigmacube.tiles.products import product_file

    _check_index(options)
    centres, widths = _bands(options["resample"]) if options["resample"] else (None, None)
    with progress("Tiles") as moved:
        return product_file(
            source,
            target,
            index=options["name"] or options["expr"],
            centres=centres,
            fwhm=widths,
            aggregate=options["aggregate"],
            tolerance=options["tolerance"],
            memory=options["memory"],
            tile=options["tile"],
            workers=options["workers"],
            overwrite=overwrite,
            ortho=options["ortho"],
            progress=moved,
        )


def _read(source: Path) -> DenoisedCube:
    from sigmacube import io

    result = io.read_result(source)
    if result.error_model is None:
        raise ValueError(
            f"{source}: no window factors. It must have been written by "
            "'sigmacube denoise --keep-factors'."
        )
    return result


def _make(result: DenoisedCube, options: dict[str, Any]) -> Product:
    from sigmacube import products

    workers, labels = options["workers"], _labels(options["labels"])
    expression = options["name"] or options["expr"]
    _check_index(options)
    if expression:
        return products.index(
            result,
            expression,
            aggregate=options["aggregate"],
            labels=labels,
            of=options["of"],
            tolerance=options["tolerance"],
            workers=workers,
        )
    if options["resample"]:
        centres, widths = _bands(options["resample"])
        return products.resample(result, centres, widths, workers=workers)
    if labels is not None:
        return products.region_means(result, labels, workers=workers)
    return products.aggregate(result, options["aggregate"], workers=workers)


def _check_index(options: dict[str, Any]) -> None:
    from sigmacube import products

    if options["name"] and options["name"].lower() not in products.INDICES:
        raise ValueError(
            f"Invalid --index {options['name']}. It must be one of {', '.join(products.INDICES)}."
        )


def _labels(path: Path | None) -> np.ndarray | None:
    """Return a label image as (row, col) integers."""
    if path is None:
        return None
    import numpy as np

    values = np.squeeze(image_in(path, scale=1))
    if values.ndim != 2 or not np.all(values == np.floor(values)):
        raise ValueError(f"{path}: labels must be whole numbers, (rows, cols).")
    return values.astype(np.int64)


def _bands(path: Path) -> tuple[list[float], list[float]]:
    """Return centres and widths from a text file of two columns."""
    from sigmacube.io.places import check_plain

    check_plain(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    centres, widths = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split("#")[0].replace(",", " ").replace(";", " ").split()
        if not words:
            continue
        try:
            centre, width = (float(word) for word in words)
        except ValueError:
            if number == 1:
                continue  # a header
            raise ValueError(
                f"{path}: line {number} is {line!r}. It must be a centre and a fwhm in nm."
            ) from None
        centres.append(centre)
        widths.append(width)
    if not centres:
        raise ValueError(f"{path}: no bands. There must be a centre and a fwhm per line.")
    return centres, widths


def _rows(made: Product, target: Path) -> Iterator[tuple[str, str]]:
    """Yield what the user sees at the end."""
    import numpy as np

    yield "written", str(target)
    size = " × ".join(str(n) for n in made.estimate.shape)
    yield "size", f"{size} ({', '.join(made.dims)})"
    for asked, band, found in made.bands:
        yield f"b{asked:g}", f"band {band}, {found:.1f} nm ({found - asked:+.1f} nm)"
    good = np.isfinite(made.std)
    if good.any():
        yield "value", f"median {np.median(made.estimate[good]):.4g}"
        text = f"median {np.median(made.std[good]):.3g}"
        if made.independent_std is not None:
            ratio = np.median(made.std[good] / made.independent_std[good])
            text += f", {ratio:.2f} times what independent errors would give"
        yield "σ", text
    if made.flags is not None:
        for flag, meaning in ((1, "no data"), (2, "undefined"), (3, "not linear, no σ")):
            share = float(np.mean(made.flags == flag))
            if share:
                yield meaning, f"{percent(share)} of the values"

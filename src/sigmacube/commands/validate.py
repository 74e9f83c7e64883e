"""``sigmacube validate``: check the error bars of a scene."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sigmacube.commands._options import (
    FILE,
    PATH,
    given_noise,
    local_file,
    reading,
    reading_options,
    solving,
    solving_options,
)
from sigmacube.commands._tiles import size_options, too_large
from sigmacube.console import note, progress, say, table
from sigmacube.io.places import address_of

if TYPE_CHECKING:
    from sigmacube.check.holdout import Holdout
    from sigmacube.cube import Cube
    from sigmacube.io.result_file import ResultFile

PICTURES = (".png", ".pdf", ".svg", ".jpg")


@click.command("validate", short_help="Check the error bars on the scene itself, or by trials.")
@click.argument("source", metavar="IN", type=FILE)
@click.option(
    "--method",
    type=click.Choice(["holdout", "monte-carlo"]),
    default="holdout",
    show_default=True,
    help="Hide elements and predict them; or add fresh noise to the denoised scene many times.",
)
@click.option("--share", type=float, default=0.03, show_default=True, help="Share to hide.")
@click.option(
    "--trials", type=click.IntRange(2), default=100, show_default=True, help="Of Monte Carlo."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@solving_options
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processor cores.  [default: all]"
)
@size_options
@reading_options
@click.option(
    "--observed",
    metavar="FILE",
    type=PATH,
    help="The noisy input, where IN is a result.  [default: found beside IN]",
)
@click.option("--plot", type=PATH, help="Write the picture here (.png, .pdf).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(source: str, method: str, **options: Any) -> None:
    """Check whether the error bars of the cube IN are right, without knowing the truth.

    The default hides a share of the elements, predicts them and compares; it ends in a plain
    verdict. Where IN is a result, the scene it was made from is checked, with the noise and the
    settings of the result.
    """
    from sigmacube import io

    if options["plot"] is not None and options["plot"].suffix.lower() not in PICTURES:
        raise ValueError(
            f"{options['plot']}: a picture cannot have the suffix {options['plot'].suffix!r}. It "
            f"must be one of {', '.join(PICTURES)}."
        )
    source = scene_of(source, options)
    settings = {**solving(options), "workers": options["workers"]}
    settings.pop("uncertainty")
    if _by_tiles(source, method, options):
        _tell(_holdout_tiles(source, settings, options), options)
        return
    with local_file(source) as path:
        cube = io.read(path, **reading(options))
    noise = given_noise(options["noise"], cube.shape[2])
    if method == "monte-carlo":
        _monte_carlo(cube, noise, settings, options)
    else:
        from sigmacube.check.holdout import holdout

        _tell(holdout(cube, noise=noise, **_how(options), **settings), options)


def _by_tiles(source: str, method: str, options: dict[str, Any]) -> bool:
    """Tell whether to work tile by tile, having checked that this is possible."""
    asked = [f"--{key}" for key in ("tile", "memory") if options[key]]
    if asked and method == "monte-carlo":
        raise ValueError(
            f"{asked[0]} does not go with --method monte-carlo, which needs the whole cube in "
            "memory. It goes with --method holdout."
        )
    if asked and source == "-":
        raise ValueError(f"-: standard input cannot be used with {asked[0]}.")
    if asked or address_of(source):
        return True
    return method == "holdout" and source != "-" and too_large(source, options)


def _holdout_tiles(source: str, settings: dict[str, Any], options: dict[str, Any]) -> Holdout:
    from sigmacube import io
    from sigmacube.check.holdout_file import holdout_file

    chosen = reading(options)
    noise = given_noise(options["noise"], io.open_source(source, **chosen).shape[2])
    with progress("Checking tiles") as moved:
        return holdout_file(
            source,
            noise,
            reading=chosen,
            tile=options["tile"],
            memory=options["memory"],
            progress=moved,
            **_how(options),
            **settings,
        )


def _how(options: dict[str, Any]) -> dict[str, Any]:
    return {"share": options["share"], "rng": options["seed"]}


def _tell(check: Holdout, options: dict[str, Any]) -> None:
    """Print a check, and draw it if that is wanted."""
    if options["plot"] is not None:
        _draw(check.plot(), options["plot"])
    if options["as_json"]:
        click.echo(check.to_json())
    else:
        table(_rows(check))
        say(check.verdict, err=False, bold=True)


def _draw(figure: Any, path: Path) -> None:
    """Write a picture, whole or not at all."""
    from sigmacube.io.atomic import staged

    with staged([path], overwrite=True) as (temporary,):
        figure.savefig(temporary, dpi=150, format=path.suffix[1:].lower())


def _rows(check: Holdout) -> Iterator[tuple[str, str]]:
    import numpy as np

    yield "method", f"{check.n_elements:,} hidden elements"
    yield "noise", check.noise_source
    yield "rank", f"median {check.median_rank:.0f}"
    for level, share in check.coverage.items():
        error, truth = 100 * check.coverage_error[level], 100 * check.truth_coverage[level]
        told = f"{100 * share:.1f} % ± {error:.1f} of them; of the truth, predicted: {truth:.0f} %"
        yield f"{100 * level:.0f} % cover", told
    yield "z", f"standard deviation {check.z_std:.3f}"
    low, middle, high = np.nanpercentile(100 * check.band_coverage, (5, 50, 95))
    yield "95 %, bands", f"{middle:.1f} % median, {low:.1f} to {high:.1f} in nine bands of ten"
    parts = ", ".join(f"{100 * part.coverage:.1f}" for part in check.brightness)
    yield "95 %, dark to bright", f"{parts} %"
    own = f"of the noise {check.noise_lag1:+.3f}"
    yield "removed part", f"correlation of neighbours {check.removed_lag1:+.3f}, {own}"


def _monte_carlo(cube: Cube, noise: Any, settings: dict[str, Any], options: dict[str, Any]) -> None:
    """Take the denoised scene as the truth, add fresh noise to it, and count."""
    from sigmacube import api
    from sigmacube.check.montecarlo import monte_carlo

    first = api.denoise(cube, noise, uncertainty=False, **settings)
    truth = cube.with_values(first.estimate)
    with progress("Trials") as moved:
        check = monte_carlo(
            truth,
            first.noise,
            trials=options["trials"],
            rng=options["seed"],
            progress=moved,
            **settings,
        )
    if options["plot"] is not None:
        picture: Any = check.plot_qq()
        _draw(getattr(picture, "figure", picture), options["plot"])
    if options["as_json"]:
        click.echo(check.to_json())
        return
    rows = [(f"{100 * level:.0f} % cover", f"{100 * share:.1f} % of the Monte Carlo mean, "
             f"{100 * check.truth_coverage[level]:.1f} % of the truth")
            for level, share in check.coverage.items()]  # fmt: skip
    rows.append(("σ predicted / actual", f"{check.std_ratio:.3f}"))
    table(rows)


def scene_of(source: str, options: dict[str, Any]) -> str:
    """Return the scene to check: ``source``, or where that is a result, what it was made from.

    Then ``options`` become those of the result, but for what the user gave.
    """
    from sigmacube import io
    from sigmacube.io.result_file import open_result

    away = source == "-" or address_of(source)
    if away or "denoised" not in io.open_source(source, **reading(options)).metadata:
        if options["observed"] is not None:
            raise ValueError(f"Invalid --observed with {source}. It goes with a result.")
        return source
    with open_result(source) as result:
        scene = _input_of(source, result, options)
        _take_over(result, options)
    note(f"{source} is a result. {scene} is checked, with the result's noise and settings.")
    return str(scene)


def _input_of(source: str, result: ResultFile, options: dict[str, Any]) -> Path:
    """Return the file that a result was made from, or say why it cannot be used."""
    from sigmacube import io
    from sigmacube.io.observed import input_beside
    from sigmacube.survey import find_presence

    path: Path | None = options["observed"] or input_beside(source, result)
    if path is None:
        name = result.about.metadata.get("source")
        made = f"made from {name}, which is not beside it" if name else "whose source is not known"
        raise ValueError(f"{source}: a result {made}. --observed names the scene.")
    opened = io.open_source(path, **reading(options))
    if opened.shape != result.shape:
        raise ValueError(
            f"{path}: shape {opened.shape}. It must be that of the result {source}, "
            f"{result.shape}; --bands and the like choose as they did there."
        )
    known = result.about.settings.get("scene")
    if known is not None and find_presence(opened).fingerprint != known:
        raise ValueError(
            f"{path}: other values than {source} was made from. It must be the same scene, read "
            "with the same options (--scale, --nodata, ...) and without a mask of its own."
        )
    return opened.path


def _take_over(result: ResultFile, options: dict[str, Any]) -> None:
    """Set the noise and the settings of a result, where the user gave none."""
    from sigmacube.check.holdout import noise_of, settings_of

    context = click.get_current_context()
    theirs = vars(settings_of(result.about)) | {"noise": noise_of(result.about)}
    if theirs["noise"] is None and result.about.settings.get("noise_source") == "given":
        note("the noise that was given grows with the signal: it is estimated, or give --noise.")
    for name, value in theirs.items():
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            options[name] = value

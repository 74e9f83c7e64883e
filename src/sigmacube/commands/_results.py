"""A result where a scene is expected: the scene it was made from, and how it was made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sigmacube.commands._options import reading
from sigmacube.console import note
from sigmacube.io.places import address_of

if TYPE_CHECKING:
    from sigmacube.io.result_file import ResultFile

__all__ = ["scene_of"]


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

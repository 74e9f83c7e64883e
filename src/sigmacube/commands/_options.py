"""Options that several commands share: which cube, and how to read it."""

from __future__ import annotations

import inspect
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sigmacube.io import read
from sigmacube.io.places import address_of, local_path
from sigmacube.noise import ESTIMATORS
from sigmacube.settings import Settings

if TYPE_CHECKING:
    import numpy as np

    from sigmacube.cube import Cube
    from sigmacube.io.source import Source

#: A file, a folder, an address, or - : shells complete names, and commands look themselves.
FILE = click.Path(allow_dash=True, path_type=str)

#: A file or folder on this machine.
PATH = click.Path(path_type=Path)

_MAGIC = (
    (b"\x93NUMPY", ".npy"),
    (b"PK\x03\x04", ".npz"),
    (b"\x89HDF", ".h5"),
    (b"CDF", ".nc"),
    (b"II*\x00", ".tif"),
    (b"MM\x00*", ".tif"),
    (b"II+\x00", ".tif"),
    (b"MM\x00+", ".tif"),
    (b"MATLAB", ".mat"),
)


class Parsed(click.ParamType):
    """What a function makes of a text; the user is told its `ValueError`."""

    def __init__(self, name: str, parse: Callable[[Any], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value, or fail with the rule."""
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a number.") from None


def _scale(value: Any) -> float:
    number = _number(value)
    if not math.isfinite(number) or number == 0:
        raise ValueError(f"{value} is not allowed. It must be finite and not 0.")
    return number


def _sides(least: int, value: Any) -> Any:
    """Return an int for ``20``, else (rows, cols, bands), None for all bands, for ``20x30``."""
    if not isinstance(value, str):
        return value
    try:
        sides = [int(part) for part in value.lower().split("x")]
    except ValueError:
        sides = []
    if not 1 <= len(sides) <= 3:
        raise ValueError(f"{value!r} must be a whole number, or such as 20x30 or 20x30x50.")
    if min(sides[:2]) < least or sides[-1] < 1:
        raise ValueError(f"{value} is too small. It must be at least {least}.")
    return sides[0] if len(sides) == 1 else (*sides, None)[:3]


def _noise(value: Any) -> Any:
    """Return a level, an estimator's name, or the path of a file."""
    if not isinstance(value, str) or value in ESTIMATORS:
        return value
    try:
        level = float(value)
    except ValueError:
        path = Path(value)
        if path.is_file():
            return path
        names = ", ".join(ESTIMATORS)
        raise ValueError(
            f"{value!r} is no number, none of {names}, and no such file exists."
        ) from None
    if not (math.isfinite(level) and level > 0):
        raise ValueError(f"{value} is not allowed. It must be positive and finite.")
    return level


def _rank(value: Any) -> int | str:
    """Return ``"auto"`` or an int from 1."""
    if value == "auto" or isinstance(value, int):
        return value
    if not str(value).isdigit() or int(value) < 1:
        raise ValueError(f"{value!r} must be 'auto' or a whole number from 1.")
    return int(value)


class PriorOption(click.Choice):
    """One of the priors; ``none`` is None."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the prior's name, or None."""
        if value is None:
            return None
        found = super().convert(value, param, ctx)
        return None if found == "none" else found


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what adds several options to a command, in their order."""

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _setting(one: Field[Any]) -> Any:
    """Return the option of a setting."""
    about = one.metadata["about"] + (" With --prior none." if one.metadata["prior"] is None else "")
    told = {"default": one.default, "show_default": True, "help": about}
    if one.metadata["kind"] == "flag":
        return click.option(one.metadata["flag"], one.name, **told)
    least = 2 if one.name == "window" else 1
    kinds = {"sides": Parsed("size", partial(_sides, least)), "rank": Parsed("rank", _rank)}
    if one.metadata["kind"] in kinds:
        told |= {"default": str(one.default).lower(), "type": kinds[one.metadata["kind"]]}
    elif one.name == "prior":
        told["type"] = PriorOption([str(choice).lower() for choice in one.metadata["choices"]])
    else:
        told["type"] = click.Choice(list(one.metadata["choices"]))
    return click.option(f"--{one.name.replace('_', '-')}", one.name, **told)


#: The noise and all settings of a run.
solving_options = together(
    click.option(
        "--noise",
        type=Parsed("noise", _noise),
        help="Standard deviation, an estimator's name, or a file (.npy, .txt): one value per band, "
        "a covariance, or an instrument's noise (wavelength a b c).  [default: estimated]",
    ),
    *map(_setting, fields(Settings)),
)


def solving(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among the options of a command."""
    return {one.name: options[one.name] for one in fields(Settings)}


#: The options of `sigmacube.read`, declared once for all commands that read a cube.
reading_options = together(
    click.option("--bands", metavar="LIST", help="Bands to use: 0:50,60 or 450nm:900nm."),
    click.option(
        "--scale",
        type=Parsed("number", _scale),
        help="Factor to physical units, instead of the file's own; 1 for none.",
    ),
    click.option(
        "--nodata",
        type=Parsed("number", _number),
        help="Stored value for no data, instead of the file's own.",
    ),
    click.option("--variable", metavar="NAME", help="Array that holds the cube."),
    click.option("--axes", metavar="ORDER", help="Order of the stored axes, such as brc."),
    click.option(
        "--data", type=PATH, help="Binary file of an ENVI header, where its name differs."
    ),
    click.option(
        "--external",
        is_flag=True,
        default=None,
        help="Let an HDF5 file or a VRT have values read from other files that it names.",
    ),
    click.option(
        "--wavelengths",
        type=PATH,
        help="Text file or ENVI header with the band centres, where the cube states none.",
    ),
    click.option(
        "--join",
        type=click.Choice(["swir", "vnir", "both"]),
        help="Whose bands stay where two detectors overlap.  [default: swir]",
    ),
    click.option(
        "--quality/--ignore-quality",
        default=True,
        show_default=True,
        help="Mask what the product's own quality layer calls not measured.",
    ),
    click.option(
        "--dark",
        type=PATH,
        help="Dark frame of a camera: taken off; its spread is the noise without light.",
    ),
    click.option("--white", type=PATH, help="White frame of a camera: values become reflectance."),
)


ortho_option = click.option(
    "--ortho",
    is_flag=True,
    help="Put a scene in sensor geometry (EMIT, PRISMA) on a map: nearest neighbour, with its σ.",
)


def reading(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `sigmacube.read` among those of a command."""
    names = list(inspect.signature(read).parameters)[1:]
    return {name: options[name] for name in names}


@contextmanager
def local_file(name: str) -> Iterator[Path | str]:
    """Yield the path of an input; ``-`` is standard input, kept in a file while it is used."""
    if name != "-":
        yield address_of(name) or local_path(name)
        return
    if sys.stdin is None:
        raise ValueError("-: standard input is closed.")
    stream = sys.stdin.buffer
    head = stream.read(8)
    suffix = next((suffix for magic, suffix in _MAGIC if head.startswith(magic)), None)
    if suffix is None:
        what = "nothing" if not head else "no .npy, .npz, netCDF, HDF5, TIFF or MATLAB file"
        raise ValueError(f"-: standard input holds {what}.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"stdin{suffix}")
        with path.open("wb") as file:
            file.write(head)
            shutil.copyfileobj(stream, file)
        yield path


def given_noise(noise: Any, bands: int) -> Any:
    """Return the noise as `denoise` takes it; a file of plain numbers is read and checked."""
    if not isinstance(noise, Path):
        return noise
    from sigmacube.noise.instrument import file_numbers

    values = file_numbers(noise, bands)
    return noise if values is None else values


def image_in(path: Path, **options: Any) -> np.ndarray:
    """Return the values of an image or a .npy file that goes with a cube: a mask, labels."""
    import numpy as np

    from sigmacube.io.npy import read_array

    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    is_plain = path.suffix.lower() == ".npy"
    return read_array(path) if is_plain else np.asarray(read(path, **options).values)


def given_mask(path: Path | None, cube: Cube | Source) -> np.ndarray | None:
    """Return the user's mask as (row, col, 1 or band)."""
    if path is None:
        return None
    values = image_in(path)
    values = values[:, :, None] if values.ndim == 2 else values
    rows, cols, bands = cube.shape
    if values.shape not in ((rows, cols, 1), (rows, cols, bands)):
        raise ValueError(
            f"{path}: mask of shape {values.shape}. It must be ({rows}, {cols}) or "
            f"({rows}, {cols}, {bands}), as the cube."
        )
    return values != 0

"""What products take and give: a cube with errors in, values with their sigma out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec

import numpy as np

from sigmacube.core.card import Card, count_of, spread_of
from sigmacube.core.levels import half_width
from sigmacube.result import EstimatedCube

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

_Args = ParamSpec("_Args")

FLAGS: Mapping[int, str] = {0: "good", 1: "no_data", 2: "undefined", 3: "not_linear"}
"""Meaning of a product's flags."""


@dataclass(frozen=True, eq=False)
class Product(Card):
    """Values made from a cube, with their standard deviation.

    Examples
    --------
    >>> import numpy as np
    >>> product = Product("mean", np.array([1.0]), np.array([0.1]), ("region",))
    >>> low, high = product.interval(0.95)
    >>> high.round(3)
    array([1.196])
    """

    name: str
    estimate: np.ndarray
    """Values, NaN where there are none; a `DataArray` where the cube was made of one."""
    std: np.ndarray
    """Standard deviation of ``estimate``; NaN where it is not known, see ``flags``."""
    dims: tuple[str, ...]
    """Which of "row", "col", "band" or "region" each axis is."""
    flags: np.ndarray | None = None
    """Like ``estimate``, meaning in `FLAGS`: 0 good, 1 no data, 2 undefined (such as a division by
    zero), 3 not linear within the error: a value without a standard deviation."""
    independent_std: np.ndarray | None = None
    """What independent errors would have given, for comparison: wrong, and mostly too small."""
    wavelengths: np.ndarray | None = None
    """(band,) band centres in nm, where there is a band axis."""
    regions: np.ndarray | None = None
    """(region,) labels, where there is a region axis."""
    bands: tuple[tuple[float, int, float], ...] = ()
    """Bands that an expression used: wavelength asked for, index, wavelength found."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The cube's metadata, with its place on a coarser grid."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How the product was made, JSON-like."""

    _other_names: ClassVar[Mapping[str, str]] = {
        "sigma": "'std'",
        "uncertainty": "'std'",
        "values": "'estimate'",
    }

    def _facts(self) -> Mapping[str, str]:
        shape = self.estimate.shape
        sides = (count_of(size, name) for name, size in zip(self.dims, shape, strict=True))
        facts = {"name": self.name, "size": " × ".join(sides)}
        facts |= {"values": spread_of(self.estimate), "σ": spread_of(self.std)}
        if self.flags is not None:
            for flag, meaning in FLAGS.items():
                share = float(np.mean(self.flags == flag))
                if flag and share:
                    facts[meaning.replace("_", " ")] = f"{100 * share:.2g} %"
        return facts

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds (low, high) of the central interval at ``level``, between 0 and 1."""
        half = half_width(level) * self.std
        return self.estimate - half, self.estimate + half

    def to_xarray(self) -> xr.Dataset:
        """Return the CF-1.11 dataset that `save` writes."""
        from sigmacube.io import product

        return product.to_dataset(self)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a table with one line per value: where it is, the value, ``std`` and ``flag``.

        Examples
        --------
        >>> import numpy as np
        >>> made = Product("ndvi", np.array([0.7, 0.2]), np.array([0.01, 0.02]), ("region",),
        ...                regions=np.array([4, 9]))
        >>> made.to_dataframe().loc[9].to_dict()
        {'ndvi': 0.2, 'std': 0.02}
        """
        from sigmacube.io import product

        return product.to_dataframe(self)

    def plot(self, *, level: float = 0.95) -> np.ndarray:
        """Draw the values with their error: maps beside maps of σ, regions with intervals.

        Parameters
        ----------
        level
            Coverage of the intervals of regions.

        Returns
        -------
        ndarray
            The Axes, in a row.

        Examples
        --------
        >>> import numpy as np
        >>> values = np.linspace(0, 1, 12).reshape(3, 4)
        >>> axes = Product("ndvi", values, values / 10, ("row", "col")).plot()
        >>> [ax.get_title() for ax in axes]
        ['ndvi', 'σ of ndvi']
        """
        from sigmacube.show import plots

        return plots.product(self, level=level)

    def labelled(self) -> Product:
        """Return the product with `DataArray` objects in the place of plain arrays."""
        from sigmacube.io import product

        arrays: dict[str, Any] = product.labelled_arrays(self)
        return replace(self, **arrays)

    def save(self, path: str | Path, *, overwrite: bool = False, ortho: bool = False) -> Path:
        """Write the product as .nc, .zarr, .tif (a map), or .csv for regions.

        Parameters
        ----------
        path
            The suffix decides the format. A ``.tif`` holds values and σ as its bands, or as a pair
            of files where there are several bands, each with a style for QGIS.
        overwrite
            Whether an existing output may be replaced.
        ortho
            Whether to put a scene in sensor geometry (EMIT, PRISMA) on a map: nearest neighbour,
            nothing is averaged.
        """
        from sigmacube.io import product

        return product.write(self, path, overwrite=overwrite, ortho=ortho)


def of_bands(
    cube: EstimatedCube,
    values: np.ndarray,
    std: np.ndarray,
    independent_std: np.ndarray | None = None,
    **told: Any,
) -> Product:
    """Return values (row, col, band) of what a cube measures as a product, told other fields."""
    flags = np.where(np.isfinite(values), 0, 1).astype(np.uint8)
    told = {"wavelengths": cube.wavelengths, "metadata": cube.metadata} | told
    name = str(cube.metadata.get("name", "estimate"))
    return Product(name, values, std, ("row", "col", "band"), flags, independent_std, **told)


def keeps_labels(
    make: Callable[Concatenate[EstimatedCube, _Args], Product],
) -> Callable[Concatenate[EstimatedCube, _Args], Product]:
    """Let a product work on plain arrays, and give it labels where the cube has them."""

    @wraps(make)
    def made(cube: EstimatedCube, *args: _Args.args, **options: _Args.kwargs) -> Product:
        plain = cube.unlabelled()
        product = make(plain, *args, **options)
        return product if plain is cube else product.labelled()

    return made


def std_of(cube: EstimatedCube) -> np.ndarray:
    """Return the standard deviation in double precision."""
    assert cube.std is not None
    return np.asarray(cube.std, dtype=np.float64)


def without_bands(cube: EstimatedCube) -> dict[str, Any]:
    """Return the metadata that still hold for a product without the cube's bands and units."""
    dropped = ("units", "band_names", "fwhm", "good_bands", "long_name", "standard_name", "name")
    return {k: v for k, v in cube.metadata.items() if k not in dropped}


def history(cube: EstimatedCube, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a product was made, with how its cube was."""
    return {**settings, "cube": dict(cube.settings)}

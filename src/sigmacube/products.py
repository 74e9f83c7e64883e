"""What users make of a cube with its sigma: indices, means, other bands, fused cubes.

Errors of neighbouring values are correlated. Every standard deviation here comes from the exact
first-order covariance of the errors, never from adding variances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sigmacube.core.errors import CombinedErrors, Errors, IndependentErrors
from sigmacube.core.expressions import Expression, Jet, parse

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "INDICES",
    "ConditionedSpectrum",
    "FusedCube",
    "Product",
    "aggregate",
    "condition",
    "fuse",
    "index",
    "region_means",
    "resample",
]

INDICES: Mapping[str, str] = {
    "ndvi": "(b842 - b665) / (b842 + b665)",
    "ndwi": "(b560 - b842) / (b560 + b842)",
    "evi": "2.5 * (b842 - b665) / (b842 + 6 * b665 - 7.5 * b490 + 1)",
    "pri": "(b531 - b570) / (b531 + b570)",
    "nbr": "(b842 - b2190) / (b842 + b2190)",
}
"""Indices known by name; the ndwi is that of open water (McFeeters 1996)."""

# An index that adds a number to reflectances: values must be true reflectances.
_NEEDS_REFLECTANCE = ("evi",)

TOLERANCE_NM = 20.0
"""How far the nearest band may lie from the wavelength that an expression names."""

# Where the second-order part of the variance exceeds this share of the first order, or the
# second-order bias this share of sigma, the linear sigma is no longer right to 5 %. Measured with
# benchmarks/products.py (decision record 0015).
MOST_CURVATURE = 0.03
MOST_BIAS = 0.2
# Closer than this many sigma to the bend of abs(), its derivative says nothing.
LEAST_DISTANCE = 3.0

FLAGS: Mapping[int, str] = {0: "good", 1: "no_data", 2: "undefined", 3: "not_linear"}
"""Meaning of a product's flags."""


class HasErrors(Protocol):
    """A cube with a standard deviation: what `sigmacube.denoise` and `fuse` return."""

    @property
    def estimate(self) -> np.ndarray: ...  # noqa: D102
    @property
    def std(self) -> np.ndarray | None: ...  # noqa: D102
    @property
    def wavelengths(self) -> np.ndarray | None: ...  # noqa: D102
    @property
    def metadata(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def settings(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def error_model(self) -> Errors | None: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Product:
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
    """Values, NaN where there are none."""
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

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds (low, high) of the central interval at ``level``, between 0 and 1."""
        half = _half_width(level) * self.std
        return self.estimate - half, self.estimate + half

    def to_xarray(self) -> xr.Dataset:
        """Return the CF-1.11 dataset that `save` writes."""
        from sigmacube.io import product

        return product.to_dataset(self)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the product as .nc, .zarr, or .csv for regions."""
        from sigmacube.io import product

        return product.write(self, path, overwrite=overwrite)


def _half_width(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"Invalid level {level}. It must be between 0 and 1.")
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def _errors(cube: HasErrors) -> Errors:
    if cube.std is None:
        raise ValueError("Invalid cube: it was made with uncertainty=False.")
    if cube.error_model is None:
        raise ValueError(
            "Invalid cube: its window factors were not kept. It must be the result of denoise, or "
            "read from a file that was written with keep_factors=True (--keep-factors)."
        )
    return cube.error_model


# Indices ------------------------------------------------------------------------------------------


def index(
    cube: HasErrors,
    expression: str,
    *,
    aggregate: int | tuple[int, int] | None = None,
    labels: np.ndarray | None = None,
    of: str = "mean spectrum",
    tolerance: float = TOLERANCE_NM,
    workers: int | None = None,
) -> Product:
    """Compute a spectral index with its standard deviation, at every pixel or over regions.

    The standard deviation is √(gᵀ Σ g), with g the exact gradient and Σ the error covariance of the
    bands that the index uses (the delta method). Where the index is not linear over the width of
    the error, most often where a denominator is small, it would be wrong: there ``std`` is NaN and
    ``flags`` is 3.

    Parameters
    ----------
    cube
        Result of `sigmacube.denoise` or `fuse`.
    expression
        One of ``ndvi``, ``ndwi``, ``evi``, ``pri``, ``nbr``, or an expression such as
        ``"(b842 - b665) / (b842 + b665)"``, bands by wavelength in nm.
    aggregate
        Side of blocks of pixels: the index of the mean spectrum of each block.
    labels
        (row, col) integers, 0 for none, or a boolean mask: one index per region.
    of
        With ``labels``: ``"mean spectrum"`` takes the index of a region's mean spectrum,
        ``"pixels"`` the mean of the pixels' indices.
    tolerance
        How far, in nm, the nearest band may be from the wavelength asked for.
    workers
        Threads; the number of processors by default.

    Returns
    -------
    Product
        With the bands that were used in ``bands``.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 60), rng=1), 0.02, rng=2)
    >>> result = sc.denoise(noisy, 0.02, window=12)
    >>> ndvi = products.index(result, "ndvi")
    >>> ndvi.estimate.shape, ndvi.bands[0][1]
    ((24, 30), 13)
    >>> bool(np.nanmedian(ndvi.std) < 0.05)
    True
    """
    errors = _errors(cube)
    name, parsed = _expression(expression)
    bands = _find_bands(cube, parsed, tolerance)
    columns = [b for _, b, _ in bands]
    if name in _NEEDS_REFLECTANCE:
        _check_reflectance(cube.estimate[..., columns], name)
    if aggregate is not None and labels is not None:
        raise ValueError("Invalid request for both blocks and regions. Give one of them.")
    if of not in ("mean spectrum", "pixels"):
        raise ValueError(f"Invalid of {of!r}. It must be 'mean spectrum' or 'pixels'.")
    settings = {"product": "index", "name": name, "expression": parsed.text}
    about = {"bands": bands, "settings": _history(cube, settings)}
    if labels is not None and of == "pixels":
        return _index_mean(
            cube, errors, parsed, columns, _Supports.regions(cube, labels), name, about
        )
    supports = None
    if aggregate is not None:
        supports = _Supports.blocks(cube, aggregate, 0.5)
    elif labels is not None:
        supports = _Supports.regions(cube, labels)
    values, covariance, diagonal = _band_values(cube, errors, columns, supports, workers)
    jet = parsed.evaluate(list(np.moveaxis(values, -1, 0)))
    std, flags = _delta(jet, covariance, np.isfinite(values).all(axis=-1))
    naive = np.sqrt(np.einsum("...m,...m->...", jet.gradient**2, diagonal))
    return _finish(cube, name, jet.value, std, flags, naive, supports, about)


def _expression(text: str) -> tuple[str, Expression]:
    """Return the name of an index and what it computes."""
    known = text.strip().lower()
    if known in INDICES:
        return known, parse(INDICES[known])
    if known.isidentifier() and not any(c.isdigit() for c in known):
        raise ValueError(
            f"Invalid index {text!r}. It must be one of {', '.join(INDICES)}, or an expression "
            'such as "(b842-b665)/(b842+b665)".'
        )
    return "index", parse(text)


def _find_bands(
    cube: HasErrors, expression: Expression, tolerance: float
) -> tuple[tuple[float, int, float], ...]:
    """Return (wavelength asked for, index, wavelength found) of the nearest bands with data."""
    if cube.wavelengths is None:
        raise ValueError(
            f'Invalid expression "{expression.text}": the cube has no wavelengths, so bands cannot '
            "be found by them."
        )
    centres = np.asarray(cube.wavelengths, dtype=np.float64)
    empty = ~np.isfinite(cube.estimate).any(axis=(0, 1))
    found = []
    for wanted in expression.wavelengths:
        distance = np.where(empty, np.inf, np.abs(centres - wanted))
        nearest = int(np.argmin(distance))
        if not distance[nearest] <= tolerance:
            raise ValueError(
                f"Invalid band b{wanted:g}: the nearest band with data is at "
                f"{centres[nearest]:.1f} nm. It must be within {tolerance:g} nm."
            )
        found.append((wanted, nearest, float(centres[nearest])))
    return tuple(found)


def _check_reflectance(values: np.ndarray, name: str) -> None:
    middle = float(np.nanmedian(values))
    if middle > 1.5:
        raise ValueError(
            f"Invalid values for {name}: their median is {middle:g}. It adds a constant, so it "
            "needs reflectance from 0 to 1; read the cube with the right scale."
        )


def _pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of all pairs i ≤ j."""
    first, second = np.triu_indices(count)
    return first, second


def _band_values(
    cube: HasErrors,
    errors: Errors,
    columns: Sequence[int],
    supports: _Supports | None,
    workers: int | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values (..., m), error covariance (..., m, m) and naive variances of some bands."""
    rows = np.eye(errors.shape[2])[list(columns)]
    i, j = _pairs(len(rows))
    if supports is None:
        flat = errors.band_covariance(rows[i], rows[j], workers)
        values = np.asarray(cube.estimate[..., columns], dtype=np.float64)
        naive = np.square(_std(cube)[..., columns])
    else:
        flat = errors.support_covariance(
            supports.labels, supports.weights, rows[i], rows[j], workers
        )
        values = supports.mean(cube.estimate[..., columns])
        naive = supports.sum(np.square(_std(cube)[..., columns]), power=2)
    covariance = np.empty((*flat.shape[:-1], len(rows), len(rows)))
    covariance[..., i, j] = flat
    covariance[..., j, i] = flat
    return values, covariance, naive


def _std(cube: HasErrors) -> np.ndarray:
    assert cube.std is not None
    return np.asarray(cube.std, dtype=np.float64)


def _delta(jet: Jet, covariance: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard deviation by the delta method, and flags where it cannot be trusted."""
    with np.errstate(all="ignore"):
        g = jet.gradient
        variance = np.einsum("...i,...ij,...j->...", g, covariance, g)
        h_cov = jet.hessian @ covariance
        curvature = np.einsum("...ij,...ji->...", h_cov, h_cov) / 2
        bias = np.abs(np.einsum("...ii->...", h_cov)) / 2
        bad = (curvature > MOST_CURVATURE * variance) | (bias > MOST_BIAS * np.sqrt(variance))
        for value, gradient in jet.kinks:
            width = np.sqrt(np.einsum("...i,...ij,...j->...", gradient, covariance, gradient))
            bad |= np.abs(value) < LEAST_DISTANCE * width
        std = np.sqrt(variance)
    undefined = ~np.isfinite(jet.value) | ~np.isfinite(std)
    flags = np.where(~known, 1, np.where(undefined, 2, np.where(bad, 3, 0))).astype(np.uint8)
    return np.where(flags == 0, std, np.nan), flags


def _index_mean(
    cube: HasErrors,
    errors: Errors,
    expression: Expression,
    columns: Sequence[int],
    supports: _Supports,
    name: str,
    about: Mapping[str, Any],
) -> Product:
    """Return the mean of the pixels' indices over regions.

    Linearised, it is a linear functional with the pixels' gradients as weights.
    """
    values, covariance, diagonal = _band_values(cube, errors, columns, None, None)
    jet = expression.evaluate(list(np.moveaxis(values, -1, 0)))
    with np.errstate(all="ignore"):
        bias = np.einsum("...ij,...ji->...", jet.hessian, covariance) / 2
    mean = supports.mean(jet.value[..., None])[..., 0]
    naive = np.einsum("...m,...m->...", jet.gradient**2, diagonal)
    naive = np.sqrt(supports.sum(naive[..., None], power=2)[..., 0])
    std = np.full(mean.shape, np.nan)
    flags = np.where(np.isfinite(mean), 0, 2).astype(np.uint8)
    for number in np.flatnonzero(flags == 0):
        inside = supports.labels == number
        share = np.where(inside, supports.weights, 0)
        weights = np.zeros(errors.shape)
        weights[..., columns] = np.where(inside[..., None], jet.gradient, 0) * share[..., None]
        std[number] = np.sqrt(errors.functional_covariance([weights])[0, 0])
        # What pixels are biased by does not average out, and must be small beside the mean's sigma.
        if not abs(np.sum(share[inside] * bias[inside])) <= MOST_BIAS * std[number]:
            flags[number], std[number] = 3, np.nan
    return _finish(cube, name, mean, std, flags, naive, supports, about)


def _finish(
    cube: HasErrors,
    name: str,
    values: np.ndarray,
    std: np.ndarray,
    flags: np.ndarray,
    naive: np.ndarray,
    supports: _Supports | None,
    about: Mapping[str, Any],
) -> Product:
    """Wrap maps and tables of one value per place."""
    estimate = np.where((flags == 1) | (flags == 2), np.nan, values)
    made = Product(
        name, estimate, std, ("row", "col"), flags, naive, metadata=_plain(cube), **about
    )
    return made if supports is None else supports.shaped(made)


def _plain(cube: HasErrors) -> dict[str, Any]:
    """Return the metadata that still hold for a product without the cube's bands and units."""
    dropped = ("units", "band_names", "fwhm", "good_bands", "long_name", "standard_name", "name")
    return {k: v for k, v in cube.metadata.items() if k not in dropped}


def _history(cube: HasErrors, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, "cube": dict(cube.settings)}


# Means over pixels --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Supports:
    """Sets of pixels to average over."""

    labels: np.ndarray
    """(row, col) number of the support a pixel counts for, from 0; -1 for none."""
    weights: np.ndarray
    """(row, col) 1 / number of pixels of the support."""
    count: int
    grid: tuple[int, int] | None = None
    """Blocks along rows and columns."""
    size: tuple[int, int] = (1, 1)
    """Pixels of a block along rows and columns."""
    ids: np.ndarray | None = None
    """Labels of regions."""

    @classmethod
    def blocks(cls, cube: HasErrors, size: int | tuple[int, int], least: float) -> _Supports:
        """Cut the scene to blocks; those with less than a share of valid pixels are left out."""
        sides = (size, size) if isinstance(size, int | np.integer) else tuple(size)
        rows, cols = cube.estimate.shape[:2]
        if len(sides) != 2 or not all(
            isinstance(s, int | np.integer) and 1 <= s <= n
            for s, n in zip(sides, (rows, cols), strict=True)
        ):
            raise ValueError(
                f"Invalid aggregate {size!r}. It must be a number of pixels from 1 to the cube's "
                f"{rows}×{cols}, or two (rows, cols)."
            )
        if not 0 <= least <= 1:
            raise ValueError(f"Invalid min_valid {least}. It must be between 0 and 1.")
        height, width = (int(s) for s in sides)
        grid = (-(-rows // height), -(-cols // width))
        labels = (np.arange(rows) // height)[:, None] * grid[1] + np.arange(cols) // width
        return cls._counted(cube, labels, grid[0] * grid[1], least * height * width, grid=grid,
                            size=(height, width))  # fmt: skip

    @classmethod
    def regions(cls, cube: HasErrors, labels: np.ndarray) -> _Supports:
        """Number the regions of a label image or a mask."""
        labels = np.asarray(labels)
        if labels.shape != cube.estimate.shape[:2] or labels.dtype.kind not in "biu":
            raise ValueError(
                f"Invalid labels of shape {labels.shape} and type {labels.dtype}. They must be "
                f"integers or booleans of shape {cube.estimate.shape[:2]}."
            )
        ids = np.unique(labels[labels > 0])
        if not len(ids):
            raise ValueError("Invalid labels: no pixel has a label above 0.")
        numbers = np.where(labels > 0, np.searchsorted(ids, labels), -1)
        return cls._counted(cube, numbers, len(ids), 0.0, ids=ids.astype(np.int64))

    @classmethod
    def _counted(
        cls, cube: HasErrors, labels: np.ndarray, count: int, least: float, **fields: Any
    ) -> _Supports:
        """Leave out masked pixels, and supports with too few pixels left."""
        # A pixel is valid in all bands that hold data, or in none.
        valid = np.isfinite(cube.estimate).any(axis=2)
        labels = np.where(valid, labels, -1)
        pixels = np.bincount(labels[labels >= 0], minlength=count)
        kept = (pixels >= least) & (pixels > 0)
        labels = np.where((labels >= 0) & kept[labels], labels, -1)
        weights = np.where(labels >= 0, 1 / np.maximum(pixels, 1)[labels], 0.0)
        return cls(labels, weights, count, **fields)

    def sum(self, maps: np.ndarray, power: int = 1) -> np.ndarray:
        """Return (supports, n) Σ weight^power · maps (row, col, n); NaN for empty supports."""
        inside = self.labels >= 0
        number = self.labels[inside]
        each = self.weights[inside][:, None] ** power * maps[inside]
        total = np.stack([np.bincount(number, column, self.count) for column in each.T], axis=-1)
        total[np.bincount(number, minlength=self.count) == 0] = np.nan
        return total

    def mean(self, maps: np.ndarray) -> np.ndarray:
        """Return (supports, n) means of maps (row, col, n)."""
        return self.sum(np.asarray(maps, dtype=np.float64))

    def shaped(self, product: Product) -> Product:
        """Return a product of one row per support on its grid, or as a table of regions."""
        if self.grid is None:
            return replace(product, dims=("region", *product.dims[2:]), regions=self.ids)

        def image(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else array.reshape(*self.grid, *array.shape[1:])  # type: ignore[misc]

        metadata = dict(product.metadata)
        if metadata.get("transform") is not None:
            a, b, c, d, e, f = metadata["transform"]
            height, width = self.size
            metadata["transform"] = [a * width, b * height, c, d * width, e * height, f]
        for key in ("map_info", "location", "xarray"):
            metadata.pop(key, None)
        return replace(
            product,
            estimate=image(product.estimate),
            std=image(product.std),
            flags=image(product.flags),
            independent_std=image(product.independent_std),
            metadata=metadata,
            settings={**product.settings, "aggregate": list(self.size)},
        )


def aggregate(
    cube: HasErrors,
    size: int | tuple[int, int],
    *,
    min_valid: float = 0.5,
    workers: int | None = None,
) -> Product:
    """Average blocks of pixels to a coarser grid, with the standard deviation of every mean.

    Parameters
    ----------
    cube
        Result of `sigmacube.denoise`.
    size
        Side of the blocks in pixels, or (rows, cols).
    min_valid
        Share of a block's pixels that must be valid; blocks with fewer are NaN. Blocks cut by the
        edge of the scene count with what they have.
    workers
        Threads; the number of processors by default.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> coarse = products.aggregate(sc.denoise(noisy, 0.05, window=12), 3)
    >>> coarse.estimate.shape
    (8, 10, 40)
    >>> bool(np.median(coarse.std / coarse.independent_std) > 1.5)
    True
    """
    supports = _Supports.blocks(cube, size, min_valid)
    return _means(cube, supports, "aggregate", workers)


def region_means(cube: HasErrors, labels: np.ndarray, *, workers: int | None = None) -> Product:
    """Average the spectra of regions, with the standard deviation of every mean.

    Parameters
    ----------
    cube
        Result of `sigmacube.denoise`.
    labels
        (row, col) integers, one per region, 0 for none; or a boolean mask.
    workers
        Threads; the number of processors by default.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> labels = np.zeros((24, 30), dtype=int)
    >>> labels[2:9, 3:12], labels[12:20, 15:28] = 1, 2
    >>> products.region_means(sc.denoise(noisy, 0.05, window=12), labels).estimate.shape
    (2, 40)
    """
    return _means(cube, _Supports.regions(cube, labels), "region_means", workers)


def _means(cube: HasErrors, supports: _Supports, name: str, workers: int | None) -> Product:
    errors = _errors(cube)
    known = np.flatnonzero(np.isfinite(cube.estimate).any(axis=(0, 1)))
    rows = np.eye(errors.shape[2])[known]
    variance = np.full((supports.count, errors.shape[2]), np.nan)
    variance[:, known] = errors.support_covariance(
        supports.labels, supports.weights, rows, rows, workers
    )
    estimate = supports.mean(cube.estimate)
    std = np.where(np.isfinite(estimate), np.sqrt(variance), np.nan)
    made = Product(
        str(cube.metadata.get("name", "estimate")),
        estimate,
        std,
        ("row", "col", "band"),
        np.where(np.isfinite(estimate), 0, 1).astype(np.uint8),
        np.sqrt(supports.sum(np.square(_std(cube)), power=2)),
        wavelengths=cube.wavelengths,
        metadata=cube.metadata,
        settings=_history(cube, {"product": name}),
    )
    return supports.shaped(made)


# Other bands --------------------------------------------------------------------------------------


def resample(
    cube: HasErrors,
    centres: Sequence[float] | np.ndarray | None = None,
    fwhm: float | Sequence[float] | np.ndarray | None = None,
    *,
    responses: np.ndarray | None = None,
    shape: str = "gaussian",
    workers: int | None = None,
) -> Product:
    """Average bands to those of another sensor, with the standard deviation of every value.

    Parameters
    ----------
    cube
        Result of `sigmacube.denoise` or `fuse`.
    centres, fwhm
        (new bands,) centres and full widths at half maximum in nm.
    responses
        (new bands, bands) weights of the cube's bands instead; rows are scaled to a sum of one.
    shape
        Response for ``centres`` and ``fwhm``: ``"gaussian"``, or ``"box"`` for a plain band
        average.
    workers
        Threads; the number of processors by default.

    Notes
    -----
    Responses are sampled at the centres of the cube's bands; they should be wider than the bands
    are apart.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 60), rng=1), 0.05, rng=2)
    >>> result = sc.denoise(noisy, 0.05, window=12)
    >>> products.resample(result, [665.0, 842.0], [80.0, 115.0]).estimate.shape
    (24, 30, 2)
    """
    errors = _errors(cube)
    known = np.isfinite(cube.estimate).any(axis=(0, 1))
    if responses is None:
        if centres is None or fwhm is None:
            raise ValueError("Invalid request: give centres and fwhm, or responses.")
        rows = _responses(cube, np.atleast_1d(np.asarray(centres, float)), fwhm, shape, known)
    else:
        rows = _given_responses(responses, errors.shape[2], known)
    variance = errors.band_covariance(rows, rows, workers)
    values = np.where(known, cube.estimate, 0) @ rows.T
    std = np.where(np.isfinite(values), np.sqrt(variance), np.nan)
    naive = np.sqrt(np.where(known, np.square(_std(cube)), 0) @ np.square(rows).T)
    if centres is None and cube.wavelengths is not None:
        centres = rows @ np.asarray(cube.wavelengths, dtype=np.float64)
    metadata = {
        **_plain(cube),
        **{k: cube.metadata[k] for k in ("units", "name") if k in cube.metadata},
    }
    if fwhm is not None:
        metadata["fwhm"] = np.broadcast_to(np.asarray(fwhm, float), len(rows)).tolist()
    return Product(
        str(cube.metadata.get("name", "estimate")), values, std, ("row", "col", "band"),
        np.where(np.isfinite(values), 0, 1).astype(np.uint8), naive,
        wavelengths=None if centres is None else np.asarray(centres, dtype=np.float64),
        metadata=metadata,
        settings=_history(cube, {"product": "resample", "shape": shape}),
    )  # fmt: skip


def _responses(
    cube: HasErrors, centres: np.ndarray, fwhm: Any, shape: str, known: np.ndarray
) -> np.ndarray:
    """Return (new bands, bands) responses of a shape, of unit sum."""
    if cube.wavelengths is None:
        raise ValueError("Invalid centres: the cube has no wavelengths. Give responses instead.")
    if shape not in ("gaussian", "box"):
        raise ValueError(f"Invalid shape {shape!r}. It must be 'gaussian' or 'box'.")
    widths = np.broadcast_to(np.asarray(fwhm, dtype=np.float64), centres.shape)
    if not (np.all(widths > 0) and np.all(np.isfinite(widths)) and np.all(np.isfinite(centres))):
        raise ValueError("Invalid centres or fwhm. They must be finite, widths above 0.")
    offset = (np.asarray(cube.wavelengths, dtype=np.float64) - centres[:, None]) / widths[:, None]
    rows = np.exp(-4 * np.log(2) * offset**2) if shape == "gaussian" else np.abs(offset) <= 0.5
    # A tail that weighs nothing would only cost time.
    rows = np.where(known & (np.abs(offset) < 2), rows, 0.0)
    for centre, width, distance in zip(centres, widths, np.abs(offset), strict=True):
        if not np.any(known & (distance <= 0.5)):
            raise ValueError(
                f"Invalid band of {centre:g} nm with fwhm {width:g}: the cube has no band with data "
                "inside it."
            )
    return rows / rows.sum(axis=1, keepdims=True)


def _given_responses(responses: np.ndarray, n_bands: int, known: np.ndarray) -> np.ndarray:
    rows = np.atleast_2d(np.asarray(responses, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != n_bands or not np.all(np.isfinite(rows)):
        raise ValueError(
            f"Invalid responses of shape {rows.shape}. They must be finite, (new bands, {n_bands})."
        )
    rows = np.where(known, rows, 0)
    total = rows.sum(axis=1, keepdims=True)
    if np.any(total <= 0):
        raise ValueError(
            "Invalid responses: a row has no weight on bands with data. Its sum must be above 0."
        )
    return rows / total


# Fusion -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FusedCube:
    """Several measurements of one scene as one cube, with its standard deviation."""

    estimate: np.ndarray
    """(row, col, band) precision-weighted mean; NaN where no measurement has a value."""
    std: np.ndarray
    """(row, col, band) its standard deviation."""
    shares: tuple[np.ndarray, ...]
    """(row, col, band) weight of every measurement, summing to one."""
    wavelengths: np.ndarray | None = None
    """(band,) band centres in nm."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the first measurement."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the measurements."""
    error_model: Errors | None = None
    """What products need; None when one of the measurements had none."""

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds (low, high) of the central interval at ``level``, between 0 and 1."""
        half = _half_width(level) * self.std
        return self.estimate - half, self.estimate + half

    def as_product(self) -> Product:
        """Return the cube as a product, to be saved."""
        flags = np.where(np.isfinite(self.estimate), 0, 1).astype(np.uint8)
        name = str(self.metadata.get("name", "estimate"))
        return Product(
            name, self.estimate, self.std, ("row", "col", "band"), flags,
            wavelengths=self.wavelengths, metadata=self.metadata, settings=self.settings,
        )  # fmt: skip

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the cube as .nc or .zarr."""
        return self.as_product().save(path, overwrite=overwrite)


Measurement = HasErrors | Product | tuple[np.ndarray, np.ndarray]


def fuse(first: Measurement, *others: Measurement) -> FusedCube:
    """Fuse independent, co-registered measurements of one scene by precision weighting.

    Every value is the mean of the measurements' values with weights 1/σ², and has the variance
    1/Σ(1/σ²). The errors of different measurements must be independent: two looks at a scene, or a
    denoised cube and data of another instrument, but not two ways of denoising the same data.

    Parameters
    ----------
    first, *others
        Results of `sigmacube.denoise`, products with the same axes, or pairs (values, std) of
        arrays (row, col, band) whose errors are independent of each other.

    Returns
    -------
    FusedCube
        Products of it take all correlations into account where the measurements' are known.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> truth = sc.synthetic.scene((24, 30, 40), rng=1)
    >>> looks = [sc.denoise(sc.synthetic.add_noise(truth, 0.05, rng=n), 0.05, window=12)
    ...          for n in (2, 3)]
    >>> both = products.fuse(*looks)
    >>> bool(np.median(both.std / looks[0].std) < 0.8)
    True
    """
    if not others:
        raise ValueError("Invalid request to fuse one cube. There must be at least two.")
    parts = [_measured(part) for part in (first, *others)]
    shape, wavelengths = parts[0][0].shape, _wavelengths(first)
    for number, ((values, std, _), part) in enumerate(zip(parts, (first, *others), strict=True)):
        if values.shape != shape or std.shape != shape:
            raise ValueError(
                f"Invalid measurement {number + 1} of shapes {values.shape} and {std.shape}. All "
                f"must have the shape of the first, {shape}."
            )
        theirs = _wavelengths(part)
        if wavelengths is not None and theirs is not None:
            _check_same_bands(np.asarray(wavelengths), np.asarray(theirs), number + 1)
    precision = np.stack([_precision(values, std) for values, std, _ in parts])
    total = precision.sum(axis=0)
    shares = np.divide(precision, total, out=np.zeros_like(precision), where=total > 0)
    estimate = sum(np.where(s > 0, s * v, 0) for s, (v, _, _) in zip(shares, parts, strict=True))
    models = [model for _, _, model in parts if model is not None]
    combined = None
    if len(models) == len(parts):
        combined = CombinedErrors(tuple(zip(models, shares, strict=True)))
    with np.errstate(divide="ignore"):
        std = np.where(total > 0, 1 / np.sqrt(total), np.nan)
    return FusedCube(
        np.where(total > 0, estimate, np.nan), std, tuple(shares), wavelengths,
        {} if isinstance(first, tuple) else first.metadata,
        {"product": "fuse", "cubes": [{} if isinstance(p, tuple) else dict(p.settings)
                                      for p in (first, *others)]},
        combined,
    )  # fmt: skip


def _measured(part: Measurement) -> tuple[np.ndarray, np.ndarray, Errors | None]:
    """Return values, standard deviation and error model of a measurement."""
    if isinstance(part, tuple):
        if len(part) != 2:
            raise ValueError(
                f"Invalid measurement of {len(part)} arrays. It must be (values, std)."
            )
        values = np.asarray(part[0], dtype=np.float64)
        std = np.array(np.broadcast_to(np.asarray(part[1], dtype=np.float64), values.shape))
        if np.any(std[np.isfinite(values)] <= 0):
            raise ValueError("Invalid standard deviation of a measurement. It must be above 0.")
        model = IndependentErrors(np.square(std)) if values.ndim == 3 else None
        return values, std, model
    if part.std is None:
        raise ValueError("Invalid measurement: it was made with uncertainty=False.")
    values = np.asarray(part.estimate, dtype=np.float64)
    return values, np.asarray(part.std, dtype=np.float64), getattr(part, "error_model", None)


def _precision(values: np.ndarray, std: np.ndarray) -> np.ndarray:
    known = np.isfinite(values) & np.isfinite(std) & (std > 0)
    return np.where(known, 1 / np.square(np.where(known, std, 1)), 0.0)


def _wavelengths(part: Measurement) -> np.ndarray | None:
    return None if isinstance(part, tuple) else part.wavelengths


def _check_same_bands(ours: np.ndarray, theirs: np.ndarray, number: int) -> None:
    spacing = np.median(np.abs(np.diff(ours))) if len(ours) > 1 else np.inf
    worst = float(np.max(np.abs(ours - theirs)))
    if worst > 0.25 * spacing:
        raise ValueError(
            f"Invalid wavelengths of measurement {number}: they differ by up to {worst:.1f} nm from "
            "the first. Resample to common bands first."
        )


@dataclass(frozen=True, eq=False)
class ConditionedSpectrum:
    """A pixel's spectrum after a measurement of it was taken into account."""

    estimate: np.ndarray
    """(band,)"""
    std: np.ndarray
    """(band,)"""
    covariance: np.ndarray
    """(band, band)"""
    surprise: float
    """Squared distance of the measurement from what was expected, over its number of values: near
    one when cube and measurement agree within their errors."""


def condition(
    cube: HasErrors,
    row: int,
    col: int,
    spectrum: np.ndarray,
    noise: float | np.ndarray,
    *,
    bands: Sequence[int] | None = None,
    operator: np.ndarray | None = None,
) -> ConditionedSpectrum:
    """Take a field spectrum into account at one pixel, with the full spectral covariance.

    The errors of a pixel's bands are correlated, so a measurement of some bands improves the others
    too: x + Σ Aᵀ (A Σ Aᵀ + R)⁻¹ (y − A x).

    Parameters
    ----------
    cube
        Result of `sigmacube.denoise` or `fuse`.
    row, col
        The pixel.
    spectrum
        (n,) measured values y, independent of the cube.
    noise
        Their error: a standard deviation, one per value, or a covariance R (n, n).
    bands
        Indices of the bands that were measured; all bands by default.
    operator
        (n, bands) matrix A instead, for a measurement of combinations of bands.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> truth = sc.synthetic.scene((24, 30, 40), rng=1)
    >>> result = sc.denoise(sc.synthetic.add_noise(truth, 0.05, rng=2), 0.05, window=12)
    >>> better = products.condition(result, 5, 6, truth.values[5, 6, ::4], 0.001,
    ...                             bands=range(0, 40, 4))
    >>> bool(np.all(better.std < result.std[5, 6]))
    True
    """
    errors = _errors(cube)
    rows, cols, n_bands = errors.shape
    if not (0 <= row < rows and 0 <= col < cols):
        raise ValueError(f"Invalid pixel ({row}, {col}). The cube has {rows}×{cols} pixels.")
    known = np.isfinite(cube.estimate[row, col])
    if not known.any():
        raise ValueError(f"Invalid pixel ({row}, {col}). It has no data.")
    observe = _operator(bands, operator, n_bands)
    if np.any(observe[:, ~known]):
        raise ValueError("Invalid measurement of a band without data.")
    observe = observe[:, known]
    y = np.asarray(spectrum, dtype=np.float64)
    if y.shape != (len(observe),) or not np.all(np.isfinite(y)):
        raise ValueError(
            f"Invalid spectrum of shape {y.shape}. It must be {len(observe)} finite values."
        )
    r = _noise_covariance(noise, len(y))
    prior = errors.spectral_covariance(row, col)[np.ix_(known, known)]
    x = np.asarray(cube.estimate[row, col, known], dtype=np.float64)
    expected = observe @ prior @ observe.T + r
    gain = np.linalg.solve(expected, observe @ prior).T
    difference = y - observe @ x
    # Joseph's form stays positive definite when the measurement is much better than the cube.
    keep = np.eye(len(x)) - gain @ observe
    posterior = keep @ prior @ keep.T + gain @ r @ gain.T
    estimate = np.full(n_bands, np.nan)
    estimate[known] = x + gain @ difference
    covariance = np.full((n_bands, n_bands), np.nan)
    covariance[np.ix_(known, known)] = posterior
    surprise = float(difference @ np.linalg.solve(expected, difference)) / len(y)
    return ConditionedSpectrum(estimate, np.sqrt(np.diag(covariance)), covariance, surprise)


def _operator(bands: Sequence[int] | None, operator: np.ndarray | None, n_bands: int) -> np.ndarray:
    if operator is not None:
        matrix = np.asarray(operator, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != n_bands:
            raise ValueError(
                f"Invalid operator of shape {matrix.shape}. It must be (values, {n_bands})."
            )
        return matrix
    picked = np.arange(n_bands) if bands is None else np.asarray(list(bands), dtype=int)
    if np.any((picked < 0) | (picked >= n_bands)):
        raise ValueError(f"Invalid bands. They must be from 0 to {n_bands - 1}.")
    return np.eye(n_bands)[picked]


def _noise_covariance(noise: float | np.ndarray, count: int) -> np.ndarray:
    level = np.asarray(noise, dtype=np.float64)
    if level.ndim == 2 and level.shape == (count, count):
        return level
    if level.ndim > 1 or level.size not in (1, count) or np.any(level <= 0):
        raise ValueError(
            f"Invalid noise of shape {level.shape}. It must be a standard deviation above 0, "
            f"{count} of them, or a {count}×{count} covariance."
        )
    return np.diag(np.broadcast_to(np.square(level), (count,)))

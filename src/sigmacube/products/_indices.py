"""Spectral indices with sigma, by the delta method on the exact covariance of their bands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from sigmacube.products._supports import Supports
from sigmacube.products._types import Product, history, keeps_labels, std_of, without_bands
from sigmacube.products.expressions import Expression, Jet, parse
from sigmacube.result import EstimatedCube

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

# Half of a scene's values above this are no reflectances.
MOST_REFLECTANCE = 1.5

TOLERANCE_NM = 20.0
"""How far the nearest band may lie from the wavelength that an expression names."""

# Where the second-order part of the variance exceeds this share of the first order, or the
# second-order bias this share of sigma, the linear sigma is refused. The first was chosen by eye
# from one exploratory run (decision record 0015); the other two are round numbers.
MOST_CURVATURE = 0.01
MOST_BIAS = 0.2
# Closer than this many sigma to the bend of abs(), its derivative says nothing.
LEAST_DISTANCE = 3.0


@keeps_labels
def index(
    cube: EstimatedCube,
    expression: str,
    *,
    aggregate: int | tuple[int, int] | None = None,
    labels: np.ndarray | None = None,
    of: str = "mean spectrum",
    tolerance: float = TOLERANCE_NM,
    max_curvature: float = MOST_CURVATURE,
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
    max_curvature
        Share of the variance that the second order may add before sigma is refused. For a ratio it
        is twice the squared relative error of the denominator: 0.01 stands for 7 %.
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
    if aggregate is not None and labels is not None:
        raise ValueError("Invalid request for both blocks and regions. Give one of them.")
    if of not in ("mean spectrum", "pixels"):
        raise ValueError(f"Invalid of {of!r}. It must be 'mean spectrum' or 'pixels'.")
    task = Index.create(cube, expression, tolerance, max_curvature, workers)
    if task.needs_reflectance:
        middle = float(np.nanmedian(cube.estimate[..., task.columns]))
        if middle > MOST_REFLECTANCE:
            task.refuse_values(f"their median is {middle:g}")
    if aggregate is not None:
        return task.of_spectra(Supports.blocks(cube, aggregate, 0.5))
    if labels is None:
        return task.of_spectra(None)
    regions = Supports.regions(cube, labels)
    return task.of_spectra(regions) if of == "mean spectrum" else task.mean_of_pixels(regions)


@dataclass(frozen=True, eq=False)
class Index:
    """An index of a cube, with its bands found."""

    cube: EstimatedCube
    name: str
    expression: Expression
    bands: tuple[tuple[float, int, float], ...]
    max_curvature: float
    workers: int | None

    @classmethod
    def create(
        cls,
        cube: EstimatedCube,
        expression: str,
        tolerance: float = TOLERANCE_NM,
        max_curvature: float = MOST_CURVATURE,
        workers: int | None = None,
    ) -> Index:
        """Understand an expression and find its bands in a cube."""
        name, parsed = _expression(expression)
        bands = _find_bands(cube, parsed, tolerance)
        return cls(cube, name, parsed, bands, max_curvature, workers)

    @property
    def needs_reflectance(self) -> bool:
        """Whether values must be true reflectances."""
        return self.name in _NEEDS_REFLECTANCE

    def refuse_values(self, found: str) -> NoReturn:
        """Raise the error for values that are no reflectances."""
        raise ValueError(
            f"Invalid values for {self.name}: {found}. It adds a constant, so it needs reflectance "
            "from 0 to 1; read the cube with the right scale."
        )

    @property
    def columns(self) -> list[int]:
        """The bands' positions in the cube."""
        return [band for _, band, _ in self.bands]

    def of_spectra(self, supports: Supports | None) -> Product:
        """Return the index of every pixel's spectrum, or of mean spectra."""
        values, covariance, independent = self._bands_with_errors(supports)
        jet = self.expression.evaluate(list(np.moveaxis(values, -1, 0)))
        known = np.isfinite(values).all(axis=-1)
        std, flags = _delta(jet, covariance, known, self.max_curvature)
        naive = np.sqrt(np.einsum("...m,...m->...", jet.gradient**2, independent))
        return self._product(jet.value, std, flags, naive, supports)

    def mean_of_pixels(self, supports: Supports) -> Product:
        """Return the mean of the pixels' indices over regions.

        Linearised, it is a linear functional with the pixels' gradients as weights.
        """
        errors = self.cube.known_errors()
        values, covariance, independent = self._bands_with_errors(None)
        jet = self.expression.evaluate(list(np.moveaxis(values, -1, 0)))
        variance, curvature, bias = _second_order(jet, covariance)
        naive = np.einsum("...m,...m->...", jet.gradient**2, independent)
        mean, bias = supports.mean(np.stack([jet.value, bias], axis=-1)).T
        variance, curvature, naive = supports.sum(
            np.stack([variance, curvature, naive], axis=-1), power=2
        ).T
        std = np.full(mean.shape, np.nan)
        flags = np.where(np.isfinite(mean + variance), 0, 2).astype(np.uint8)
        for number in np.flatnonzero(flags == 0):
            inside = supports.labels == number
            weights = np.zeros(errors.shape)
            weights[..., self.columns] = np.where(inside[..., None], jet.gradient, 0)
            weights *= np.where(inside, supports.weights, 0)[..., None]
            std[number] = np.sqrt(errors.functional_covariance([weights])[0, 0])
        # Second-order errors of pixels are less correlated than first-order ones, so their mean is
        # at most as important as they are. What biases pixels does not average out at all.
        linear = (curvature <= self.max_curvature * variance) & (np.abs(bias) <= MOST_BIAS * std)
        flags[(flags == 0) & ~linear] = 3
        std[flags != 0] = np.nan
        return self._product(mean, std, flags, np.sqrt(naive), supports)

    def _bands_with_errors(
        self, supports: Supports | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return values (..., m), error covariance (..., m, m) and independent variances."""
        errors, columns = self.cube.known_errors(), self.columns
        rows = np.eye(errors.shape[2])[columns]
        i, j = np.triu_indices(len(rows))
        independent = np.square(std_of(self.cube)[..., columns])
        if supports is None:
            pairs = errors.band_covariance(rows[i], rows[j], self.workers)
            values = np.asarray(self.cube.estimate[..., columns], dtype=np.float64)
        else:
            pairs = errors.support_covariance(supports, rows[i], rows[j], self.workers)
            values = supports.mean(self.cube.estimate[..., columns])
            independent = supports.sum(independent, power=2)
        covariance = np.empty((*pairs.shape[:-1], len(rows), len(rows)))
        covariance[..., i, j] = pairs
        covariance[..., j, i] = pairs
        return values, covariance, independent

    def _product(
        self,
        values: np.ndarray,
        std: np.ndarray,
        flags: np.ndarray,
        naive: np.ndarray,
        supports: Supports | None,
    ) -> Product:
        settings = {"product": "index", "name": self.name, "expression": self.expression.text}
        made = Product(
            self.name,
            np.where((flags == 1) | (flags == 2), np.nan, values),
            std,
            ("row", "col"),
            flags,
            naive,
            bands=self.bands,
            metadata=without_bands(self.cube),
            settings=history(self.cube, settings),
        )
        return made if supports is None else supports.shaped(made)


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
    try:
        return "index", parse(text)
    except ValueError as error:
        if known.isidentifier():
            raise ValueError(f"{error} Indices by name: {', '.join(INDICES)}.") from None
        raise


def _find_bands(
    cube: EstimatedCube, expression: Expression, tolerance: float
) -> tuple[tuple[float, int, float], ...]:
    """Return (wavelength asked for, index, wavelength found) of the nearest bands with data."""
    if cube.wavelengths is None:
        raise ValueError(
            f'Invalid expression "{expression.text}": the cube has no wavelengths, so bands cannot '
            "be found by them."
        )
    centres = np.asarray(cube.wavelengths, dtype=np.float64)
    empty = ~cube.has_values()
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


def _delta(
    jet: Jet, covariance: np.ndarray, known: np.ndarray, max_curvature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard deviation by the delta method, and flags where it cannot be trusted."""
    variance, curvature, bias = _second_order(jet, covariance)
    with np.errstate(all="ignore"):
        std = np.sqrt(variance)
        bad = (curvature > max_curvature * variance) | (np.abs(bias) > MOST_BIAS * std)
        for value, gradient in jet.kinks:
            width = np.sqrt(np.einsum("...i,...ij,...j->...", gradient, covariance, gradient))
            bad |= np.abs(value) < LEAST_DISTANCE * width
    undefined = ~np.isfinite(jet.value) | ~np.isfinite(std)
    flags = np.where(~known, 1, np.where(undefined, 2, np.where(bad, 3, 0))).astype(np.uint8)
    return np.where(flags == 0, std, np.nan), flags


def _second_order(jet: Jet, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the variance gᵀΣg, what the second order adds to it tr(HΣHΣ)/2, and bias tr(HΣ)/2."""
    with np.errstate(all="ignore"):
        g, h_cov = jet.gradient, jet.hessian @ covariance
        return (
            np.einsum("...i,...ij,...j->...", g, covariance, g),
            np.einsum("...ij,...ji->...", h_cov, h_cov) / 2,
            np.einsum("...ii->...", h_cov) / 2,
        )

"""The result of denoising: an estimate, its standard deviation, and what they rest on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from sigmacube.core.card import Card, size_of, span_of, spread_of
from sigmacube.core.errors import ErrorModel, SpectralCovariance, Weights
from sigmacube.core.levels import half_width
from sigmacube.core.validity import check_pixel
from sigmacube.io.dataarray import labelled, unlabelled_array

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from sigmacube.error_correlation import ErrorCorrelation


class EstimatedCube(Card):
    """Base of cubes that hold an estimate, its standard deviation and an error model."""

    estimate: np.ndarray
    """(row, col, band) values; NaN where there are none."""
    std: np.ndarray | None
    """(row, col, band) standard deviation of ``estimate``."""
    wavelengths: np.ndarray | None
    """(band,) band centres in nm."""
    metadata: Mapping[str, Any]
    """What is known about the cube."""
    settings: Mapping[str, Any]
    """How it was made."""
    error_model: ErrorModel | None
    """Covariances of the errors; None when it was not kept."""
    filled_bands: np.ndarray | None = None
    """(band,) True for bands with any value, where this is part of a scene or is not in memory."""

    _other_names: ClassVar[Mapping[str, str]] = {
        "values": "'estimate', the denoised values",
        "data": "'estimate', the denoised values",
        "denoised": "'estimate', the denoised values",
        "sigma": "'std', the standard deviation of every value",
        "uncertainty": "'std', the standard deviation of every value",
        "covariance": "'spectral_cov(row, col)'",
        "shape": "'estimate.shape'",
        "rank": "'ranks', one for every window",
    }

    def _facts(self) -> Mapping[str, str]:
        facts = {"size": size_of(self.estimate.shape)} | span_of(self.wavelengths)
        if isinstance(self.std, np.ndarray):
            facts["σ of the estimate"] = spread_of(self.std)
        return facts

    def unlabelled(self) -> Self:
        """Return the cube with plain arrays (row, col, band): itself, where it has no labels."""
        return self

    def has_values(self) -> np.ndarray:
        """Return (band,) True for bands with any value that is not masked."""
        if self.filled_bands is not None:
            return self.filled_bands
        return np.asarray(np.isfinite(self.unlabelled().estimate).any(axis=(0, 1)))

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds (low, high) of the central interval at ``level``, between 0 and 1."""
        half = half_width(level) * self.known_std()
        return self.estimate - half, self.estimate + half

    def functional_std(self, weights: Weights) -> float:
        """Return the standard deviation of Σ weights · estimate, with all correlations.

        Parameters
        ----------
        weights
            (row, col, band) array, or a mapping from (row, col, band) to a weight. Weights on
            masked values must be zero.
        """
        return float(np.sqrt(self.functional_cov([weights])[0, 0]))

    def functional_cov(self, weights: Sequence[Weights]) -> np.ndarray:
        """Return the (n, n) covariance of n sums Σ weights · estimate, with all correlations.

        Parameters
        ----------
        weights
            For each sum a (row, col, band) array, or a mapping from (row, col, band) to a weight.
            Weights on masked values must be zero.
        """
        errors = self.known_errors()
        for one in weights:
            self._check_weights(one)
        return errors.functional_covariance(weights)

    def spectral_cov(self, row: int | np.ndarray, col: int | None = None) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel or of a region's mean spectrum.

        Parameters
        ----------
        row, col
            The pixel; or one (row, col) array: a mask for the mean over a region, or weights.

        Returns
        -------
        numpy.ndarray
            NaN for bands without data.
        """
        where = self._region_weights(row, col)
        if isinstance(where, tuple):
            return self.known_errors().spectral_covariance(*where)
        return self.known_errors().region_covariance(where).dense()

    def spectral_factors(self, row: int | np.ndarray, col: int | None = None) -> SpectralCovariance:
        """Return what `spectral_cov` does in low-rank form: a share of the noise plus few vectors.

        Parameters
        ----------
        row, col
            The pixel; or one (row, col) array: a mask for the mean over a region, or weights.
        """
        where = self._region_weights(row, col)
        if isinstance(where, tuple):
            pixel, where = where, np.zeros(self.unlabelled().estimate.shape[:2])
            where[pixel] = 1.0
        return self.known_errors().region_covariance(where)

    def sample(
        self,
        count: int,
        *,
        rng: int | np.random.Generator = 0,
        rows: slice | None = None,
        cols: slice | None = None,
    ) -> np.ndarray:
        """Draw errors of the estimate, for tools that want an ensemble.

        ``estimate + sample(n)`` are n cubes that scatter about the estimate as the estimate does
        about the truth, with the same covariance between all their values.

        Parameters
        ----------
        count
            Number of draws.
        rng
            Seed or generator.
        rows, cols
            Part of the scene; all of it by default. A draw of a whole scene takes about as long as
            denoising it and as much memory as the estimate.

        Returns
        -------
        numpy.ndarray
            (count, row, col, band), NaN where the estimate is.
        """
        if count < 1:
            raise ValueError(f"Invalid count {count}. It must be at least 1.")
        errors = self.known_errors()
        spans = []
        sides = self.unlabelled().estimate.shape[:2]
        for name, part, size in zip(("rows", "cols"), (rows, cols), sides, strict=True):
            start, stop, step = (slice(None) if part is None else part).indices(size)
            if step != 1 or start >= stop:
                raise ValueError(f"Invalid {name} {part}. They must be a range of the {size}.")
            spans.append(slice(start, stop))
        missing = ~np.isfinite(self.unlabelled().estimate[spans[0], spans[1]])
        drawn = np.empty((count, *missing.shape))
        stream = errors.draws(count, np.random.default_rng(rng), spans[0], spans[1])
        for target, error in zip(drawn, stream, strict=True):
            target[...] = error
            target[missing] = np.nan
        return drawn

    def known_std(self) -> np.ndarray:
        """Return the standard deviation, or say why there is none."""
        if self.std is None:
            raise ValueError("Invalid request: the result was made with uncertainty=False.")
        return self.std

    def known_errors(self) -> ErrorModel:
        """Return the error model, or say why there is none."""
        self.known_std()
        if self.error_model is None:
            raise ValueError(
                "Invalid request: the window factors were not kept with the result. Save it with "
                "keep_factors=True (--keep-factors), or denoise again."
            )
        return self.error_model

    def _check_weights(self, weights: Weights) -> None:
        """Refuse weights on values that do not exist."""
        if isinstance(weights, Mapping):
            shape = self.estimate.shape
            for where in weights:
                if not all(0 <= i < n for i, n in zip(where, shape, strict=True)):
                    raise ValueError(
                        f"Invalid element {tuple(where)}: outside of the cube of shape {shape}."
                    )
            bad = any(
                weight != 0 and not np.isfinite(self.estimate[where])
                for where, weight in weights.items()
            )
        else:
            weights = np.asarray(weights)
            same = weights.shape == self.estimate.shape
            bad = same and bool(np.any((weights != 0) & ~np.isfinite(self.estimate)))
        if bad:
            raise ValueError("Invalid weights on masked values. They must be zero there.")

    def _region_weights(
        self, row: int | np.ndarray, col: int | None
    ) -> tuple[int, int] | np.ndarray:
        """Return a pixel as it is, or a mask as weights of a mean."""
        rows, cols = self.estimate.shape[:2]
        if np.ndim(row) == 0 and col is not None:
            check_pixel(int(row), int(col), (rows, cols))
            return int(row), int(col)
        weights = np.asarray(row)
        if weights.shape != (rows, cols) or col is not None:
            raise ValueError(
                f"Invalid region of shape {weights.shape}. It must be a mask or weights of shape "
                f"{(rows, cols)}, or two ints for a pixel."
            )
        if weights.dtype == bool:
            weights = weights & np.isfinite(self.estimate).any(axis=2)
            if not weights.any():
                raise ValueError("Invalid region: it holds no valid pixel.")
            return weights / weights.sum()
        return weights.astype(np.float64)


@dataclass(frozen=True, eq=False)
class DenoisedCube(EstimatedCube):
    """A denoised cube with the standard deviation of every value.

    With ``prior="spatial"`` the standard deviation is noise that passed the estimator and signal
    that it lost, as measured over the scene. With ``prior=None`` it is the noise alone, to first
    order; ``residual_ratio`` shows where the low-rank model does not fit.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> result = sc.denoise(noisy, 0.05, window=12)
    >>> low, high = result.interval(0.95)
    >>> bool(np.all(high - low >= 3.9 * result.std))
    True
    >>> result.spectral_cov(3, 4).shape
    (40, 40)

    The error of a mean is not the mean error over √count: neighbouring errors are correlated.

    >>> weights = np.zeros(result.estimate.shape)
    >>> weights[10:15, 10:15, 20:24] = 1 / 100
    >>> naive = np.sqrt(np.sum(weights**2 * result.std**2))
    >>> bool(result.functional_std(weights) > 1.5 * naive)
    True
    """

    estimate: np.ndarray
    """(row, col, band) denoised values; NaN where the input is masked."""
    std: np.ndarray | None
    """(row, col, band) standard deviation of ``estimate``; None with ``uncertainty=False``."""
    ranks: np.ndarray
    """(window rows, window cols) rank of every window; a third axis when windows cut the bands."""
    noise: float | np.ndarray
    """Noise assumed or estimated: scalar std, (band,) stds, or (band, band) covariance."""
    residual_ratio: np.ndarray
    """Like ``ranks``: residual variance over what the noise predicts; 1 where the model fits."""
    noise_power: np.ndarray | None = None
    """Power of the noise at each spatial frequency of a window, mean one, where the noise of
    neighbouring pixels was found to be correlated; None for white noise."""
    noise_scale: np.ndarray | None = None
    """(row, col) factor of every pixel on ``noise``, the root mean square over bands where bands
    differ; None where noise does not grow with the signal."""
    rejected: np.ndarray | None = None
    """(row, col, band) True where a robust solver set an element aside; None for ``"svd"``."""
    unexplained: np.ndarray | None = None
    """(n, 2) row and col of pixels whose spectrum no window explains: their own observation is kept
    in part, with a larger ``std``. None where they were not looked for (``prior=None``)."""
    wavelengths: np.ndarray | None = None
    """(band,) band centres in nm, as in the input."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The input's metadata, unchanged (see `sigmacube.Cube`)."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The options that made this result, JSON-like, with the version and the noise's origin."""
    error_model: Any = None
    """What `functional_std` and `spectral_cov` need; None when it was not kept."""
    filled_bands: np.ndarray | None = None
    """(band,) True for bands with any value, where this is part of a scene or is not in memory."""
    typical: Callable[[], DenoisedCube] | None = None
    """Gives a part that stands for the scene, where the whole would take much work."""

    @property
    def caveats(self) -> list[str]:
        """What ``std`` does not hold on this scene, in plain sentences."""
        return [str(sentence) for sentence in self.settings.get("caveats", ())]

    def error_correlation(self) -> ErrorCorrelation | None:
        """Work out the mean error correlation along each axis, as files state it."""
        from sigmacube.error_correlation import error_correlation

        return None if self.std is None else error_correlation(self.unlabelled())

    def rejected_share(self, axis: str = "band") -> np.ndarray:
        """Return the share of elements a robust solver set aside, per band or per pixel.

        Parameters
        ----------
        axis
            ``"band"`` gives (band,), ``"pixel"`` gives (row, col). Masked values do not count;
            NaN where a band or a pixel has no others. Zero everywhere for ``"svd"``.

        Examples
        --------
        >>> import sigmacube as sc
        >>> truth = sc.synthetic.scene((24, 30, 40), rng=1)
        >>> noisy = sc.synthetic.add_noise(truth, 0.03, impulses=0.1, rng=2)
        >>> result = sc.denoise(noisy, 0.03, window=12, step=6, solver="robust", prior=None)
        >>> shares = result.rejected_share("band")
        >>> shares.shape, bool(0.08 < shares.mean() < 0.12)
        ((40,), True)
        """
        if axis not in ("band", "pixel"):
            raise ValueError(f"Invalid axis {axis!r}. It must be 'band' or 'pixel'.")
        over = (0, 1) if axis == "band" else 2
        plain = self.unlabelled()
        known = np.count_nonzero(np.isfinite(plain.estimate), axis=over)
        rejected = np.zeros(known.shape)
        if plain.rejected is not None:
            rejected = np.count_nonzero(plain.rejected, axis=over)
        return np.divide(rejected, known, out=np.full(known.shape, np.nan), where=known > 0)

    def calibrated(self, factors: np.ndarray) -> DenoisedCube:
        """Return the result with the standard deviation of every band scaled.

        Parameters
        ----------
        factors
            (bands,) factor on σ, such as ``holdout(...).band_factors``; NaN leaves a band as it
            is. They are recorded in ``settings["calibration"]``.
        """
        factors = np.asarray(factors, dtype=np.float64)
        n_bands = self.estimate.shape[2]
        if factors.shape != (n_bands,) or np.any(factors <= 0):
            raise ValueError(
                f"Invalid calibration of shape {factors.shape}. It must be one factor above zero "
                f"for each of the {n_bands} bands."
            )
        scale = np.where(np.isfinite(factors), factors, 1.0)
        std = self.std
        if std is not None:
            std = (std * scale).astype(std.dtype, copy=False)
        errors = None if self.error_model is None else self.error_model.scaled(scale)
        settings = {**self.settings, "calibration": scale.tolist()}
        return replace(self, std=std, error_model=errors, settings=settings)

    def to_xarray(self) -> xr.Dataset:
        """Return the CF-1.11 dataset that `save` writes."""
        from sigmacube.io import cf

        return cf.from_result(self.unlabelled(), self.error_correlation())

    def save(self, path: str | Path, *, correlation: bool = True, **options: Any) -> Path:
        """Write the result; the suffix decides the format.

        Parameters
        ----------
        path
            Output: .nc, .zarr, .hdr or .tif.
        correlation
            Work out how errors are correlated and state it in the file, where its format has a
            place for that (.nc, .zarr). False writes what is there and computes nothing.
        **options
            Of `sigmacube.io.write`: ``overwrite``, ``dtype``, ``keep_factors``.
        """
        from sigmacube import io

        wanted = correlation and io.writer_of(Path(path)).holds_errors
        stated = self.error_correlation() if wanted else None
        return io.write(self.unlabelled(), path, correlation=stated, **options)

    def plot(self, *, observed: Any = None) -> np.ndarray:
        """Draw the scene, its standard deviation and the ranks; see `sc.plots.overview`.

        Parameters
        ----------
        observed
            The noisy input, drawn beside the estimate.

        Returns
        -------
        ndarray
            The Axes.
        """
        from sigmacube.show import plots

        return plots.overview(self.unlabelled(), observed=observed)

    def plot_spectrum(self, row: int, col: int, **options: Any) -> Axes:
        """Draw the spectrum of a pixel with its interval; see `sc.plots.spectrum`."""
        from sigmacube.show import plots

        return plots.spectrum(self.unlabelled(), row=row, col=col, **options)

    def _facts(self) -> Mapping[str, str]:
        from sigmacube.show.key_figures import key_figures

        return key_figures(self.unlabelled())

    def _notes(self) -> Sequence[str]:
        return self.caveats

    def _repr_html_(self) -> str:
        from sigmacube.show.key_figures import repr_html

        return repr_html(self.unlabelled())


@dataclass(frozen=True, eq=False)
class LabelledCube(DenoisedCube):
    """What `denoise` makes of a `DataArray`: ``estimate`` and ``std`` are labelled like it.

    They have its dimensions in its order, its coordinates and its attributes. Everything else is as
    in `DenoisedCube`; ``arrays`` is the same result in plain arrays (row, col, band).

    Examples
    --------
    >>> import sigmacube as sc, xarray as xr
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> cube = xr.DataArray(noisy.values, dims=("y", "x", "band"), name="rho")
    >>> result = sc.denoise(cube.transpose("band", ...), 0.05, window=12)
    >>> result.estimate.dims, result.std.dims
    (('band', 'y', 'x'), ('band', 'y', 'x'))
    >>> result.arrays.estimate.shape
    (24, 30, 40)
    """

    estimate: xr.DataArray  # type: ignore[assignment]
    """Denoised values, labelled as the input; NaN where it is masked."""
    std: xr.DataArray | None  # type: ignore[assignment]
    """Standard deviation of ``estimate``; None with ``uncertainty=False``."""
    rejected: xr.DataArray | None = None  # type: ignore[assignment]
    """True where a robust solver set an element aside; None for ``"svd"``."""
    arrays: DenoisedCube = None  # type: ignore[assignment]
    """The same result in plain arrays, (row, col, band)."""

    def unlabelled(self) -> DenoisedCube:  # type: ignore[override]
        """Return the same result in plain arrays."""
        return self.arrays

    def functional_cov(self, weights: Sequence[Weights | xr.DataArray]) -> np.ndarray:
        """Return the (n, n) covariance of n sums Σ weights · estimate; see `DenoisedCube`."""
        labels = self.metadata["xarray"]
        return self.arrays.functional_cov([unlabelled_array(one, labels) for one in weights])

    def _region_weights(
        self, row: int | np.ndarray, col: int | None
    ) -> tuple[int, int] | np.ndarray:
        return self.arrays._region_weights(unlabelled_array(row, self.metadata["xarray"]), col)

    def calibrated(self, factors: np.ndarray) -> LabelledCube:
        """Return the result with the standard deviation of every band scaled."""
        return with_labels(self.arrays.calibrated(factors))


def with_labels(result: DenoisedCube) -> LabelledCube:
    """Give the arrays of a result the labels of the `DataArray` that it was made of."""
    labels = result.metadata["xarray"]
    held = {one.name: getattr(result, one.name) for one in fields(result)}
    name = labels["name"] or "estimate"
    held["estimate"] = labelled(result.estimate, labels, name, labels["attrs"])
    units = {key: labels["attrs"][key] for key in ("units",) if key in labels["attrs"]}
    if result.std is not None:
        held["std"] = labelled(result.std, labels, f"{name}_uncertainty", units)
    if result.rejected is not None:
        held["rejected"] = labelled(result.rejected, labels, f"{name}_rejected", {})
    return LabelledCube(**held, arrays=result)

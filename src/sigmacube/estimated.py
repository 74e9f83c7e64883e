"""A cube with known errors: what can be asked of a denoised cube and of a fused one alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from sigmacube.core.card import Card, size_of, span_of, spread_of
from sigmacube.core.errors import ErrorModel, SpectralCovariance, Weights
from sigmacube.core.levels import half_width

__all__ = ["EstimatedCube"]


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

    def unlabelled(self) -> EstimatedCube:
        """Return the cube with plain arrays (row, col, band): itself, where it has no labels."""
        return self

    def has_values(self) -> np.ndarray:
        """Return (band,) True for bands with any value that is not masked."""
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
            pixel, where = where, np.zeros(self.estimate.shape[:2])
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
            if not (0 <= row < rows and 0 <= col < cols):
                raise ValueError(
                    f"Invalid pixel ({row}, {col}). The cube has {rows}×{cols} pixels."
                )
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

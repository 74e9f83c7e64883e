r"""Values whose noise is the same wherever the signal is bright or dark.

Noise of variance :math:`\alpha x + \gamma` has the standard deviation s at a reference m and σ(x)
elsewhere. Along the scale

.. math:: t(x) = m + s \int_m^x dx' / \sigma(x')

it is s everywhere. The scale bends: taken at the noisy value itself, it would turn noise into bias
and into more noise where single bands are noisy. So values follow its tangent at what the strong
directions of the scene say of their pixel, x̃: t = t(x̃) + (x − x̃) s/σ(x̃). Estimates return by the
inverse, and errors are multiplied by the slope σ(x̂)/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sigmacube.core.parallel import ParallelMap, in_turn, strips
from sigmacube.core.spatial.subspace import project
from sigmacube.noise.signal_noise import LARGEST_FACTOR, SignalNoise

__all__ = ["MOST_DIRECTIONS", "Stabiliser"]

# Directions that tell of a pixel, at most, and how little they may be seen by.
MOST_DIRECTIONS, RIDGE = 12, 1e-3
# Rows that are solved together.
STRIP = 8


@dataclass(frozen=True, eq=False)
class Stabiliser:
    """The scale along which noise is alike, for the bands that hold data.

    Examples
    --------
    >>> noise = SignalNoise(np.array([0.5, 0.0]), np.array([0.1, 0.2]), np.array([1.0, 2.0]))
    >>> scale = Stabiliser(noise, np.eye(2))
    >>> x = np.array([[[4.0, 3.0], [-0.5, 2.0]]])
    >>> bool(np.allclose(scale.inverse(scale.forward(x, 0)), x))
    True

    The noise of the bright value is larger than that of the reference, the other band's is not:

    >>> scale.slope(x)[0, 0].round(3)
    array([1.871, 1.   ])
    """

    noise: SignalNoise
    """Noise with a reference."""
    directions: np.ndarray
    """(bands, j) strong directions of the scene's spectra over the noise at the reference."""

    @cached_property
    def _line(self) -> tuple[np.ndarray, ...]:
        """Return α, m, s, the least std, and the signal from which on noise grows."""
        reference = np.asarray(self.noise.reference, dtype=np.float64)
        gain, offset = (a + np.zeros_like(reference) for a in (self.noise.gain, self.noise.offset))
        power = gain * np.maximum(reference, 0) + offset
        least = np.maximum(offset, power / LARGEST_FACTOR)
        start = np.where(least > offset, (least - offset) / np.where(gain > 0, gain, 1), 0)
        return gain, reference, np.sqrt(power), np.sqrt(least), start

    def _std(self, values: np.ndarray) -> np.ndarray:
        gain, _, _, least, start = self._line
        return np.asarray(np.sqrt(least**2 + gain * np.maximum(values - start, 0)))

    def scale(self, values: np.ndarray) -> np.ndarray:
        """Return t(x) of values (..., band)."""
        _, reference, unit, least, start = self._line

        def along(x: np.ndarray) -> np.ndarray:
            # (2 s/α)(σ(x) − σ(start)), in a form that needs no division by α
            return np.asarray(2 * unit * (x - start) / (self._std(x) + least))

        return np.asarray(reference + along(values) - along(reference))

    def forward(
        self,
        values: np.ndarray,
        left: int,
        run: ParallelMap = in_turn,
        *,
        missing: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return values (row, col, band) on the scale, along its tangent at what is told of them.

        Parameters
        ----------
        left
            The scene's column that the values start at.
        missing
            True for values that are none.
        """
        return self.along(values, self.told(values, left, run, missing))

    def along(self, values: np.ndarray, told: np.ndarray) -> np.ndarray:
        """Return values on the tangent of the scale at what is told of them."""
        return np.asarray(self.scale(told) + (values - told) / self.slope(told))

    def held(self, values: np.ndarray, there: np.ndarray, left: int) -> np.ndarray:
        """Return values (row, col, band) along the scale, zero where none are ``there``."""
        whole = np.where(there, values, np.asarray(self.noise.reference))
        gone = None if there.all() else np.broadcast_to(~there, values.shape)
        stable = self.forward(whole, left, missing=gone)
        return np.where(there, stable, 0.0)

    def told(
        self,
        values: np.ndarray,
        left: int,
        run: ParallelMap = in_turn,
        missing: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return what strong directions tell of values (row, col, band)."""
        unit, directions = self._line[2], self.directions
        scaled = values / unit
        if missing is not None:
            scaled = np.where(missing, 0.0, scaled)
        along = project(scaled, directions, left, run)
        if missing is not None:
            self._complete(along, missing, left, run)
        return project(along, np.ascontiguousarray(directions.T), left, run) * unit

    def _complete(
        self, along: np.ndarray, missing: np.ndarray, left: int, run: ParallelMap
    ) -> None:
        """Turn sums over the bands that are there into coefficients, pixel by pixel."""
        bands, count = self.directions.shape
        products = self.directions[:, :, None] * self.directions[:, None, :]
        products = products.reshape(bands, count * count)

        def solve(rows: slice) -> None:
            holed = missing[rows].any(axis=2)
            gone = project(missing[rows].astype(np.float64), products, left)[holed]
            seen = (1 + RIDGE) * np.eye(count) - gone.reshape(-1, count, count)
            along[rows][holed] = np.linalg.solve(seen, along[rows][holed][..., None])[..., 0]

        run(solve, strips(0, len(along), STRIP))

    def inverse(self, values: np.ndarray) -> np.ndarray:
        """Return x of values (..., band) on the scale."""
        gain, _, unit, least, start = self._line
        along = values - self.scale(start)
        std = least + gain * np.maximum(along, 0) / (2 * unit)
        return np.asarray(start + along * (std + least) / (2 * unit))

    def slope(self, values: np.ndarray) -> np.ndarray:
        """Return σ(x)/s of values (..., band)."""
        return np.asarray(self._std(values) / self._line[2])

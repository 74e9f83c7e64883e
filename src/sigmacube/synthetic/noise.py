"""The noise that instruments add: Gaussian, impulses, stripes, dead lines."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from sigmacube.cube import Cube
from sigmacube.synthetic.landscape import check_shape, check_share, is_int

CubeLike = TypeVar("CubeLike", Cube, np.ndarray)


def add_noise(
    cube: CubeLike,
    noise: float | np.ndarray,
    *,
    impulses: float = 0.0,
    stripes: float = 0.0,
    dead_lines: int = 0,
    rng: int | np.random.Generator = 0,
) -> CubeLike:
    r"""Observe a cube through a noisy instrument: :math:`W = W^\star + G + N`.

    Gaussian noise comes first, then stripes, impulses and dead lines. The Gaussian part depends on
    ``rng`` alone, so the same seed with and without the others differs by them only. The input is
    not changed; NaN and infinite values stay as they are.

    Parameters
    ----------
    cube
        (row, col, band) values, a `Cube` or an array.
    noise
        Gaussian noise: one standard deviation, one per band (bands,), or the covariance between
        bands (bands, bands) of every pixel's spectrum. Pixels are independent.
    impulses
        Chance of every element to be replaced by salt or pepper, the upper or the lower end of the
        data range, at equal odds: 1 or 0 for data within [0, 1] (scaled bands, reflectance), else
        the largest or smallest finite value of ``cube``.
    stripes
        Share of the columns that get an offset, drawn anew in every band: constant along the
        column, uniform within a quarter of the data range to either side.
    dead_lines
        Number of columns that read zero in a random run of bands (a tenth to a half of them).
    rng
        Seed or generator.

    Returns
    -------
    Cube or ndarray
        As given; floating types are kept, integers become float64.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube.synthetic import add_noise, scene
    >>> truth = scene((40, 50, 30))
    >>> noisy = add_noise(truth, 0.02, impulses=0.1)
    >>> spikes = (noisy.values == 0) | (noisy.values == 1)
    >>> round(float(spikes.mean()), 2)
    0.1
    >>> round(float((noisy.values - truth.values)[~spikes].std()), 3)
    0.02
    """
    clean = np.asarray(cube.values if isinstance(cube, Cube) else cube)
    check_shape(clean.shape)
    check_share("impulses", impulses)
    check_share("stripes", stripes)
    if not is_int(dead_lines) or not 0 <= dead_lines <= clean.shape[1]:
        raise ValueError(
            f"Invalid dead_lines {dead_lines}. It must be an integer from 0 to the number of "
            f"columns, {clean.shape[1]}."
        )
    rng = np.random.default_rng(rng)
    low, high = _data_range(clean)
    noisy = clean + _gaussian(clean.shape, noise, rng)
    if stripes:
        noisy += _stripe_offsets(clean.shape, stripes, 0.25 * (high - low), rng)
    if impulses:
        draw = rng.random(clean.shape)
        noisy[draw < impulses] = high
        noisy[draw < impulses / 2] = low
    for column, run in _dead_runs(clean.shape, dead_lines, rng):
        noisy[:, column, run] = 0.0
    noisy = np.where(np.isfinite(clean), noisy, clean)
    noisy = noisy.astype(clean.dtype if clean.dtype.kind == "f" else np.float64, copy=False)
    made: Any = cube.with_values(noisy) if isinstance(cube, Cube) else noisy
    return made


def _gaussian(
    shape: tuple[int, ...], noise: float | np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw zero-mean Gaussian noise with the given std, band stds, or band covariance."""
    bands = shape[2]
    level = np.asarray(noise, dtype=np.float64)
    if level.shape not in ((), (bands,), (bands, bands)):
        raise ValueError(
            f"Invalid noise of shape {level.shape}. It must be a scalar, ({bands},) standard "
            f"deviations or a ({bands}, {bands}) covariance."
        )
    if not np.isfinite(level).all():
        raise ValueError("Invalid noise: NaN or infinite values. All of it must be finite.")
    standard = rng.standard_normal(shape)
    if level.ndim < 2:
        if (level < 0).any():
            raise ValueError(f"Invalid noise {level.min():g}. It must not be negative.")
        return standard * level
    if not np.allclose(level, level.T, rtol=1e-8, atol=1e-12 * np.abs(level).max()):
        raise ValueError("Invalid noise covariance: not symmetric. It must equal its transpose.")
    variances, axes = np.linalg.eigh(level)
    if variances[0] < -1e-10 * max(variances[-1], 0.0):
        raise ValueError(
            f"Invalid noise covariance with eigenvalue {variances[0]:g}. It must be positive "
            "semi-definite."
        )
    return standard @ (axes * np.sqrt(np.maximum(variances, 0.0))).T


def _stripe_offsets(
    shape: tuple[int, ...], share: float, amplitude: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw (1, cols, bands) offsets: in every band, ``share`` of the columns are not zero."""
    _, cols, bands = shape
    order = np.argsort(rng.random((cols, bands)), axis=0)
    chosen = order < round(share * cols)
    return (chosen * rng.uniform(-amplitude, amplitude, (cols, bands)))[None]


def _dead_runs(
    shape: tuple[int, ...], count: int, rng: np.random.Generator
) -> list[tuple[int, slice]]:
    """Choose ``count`` columns, and for each the run of bands in which it is dead."""
    _, cols, bands = shape
    runs = []
    for column in rng.choice(cols, size=count, replace=False):
        length = int(rng.integers(max(bands // 10, 1), max(bands // 2, 1), endpoint=True))
        start = int(rng.integers(0, bands - length, endpoint=True))
        runs.append((int(column), slice(start, start + length)))
    return runs


def _data_range(values: np.ndarray) -> tuple[float, float]:
    """Return (0, 1) for data within it, else the smallest and the largest finite value."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)

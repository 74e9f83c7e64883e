"""Compare the closed form with what the trials did, block of elements by block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sigmacube.check.montecarlo.result import MonteCarlo
from sigmacube.check.montecarlo.trials import Trials
from sigmacube.core.levels import LEVELS, half_width
from sigmacube.core.parallel import parallel
from sigmacube.core.whitening import Noise

# Bytes of errors that are looked at together.
BLOCK_BYTES = 1 << 24
# Key of the random numbers that choose elements, apart from those of any trial.
SAMPLE_KEY = 1 << 31


def judge(
    trials: Trials,
    std: np.ndarray | None = None,
    *,
    levels: Sequence[float] = LEVELS,
    sample: int = 1000,
    workers: int | None = None,
) -> MonteCarlo:
    """Compare standard deviations with the errors of trials that have been run.

    Parameters
    ----------
    trials
        Trials after `Trials.run`.
    std
        (row, col, band) standard deviations to put to the test on all trials; by default those
        that the trials kept.
    levels
        Nominal levels between 0 and 1.
    sample
        Elements drawn at random for the Shapiro-Wilk tests and the Q-Q plot.
    workers
        Threads.

    Returns
    -------
    MonteCarlo
        Coverage and what else there is to say.
    """
    flat = None if std is None else np.asarray(std, dtype=np.float32).ravel()
    size = max(1, BLOCK_BYTES // (4 * trials.count))
    starts = range(0, trials.n_elements, size)
    chosen = _choose(trials, sample, flat)
    look = partial(_judge_block, trials, flat, tuple(levels), size, chosen)
    with parallel(workers) as run:
        blocks = run(look, starts)
    return _summary(trials, tuple(levels), blocks, chosen)


@dataclass(frozen=True, eq=False)
class _Block:
    """What one block of elements adds to the figures."""

    elements: int
    coverage: np.ndarray
    """(levels,) sum over elements of the share of trials inside; squares below."""
    coverage_squared: np.ndarray
    inside: np.ndarray
    """(levels, trials) elements inside the interval around the mean, and around the truth."""
    inside_truth: np.ndarray
    squares: float
    """Sum of squared errors."""
    squared_means: float
    """Sum of the squared mean errors."""
    variances: float
    """Sum of the variances of the trials."""
    freedom: float
    """Sum of predicted variances over those of the noise."""
    ratio: np.ndarray
    """(elements of the block,) predicted over actual standard deviation."""
    z: np.ndarray
    """(chosen elements, trials) standardised deviations from the mean."""
    sampled: np.ndarray
    """(chosen elements, trials) errors of the same elements."""


def _judge_block(
    trials: Trials,
    std: np.ndarray | None,
    levels: tuple[float, ...],
    size: int,
    chosen: np.ndarray,
    start: int,
) -> _Block:
    stop = min(start + size, trials.n_elements)
    errors = trials.errors(start, stop)
    sigma = trials.std(start, stop) if std is None else std[start:stop]
    sigma = np.where(sigma > 0, sigma, np.nan)
    known = np.isfinite(errors).all(axis=0) & np.isfinite(np.atleast_2d(sigma)).all(axis=0)
    if not known.all():
        errors, sigma = errors[:, known], sigma[..., known]
    count = len(errors)
    mean = errors.mean(axis=0, dtype=np.float64).astype(np.float32)
    # The mean of T trials follows each of them: their deviations are smaller by √(1 − 1/T).
    z = (errors - mean) / (sigma * np.float32(math.sqrt(1 - 1 / count)))
    variance = np.var(errors, axis=0, ddof=1, dtype=np.float64)
    ours = chosen[slice(*np.searchsorted(chosen, (start, stop)))]
    picked = np.searchsorted(np.flatnonzero(known) + start, ours)
    predicted = np.sqrt(np.mean(np.square(np.atleast_2d(sigma), dtype=np.float64), axis=0))
    ratio = np.full(stop - start, np.nan, dtype=np.float32)
    # Trials that agree to the last bit have no spread to compare with.
    actual = np.sqrt(np.where(variance > 0, variance, np.nan))
    ratio[known] = predicted / actual / _inverse_std_bias(count)
    shares, inside = _inside(z, levels)
    _, inside_truth = _inside(errors / sigma, levels)
    return _Block(
        elements=errors.shape[1],
        coverage=shares.sum(axis=1),
        coverage_squared=np.square(shares).sum(axis=1),
        inside=inside,
        inside_truth=inside_truth,
        squares=float(np.sum(np.square(errors, dtype=np.float64))),
        squared_means=float(np.sum(np.square(mean, dtype=np.float64))),
        variances=float(variance.sum()),
        freedom=float(np.sum(np.square(predicted / _noise_std(trials, start, stop)[known]))),
        ratio=ratio,
        z=np.ascontiguousarray(z[:, picked].T),
        sampled=np.ascontiguousarray(errors[:, picked].T),
    )


def _inside(z: np.ndarray, levels: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return (levels, elements) share of trials and (levels, trials) number of elements inside."""
    size = np.abs(z)
    shares, counts = np.empty((len(levels), z.shape[1])), np.empty((len(levels), len(z)))
    for n, level in enumerate(levels):
        within = size <= half_width(level)
        shares[n] = np.count_nonzero(within, axis=0) / len(z)
        counts[n] = np.count_nonzero(within, axis=1)
    return shares, counts


def _noise_std(trials: Trials, start: int, stop: int) -> np.ndarray:
    bands = trials.truth.shape[2]
    return np.asarray(Noise.create(trials.noise, bands).std)[np.arange(start, stop) % bands]


def _choose(trials: Trials, sample: int, std: np.ndarray | None) -> np.ndarray:
    """Draw elements that have an estimate, in ascending order."""
    if sample < 1:
        raise ValueError(f"Invalid sample {sample}. There must be at least one element.")
    first = trials.std() if std is None and trials.sigma == "first" else std
    known = np.arange(trials.n_elements)
    if first is not None and not np.all(first > 0):
        known = np.flatnonzero(first > 0)
    seed = np.random.SeedSequence(trials.entropy, spawn_key=(SAMPLE_KEY,))
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(known, size=min(sample, len(known)), replace=False))


def _inverse_std_bias(count: int) -> float:
    """Return E[σ/s] for the standard deviation s of so many normal trials; infinite for two."""
    if count < 3:
        return math.inf
    half = (count - 1) / 2
    return math.sqrt(half) * math.exp(math.lgamma(half - 0.5) - math.lgamma(half))


def ratio_limit(count: int) -> float:
    """Return the spread of σ/s over elements that T normal trials alone produce.

    Near 1/√(2(T − 1)), exact for few trials too; NaN below four.

    Examples
    --------
    >>> round(ratio_limit(100), 4), round(1 / (2 * 99) ** 0.5, 4)
    (0.0719, 0.0711)
    """
    if count < 4:
        return math.nan
    bias = _inverse_std_bias(count)
    return math.sqrt((count - 1) / (count - 3) / bias**2 - 1)


def _summary(
    trials: Trials, levels: tuple[float, ...], blocks: list[_Block], chosen: np.ndarray
) -> MonteCarlo:
    count = trials.count
    elements, freedom = (sum(getattr(b, name) for b in blocks) for name in ("elements", "freedom"))
    if elements == 0:
        raise ValueError("Invalid trials: no element has an estimate and a standard deviation.")
    mean, square, *shares = (
        np.sum([getattr(block, name) for block in blocks], axis=0) / elements
        for name in ("coverage", "coverage_squared", "inside", "inside_truth")
    )
    spread = np.sqrt(np.maximum(square - mean**2, 0))
    errors = [share.std(axis=1, ddof=1) / math.sqrt(count) for share in shares]
    ratio, z, sampled = (
        np.concatenate([getattr(block, name) for block in blocks])
        for name in ("ratio", "z", "sampled")
    )
    variance = sum(block.variances for block in blocks) / elements
    bias = sum(block.squared_means for block in blocks) / elements - variance / count
    return MonteCarlo(
        trials=count,
        noise=trials.noise,
        impulses=trials.impulses,
        sigma=trials.sigma,
        options=dict(trials.options or {}),
        coverage=_by_level(levels, mean),
        coverage_spread=_by_level(levels, spread),
        spread_limit={p: math.sqrt(p * (1 - p) / count) for p in levels},
        coverage_error=_by_level(levels, errors[0]),
        truth_coverage=_by_level(levels, shares[1].mean(axis=1)),
        truth_coverage_error=_by_level(levels, errors[1]),
        std_ratio=np.float64(np.nanmean(ratio, dtype=np.float64)),
        std_ratio_spread=float(np.nanstd(ratio, dtype=np.float64)),
        std_ratio_limit=ratio_limit(count),
        std_ratio_map=ratio.reshape(trials.truth.shape),
        rmse=math.sqrt(sum(block.squares for block in blocks) / elements / count),
        bias=math.sqrt(max(bias, 0.0)),
        degrees_of_freedom=freedom,
        sample_positions=np.stack(np.unravel_index(chosen, trials.truth.shape), axis=1),
        sample_z=z,
        **_normality(sampled, z, freedom),
    )


def _normality(sampled: np.ndarray, z: np.ndarray, freedom: int) -> dict[str, Any]:
    """Return what Shapiro and Wilk's test says of sampled estimates and of z."""
    p_values = shapiro_p(sampled)
    return {
        "shapiro_p": p_values,
        "shapiro_rejected": _share_rejected(p_values),
        "shapiro_rejected_z": _share_rejected(shapiro_p(z)),
        "shapiro_limits": binomial_limits(0.05, min(len(p_values), freedom)),
    }


def _by_level(levels: tuple[float, ...], values: np.ndarray) -> Mapping[float, float]:
    return {level: float(value) for level, value in zip(levels, values, strict=True)}


def _share_rejected(p_values: np.ndarray) -> float:
    return float(np.mean(p_values < 0.05)) if len(p_values) else math.nan


def shapiro_p(z: np.ndarray) -> np.ndarray:
    """Return the p-value of a Shapiro-Wilk test of every row; empty below three columns."""
    from scipy.stats import shapiro

    if z.shape[1] < 3:
        return np.empty(0)
    return np.array([shapiro(row).pvalue for row in z.astype(np.float64)])


def binomial_limits(share: float, count: float) -> tuple[float, float]:
    """Return the limits that hold an observed share with 95 % probability.

    Examples
    --------
    >>> low, high = binomial_limits(0.05, 1000)
    >>> round(low, 3), round(high, 3)
    (0.037, 0.064)
    """
    from scipy.stats import binom

    n = max(round(count), 1)
    low, high = binom.ppf([0.025, 0.975], n, share) / n
    return float(low), float(high)

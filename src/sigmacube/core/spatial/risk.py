r"""How large errors are, measured on the scene by Stein's identity.

For an estimate x̂(z) of unit-noise data, ‖x̂ − z‖² − 1 + 2 ∂x̂/∂z is its squared error without bias,
whatever x̂ does: shrinkage chosen from the data, averages of windows, a second round. The derivative
comes from one more run on z + εb with b random: b (x̂(z + εb) − x̂(z))/ε. Averaged over classes that
do not depend on a coefficient's own noise it gives tables of the error of the *final* estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import uniform_filter

from sigmacube.core.spatial.filling import hidden_lines, less_seen
from sigmacube.core.spatial.fit import BINS, Fits, cut, project
from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.model import RiskTable
from sigmacube.core.spatial.smoothing import Plan, Run, Smoothed, second_round
from sigmacube.core.spatial.transform import N_RINGS, forward, rings
from sigmacube.core.spatial.unexplained import normal_score, scale_of
from sigmacube.core.spatial.variance import variance_along
from sigmacube.core.spatial.views import chosen_windows, claimed, look, scaled

__all__ = ["Trial", "factors", "hole_factor", "ordinary", "gains", "relative_spread", "tables", "try_patch"]

STEP = 0.1
LEVELS = 4
# Shares of pixels that bound the classes of spread: finer where windows disagree most.
BOUNDS = np.array([0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.85, 0.92, 0.96, 0.985])
PRIOR = 400.0
LEAST_GAIN, MOST_GAIN = 0.2, 5.0


@dataclass(frozen=True, eq=False)
class Trial:
    """The estimator on a patch of the scene, and how it responds to noise."""

    plan: Plan
    smoothed: Smoothed
    residual: np.ndarray
    """(rows, cols, k) x̂ − z."""
    probe: np.ndarray
    """(rows, cols, k) b."""
    response: np.ndarray
    """(rows, cols, k) (x̂(z + εb) − x̂(z))/ε."""
    outside: np.ndarray
    """(rows, cols) ‖y − yBBᵀ‖²."""
    bands: int
    """P."""

    @property
    def box(self) -> Box:
        """The patch as a scene of its own."""
        return Box(0, self.residual.shape[0], 0, self.residual.shape[1])

    def identity(self, noise: np.ndarray) -> np.ndarray:
        """Return (rows, cols, k) the squared error without bias."""
        return self.residual**2 + 2 * self.probe * self.response - noise

    def claimed(self, risk: tuple[RiskTable, ...], gain: np.ndarray) -> np.ndarray:
        """Return (rows, cols) the squared error of k coefficients that the tables claim."""
        views = look(self.smoothed, self.box, self.plan.sizes, self.plan.noise_power, risk)
        return claimed(views, self.box, gain)


def try_patch(
    y: np.ndarray,
    basis: np.ndarray,
    plan: Plan,
    noise: np.ndarray,
    rng: np.random.Generator,
    run: Run,
) -> Trial:
    """Run the estimator on a patch y (rows, cols, P) with and without a little more noise.

    Parameters
    ----------
    noise
        (k,) variance of the noise along each direction of the basis.
    """
    z = y @ basis
    outside = np.sum((y - z @ basis.T) ** 2, axis=2)
    box = Box(0, z.shape[0], 0, z.shape[1])
    smoothed = second_round(z, box, box, plan, run)
    probe = coloured(rng, z.shape, plan)
    again = second_round(z + STEP * probe, box, box, plan, run)
    response = (again.estimate - smoothed.estimate) / STEP
    residual = smoothed.estimate - z
    return Trial(plan, smoothed, residual, probe * noise, response, outside, y.shape[2])


def coloured(rng: np.random.Generator, shape: tuple[int, ...], plan: Plan) -> np.ndarray:
    """Draw noise (rows, cols, k) of the scene's power over spatial frequencies."""
    white = rng.standard_normal(shape)
    power = plan.noise_power[0]
    if np.all(power == 1):
        return white
    rows = np.arange(shape[0]) * (power.shape[0] / shape[0])
    cols = np.arange(shape[1]) * (power.shape[1] / shape[1])
    full = power[np.ix_(rows.astype(int), cols.astype(int))]
    images = np.ascontiguousarray(np.moveaxis(white, 2, 0))[:, None]
    from sigmacube.core.spatial.transform import inverse

    return np.moveaxis(inverse(images * np.sqrt(full / full.mean()))[:, 0], 0, 2)


def tables(trials: list[Trial], noise: np.ndarray, size: int) -> RiskTable:
    """Return the table of one size of window, from all patches."""
    parts = [(trial, _viewing(trial, size)) for trial in trials]
    left = np.concatenate([f.left for _, fits in parts for f in fits])
    levels = np.quantile(left, np.arange(1, LEVELS) / LEVELS)
    kept = np.zeros((2, N_RINGS * BINS))
    beyond = np.zeros((2, LEVELS, N_RINGS))
    for trial, fits in parts:
        for group in fits:
            _count_group(trial, group, noise, levels, kept, beyond)
    pixels = sum(trial.residual.size for trial in trials)
    lowest = np.sqrt(2 / pixels)
    return RiskTable(_pooled(kept, lowest), _pooled_dropped(beyond, lowest), levels)


def _viewing(trial: Trial, size: int) -> list[Fits]:
    fits = [f for f in trial.smoothed.fits if f.size == size]
    chosen = [f.part(chosen_windows(f, trial.plan.sizes)) for f in fits]
    return [f for f in chosen if len(f.rank)]


def _count_group(
    trial: Trial,
    fits: Fits,
    noise: np.ndarray,
    levels: np.ndarray,
    kept: np.ndarray,
    beyond: np.ndarray,
) -> None:
    """Add the squared error of a group's coefficients, and their number, to the sums."""
    power = trial.plan.noise_power[fits.size]
    fields = [
        cut(field.astype(np.float32), fits.corner, fits.side)
        for field in (trial.residual, trial.probe, trial.response)
    ]
    r, b, j = (project(fits, field) for field in fields)
    along = np.einsum("akr,k->ar", fits.directions**2, noise)[:, :, None, None]
    risk = ((r * r + 2 * b * j) / power - along) * fits.kept
    number = np.broadcast_to(fits.kept, risk.shape)
    for row, values in zip(kept, (risk, number), strict=True):
        row += np.bincount(fits.classes.ravel(), values.ravel().astype(float), minlength=len(row))
    r, b, j = (forward(np.ascontiguousarray(np.moveaxis(field, 3, 1))) for field in fields)
    total = np.sum(r * r + 2 * b * j, axis=1) / power - noise.sum() - risk.sum(axis=1)
    level = np.searchsorted(levels, fits.left)[:, None, None] * N_RINGS + rings(fits.side)
    free = np.broadcast_to((len(noise) - fits.rank)[:, None, None], total.shape)
    for plane, values in zip(beyond, (total, free), strict=True):
        plane += np.bincount(
            level.ravel(), values.ravel().astype(float), minlength=plane.size
        ).reshape(plane.shape)


def _pooled(sums: np.ndarray, lowest: float) -> np.ndarray:
    """Return class means, drawn towards the mean of their bin where a class has few members."""
    total, number = sums.reshape(2, N_RINGS, BINS)
    overall = total.sum() / max(number.sum(), 1)
    by_bin = (total.sum(axis=0) + PRIOR * overall) / (number.sum(axis=0) + PRIOR)
    mean = (total + PRIOR * by_bin) / (number + PRIOR)
    return np.clip(mean, lowest, 3.0).ravel()


def _pooled_dropped(sums: np.ndarray, lowest: float) -> np.ndarray:
    total, number = sums
    by_ring = total.sum(axis=0) / np.maximum(number.sum(axis=0), 1)
    mean = (total + PRIOR * by_ring) / (number + PRIOR)
    return np.maximum(mean, lowest)


def relative_spread(spread: np.ndarray, claim: np.ndarray) -> np.ndarray:
    """Return the mean over 3 × 3 pixels of the spread of windows, over the root of the claim."""
    mean = uniform_filter(spread.astype(np.float64), 3, mode="nearest")
    return mean / np.sqrt(np.maximum(claim, 1e-9))


def gains(
    trials: list[Trial], risk: tuple[RiskTable, ...], noise: np.ndarray, run: Run
) -> np.ndarray:
    """Return (k,) what the claimed variance along each direction of B is multiplied by.

    Tables are by spatial frequency; strong directions, where borders and contrasts are, err more
    than they say, weak ones less. Measured by the same identity, never rising from strong to weak.
    """
    actual, claim = np.zeros(len(noise)), np.zeros(len(noise))
    for trial in trials:
        box = trial.box
        views = look(trial.smoothed, box, trial.plan.sizes, trial.plan.noise_power, risk)
        eye = np.eye(len(noise))
        claim += variance_along(views, box, eye, eye, run).sum(axis=(0, 1), dtype=np.float64)
        actual += trial.identity(noise).sum(axis=(0, 1))
    ratio = actual / np.maximum(claim, 1e-12)
    return np.clip(_rising(ratio[::-1], claim[::-1] ** 2)[::-1], LEAST_GAIN, MOST_GAIN)


def factors(
    trials: list[Trial], risk: tuple[RiskTable, ...], gain: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of the spread of windows at a pixel, and the factor of each class.

    Windows know how large errors are on the whole, not where in them. Where windows disagree,
    errors are larger; how much larger is measured by the same identity, pixel by pixel. Factors
    are drawn towards their mean by their sampling error, and rise with the spread.
    """
    actual, claim, spread = [], [], []
    for trial in trials:
        claim.append(trial.claimed(risk, gain).ravel())
        actual.append(trial.identity(noise).sum(axis=2).ravel())
        spread.append(relative_spread(trial.smoothed.spread, claim[-1].reshape(trial.box.shape)).ravel())
    a, c, s = (np.concatenate(x) for x in (actual, claim, spread))
    bounds = np.unique(np.quantile(s, BOUNDS[BOUNDS * (1 - BOUNDS) * len(s) > 100]))
    label = np.searchsorted(bounds, s)
    return bounds, _class_factors(a, c, label, len(bounds) + 1)


def ordinary(
    trials: list[Trial],
    risk: tuple[RiskTable, ...],
    gain: np.ndarray,
    factor: np.ndarray,
    bounds: np.ndarray,
) -> np.ndarray:
    """Return (2, 3) the scale of the scores of residuals inside and outside B, see `scale_of`."""
    inside, outside = [], []
    for trial in trials:
        k = trial.residual.shape[2]
        claim = trial.claimed(risk, gain)
        label = np.searchsorted(bounds, relative_spread(trial.smoothed.spread, claim))
        freedom = np.maximum(k - claim * factor[label], 0.5)
        inside.append(normal_score(np.sum(trial.residual**2, axis=2), freedom).ravel())
        free = np.full(freedom.shape, max(trial.bands - k, 0.5))
        outside.append(normal_score(trial.outside, free).ravel())
    return np.array([scale_of(np.concatenate(scores)) for scores in (inside, outside)])


def hole_factor(
    trial: Trial,
    risk: tuple[RiskTable, ...],
    bounds: np.ndarray,
    factor: np.ndarray,
    gain: np.ndarray,
    noise: np.ndarray,
    run: Run,
) -> float:
    """Return how much larger errors of pixels that were not observed are than is claimed.

    Some columns of a patch are hidden and filled; what was hidden is the estimate plus its error
    plus noise.
    """
    z = trial.smoothed.estimate - trial.residual
    smoothed, share, where = hidden_lines(z, trial.plan, run)
    box = Box(0, z.shape[0], 0, z.shape[1])
    views = look(smoothed, box, trial.plan.sizes, trial.plan.noise_power, risk)
    label = np.searchsorted(bounds, relative_spread(smoothed.spread, claimed(views, box, gain)))
    views = less_seen(scaled(views, box, factor[label]), box, share, 1.0)
    claim = claimed(views, box, gain)[where]
    actual = np.sum((smoothed.estimate - z)[where] ** 2, axis=1) - noise.sum()
    return float(np.clip(actual.sum() / max(claim.sum(), 1e-9), 1.0, 100.0))


def _class_factors(
    actual: np.ndarray, claim: np.ndarray, label: np.ndarray, count: int
) -> np.ndarray:
    number = np.maximum(np.bincount(label, minlength=count), 1)
    mean = np.maximum(np.bincount(label, claim, minlength=count) / number, 1e-12)
    ratio = np.bincount(label, actual, minlength=count) / number / mean
    error = actual.std() / np.sqrt(number) / mean
    overall = np.average(ratio, weights=number * mean)
    scatter = np.average((ratio - overall) ** 2 - error**2, weights=1 / error**2)
    share = max(scatter, 0) / (max(scatter, 0) + error**2)
    drawn = overall + share * (ratio - overall)
    return np.clip(_rising(drawn, 1 / error**2), 0.2, 20.0)


def _rising(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the closest values that never fall (pool adjacent violators)."""
    pools: list[list[float]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            v, w, n = pools.pop()
            u = pools[-1]
            pools[-1] = [(u[0] * u[1] + v * w) / (u[1] + w), u[1] + w, u[2] + n]
    return np.concatenate([np.full(int(n), v) for v, _, n in pools])

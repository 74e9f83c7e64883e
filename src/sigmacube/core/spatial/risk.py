r"""How large errors are, measured on the scene by Stein's identity.

For an estimate x̂(z) of unit-noise data, ‖x̂ − z‖² − 1 + 2 ∂x̂/∂z is its squared error without bias,
whatever x̂ does: shrinkage chosen from the data, averages of windows, a second round. The derivative
comes from one more run on z + εb with b random: b (x̂(z + εb) − x̂(z))/ε. Averaged over classes that
do not depend on a coefficient's own noise it gives tables of the error of the *final* estimate.
The model that the tables make is then held against the scene: by frequency as windows see it, by
direction of the subspace, and by how much windows disagree at a pixel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.spatial.fit import BINS, Fits, cut, project
from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.missing import hidden_lines, less_seen
from sigmacube.core.spatial.smoothing import Plan, Run, Smoothed, second_round
from sigmacube.core.spatial.transform import N_RINGS, forward, inverse, rings
from sigmacube.core.spatial.unexplained import normal_score, scale_of
from sigmacube.core.spatial.views import (
    RiskTable,
    View,
    claimed,
    error_sample,
    look,
    relative_spread,
    scaled,
    variance_along,
    viewing,
)

__all__ = ["Trial", "hole_factor", "measured_risk", "ordinary", "try_patch"]

STEP = 0.1
LEVELS = 4
# Shares of pixels that bound the classes of spread: finer where windows disagree most.
BOUNDS = np.array([0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.85, 0.92, 0.96, 0.985])
PRIOR = 400.0
LEAST_GAIN, MOST_GAIN = 0.2, 5.0
# How often the model's power by frequency is matched to the scene's, and by how much at once.
MATCHES = 2
RESPONSE = 0.75
LEAST_MATCH, MOST_MATCH = 0.5, 4.0


@dataclass(frozen=True, eq=False)
class Trial:
    """The estimator on a patch of the scene, and how it responds to noise."""

    plan: Plan
    smoothed: Smoothed
    residual: np.ndarray
    """(rows, cols, k) x̂ − z."""
    error: np.ndarray
    """(rows, cols, k) the squared error of every coefficient, without bias, by Stein's identity."""
    response: np.ndarray
    """(k,) mean square of the estimate's response to noise: its variance, without bias."""
    windows: list[Fits]
    """Windows that the error model looks through."""
    coefficients: list[tuple[np.ndarray, np.ndarray]]
    """By stack of windows, the same identity for coefficients by frequency: along kept directions
    (windows, R, rows, cols), and summed over all k (windows, rows, cols)."""
    outside: np.ndarray
    """(rows, cols) ‖y − yBBᵀ‖²."""
    bands: int
    """P."""

    @property
    def box(self) -> Box:
        """The patch as a scene of its own."""
        return Box(0, self.residual.shape[0], 0, self.residual.shape[1])

    def views(self, table: RiskTable) -> list[View]:
        """Return what windows see of the error, before the factor of each pixel."""
        return look(self.smoothed, self.box, self.plan, table)


def try_patch(
    y: np.ndarray,
    basis: np.ndarray,
    plan: Plan,
    noise: np.ndarray,
    rng: np.random.Generator,
    run: Run,
    imputed: bool = False,
) -> Trial:
    """Run the estimator on a patch y (rows, cols, P) with and without a little more noise.

    Parameters
    ----------
    noise
        (k,) variance of the noise along each direction of the basis.
    imputed
        Whether elements were missing: the noise is then what windows have in dropped directions.
    """
    z = y @ basis
    outside = np.einsum("yxp,yxp->yx", y, y) - np.einsum("yxk,yxk->yx", z, z)
    box = Box(0, z.shape[0], 0, z.shape[1])
    smoothed = second_round(z, box, box, plan, run)
    probe = coloured(rng, z.shape, plan)
    again = second_round(z + STEP * probe, box, box, plan, run)
    response = (again.estimate - smoothed.estimate) / STEP
    if imputed:
        noise = noise * (_noise_left(smoothed.fits) / noise.mean())
    residual, probe = smoothed.estimate - z, probe * noise
    error = residual**2 + 2 * probe * response - noise
    windows = [fits for fits, _ in viewing(smoothed, plan)]
    parts = [_by_frequency(f, (residual, probe, response), noise, plan) for f in windows]
    power = np.mean(response**2, axis=(0, 1)) * noise
    return Trial(plan, smoothed, residual, error, power, windows, parts, outside, y.shape[2])


def _noise_left(fits: list[Fits]) -> float:
    """Return the variance per coefficient that larger windows have in dropped directions."""
    found, expected = 0.0, 1e-9
    for group in fits:
        if group.size == 0:
            (k, _), n = group.directions.shape[1:], group.side[0] * group.side[1]
            found += float(np.sum(group.left * (k - group.rank) * n))
            expected += float(np.sum((k - group.rank) * (n - group.rank)))
    return max(found / expected, 1.0)


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
    return np.moveaxis(inverse(images * np.sqrt(full / full.mean()))[:, 0], 0, 2)


def _by_frequency(
    fits: Fits,
    fields: tuple[np.ndarray, np.ndarray, np.ndarray],
    noise: np.ndarray,
    plan: Plan,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the squared error of a stack's coefficients, see `Trial.coefficients`."""
    power = plan.noise_power[0]
    parts = [cut(field.astype(np.float32), fits.corner, fits.side) for field in fields]
    r, b, j = (project(fits, part) for part in parts)
    along = np.einsum("akr,k->ar", fits.directions**2, noise)[:, :, None, None]
    kept = ((r * r + 2 * b * j) / power - along) * fits.kept
    r, b, j = (forward(np.ascontiguousarray(np.moveaxis(part, 3, 1))) for part in parts)
    return kept, np.sum(r * r + 2 * b * j, axis=1) / power - noise.sum()


def measured_risk(trials: list[Trial], k: int, run: Run) -> RiskTable:
    """Return how large errors are, from all patches.

    Weights of windows fall off towards their edges, so errors that reach across windows are seen
    too small at low frequencies: power by ring of frequency is matched to what the scene has.
    """
    table, actual = _tables(trials, k)
    trials = _lifted(trials)
    for match in range(MATCHES + 1):
        seen = [trial.views(table) for trial in trials]
        table = replace(table, gain=_gains(trials, seen, run))
        claims = [claimed(v, t.box, table.gain) for t, v in zip(trials, seen, strict=True)]
        bounds, factor = _factors(trials, claims)
        table = replace(table, bounds=bounds, factor=factor)
        if match < MATCHES:
            ratio = actual / np.maximum(_modelled(trials, seen, claims, table, match), 1e-12)
            ratio = np.clip(ratio, LEAST_MATCH, MOST_MATCH)
            kept = (table.kept.reshape(N_RINGS, BINS) * ratio[:, None]).ravel()
            table = replace(table, kept=kept, dropped=table.dropped * ratio)
    return table


def _lifted(trials: list[Trial]) -> list[Trial]:
    """Return the patches with errors that are on the whole no smaller than the response to noise.

    The identity scatters by the noise itself, so on few pixels it may fall below the variance of
    the estimate, which scatters much less. A finite step overstates that by up to a third.
    """
    actual = np.mean([trial.error.mean() for trial in trials])
    least = RESPONSE * np.mean([trial.response.mean() for trial in trials])
    lift = max(float(least - actual), 0.0)
    return [replace(trial, error=trial.error + lift) for trial in trials]


def _tables(trials: list[Trial], k: int) -> tuple[RiskTable, np.ndarray]:
    """Return the tables by class of coefficient, and the squared error by ring of frequency."""
    left = np.concatenate([f.left for trial in trials for f in trial.windows])
    levels = np.quantile(left, np.arange(1, LEVELS) / LEVELS)
    kept = np.zeros((2, N_RINGS * BINS))
    beyond = np.zeros((2, LEVELS * N_RINGS))
    for trial in trials:
        for fits, (risk, total) in zip(trial.windows, trial.coefficients, strict=True):
            number = np.broadcast_to(fits.kept, risk.shape)
            kept += _counted(fits.classes, risk, number, kept.shape[1])
            level = np.searchsorted(levels, fits.left)[:, None, None] * N_RINGS + rings(fits.side)
            free = np.broadcast_to((k - fits.rank)[:, None, None], total.shape)
            beyond += _counted(level, total - risk.sum(axis=1), free, beyond.shape[1])
    lowest = float(np.sqrt(2 / sum(trial.residual.size for trial in trials)))
    by_ring = kept[0].reshape(N_RINGS, BINS).sum(axis=1) + beyond[0].reshape(LEVELS, -1).sum(axis=0)
    dropped = _pooled_dropped(beyond.reshape(2, LEVELS, N_RINGS), lowest)
    none = np.zeros(0), np.ones(1)
    return RiskTable(_pooled(kept, lowest), dropped, levels, np.ones(k), *none), by_ring


def _counted(label: np.ndarray, values: np.ndarray, number: np.ndarray, count: int) -> np.ndarray:
    """Return (2, count) sums of values, and of their number, by label."""
    flat = label.ravel()
    return np.array([np.bincount(flat, x.ravel(), minlength=count) for x in (values, number)])


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


def _gains(trials: list[Trial], seen: list[list[View]], run: Run) -> np.ndarray:
    """Return (k,) what the claimed variance along each direction of B is multiplied by.

    Tables are by spatial frequency; strong directions, where borders and contrasts are, err more
    than they say, weak ones less. Measured by the same identity, never rising from strong to weak.
    """
    k = trials[0].residual.shape[2]
    actual, claim, eye = np.zeros(k), np.zeros(k), np.eye(k)
    for trial, views in zip(trials, seen, strict=True):
        claim += variance_along(views, trial.box, eye, eye, run).sum(axis=(0, 1), dtype=np.float64)
        actual += trial.error.sum(axis=(0, 1))
    ratio = actual / np.maximum(claim, 1e-12)
    return np.clip(_rising(ratio[::-1], claim[::-1] ** 2)[::-1], LEAST_GAIN, MOST_GAIN)


def _factors(trials: list[Trial], claims: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of the spread of windows at a pixel, and the factor of each class.

    Windows know how large errors are on the whole, not where in them. Where windows disagree,
    errors are larger; how much larger is measured by the same identity, pixel by pixel. Factors
    are drawn towards their mean by their sampling error, and rise with the spread.
    """
    spread = [relative_spread(t.smoothed.spread, c) for t, c in zip(trials, claims, strict=True)]
    a = np.concatenate([trial.error.sum(axis=2).ravel() for trial in trials])
    c, s = (np.concatenate([part.ravel() for part in parts]) for parts in (claims, spread))
    bounds = np.unique(np.quantile(s, BOUNDS[BOUNDS * (1 - BOUNDS) * len(s) > 100]))
    label = np.searchsorted(bounds, s)
    return bounds, _class_factors(a, c, label, len(bounds) + 1)


def _modelled(
    trials: list[Trial],
    seen: list[list[View]],
    claims: list[np.ndarray],
    table: RiskTable,
    seed: int,
) -> np.ndarray:
    """Return (rings,) the squared error by ring of frequency that a draw of the model has."""
    total = np.zeros(N_RINGS)
    for number, (trial, views, claim) in enumerate(zip(trials, seen, claims, strict=True)):
        rng = np.random.default_rng([9, seed, number])
        views = scaled(views, trial.box, table.factors(trial.smoothed.spread, claim))
        draw = error_sample(views, trial.box, len(table.gain), rng)
        draw *= np.sqrt(table.gain).astype(np.float32)
        for fits in trial.windows:
            images = np.moveaxis(cut(draw, fits.corner, fits.side), 3, 1)
            power = np.square(forward(np.ascontiguousarray(images))).sum(axis=1)
            power /= trial.plan.noise_power[0]
            ring = np.broadcast_to(rings(fits.side), power.shape)
            total += np.bincount(ring.ravel(), power.ravel(), minlength=N_RINGS)
    return total


def ordinary(trials: list[Trial], table: RiskTable) -> np.ndarray:
    """Return (2, 3) the scale of the scores of residuals inside and outside B, see `scale_of`."""
    inside, outside = [], []
    for trial in trials:
        k = trial.residual.shape[2]
        claim = claimed(trial.views(table), trial.box, table.gain)
        freedom = np.maximum(k - claim * table.factors(trial.smoothed.spread, claim), 0.5)
        inside.append(normal_score(np.sum(trial.residual**2, axis=2), freedom).ravel())
        free = np.full(freedom.shape, max(trial.bands - k, 0.5))
        outside.append(normal_score(trial.outside, free).ravel())
    return np.array([scale_of(np.concatenate(scores)) for scores in (inside, outside)])


def hole_factor(trial: Trial, table: RiskTable, noise: np.ndarray, run: Run) -> float:
    """Return how much larger errors of pixels that were not observed are than is claimed.

    Some columns of a patch are hidden and filled; what was hidden is the estimate plus its error
    plus noise.
    """
    z = trial.smoothed.estimate - trial.residual
    smoothed, share, where = hidden_lines(z, trial.plan, run)
    views = look(smoothed, trial.box, trial.plan, table)
    factor = table.factors(smoothed.spread, claimed(views, trial.box, table.gain))
    views = less_seen(scaled(views, trial.box, factor), trial.box, share, 1.0)
    claim = claimed(views, trial.box, table.gain)[where]
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

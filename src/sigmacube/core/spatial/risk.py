r"""How large errors are, measured on the scene by Stein's identity.

For an estimate x̂(z) of unit-noise data, ‖x̂ − z‖² − 1 + 2 ∂x̂/∂z is its squared error without bias,
whatever x̂ does: shrinkage chosen from the data, averages of windows, a second round. The derivative
comes from one more run on z + εb with b random: b (x̂(z + εb) − x̂(z))/ε. It scatters by the noise of
the scene. The response (x̂(z + εb) − x̂(z))/ε itself does not: it says how errors are spread over
frequencies, directions and pixels; the identity says how large they are in each ring of frequency,
as far as that can be told from chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sigmacube.core.parallel import at_once
from sigmacube.core.spatial.fit import BINS, Fits, cut, project
from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.lost import placed
from sigmacube.core.spatial.smoothing import Plan, Run, Smoothed, both_rounds
from sigmacube.core.spatial.subspace import project as project_bands
from sigmacube.core.spatial.subspace import squares
from sigmacube.core.spatial.transform import N_RINGS, forward, inverse, rings
from sigmacube.core.spatial.unexplained import (
    Apart,
    alone,
    apart,
    inside,
    normal_score,
    scale_of,
)
from sigmacube.core.spatial.views import (
    RiskTable,
    Sight,
    View,
    by_windows,
    claimed,
    error_sample,
    look,
    sights,
    total_along,
    white_draws,
)

__all__ = [
    "Singles",
    "Trial",
    "capped",
    "drawn",
    "less_own",
    "measured_risk",
    "ordinary",
    "try_patch",
]

STEP = 0.1
LEVELS = 4
# Shares of pixels that bound the classes of claim: finer where windows claim most.
BOUNDS = np.array([0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.85, 0.92, 0.96, 0.985])
PRIOR = 400.0
LEAST_GAIN, MOST_GAIN = 0.2, 5.0
# How much more than it claims the model may be made to claim in the end, and the standard errors
# beyond which it is.
MOST_LIFT, SURELY = 1.5, 2.0
# The share of it that single pixels may have by themselves.
MOST_OWN = 0.5
# The share of elements that are missing, from which on nothing is taken off for that.
MOST_GONE = 0.1
# How often the model's power by frequency is matched to the scene's, and by how much at once.
MATCHES = 2
LEAST_MATCH, MOST_MATCH = 0.5, 4.0
# A rank that changes within the step is a jump, which over the step squared counts too much.
JUMP = 6.0
# The least share of the response to noise that the error is.
RESPONSE = 0.6
# What the error is to be expected, over the response to noise: what smooths also biases.
BIAS = 1.04
# Relative error of the noise at a frequency, where it is not white.
COLOUR = 0.02
# The same where elements are missing, times their share.
IMPUTED = 0.5


@dataclass(frozen=True, eq=False)
class Trial:
    """The estimator on a patch of the scene, and how it responds to noise."""

    plan: Plan
    z: np.ndarray
    """(rows, cols, k) the data."""
    smoothed: Smoothed
    residual: np.ndarray
    """(rows, cols, k) x̂ − z."""
    error: np.ndarray
    """(rows, cols, k) the squared error of every coefficient, without bias, by Stein's identity."""
    response: np.ndarray
    """(rows, cols, k) square of the estimate's response to noise: its variance."""
    sights: list[Sight]
    """Windows that the error model looks through."""
    coefficients: list[tuple[np.ndarray, ...]]
    """By stack of windows, for coefficients by frequency: response along kept directions (windows,
    R, rows, cols), summed over all k (windows, rows, cols), and the error, summed likewise."""
    outside: np.ndarray
    """(rows, cols) ‖y − yBBᵀ‖²."""
    bands: int
    """P."""
    share: float
    """Share of the elements that were there: of the rest the identity does not know the noise."""

    @property
    def box(self) -> Box:
        """The patch as a scene of its own."""
        return Box(0, self.residual.shape[0], 0, self.residual.shape[1])

    @property
    def windows(self) -> list[Fits]:
        """Windows that the error model looks through."""
        return [sight.fits for sight in self.sights]

    def located(self, table: RiskTable, run: Run) -> list[View]:
        """Return what windows see of the error."""
        views = look(self.sights, self.plan, table, run)
        return table.located(views, self.box, self.smoothed, run)


def try_patch(
    y: np.ndarray,
    basis: np.ndarray,
    plan: Plan,
    noise: np.ndarray,
    rng: np.random.Generator,
    run: Run,
    left: int = 0,
    share: float = 1.0,
) -> Trial:
    """Run the estimator on a patch y (rows, cols, P) with and without a little more noise.

    Parameters
    ----------
    noise
        (k,) variance of the noise along each direction of the basis.
    left
        The scene's column that the patch starts at.
    share
        Share of the elements that were there: below one the noise is what windows have in dropped
        directions.
    """
    probe, z, square = at_once(
        run,
        partial(coloured, rng, (*y.shape[:2], basis.shape[1]), plan),
        partial(project_bands, y, basis, left, run),
        partial(squares, y, run),
    )
    if share < 1:  # what was imputed has more noise than the windows of the scene will see
        z, noise = z / np.sqrt(noise), np.ones_like(noise)
    outside = square - squares(z, run)
    box = Box(0, z.shape[0], 0, z.shape[1])
    smoothed, again = both_rounds(z, z + STEP * probe, box, plan, run)
    # Sums of squares of some thousand pixels: single precision does for what is summed.
    single = noise.astype(np.float32)
    response = (again.estimate - smoothed.estimate) / np.float32(STEP)
    residual = (smoothed.estimate - z).astype(np.float32)
    probe = np.multiply(probe, single, dtype=np.float32, casting="same_kind")
    error = residual**2 + 2 * probe * response - single
    fields = [residual, probe, response]
    response = capped(response, smoothed.claim)
    fields.append(response)
    seen = sights(smoothed, box, plan)

    def by_frequency(stack: int, part: slice) -> tuple[np.ndarray, ...]:
        return _by_frequency(seen[stack].fits.part(part), fields, noise, plan)

    parts = by_windows(run, by_frequency, seen)
    square = response**2 * single
    return Trial(plan, z, smoothed, residual, error, square, seen, parts, outside, y.shape[2],
                 share)  # fmt: skip


def capped(response: np.ndarray, claim: np.ndarray) -> np.ndarray:
    """Return the response (rows, cols, k) of pixels held to a multiple of what windows claim."""
    size = np.einsum("yxk,yxk->yx", response, response)
    most = JUMP * np.median(size / claim) * claim
    return np.asarray(response * np.sqrt(np.minimum(most / np.maximum(size, 1e-30), 1))[..., None])


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
    fields: list[np.ndarray],
    noise: np.ndarray,
    plan: Plan,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return response and squared error of a stack's coefficients, see `Trial.coefficients`."""
    power = plan.noise_power[0]
    parts = [cut(field, fits.corner, fits.side) for field in fields]
    kept = project(fits, parts[3]) ** 2 / power
    r, b, j, held = (forward(np.ascontiguousarray(np.moveaxis(part, 3, 1))) for part in parts)
    error = np.sum(r * r + 2 * b * j, axis=1) / power - noise.sum()
    return kept, np.sum(held * held, axis=1) / power, error


def measured_risk(trials: list[Trial], k: int, run: Run) -> RiskTable:
    """Return how large errors are, from all patches.

    Weights of windows fall off towards their edges, so errors that reach across windows are seen
    too small at low frequencies: power by ring of frequency is matched to what the scene has.
    """
    white, (table, actual) = at_once(run, partial(_white, trials), partial(_tables, trials, k))
    table = replace(table, **_by_claim(trials, actual))
    for match in range(MATCHES + 1):
        seen = [trial.located(table, run) for trial in trials]
        table = replace(table, gain=table.gain * _gains(trials, seen, table, run))
        if match < MATCHES:
            modelled = _modelled(trials, seen, table, white, run)
            ratio = actual / np.maximum(modelled, 1e-12)
            ratio = np.clip(ratio, LEAST_MATCH, MOST_MATCH)
            kept = (table.kept.reshape(N_RINGS, BINS) * ratio[:, None]).ravel()
            table = replace(table, kept=kept, dropped=table.dropped * ratio)
    return replace(table, **_lifted(trials, table, run))


def _lifted(trials: list[Trial], table: RiskTable, run: Run) -> dict[str, np.ndarray]:
    """Return factor and lost of a table that claims no less in all than Stein's identity has.

    Floors, classes and matching have each lost a little of it by then. It is not trusted so far
    where the noise is not white, or some of it was imputed. And how unsure all this is.
    """
    count = sum(trial.residual[..., 0].size for trial in trials)
    power = float(np.mean(np.square(trials[0].plan.noise_power[0])))
    scatter = math.sqrt(2 * len(table.gain) * count * power)
    size = sum(float(table.pixel_error(trial.smoothed).sum()) for trial in trials)
    known = {"unsure": np.array([scatter / max(size, 1e-12), 0.0])}
    if _unsure(trials[0]) > 0:
        return known
    claim = sum(
        float(total_along(trial.located(table, run), table.gain, run).sum()) for trial in trials
    )
    error = sum(float(trial.error.sum(dtype=np.float64)) for trial in trials)
    actual = drawn(np.array(error), np.array(claim), np.array(SURELY * scatter))
    lift = float(np.clip(actual / max(claim, 1e-12), 1.0, MOST_LIFT))
    return known | {"factor": table.factor * lift, "lost": table.lost * lift}


def _unsure(trial: Trial) -> float:
    """Return the relative error of the noise, where it is not white, and where it was imputed."""
    return COLOUR * bool(np.any(trial.plan.noise_power[0] != 1)) + IMPUTED * (1 - trial.share)


def drawn(found: np.ndarray, towards: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return what was found, drawn towards what is expected where its error hides the difference.

    By the share of James and Stein, 1 − (error/distance)².
    """
    distance = found - towards
    share = np.maximum(1 - error**2 / np.maximum(distance**2, 1e-30), 0)
    return np.asarray(towards + share * distance)


def _tables(trials: list[Trial], k: int) -> tuple[RiskTable, np.ndarray]:
    """Return the tables by class of coefficient, and the squared error by ring of frequency."""
    left = np.concatenate([f.left for trial in trials for f in trial.windows])
    levels = np.quantile(left, np.arange(1, LEVELS) / LEVELS)
    kept = np.zeros((2, N_RINGS * BINS))
    beyond = np.zeros((2, LEVELS * N_RINGS))
    rings_, count = np.zeros((3, N_RINGS)), 0
    for trial in trials:
        power = trial.plan.noise_power[0]
        for fits, (along, total, error) in zip(trial.windows, trial.coefficients, strict=True):
            number = np.broadcast_to(fits.kept, along.shape)
            kept += _counted(fits.classes, along, number, kept.shape[1])
            ring = np.broadcast_to(rings(fits.side), total.shape)
            level = np.searchsorted(levels, fits.left)[:, None, None] * N_RINGS + ring
            free = np.broadcast_to((k - fits.rank)[:, None, None], total.shape)
            beyond += _counted(level, total - along.sum(axis=1), free, beyond.shape[1])
            rings_[:2] += _counted(ring, total * power, error * power, N_RINGS)
            rings_[2] += len(total) * np.bincount(ring[0].ravel(), power.ravel() ** 2, N_RINGS)
            count += total.size
    lowest = float(np.sqrt(2 / sum(trial.residual.size for trial in trials)))
    # Windows that look overlap about four times: their coefficients are not all independent.
    spread = np.sqrt(2 * k * 4 * rings_[2])
    spread = np.hypot(spread, _unsure(trials[0]) * k * np.sqrt(rings_[2] * count))
    by_ring = drawn(rings_[1], BIAS * rings_[0], spread)
    least = BIAS if trials[0].share < 1 else RESPONSE
    by_ring = np.maximum(by_ring, least * rings_[0]) / count
    # Windows see the edges of a scene, where errors are larger, less often than its middle.
    seen = count * np.mean([t.response.sum(axis=2).mean() for t in trials]) / rings_[0].sum()
    by_ring *= max(seen, 1.0)
    dropped = _pooled_dropped(beyond.reshape(2, LEVELS, N_RINGS), lowest)
    plain = np.zeros(0), np.ones(1), np.zeros(0), np.zeros(1), np.zeros(2)
    return RiskTable(_pooled(kept, lowest), dropped, levels, np.ones(k), *plain), by_ring


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


def _gains(trials: list[Trial], seen: list[list[View]], table: RiskTable, run: Run) -> np.ndarray:
    """Return (k,) by how much more the variance along each direction of B is than is seen.

    Tables are by spatial frequency; strong directions, where borders and contrasts are, err more
    than they say, weak ones less.
    """
    count = sum(trial.residual.shape[0] * trial.residual.shape[1] for trial in trials)
    claim = np.sum([total_along(views, table.gain, run) for views in seen], axis=0)
    response, error = (
        sum(getattr(trial, name).sum(axis=(0, 1), dtype=np.float64) for trial in trials)
        for name in ("response", "error")
    )
    expected = response * (claim.sum() / max(response.sum(), 1e-12))
    actual = drawn(error, expected, np.full(len(error), math.sqrt(2 * count)))
    ratio = np.maximum(actual, RESPONSE * expected) / np.maximum(claim, 1e-12)
    return np.clip(ratio, LEAST_GAIN, MOST_GAIN)


def _by_claim(trials: list[Trial], by_ring: np.ndarray) -> dict[str, np.ndarray]:
    """Return the error of a pixel by what windows claim, and by contrast, for a `RiskTable`.

    The response to noise says how the error differs between pixels: it does not depend on the noise
    of the scene, on which the claim does. The identity, by ring of frequency, says how large the
    error is in all; what is beyond noise and its bias is lost signal, see `placed`.
    """
    response = np.concatenate([trial.response.sum(axis=2).ravel() for trial in trials])
    claim = np.concatenate([trial.smoothed.claim.ravel() for trial in trials]).astype(np.float64)
    bounds = np.unique(np.quantile(claim, BOUNDS[BOUNDS * (1 - BOUNDS) * len(claim) > 100]))
    label = np.searchsorted(bounds, claim)
    sums = [np.bincount(label, part, minlength=len(bounds) + 1) for part in (response, claim)]
    factor = sums[0] / np.maximum(sums[1], 1e-12)
    fitted = factor[label] * claim
    # Beyond noise and the bias that goes with it, errors are signal that windows do not see.
    total = by_ring.sum() / max(fitted.mean(), 1e-12)
    lost = max(total - BIAS, 0.0) * float(fitted.mean())
    return _placed(trials, bounds, min(total, BIAS) * factor, lost)


def _placed(
    trials: list[Trial], bounds: np.ndarray, factor: np.ndarray, lost: float
) -> dict[str, np.ndarray]:
    """Return what `_by_claim` does, with lost signal by contrast.

    Parameters
    ----------
    factor
        (classes,) squared error of a pixel over what windows claim, as far as it is noise.
    lost
        Lost signal of a pixel on average.
    """
    seen = [trial.smoothed for trial in trials]
    fitted = [factor[np.searchsorted(bounds, s.claim)] * s.claim for s in seen]
    along = sum(trial.response.sum(axis=(0, 1), dtype=np.float64) for trial in trials)
    k, power = len(along), trials[0].plan.noise_power[0]
    contrasts, by_contrast = placed(
        [s.estimate for s in seen],
        [trial.error for trial in trials],
        fitted,
        [trial.outside for trial in trials],
        float(along[::2].sum() / along.sum()),
        lost,
        2 * k * float(np.mean(np.square(power))),
        # Noise of imputed pixels is shared by all directions: halves are not independent.
        np.inf if trials[0].share < 1 else k * _unsure(trials[0]),
    )
    return {"bounds": bounds, "factor": factor, "contrasts": contrasts, "lost": by_contrast}


def _white(trials: list[Trial]) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Return the white noise that a draw of the errors of all trials is made of."""
    return [
        list(white_draws(trial.sights, np.random.default_rng([9, number])))
        for number, trial in enumerate(trials)
    ]


def _modelled(
    trials: list[Trial],
    located: list[list[View]],
    table: RiskTable,
    white: list[list[tuple[np.ndarray, np.ndarray]]],
    run: Run,
) -> np.ndarray:
    """Return (rings,) the squared error by ring of frequency that a draw of the model has."""
    total, count = np.zeros(N_RINGS), 0
    for trial, views, noise in zip(trials, located, white, strict=True):
        draw = error_sample(views, trial.box, len(table.gain), noise, run)
        draw *= np.sqrt(table.gain).astype(np.float32)

        def power_of(stack: int, part: slice) -> tuple[np.ndarray]:
            view = views[stack]  # noqa: B023
            images = np.moveaxis(cut(draw, view.corner[part], view.side), 3, 1)  # noqa: B023
            return (np.square(forward(np.ascontiguousarray(images))).sum(axis=1),)

        for (power,) in by_windows(run, power_of, views):
            ring = np.broadcast_to(rings(power.shape[1:]), power.shape)
            total += np.bincount(ring.ravel(), power.ravel(), minlength=N_RINGS)
            count += power.size
    return total / count


@dataclass(frozen=True, eq=False)
class Singles:
    """How single pixels of all trials are tested for what no window explains."""

    leading: int
    """How many directions are leading."""
    scale: np.ndarray
    """(3, 6) `scale_of` the scores inside the subspace, along its leading directions, outside."""
    freedom: list[tuple[np.ndarray, np.ndarray]]
    """Of each trial, degrees of freedom of the residual inside, and along leading directions."""
    seen: list[Apart]
    """Of each trial, pixels that differ from all around them."""


def ordinary(trials: list[Trial], table: RiskTable, leading: int, run: Run) -> Singles:
    """Return what is ordinary for the residuals of single pixels."""
    k = len(table.gain)
    along = np.where(np.arange(k) < leading, table.gain, 0)
    scores: list[list[np.ndarray]] = [[], [], []]
    freedom = []
    for trial in trials:
        claim = claimed(trial.located(table, run), trial.box, along, run)
        every = np.maximum(k - table.pixel_error(trial.smoothed), 0.5)
        freedom.append((every, np.maximum(leading - claim, 0.5)))
        square = trial.residual**2
        pairs = [
            (square.sum(axis=2), every),
            (square[..., :leading].sum(axis=2), freedom[-1][1]),
            (trial.outside, np.full(every.shape, max(trial.bands - k, 0.5))),
        ]
        for found, pair in zip(scores, pairs, strict=True):
            found.append(normal_score(*pair).ravel())
    seen = [apart(trial.smoothed.estimate) for trial in trials]
    out = np.concatenate([part.out.ravel() for part in seen])
    scale = np.array([scale_of(np.concatenate(found), out) for found in scores])
    return Singles(leading, scale, freedom, seen)


def less_own(trials: list[Trial], table: RiskTable, singles: Singles) -> RiskTable:
    """Return the table without the error that single pixels have by themselves.

    For their residual, or for what they alone made: it is part of what the identity has, and is
    claimed where it is. Where many elements are missing the identity is known too badly to take
    anything off.
    """
    known = max(1 - (1 - trials[0].share) / MOST_GONE, 0.0)
    own = error = 0.0
    for trial, freedom, seen in zip(trials, singles.freedom, singles.seen, strict=True):
        k = trial.residual.shape[2]
        found = inside(trial.residual, freedom, singles.leading, singles.scale[:2], seen.out)
        every = found.doubt + alone(seen, trial.smoothed.leverage) * (1 - found.every)
        own += float(k * every.sum())
        error += float(np.sum(table.pixel_error(trial.smoothed)))
    share = 1 - known * min(own / max(error, 1e-12), MOST_OWN)
    return replace(table, factor=share * table.factor, lost=share * table.lost)

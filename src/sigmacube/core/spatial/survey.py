"""One look at the whole scene, by blocks and patches anchored to it: what every region needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from sigmacube.core.rank import noise_edge
from sigmacube.core.spatial.faint import HARDLY, Unseen, faint_signal
from sigmacube.core.spatial.gap_errors import gap_factor, hole_factor, most_gaps
from sigmacube.core.spatial.geometry import Block, Box, Windows, window_sizes
from sigmacube.core.spatial.incomplete import learnt_directions, with_rare
from sigmacube.core.spatial.localised import lost_in_tiles
from sigmacube.core.spatial.missing import FILLINGS, fillings_for, imputed, imputed_noise
from sigmacube.core.spatial.noise_in_space import colour, coloured_edge, noise_power
from sigmacube.core.spatial.risk import (
    Trial,
    drawn,
    less_own,
    measured_risk,
    ordinary,
    try_patch,
)
from sigmacube.core.spatial.smoothing import Plan, Run, Smoothed
from sigmacube.core.spatial.subspace import (
    gram,
    lost_outside,
    principal,
    rare,
    strengths,
    strong,
    tiles,
)
from sigmacube.core.spatial.transform import forward
from sigmacube.core.spatial.unexplained import Apart, leading_directions
from sigmacube.core.spatial.views import RiskTable, Sight

__all__ = ["SpatialModel", "survey"]

PATCH = 72
PATCHES = 4
# Pixels up to which errors are measured on the whole scene: that run is the estimate itself.
WHOLE = 22_000
# The largest singular values of coloured noise are not only larger, they scatter more.
WIDER = 1.3
# Directions err by the noise at the signal's own frequencies, over what N shows of it: some of the
# lowest lies in directions that are taken for signal.
LOWEST = 1.2
GOLDEN = 0.6180339887498949


@dataclass(frozen=True, eq=False)
class Whole:
    """A run over the whole scene."""

    z: np.ndarray
    """(rows, cols, k) its data."""
    smoothed: Smoothed
    sights: list[Sight]
    """Windows that the error model looks through."""
    outside: np.ndarray
    """(rows, cols) square of the data outside the subspace."""
    apart: Apart
    """Pixels that differ from all around them."""


@dataclass(frozen=True, eq=False)
class SpatialModel:
    """The scene's knowledge that every region needs; arrays and numbers only."""

    shape: tuple[int, int, int]
    """Rows, columns and bands of the scene."""
    windows: tuple[tuple[int, int], ...]
    """(size, step) of the windows, as asked for."""
    basis: np.ndarray
    """(P, k) B, orthonormal, strongest direction first."""
    strength: np.ndarray
    """(k,) g_i / (M x_i²): the error of B at a pixel is a^g_u = Σ_i ẑ_ui² g_i / (M x_i²)."""
    values: np.ndarray
    """(k,) sum over the scene of the squared coefficients along each direction."""
    noise_power: tuple[np.ndarray, ...]
    """Per size, (rows, cols) N(f): power of the noise at each spatial frequency, mean one."""
    edges: np.ndarray
    """(sizes,) largest singular value of noise in a window, n pixels by k directions."""
    risk: RiskTable
    """How large errors are."""
    residual_scale: np.ndarray
    """(3, 6) `scale_of` the scores of residuals inside the subspace, along its leading directions,
    and outside."""
    leading: int
    """How many directions of B are leading: materials differ along these most."""
    missing: bool
    """Whether the scene has missing elements anywhere."""
    hole_factor: float
    """What the variance of a pixel that was not observed at all is multiplied by."""
    hole_classes: np.ndarray
    """(2, classes) by what is claimed with it: the class's upper bound, and a factor of its own."""
    gap_factor: float
    """The same for pixels of which some was observed."""
    localised: float
    """What the signal outside B that surely is in tiles is multiplied by, see `lost_at`."""
    faint: float
    """Signal of a pixel along each direction outside B, too faint to be seen."""
    fillings: int = FILLINGS
    """Rounds in which missing elements are filled."""
    whole: Whole | None = None
    """The run over the whole scene, if there was one: what a region of all of it need not repeat.
    It is not part of the arrays."""

    @property
    def sizes(self) -> tuple[Windows, ...]:
        """The windows of every size."""
        return window_sizes(self.shape[:2], self.windows)

    @property
    def power(self) -> np.ndarray:
        """(k,) mean square of the signal along each direction, in units of the noise."""
        return np.maximum(self.values / (self.shape[0] * self.shape[1]) - 1, 0)

    @property
    def band_share(self) -> np.ndarray:
        """(P,) c_v = ‖B_v‖²."""
        return np.sum(self.basis**2, axis=1)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return everything as arrays by name, for a file or another process."""
        arrays = {
            field.name: np.asarray(getattr(self, field.name))
            for field in fields(self)
            if field.name not in ("noise_power", "risk", "whole")
        }
        arrays |= {f"noise_power_{i}": power for i, power in enumerate(self.noise_power)}
        return arrays | {f"risk_{f.name}": getattr(self.risk, f.name) for f in fields(RiskTable)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SpatialModel:
        """Return the model that `to_arrays` wrote."""
        count = sum(name.startswith("noise_power_") for name in arrays)
        rows, cols, bands = (int(n) for n in arrays["shape"])
        return cls(
            shape=(rows, cols, bands),
            windows=tuple((int(w), int(s)) for w, s in arrays["windows"]),
            noise_power=tuple(np.asarray(arrays[f"noise_power_{i}"]) for i in range(count)),
            risk=RiskTable(*(np.asarray(arrays[f"risk_{f.name}"]) for f in fields(RiskTable))),
            missing=bool(arrays["missing"]),
            hole_factor=float(arrays["hole_factor"]),
            hole_classes=np.asarray(arrays["hole_classes"]),
            gap_factor=float(arrays["gap_factor"]),
            leading=int(arrays["leading"]),
            localised=float(arrays["localised"]),
            faint=float(arrays["faint"]),
            fillings=int(arrays["fillings"]),
            basis=np.asarray(arrays["basis"]),
            strength=np.asarray(arrays["strength"]),
            values=np.asarray(arrays["values"]),
            edges=np.asarray(arrays["edges"]),
            residual_scale=np.asarray(arrays["residual_scale"]),
        )


def survey(
    block: Block,
    shape: tuple[int, int, int],
    *,
    windows: tuple[tuple[int, int], ...] = ((20, 5), (8, 2)),
    run: Run,
    white_in_space: bool = False,
    directions: np.ndarray | None = None,
    uncertainty: bool = True,
) -> SpatialModel:
    """Learn what the whole scene knows.

    Parameters
    ----------
    block
        Whitened values of any part of the scene, see `Block`.
    shape
        Rows, columns and bands of the scene.
    windows
        (size, step) of the windows, largest first.
    run
        ``run(function, items)``, a map that may run in parallel and keeps the order.
    white_in_space
        True where the noise is known to be independent between pixels; else N(f) is estimated.
    directions
        (P, j) strong directions that missing elements are filled by at first, see `completing`;
        found from pairs of bands if not given, which many missing elements make too noisy.
    uncertainty
        False leaves out how large errors are.

    Returns
    -------
    SpatialModel
    """
    sizes = window_sizes(shape[:2], windows)
    total, count, share = gram(block, shape, run)
    missing, gappy = share < 1 or count < shape[0] * shape[1], block
    if missing:
        filling = strong(total, count) if directions is None else directions
        block, total = _completed(block, shape, filling, total, count, share, run)
    basis = rare(block, shape, principal(total, count, 1 / share**2), run, imputed=missing)
    if missing:
        block, basis, total = with_rare(gappy, shape, basis, total, count, share, run)
    powers = tuple(np.ones(w.side) for w in sizes)
    if not white_in_space:
        powers = noise_power(block, shape, basis, sizes, run)
    if np.any(powers[0] != 1):
        basis = _above(block, shape, total, count, powers[0], run, missing, share)
    basis, strength, noise, rest = strengths(basis, total, count, share)
    along = np.einsum("pk,pq,qk->k", basis, total, basis)
    noise = noise * imputed_noise(share, along / max(count, 1))
    edges = np.array([coloured_edge(power, basis.shape[1], run) for power in powers])
    model = SpatialModel(
        shape=shape,
        windows=windows,
        basis=basis,
        strength=strength,
        values=np.maximum(along, 1e-12),
        noise_power=powers,
        edges=edges,
        risk=RiskTable.unknown(basis.shape[1]),
        residual_scale=np.ones((3, 6)),
        leading=1,
        localised=0.0,
        missing=missing,
        hole_factor=1.0,
        hole_classes=np.array([[np.inf], [1.0]]),
        gap_factor=1.0,
        faint=rest.expected / max(shape[2] - basis.shape[1], 1),
        fillings=fillings_for(share),
    )
    if not (uncertainty or missing):  # gaps are filled by what signal turns out to have
        return model
    return _measured(block, gappy, model, noise, rest, run, share)


def _gap_factor(block: Block, model: SpatialModel, risk: RiskTable, run: Run) -> float:
    """Return how much larger errors are where some of a pixel is missing."""
    box = most_gaps(block, model.shape, run)
    plan = Plan(window_sizes(box.shape, model.windows), model.noise_power, model.edges)
    return gap_factor(
        *block(*box.slices), model.basis, model.power, plan, risk, run, model.fillings
    )


def _measured(
    block: Block,
    gappy: Block,
    model: SpatialModel,
    noise: np.ndarray,
    rest: Unseen,
    run: Run,
    share: float,
) -> SpatialModel:
    """Return the model with the size of errors as trials show it."""
    boxes = patches(model.shape[:2], model.missing)
    trials = _trials(block, boxes, model, noise, run, share)
    strength, powers = model.strength, model.noise_power
    if all(np.all(power == 1) for power in powers):
        lost, error = _smooth(block, boxes, model, run)
        smooth = max(float(drawn(np.array(lost), np.zeros(()), np.array(error))), 0.0)
        localised, there = _localised(gappy, boxes, model, smooth, run)
        shared = faint_signal([block(*box.slices)[0] for box in boxes], model.basis, run)
        bands, k = model.basis.shape
        rest = rest.less(smooth)
        faint = rest.given(shared.signal - max(lost, 0), math.hypot(shared.error, error))
        faint /= max(share, 0.5) ** 2 * max(bands - k, 1)
        model = replace(model, faint=faint, localised=localised)
        claim = np.mean([np.mean(t.smoothed.estimate**2 @ strength) for t in trials])
        strength = strength * (1 + (smooth - there) / max(claim * (bands - k), 1e-12))
    risk = measured_risk(trials, model.basis.shape[1], run)
    spread = sum(t.smoothed.estimate.var(axis=(0, 1), dtype=np.float64) for t in trials)
    singles = ordinary(trials, risk, leading_directions(np.sqrt(spread)), run)
    factor, classes, gaps = model.hole_factor, model.hole_classes, model.gap_factor
    if model.missing:
        gaps = _gap_factor(gappy, model, risk, run)
    risk = _more_unsure(less_own(trials, risk, singles), trials, model, rest)
    if model.missing:
        factor, classes = hole_factor(trials[0], risk, noise, run)
    whole = None
    if not model.missing and trials[0].box.shape == model.shape[:2]:
        first = trials[0]
        whole = Whole(first.z, first.smoothed, first.sights, first.outside, singles.seen[0])
    return replace(
        model,
        strength=strength * _met(trials, powers[0]),
        risk=risk,
        residual_scale=singles.scale,
        leading=singles.leading,
        hole_factor=factor,
        hole_classes=classes,
        gap_factor=gaps,
        whole=whole,
    )


def _more_unsure(
    risk: RiskTable, trials: list[Trial], model: SpatialModel, rest: Unseen
) -> RiskTable:
    """Return the table with the doubt of signal too faint to be seen, over all error of a pixel.

    Where strengths may go on by their law, what that says and what is claimed are both possible.
    """
    if rest.chance <= HARDLY:
        return risk
    beyond = model.shape[2] - model.basis.shape[1]
    faint = model.faint * beyond
    error = float(np.mean([risk.pixel_error(trial.smoothed).mean() for trial in trials])) + faint
    error += beyond * float(np.mean([t.smoothed.estimate**2 @ model.strength for t in trials]))
    doubt = abs(rest.by_law - faint) / max(error, 1e-12)
    return replace(risk, unsure=np.array([risk.unsure[0], doubt]))


def _met(trials: list[Trial], power: np.ndarray) -> np.ndarray:
    """Return (k,) the power of the noise at the frequencies of the signal along each direction.

    Directions err by the noise that lies where the signal does in space, and nowhere else.
    """
    total = np.zeros(trials[0].z.shape[2])
    if np.all(power == 1):
        return np.ones_like(total)
    seen = np.zeros_like(total)
    for trial in trials:
        flat = tiles(trial.smoothed.estimate, power.shape)
        images = flat.transpose(0, 2, 1).reshape(len(flat), -1, *power.shape)
        signal = np.square(forward(np.ascontiguousarray(images))).sum(axis=0, dtype=np.float64)
        total += signal.sum(axis=(1, 2))
        seen += (signal * power).sum(axis=(1, 2))
    return np.asarray(LOWEST * seen / np.maximum(total, 1e-12))


def _above(
    block: Block,
    shape: tuple[int, int, int],
    total: np.ndarray,
    count: float,
    power: np.ndarray,
    run: Run,
    imputed: bool,
    share: float,
) -> np.ndarray:
    """Return the directions (P, k) above the edge of noise of some power over frequencies."""
    rise = coloured_edge(power, shape[2], run) / noise_edge(power.size, shape[2])
    basis = principal(total, count, colour(power) / share**2)
    return rare(block, shape, basis, run, 1 + WIDER * (rise - 1), imputed=imputed)


def _completed(
    block: Block,
    shape: tuple[int, int, int],
    directions: np.ndarray,
    total: np.ndarray,
    count: float,
    share: float,
    run: Run,
) -> tuple[Block, np.ndarray]:
    """Return the scene with missing elements imputed, and the sum of y yᵀ.

    Sums over pairs of bands that were both seen scatter by the signal, not by the noise: they are
    replaced by those of spectra whose gaps are drawn.
    """
    found, power, total = learnt_directions(block, shape, directions, total, count, share, run)
    return imputed(block, found, power), total


def _smooth(block: Block, boxes: list[Box], model: SpatialModel, run: Run) -> tuple[float, float]:
    """Return the signal per pixel outside B that is smooth in space, and its standard error."""
    found = [lost_outside(block(*box.slices)[0], model.basis, model.values, run) for box in boxes]
    lost, error = np.mean(found, axis=0)
    return float(lost), float(error) / math.sqrt(len(found))


def _localised(
    block: Block, boxes: list[Box], model: SpatialModel, smooth: float, run: Run
) -> tuple[float, float]:
    """Return what the signal that surely is in tiles is multiplied by, and its mean per pixel.

    No more is found in tiles than the scene has in all.
    """
    if smooth == 0 or model.basis.shape[1] == model.shape[2]:
        return 0.0, 0.0
    found = [lost_in_tiles(*block(*box.slices), model.basis, model.values, 0, run)
             for box in boxes]  # fmt: skip
    every = np.concatenate([part.ravel() for part in found])
    mean = float(every.mean()) if every.size else 0.0
    share = min(smooth / mean, 1.0) if mean > 0 else 0.0
    return share, share * mean


def patches(shape: tuple[int, int], missing: bool = False) -> list[Box]:
    """Return the patches that errors are measured on: of 72 × 72 pixels, or a small scene as it is.

    Examples
    --------
    >>> patches((50, 260))
    [Box(top=0, bottom=50, left=0, right=260)]
    >>> patches((50, 260), missing=True)
    [Box(top=0, bottom=50, left=0, right=72), Box(top=0, bottom=50, left=188, right=260)]
    """
    if not missing and shape[0] * shape[1] <= WHOLE:
        return [Box(0, shape[0], 0, shape[1])]
    rows, cols = (min(PATCH, n) for n in shape)
    most = round(shape[0] * shape[1] / (1.4 * PATCH**2))  # they cost as much as the scene itself
    wanted = min(PATCHES, max(most, 1))
    boxes = []
    for i in range(wanted):
        down = 0.0 if wanted == 1 else i / (wanted - 1)
        across = down if shape[0] <= PATCH else (i * GOLDEN + 0.2 * (wanted > 1)) % 1.0
        top, left = round(down * (shape[0] - rows)), round(across * (shape[1] - cols))
        boxes.append(Box(top, top + rows, left, left + cols))
    return boxes


def _trials(
    block: Block, boxes: list[Box], model: SpatialModel, noise: np.ndarray, run: Run, share: float
) -> list[Trial]:
    """Run the estimator on every patch as on a scene of its own."""
    trials = []
    for number, box in enumerate(boxes):
        y, _ = block(*box.slices)
        plan = Plan(window_sizes(box.shape, model.windows), model.noise_power, model.edges)
        rng = np.random.default_rng([7, number])
        trials.append(try_patch(y, model.basis, plan, noise, rng, run, box.left, share))
    return trials

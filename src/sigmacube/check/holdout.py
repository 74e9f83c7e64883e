"""Calibration of a scene's error bars on the scene itself, without truth.

Some elements are hidden, the scene is denoised without them, and each is compared with what the
result says of it: an estimate with σ, to which the noise of the element itself is added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import uniform_filter

from sigmacube.check.hiding import Veiled
from sigmacube.check.removed import Looked, shared
from sigmacube.check.verdict import Levels, is_beyond_scaling, judge, predicted
from sigmacube.core.card import Card
from sigmacube.core.levels import LEVELS, half_width
from sigmacube.core.parallel import ParallelMap, at_once, parallel, strips
from sigmacube.core.progress import Progress, phase, shown
from sigmacube.core.validity import of_bands, valid_elements
from sigmacube.core.windows import Span
from sigmacube.correction import corrected
from sigmacube.cube import Cube
from sigmacube.estimators import Region, estimator
from sigmacube.noise.estimation import DEFAULT
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.shared import gain_left, shared_noise
from sigmacube.pipeline import as_cube, denoise_region, survey_scene
from sigmacube.result import DenoisedCube
from sigmacube.settings import Settings
from sigmacube.survey import APART, Scene, SettledNoise, Source, Survey, noise_sample
from sigmacube.tiles.execute import Execution, run_tiles
from sigmacube.tiles.plan import Tile

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

__all__ = [
    "BrightnessClass",
    "Holdout",
    "check_share",
    "compare",
    "holdout",
    "noise_of",
    "settings_of",
]

# Elements that are hidden at most, whatever the share: more would tell no more.
MOST_HIDDEN = 4_000_000
N_CLASSES = 5
# Rows that are compared at a time.
STRIP = 16
# Pairs of neighbours whose error covariance is asked for.
N_PAIRS = 32


@dataclass(frozen=True)
class BrightnessClass:
    """Calibration of the pixels of one brightness class."""

    low: float
    """Least mean value over bands."""
    high: float
    """Largest mean value over bands."""
    coverage: float
    """Share of the elements inside their 95 % interval."""
    coverage_error: float
    """Standard error of the coverage."""
    z_std: float
    """Root mean square of the standardised errors."""


@dataclass(frozen=True, eq=False)
class Holdout(Card):
    """How often hidden elements fell inside their intervals, and what that says of σ.

    Hidden elements test the noise and the estimate together; their intervals are mostly as wide as
    the noise, so lost signal hardly shows in them. What was removed shows it: signal is smooth in
    space where noise is not. ``truth_coverage`` predicts from both how often intervals of the
    estimate hold the truth, and the verdict rests on it. An error of σ of less than about a tenth
    does not show in either.
    """

    coverage: Mapping[float, float]
    """Share of the hidden elements inside their interval, by level."""
    coverage_error: Mapping[float, float]
    """Standard errors of these shares, from how much parts of the scene differ."""
    truth_coverage: Mapping[float, float]
    """Predicted share of elements whose interval holds the truth, by level."""
    z_std: float
    """Root mean square of the standardised errors: 1 is right, above means σ is too small."""
    factor: float
    """What the noise would have to be multiplied by for 95 % to cover 95 %."""
    band_coverage: np.ndarray
    """(band,) share inside the 95 % interval; NaN for bands without data."""
    band_coverage_error: np.ndarray
    """(band,) its standard error."""
    band_factors: np.ndarray
    """(band,) root mean square of the standardised errors: what `calibrated` scales σ by."""
    brightness: tuple[BrightnessClass, ...]
    """Calibration by brightness of the pixel, dark to bright."""
    removed_lag1: float
    """Autocorrelation of what was removed, between neighbours, less what smoothing causes."""
    noise_lag1: float
    """Autocorrelation of the noise itself; not zero where the product was resampled."""
    n_elements: int
    """Number of elements compared."""
    median_rank: float
    """Median rank of the windows."""
    noise_source: str
    """Where the noise came from."""
    trusted: bool
    """Whether every test was made and passed."""
    verdict: str
    """What it means, in one or two plain sentences."""
    wavelengths: np.ndarray | None = None
    """(band,) band centres in nm."""
    scene: str = ""
    """What tells the scene from others, as in the settings of its results."""
    beyond_scaling: bool = False
    """Whether something is wrong that no factor on σ can mend."""

    def _facts(self) -> Mapping[str, str]:
        shares = (f"{100 * p:g} %: {100 * share:.1f} %" for p, share in self.coverage.items())
        return {
            "coverage": ", ".join(shares),
            "error / σ (rms)": f"{self.z_std:.3f}",
            "elements": f"{self.n_elements:,}",
            "noise": self.noise_source,
        }

    def _notes(self) -> Sequence[str]:
        return (self.verdict,)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the figures as JSON text, and write them to a file if one is named."""
        facts: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Mapping):
                facts[name] = {str(level): _number(share) for level, share in value.items()}
            elif isinstance(value, np.ndarray):
                facts[name] = [_number(one) for one in value]
            elif isinstance(value, tuple):
                facts[name] = [vars(part) for part in value]
            elif value is not None:
                facts[name] = _number(value) if isinstance(value, float) else value
        text = json.dumps(facts, indent=1)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def plot(self) -> Figure:
        """Draw the calibration curve, coverage by band and coverage by brightness."""
        from sigmacube.show.plots import holdout_figure

        return holdout_figure(self)


def holdout(
    cube: Cube | np.ndarray | xr.DataArray,
    *,
    share: float = 0.03,
    rng: int | np.random.Generator = 0,
    result: DenoisedCube | None = None,
    noise: Any = None,
    mask: np.ndarray | None = None,
    workers: int | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Holdout:
    """Check the error bars of a scene on the scene itself, without truth.

    A share of the elements is hidden, the scene is denoised without them, and each is compared
    with its estimate; the share inside their interval should be the interval's level. Noise and
    what is learnt of the whole scene are learnt with them: they are few.

    Parameters
    ----------
    cube
        What `denoise` takes.
    share
        Share of the elements to hide.
    rng
        Seed or generator that chooses them. Whether an element is hidden depends on the seed and
        its place in the scene alone.
    result
        A result of denoising this cube: noise and settings are taken from it.
    noise, mask, workers, progress
        As for `denoise`.
    **options
        Options of `denoise` that say how windows are solved.

    Returns
    -------
    Holdout
        Coverage by level, by band and by brightness, spatial tests, and a verdict.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> truth = sc.synthetic.scene((40, 44, 50), rng=1).values
    >>> noisy = truth + np.random.default_rng(2).normal(scale=0.02, size=truth.shape)
    >>> check = holdout(noisy, noise=0.02)
    >>> check.trusted, bool(0.93 < check.coverage[0.95] < 0.97)
    (True, True)
    >>> holdout(noisy, noise=0.012).trusted
    False
    """
    check_share(share)
    source = as_cube(cube, mask)
    if result is not None:
        result = result.unlabelled()
        settings, noise = settings_of(result), noise_of(result) if noise is None else noise
    else:
        settings = Settings.of({**options, "uncertainty": True}).fitted(source.shape)
    seed = rng if isinstance(rng, int) else int(rng.integers(2**63))
    rows, cols, _ = source.shape
    with parallel(workers) as run, shown(progress, "Checking", "tiles") as move:
        check = compare(
            source, noise, settings, [((0, rows), (0, cols))], run,
            share=share, seed=seed, workers=workers, progress=move,
        )  # fmt: skip
    return replace(check, wavelengths=source.wavelengths)


def compare(
    source: Source,
    noise: Any,
    settings: Settings,
    tiles: Iterable[tuple[Span, Span]] | Any,
    run: ParallelMap,
    *,
    share: float,
    seed: int,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Holdout:
    """Hide elements of a scene, denoise it tile by tile, and compare.

    ``tiles`` are rows and columns that together make the scene, or a function of the survey that
    returns them.
    """
    size = int(np.prod(source.shape))
    veiled = Veiled(source, min(share, MOST_HIDDEN / size), seed)
    alone = isinstance(tiles, list) and len(tiles) == 1  # a scene in memory
    known = survey_scene(source, noise, settings, run, workers=workers, whole=alone)
    survey = _with_gaps(known, veiled, run, whole=alone)
    places = list(tiles(survey) if callable(tiles) else tiles)
    found = _Found.empty(survey)
    phase(progress, "Comparing")

    def compare_one(number: int) -> int:
        rows, cols = places[number]
        found.add(veiled, survey, Tile(number, rows, cols), run)
        return number

    def told(number: int) -> None:
        if progress is not None:
            progress(number + 1, len(places))

    _, kept = at_once(
        run,
        lambda: run_tiles(compare_one, range(len(places)), Execution(), told),
        partial(_kept_noise, source, known),
    )
    check = found.concluded(survey, survey.known() | kept)
    return replace(check, scene=survey.presence.fingerprint)


def _with_gaps(survey: Survey, veiled: Veiled, run: ParallelMap, *, whole: bool) -> Survey:
    """Return what is known of a scene, for the scene without its hidden elements.

    Noise, subspace and size of errors are means over the whole scene, of which they are few.
    """
    if not survey.incomplete:
        survey = replace(survey, presence=replace(survey.presence, fewest=1))
    scene = Scene(corrected(veiled, survey.offsets), survey)
    learnt = estimator(survey.settings).learn_gaps(scene, run, whole=whole)
    return replace(survey, learnt=learnt)


def _kept_noise(source: Source, survey: Survey) -> dict[str, Any]:
    """Return what noise there is beyond the model of it, by name.

    Noise that all bands share beyond the assumed one windows keep as signal; noise that grows with
    the signal enters as one factor per pixel, with prior=None.

    The default estimate has looked for it already, but for gains too small for it.
    """
    if min(source.shape[:2]) < 2:
        return {}
    impulses = survey.settings.solver == "robust" or survey.wild
    part = noise_sample(corrected(source, survey.offsets))
    if survey.signal_noise is not None and survey.settings.prior == "spatial":
        return {}
    if survey.signal_noise is not None:
        values = of_bands(part[0], survey.bands)
        there = of_bands(valid_elements(*part), survey.bands)
        quiet = uniform_filter(
            np.where(there, values, np.asarray(survey.signal_noise.reference)), (3, 3, 1)
        )
        return {"departs": survey.signal_noise.departure(quiet)}
    sample = NoiseSample.of(*part, survey.bands, impulses=impulses)
    # Filled values have less noise than the others, and would look like a gain where they lie.
    filled = survey.incomplete or survey.settings.solver == "robust"
    facts = {} if filled else {"gain_left": gain_left(sample, survey.model)}
    if survey.settled.source == DEFAULT:
        return facts
    kept, _ = shared_noise(sample, survey.model)
    if kept is None:
        return facts
    return facts | {"kept_noise": float(np.median(np.sqrt(np.diag(kept)) / survey.model.std))}


def check_share(share: float) -> None:
    """Refuse a share that hides nothing, or too much."""
    if not 0 < share <= 0.2:
        raise ValueError(f"Invalid share {share}. It must be above 0 and at most 0.2.")


def settings_of(result: DenoisedCube) -> Settings:
    """Return the settings that a result was made with."""
    names = set(Settings().to_dict()) - {"uncertainty"}
    found = {name: result.settings[name] for name in names if name in result.settings}
    spatial = found.setdefault("prior", None) == "spatial"  # the first release knew no prior
    for side in ("window", "step"):
        if side in found:
            sides = found[side][:2]
            found[side] = max(sides) if spatial else [*sides, None]
    if spatial and "step" in found:  # the grid is that of the largest windows
        found["step"] = max(round(found["step"] / APART), 1)
    return Settings.from_dict(found)


def noise_of(result: DenoisedCube) -> Any:
    """Return the noise of a result; None has it estimated again where it grows with the signal."""
    if result.noise_scale is not None:
        return None
    source = str(result.settings.get("noise_source", "given"))
    return SettledNoise(result.noise, source, dict(result.settings.get("noise_model", {})))


class _Found:
    """What hidden elements and the removed part of a scene show, tile by tile.

    All sums are over elements in the order of the scene, so that tiles leave no trace in them.
    """

    def __init__(self, shape: tuple[int, int, int], bands: np.ndarray) -> None:
        self.shape, self.bands = shape, bands
        self.elements: list[np.ndarray] = []
        """(6, n) of hidden elements, see `Looked`."""
        self.products = np.zeros(shape[2])
        self.powers = np.zeros(shape[2])
        self.smoothing: list[np.ndarray] = []
        """(2, n) number of a pair of neighbours and their error covariance over the noise."""
        self.ranks: list[np.ndarray] = []

    @classmethod
    def empty(cls, survey: Survey) -> _Found:
        """Return it before the first tile."""
        return cls(survey.shape, survey.bands)

    def add(self, veiled: Veiled, survey: Survey, tile: Tile, run: ParallelMap) -> None:
        """Denoise a tile and add its elements; a border of one pixel shows their neighbours."""
        rows, cols = (
            (first, min(stop + 1, size))
            for (first, stop), size in zip((tile.rows, tile.cols), self.shape, strict=False)
        )
        region = denoise_region(veiled, survey, run, rows=rows, cols=cols)
        assert region.std is not None
        size = (tile.rows[1] - tile.rows[0], tile.cols[1] - tile.cols[0])
        looked = Looked.at(veiled, survey, region, (rows, cols), size)
        parts = strips(0, rows[1] - rows[0], STRIP)
        elements, removed = zip(*run(looked.compared, parts), strict=True)
        self.elements += elements
        for products, powers in run(partial(shared, np.concatenate(removed), size), parts):
            self.products += products
            self.powers += powers
        self.smoothing.append(_neighbour_covariances(survey, region, tile, run))
        self.ranks.append(region.ranks[tile.windows_in(survey.grid, region.grid)].ravel())

    def concluded(self, survey: Survey, known_of_scene: Mapping[str, Any]) -> Holdout:
        """Return what was found."""
        elements = np.concatenate(self.elements, axis=1)
        elements = elements[1:, np.argsort(elements[0])]
        known = np.isfinite(elements[3])
        if not known.any():
            raise ValueError(
                "Invalid scene for a hold-out check: no element could be hidden and estimated. "
                "There must be more valid bands and pixels."
            )
        cells, band, light, z, ratio = elements[:, known]
        cell, size = cells.astype(np.intp), np.abs(z)
        shares = {p: _share(size <= half_width(p), cell) for p in LEVELS}
        by_band = [_by_group(size[i], cell[i]) for i in _grouped(band, self.shape[2])]
        coverage, errors, factors = (np.array(column) for column in zip(*by_band, strict=True))
        lag1 = self._removed_lag1()
        facts: dict[str, Any] = {
            "coverage": {p: share for p, (share, _) in shares.items()},
            "coverage_error": {p: error for p, (_, error) in shares.items()},
            "z_std": float(np.sqrt(np.mean(z**2))),
            "factor": float(np.quantile(size, 0.95) / half_width(0.95)),
            "band_coverage": coverage,
            "band_coverage_error": errors,
            "band_factors": factors,
            "brightness": _by_brightness(size, light, cell),
            "removed_lag1": lag1,
            "noise_lag1": float(survey.settled.description.get("spatial_lag1", 0.0) or 0.0),
            "n_elements": len(z),
            "median_rank": float(np.median(np.concatenate(self.ranks))),
            "noise_source": survey.settled.source,
        }
        seen = {
            "sigma": float(np.median(ratio)),
            "known": known_of_scene,
            "levels": Levels.of(z, band, _fifths(light)),
            "chance_lag": self._chance_lag(survey),
        }
        facts["truth_coverage"] = predicted(facts | seen)
        trusted, verdict = judge(facts | seen)
        beyond = is_beyond_scaling(facts | seen)
        return Holdout(**facts, trusted=trusted, verdict=verdict, beyond_scaling=beyond)

    def _chance_lag(self, survey: Survey) -> float:
        """Return the standard error of the correlation of neighbours; bands may be alike."""
        noise = survey.model.factor @ survey.model.factor.T
        alike = noise / np.outer(survey.model.std, survey.model.std)
        independent = len(alike) ** 2 / float(np.sum(alike**2))
        return 1 / float(np.sqrt(2 * self.shape[0] * self.shape[1] * independent))

    def _removed_lag1(self) -> float:
        """Return the correlation of neighbours in what was removed, less what smoothing causes."""
        pairs = np.concatenate(self.smoothing, axis=1)
        if not self.powers.sum() > 0 or pairs.size == 0:
            return float("nan")
        smoothing = np.mean(pairs[1, np.argsort(pairs[0])])
        return float(self.products.sum() / self.powers.sum() + smoothing)


def _neighbour_covariances(
    survey: Survey, region: Region, tile: Tile, run: ParallelMap
) -> np.ndarray:
    """Return (2, n) numbers and error covariances over the noise of pairs that begin in a tile.

    Smoothing takes from neighbours what it gives to the estimate: the residuals of pure noise have
    about minus this correlation. The pairs are a few elements of the scene and those right of them.
    """
    rng, (rows, cols, _) = np.random.default_rng(0), survey.shape
    noise = np.broadcast_to(region.noise_std, region.estimate.shape)
    places = rng.integers((rows, max(cols - 1, 1), len(survey.bands)), size=(N_PAIRS, 3))
    numbers, pairs = [], []
    top, side = (
        a - b for a, b in zip((tile.rows[0], tile.cols[0]), region.errors_origin, strict=True)
    )
    for number, (row, col, band) in enumerate(places.tolist()):
        if not (tile.rows[0] <= row < tile.rows[1] and tile.cols[0] <= col < tile.cols[1]):
            continue
        u, v, band = row - tile.rows[0], col - tile.cols[0], int(survey.bands[band])
        if np.isfinite(region.estimate[u, v : v + 2, band]).sum() == 2:
            both = [{(u + top, x + side, band): 1 / float(noise[u, x, band])} for x in (v, v + 1)]
            numbers.append(number)
            pairs.append(both)
    found = run(lambda pair: region.errors.functional_covariance(pair)[0, 1], pairs)
    return np.array([numbers, found], dtype=np.float64).reshape(2, -1)


def _share(inside: np.ndarray, cell: np.ndarray) -> tuple[float, float]:
    """Return the share of elements inside, and its standard error from cells of the scene.

    Elements of a cell are not independent and cells differ, so it is the error of a ratio of sums
    over cells, and at least that of independent elements.
    """
    counts, hits = np.bincount(cell), np.bincount(cell, inside)
    counts, hits = counts[counts > 0], hits[counts > 0]
    total, n = counts.sum(), len(counts)
    share = hits.sum() / total
    spread = np.sum(np.square(hits - share * counts)) * n / max(n - 1, 1)
    return float(share), float(np.sqrt(max(spread / total**2, share * (1 - share) / total)))


def _grouped(group: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the indices of the members of groups 0 to count − 1, in their order."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.searchsorted(group[order], np.arange(1, count)))


def _by_group(size: np.ndarray, cell: np.ndarray) -> tuple[float, float, float]:
    """Return coverage at 95 %, its standard error and rms z of one group of elements."""
    if not len(size):
        return float("nan"), float("nan"), float("nan")
    share, error = _share(size <= half_width(0.95), cell)
    return share, error, float(np.sqrt(np.mean(size**2)))


def _fifths(light: np.ndarray) -> np.ndarray:
    """Return the fifth of the elements that each belongs to, dark to bright."""
    edges = np.quantile(light, np.linspace(0, 1, N_CLASSES + 1)[1:-1])
    return np.searchsorted(edges, light, side="right")


def _by_brightness(
    size: np.ndarray, light: np.ndarray, cell: np.ndarray
) -> tuple[BrightnessClass, ...]:
    """Return the calibration of fifths of the elements, dark to bright."""
    group, classes = _fifths(light), []
    for mine in _grouped(group, N_CLASSES):
        if len(mine):
            facts = _by_group(size[mine], cell[mine])
            low, high = float(light[mine].min()), float(light[mine].max())
            classes.append(BrightnessClass(low, high, *facts))
    return tuple(classes)


def _number(value: float) -> float | None:
    """Return a number for JSON, which knows no NaN; its last digits depend on no order of sums."""
    return float(f"{value:.10g}") if np.isfinite(value) else None

"""From windows to an estimate with its error model: one file for each prior.

An estimator learns what it needs of the whole scene once, then solves any rows and columns of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sigmacube.core.errors import ErrorModel
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.progress import Progress
from sigmacube.core.tables import load
from sigmacube.core.windows import Span, WindowGrid
from sigmacube.noise.advice import advice_on_impulses, advice_on_ranks
from sigmacube.settings import Settings
from sigmacube.survey import Scene, Survey

__all__ = ["ESTIMATORS", "Estimator", "Progress", "Region", "advice", "estimator"]


ESTIMATORS: dict[str | None, Any] = {
    "spatial": "sigmacube.estimators.spatial:SpatialEstimator",
    None: "sigmacube.estimators.lowrank:LowRankEstimator",
}
"""Estimators by prior; called with the settings."""


@dataclass(frozen=True, eq=False)
class Region:
    """The result for some rows and columns of a scene."""

    estimate: np.ndarray
    """(row, col, band) in the units of the data."""
    std: np.ndarray | None
    """Like ``estimate``; None where it was not asked for."""
    errors: ErrorModel | Any
    """Covariances of the errors, of the region's pixels and perhaps of some around it."""
    errors_origin: tuple[int, int]
    """Row and col in the scene of the first pixel that ``errors`` knows."""
    grid: WindowGrid
    """The windows over the region."""
    ranks: np.ndarray
    """(window rows, window cols[, band windows]) components of each window."""
    residual_ratio: np.ndarray
    """Like ``ranks``: residual variance over what the noise predicts."""
    noise_std: np.ndarray
    """(band,) or (row, col, band) noise of the region."""
    noise_scale: np.ndarray | None
    """(row, col) factor of every pixel on its noise; None where all are alike."""
    left_out: np.ndarray | None = None
    """(row, col, band) True for elements that were there and were left out; None without any."""
    unexplained: np.ndarray | None = None
    """(n, 2) row and col in the scene of pixels that no window explains; None if not looked for."""


class Estimator(Protocol):
    """A way to denoise a scene by windows."""

    settings: Settings

    def learn(self, scene: Scene, run: ParallelMap, *, whole: bool) -> Mapping[str, np.ndarray]:
        """Return what regions must know of the scene; ``whole`` if there will be one region."""
        ...

    def learn_gaps(
        self, scene: Scene, run: ParallelMap, *, whole: bool
    ) -> Mapping[str, np.ndarray]:
        """Return what was learnt of a whole scene, for one of which a few elements are missing."""
        ...

    def threads(self, shape: tuple[int, int, int]) -> int | None:
        """Return how many threads pay for a cube; None for one per processor."""
        ...

    def extent(self, scene: Scene, rows: Span, cols: Span) -> tuple[slice, slice]:
        """Return the rows and columns that `solve` reads for a region."""
        ...

    def solve(
        self,
        scene: Scene,
        rows: Span,
        cols: Span,
        run: ParallelMap,
        progress: Progress | None = None,
    ) -> Region:
        """Return the result for some rows and columns, to the bit that of the whole scene."""
        ...

    def tile_bytes(
        self, survey: Survey, tile: tuple[int, int], itemsize: int, keep_factors: bool = False
    ) -> float:
        """Return the memory that solving a tile (rows, cols) of such values takes at most.

        With ``keep_factors`` its error model is written, too. The interpreter is not counted.
        """
        ...

    @property
    def sets_aside(self) -> bool:
        """Whether elements may be set aside as outliers."""
        ...

    @property
    def lists_unexplained(self) -> bool:
        """Whether pixels that no window explains are looked for."""
        ...

    def noise_power(self, survey: Survey) -> np.ndarray | None:
        """Return the power of the noise by spatial frequency of a window; None for white noise."""
        ...


def estimator(settings: Settings) -> Estimator:
    """Return the estimator for the prior of some settings."""
    made: Estimator = load(ESTIMATORS[settings.prior])(settings)
    return made


def advice(scene: Scene, region: Region) -> str | None:
    """Return what to tell a user whose windows met impulses that the solver does not know."""
    survey = scene.survey
    if survey.settings.solver != "svd":
        return None
    values = scene.source.block(slice(0, survey.shape[0]), slice(0, survey.shape[1]))[0]
    found = advice_on_impulses(values, region.estimate, region.noise_std)
    if found is not None or survey.settings.prior is not None:
        return found
    grid = survey.grid
    few = zip(*(np.linspace(0, n - 1, 3).astype(int).tolist() for n in grid.shape[:2]), strict=True)
    blocks = (scene.load(*grid.slices(i, j)[:2]) for i, j in few)
    patches = (block.scaled()[block.valid] for block in blocks)
    return advice_on_ranks(patches, region.ranks, grid)

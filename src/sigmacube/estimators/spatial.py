"""Spectral subspace, local windows, shrunk spatial frequencies (``prior="spatial"``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from sigmacube.core.errors_in_units import ErrorsInUnits
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.progress import Progress
from sigmacube.core.spatial import SpatialModel, SpatialPart, smooth_region, survey
from sigmacube.estimators import Region
from sigmacube.scene import Scene, SceneBlock
from sigmacube.settings import Settings

__all__ = ["SpatialEstimator"]

Span = tuple[int, int]
# The smaller windows, as a share of the larger ones: they follow borders.
SMALL = 0.4
# Share of missing values in a whitened band, as variance, from which on it counts as missing.
NOTABLE = 0.01


@dataclass(frozen=True)
class SpatialEstimator:
    """Windows of two sizes, smoothed in the scene's subspace."""

    settings: Settings

    @property
    def sets_aside(self) -> bool:
        """Whether elements may be set aside as outliers."""
        return self.settings.solver_name == "robust"

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """(size, step) of the larger and of the smaller windows."""
        window, step = self.settings.window, self.settings.step
        if not isinstance(window, int) or not isinstance(step, int):
            raise ValueError(
                f"Invalid window {window} and step {step} with prior='spatial'. They must be whole "
                "numbers; windows that differ by axis belong to prior=None."
            )
        small = max(round(SMALL * window), 2)
        return (window, step), (small, max(step // 2, 1))

    def learn(self, scene: Scene, run: ParallelMap, *, whole: bool) -> Mapping[str, np.ndarray]:
        """Return what the whole scene knows: subspace, noise in space, size of errors."""
        shape = (*scene.survey.shape[:2], len(scene.survey.bands))
        return survey(partial(_white, scene), shape, windows=self.windows, run=run).to_arrays()

    def needs(self, scene: Scene) -> list[tuple[slice, slice]]:
        """Return the blocks that `learn` reads: the scene."""
        rows, cols, _ = scene.survey.shape
        return [(slice(0, rows), slice(0, cols))]

    def extent(self, scene: Scene, rows: Span, cols: Span) -> tuple[slice, slice]:
        """Return the rows and columns that `solve` reads for a region."""
        halo = 2 * max(size for size, _ in self.windows) * (4 if scene.survey.incomplete else 1)
        sides = [
            slice(max(first - halo, 0), min(stop + halo, length))
            for (first, stop), length in zip((rows, cols), scene.survey.shape, strict=False)
        ]
        return scene.extent(sides[0], sides[1])

    def solve(
        self,
        scene: Scene,
        rows: Span,
        cols: Span,
        run: ParallelMap,
        progress: Progress | None = None,
    ) -> Region:
        """Return the result for some rows and columns, to the bit that of the whole scene."""
        model = SpatialModel.from_arrays(dict(scene.survey.learnt))
        part = smooth_region(
            partial(_white, scene), model, rows, cols, run=run,
            uncertainty=self.settings.uncertainty,
        )  # fmt: skip
        return _region(scene, model, part, rows, cols)


def _white(scene: Scene, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a block of unit noise, zero where values are missing, and which are there."""
    block = scene.load(rows, cols)
    kept = None
    if block.missing is not None or not block.valid.all():
        kept = np.broadcast_to(block.valid[..., None], (*block.valid.shape, len(block.bands)))
        kept = kept.copy() if block.missing is None else kept & ~block.missing
    if block.missing is None or block.noise.is_diagonal:
        return block.whitened(_in_turn), kept
    assert kept is not None
    # A whitened band is a mixture of bands; where missing ones have a notable part in it, so is it.
    share = np.square(block.noise.inverse_factor * block.noise.std)
    kept = kept & ((block.missing.astype(np.float64) @ share.T) < NOTABLE)
    return np.where(kept, block.bridged().whitened(_in_turn), 0.0), kept


def _in_turn(function, items, done=None) -> list:  # type: ignore[no-untyped-def]
    return [function(item) for item in items]


def _region(scene: Scene, model: SpatialModel, part: SpatialPart, rows: Span, cols: Span) -> Region:
    """Return a part in the units of the data."""
    survey = scene.survey
    block = scene.load(slice(*rows), slice(*cols))
    noise_std = block.std_of_elements()
    errors = None
    if part.errors is not None:
        errors = ErrorsInUnits(
            part.errors, survey.model, survey.bands, survey.shape[2], block.pixel_scale
        )
    grid = survey.grid
    ranks = np.zeros(grid.shape[:2], dtype=np.int64)
    i, j, r = part.ranks[0].T
    ranks[i, j] = r
    return Region(
        estimate=block.to_output(survey.model.unwhiten(part.estimate)),
        std=_std(block, part, errors),
        errors=errors,
        errors_origin=(rows[0], cols[0]),
        grid=grid,
        ranks=ranks,
        residual_ratio=np.full(ranks.shape, np.nan),
        noise_std=noise_std,
        noise_scale=block.pixel_scale,
        unexplained=np.array(part.unexplained, dtype=np.int64).reshape(-1, 2),
    )


def _std(block: SceneBlock, part: SpatialPart, errors: ErrorsInUnits | None) -> np.ndarray | None:
    """Return the standard deviation in the units of the data."""
    if part.variance is None or part.errors is None:
        return None
    if block.noise.is_diagonal:
        return block.to_output(np.sqrt(part.variance) * block.noise.std)
    rows = block.noise.factor
    variance = part.errors.band_covariance(rows, rows)
    return block.to_output(np.sqrt(np.maximum(variance, 0)))

"""How much memory a tile takes with each estimator, to plan tiles with; measured."""

from __future__ import annotations

from collections.abc import Iterable

from sigmacube.core.windows import BLOCK, Axis
from sigmacube.survey import Survey

__all__ = ["lowrank_bytes", "spatial_bytes"]

Sides = tuple[int, int]


def lowrank_bytes(survey: Survey, tile: Sides, itemsize: int, keep_factors: bool) -> float:
    """Return the bytes that solving a tile by low-rank windows takes at most."""
    grid, bands, rank = survey.grid, survey.grid.cube_shape[2], _expected_rank(survey)
    sides = [_extent(axis, side) for axis, side in zip((grid.rows, grid.cols), tile, strict=True)]
    pixels, windows = sides[0][0] * sides[1][0], sides[0][1] * sides[1][1] * grid.shape[2]
    window = grid.rows.size * grid.cols.size
    source = pixels * survey.shape[2] * (itemsize + 1)
    factors = windows * rank * (window + grid.bands.size) * 8
    solving = source + pixels * bands * 8 + 2 * factors
    block = [_extent(axis, 1) for axis in (grid.rows, grid.cols)]
    in_block = min(block[0][1], sides[0][1]) * min(block[1][1], sides[1][1]) * grid.shape[2]
    lines = (grid.rows.reach + 1) * (2 * grid.cols.reach + 1)
    pairs = in_block * lines * (rank**2 + bands) * 4
    copies = in_block * (rank * (window + grid.bands.size) * 4 + 2 * window * 8)
    combining = source + factors + pixels * bands * 12 + pairs + copies
    output = tile[0] * tile[1] * survey.shape[2] * 16
    writing = factors * 5 / 2 + windows * window * 12 + copies if keep_factors else 0.0
    return max(solving, combining, writing) + output


def _expected_rank(survey: Survey) -> int:
    """Return the rank that most windows will not exceed."""
    if isinstance(survey.settings.rank, int):
        return survey.settings.rank
    smaller = min(survey.grid.rows.size * survey.grid.cols.size, survey.grid.bands.size)
    return max(smaller // 8, min(smaller, 10))


def _extent(axis: Axis, side: int) -> tuple[int, int]:
    """Return the pixels and windows that a tile needs along an axis, wherever it lies."""
    block = max(BLOCK * axis.size // axis.step, 1) * axis.step
    span = min(-(-side // block) * block + 2 * (axis.size - 1), axis.length)
    return span, min((span - axis.size) // axis.step + 2, len(axis))


def spatial_bytes(
    survey: Survey, windows: Iterable[Sides], tile: Sides, itemsize: int, keep_factors: bool
) -> float:
    """Return the bytes that solving a tile in the scene's subspace takes at most.

    Windows over windows over the tile are fitted first; the tile's own bands come at the end.

    Parameters
    ----------
    windows
        (size, step) of the larger and of the smaller windows.
    """
    sizes = list(windows)
    bands, k = len(survey.bands), survey.learnt["basis"].shape[1]
    rank = min(4 * -(-3 * k // 16) + 2, k)  # three quarters of the subspace, padded
    around = max(size for size, _ in sizes) + 2
    halo = around * (4 if survey.incomplete else 1)

    def pixels(margin: int) -> int:
        rows, cols = survey.shape[:2]
        return min(tile[0] + 2 * margin, rows) * min(tile[1] + 2 * margin, cols)

    def fits(margin: int, each: int) -> float:
        """Return bytes of the windows over the tile and a margin, ``each`` per coefficient."""
        total = 0.0
        for size, step in sizes:
            sides = [min(size, length) for length in survey.shape[:2]]
            count = 1
            for n, side, length in zip(tile, sides, survey.shape, strict=False):
                count *= (min(n + 2 * margin, length) + side) // step + 1
            total += count * (sides[0] * sides[1] * (rank * each + 8) + 4 * k * rank)
        return total

    data = pixels(halo + around) * (bands * (itemsize + 9) + k * 12)
    coefficients = pixels(halo + around) * k * 12
    solving = max(data, coefficients + 1.15 * fits(around, 5))
    own = pixels(0) * (bands * (64 if survey.incomplete else 48) + k * 24)
    finishing = coefficients + fits(1, 6) + own
    return max(solving, finishing) + (fits(1, 4) if keep_factors else 0.0)

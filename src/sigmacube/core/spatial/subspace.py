"""The scene's spectral subspace, by blocks anchored to the scene.

B (P, k) holds the principal directions of the whole scene above its noise edge, and every direction
that some 20 × 20 tile has above its own edge in what B leaves over: rare materials stay in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from sigmacube.core.parallel import in_turn, strips
from sigmacube.core.rank import noise_edge
from sigmacube.core.spatial.faint import Unseen, unseen
from sigmacube.core.spatial.geometry import Block, Box
from sigmacube.core.spatial.smoothing import Run

__all__ = [
    "SEGMENT",
    "blocks",
    "gram",
    "principal",
    "project",
    "rare",
    "squares",
    "strengths",
    "strong",
    "tiles",
]

SIDE = 60
TILE = 20
SEGMENT = 32
# Rows of a part of the scene that are worked on at a time: they should stay in a processor's cache.
STRIP = 8
BATCH = 16
ROUNDS = 3
STARTS = 3
# The least signal of a direction that only some tile has, in units of the noise of a pixel.
LEAST = 0.02
SMALL_TILE = 5
# The share of elements that counts as there, at least.
LEAST_SHARE = 0.01
# Values of which single precision leaves a hundredth of the noise at most.
SINGLE = 1e5


def blocks(shape: tuple[int, int]) -> list[Box]:
    """Return the blocks of 60 × 60 pixels that a survey goes by."""
    return [
        Box(top, min(top + SIDE, shape[0]), left, min(left + SIDE, shape[1]))
        for top in range(0, shape[0], SIDE)
        for left in range(0, shape[1], SIDE)
    ]


def batches(items: list) -> Iterator[list]:
    """Yield a few items at a time, so that what they return is bounded."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def gram(block: Block, shape: tuple[int, int, int], run: Run) -> tuple[np.ndarray, float, float]:
    """Return the (P, P) sum of y yᵀ, the number of pixels with any value, and the share of values.

    With missing values each entry is scaled by how often both bands were seen.
    """
    total = np.zeros((shape[2], shape[2]))
    seen: np.ndarray | None = None
    count = 0.0
    for batch in batches(blocks(shape[:2])):
        for part, pairs, n in run(partial(_gram_of, block), batch):
            total += part
            if pairs is not None and seen is None:
                seen = np.full(total.shape, count)
            if seen is not None:
                seen = seen + (n if pairs is None else pairs)
            count += n
    if seen is not None:
        total = total * (count / np.maximum(seen, 1))
    # Nothing may be left where much is set aside.
    share = 1.0 if seen is None else max(np.trace(seen) / max(count * len(total), 1), LEAST_SHARE)
    return total, count, share


def _gram_of(block: Block, box: Box) -> tuple[np.ndarray, np.ndarray | None, float]:
    y, kept = block(*box.slices)
    flat = y.reshape(-1, y.shape[2])
    if kept is None or kept.all():
        return flat.T @ flat, None, float(len(flat))
    held = kept.reshape(flat.shape).astype(np.float64)
    return flat.T @ flat, held.T @ held, float(np.count_nonzero(held.any(axis=1)))


def principal(total: np.ndarray, count: float, colour: float = 1.0) -> np.ndarray:
    """Return the directions (P, k) above the scene's noise edge, one at least.

    Parameters
    ----------
    colour
        κ = mean N² / (mean N)² of the noise's power over spatial frequencies, 1 for white noise;
        over the squared share of what is there, as pairs of bands count that were both seen. The
        edge is √M (1 + √(κP/M)).
    """
    bands = len(total)
    values, vectors = np.linalg.eigh(total)
    ratio = bands / max(count, 1.0)
    edge = noise_edge(max(int(count), 2), bands)
    edge *= (1 + math.sqrt(colour * ratio)) / (1 + math.sqrt(ratio))
    k = max(int(np.count_nonzero(values > edge**2)), 1)
    return vectors[:, ::-1][:, :k].copy()


def strong(total: np.ndarray, count: float) -> np.ndarray:
    """Return the directions (P, j) whose signal is above the noise of a pixel, one at least."""
    values, vectors = np.linalg.eigh(total)
    k = max(int(np.count_nonzero(values > 2 * max(count, 1.0))), 1)
    return vectors[:, ::-1][:, :k].copy()


def rare(
    block: Block,
    shape: tuple[int, int, int],
    basis: np.ndarray,
    run: Run,
    rise: float = 1.0,
    *,
    imputed: bool = False,
) -> np.ndarray:
    """Return the basis with the directions that some tile has above its edge in what is left.

    Parameters
    ----------
    rise
        How much higher the edge of a tile is than that of white noise.
    imputed
        Whether missing values were drawn: by block, so that no block is read in parts.
    """
    boxes = blocks(shape[:2])
    for _ in range(ROUNDS):
        if basis.shape[1] >= shape[2]:
            break
        found: list[np.ndarray] = []
        more: list[Box] = []
        for batch in batches(boxes):
            parts = [
                (box, part) for box in batch for part in ([box] if imputed else _tile_rows(box))
            ]
            vectors = run(partial(_rare_in, block, basis, rise, shape), [p for _, p in parts])
            found += [v for part in vectors for v in part]
            some = {box for (box, _), part in zip(parts, vectors, strict=True) if part}
            more += [box for box in batch if box in some]
        if not found:
            break
        boxes = more  # where nothing is left now, less will be
        _, size, rows = np.linalg.svd(np.array(found), full_matrices=False)
        fresh = rows[size >= min(np.linalg.norm(v) for v in found) * 0.999]
        fresh = fresh[: shape[2] - basis.shape[1]]
        basis = np.linalg.qr(np.hstack([basis, fresh.T]))[0]
    return basis


def tiles(image: np.ndarray, side: tuple[int, int]) -> np.ndarray:
    """Return (tiles, rows · cols, bands): an image cut into whole tiles; the rest is left."""
    r, c = (min(s, n) for s, n in zip(side, image.shape[:2], strict=True))
    down, across = image.shape[0] // r, image.shape[1] // c
    whole = image[: down * r, : across * c].reshape(down, r, across, c, -1)
    return np.ascontiguousarray(whole.transpose(0, 2, 1, 3, 4)).reshape(down * across, r * c, -1)


def _tile_rows(box: Box) -> list[Box]:
    """Return the rows of whole tiles of a block, one by one; a block that is lower as it is."""
    tops = range(box.top, max(box.bottom - TILE, box.top) + 1, TILE)
    return [Box(top, min(top + TILE, box.bottom), box.left, box.right) for top in tops]


def _rare_in(
    block: Block, basis: np.ndarray, rise: float, shape: tuple[int, int, int], box: Box
) -> list[np.ndarray]:
    """Return s·v of directions v in a block's tiles that rise above the edge of what B leaves.

    Three vectors, one of them the pixel of the largest residual, after six steps of subspace
    iteration: what is well above the edge is found, and nothing else matters.
    """
    y, _ = block(*box.slices)
    if max(float(y.max()), -float(y.min())) < SINGLE:
        y, basis = y.astype(np.float32), basis.astype(np.float32)
    left = y - (y @ basis) @ basis.T
    part = tiles(left.astype(np.float32, copy=False), (TILE, TILE))
    count, n, bands = part.shape
    start = np.random.default_rng(0).standard_normal((bands, STARTS - 1)).astype(np.float32)
    brightest = np.argmax(np.einsum("anp,anp->an", part, part), axis=1)
    first = part[np.arange(count), brightest][:, :, None]
    x = np.concatenate([first, np.broadcast_to(start, (count, *start.shape))], axis=2)
    for _ in range(6):
        x = np.linalg.qr(x)[0]
        image = np.matmul(part, x)
        x = np.matmul(part.transpose(0, 2, 1), image)
    image = np.matmul(part, np.linalg.qr(x)[0])
    _, size, turn = np.linalg.svd(image, full_matrices=False)
    vectors = np.matmul(np.linalg.qr(x)[0], turn.transpose(0, 2, 1))
    edge = rise * _tile_edge(n, bands - basis.shape[1], shape)
    return [
        size[a, i] * vectors[a, :, i].astype(np.float64)
        for a in range(count)
        for i in range(size.shape[1])
        if size[a, i] > edge
    ]


def _tile_edge(n: int, bands: int, shape: tuple[int, int, int]) -> float:
    """Return the noise edge of a tile, a little higher where there are many tiles to pass it."""
    number = max(shape[0] * shape[1] / TILE**2 / 50, 1.0)
    return noise_edge(max(n, 2), max(bands, 1)) * (1 + 0.004 * math.log(number))


def strengths(
    basis: np.ndarray, total: np.ndarray, count: float, share: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Unseen]:
    r"""Return B with its axes by falling strength, g_i / λ_i, the noise of each, faint signal.

    In units of the noise, β = P/M: a direction of strength x is observed at λ/M = x² + 1 + β +
    β/x². It errs by g = (1 + x²)/(x² + β) times its leverage; and, chosen by the data, it carries
    noise along, (λ/M − x² cos²) in all, of which 1/(1 + x²) is taken for signal. Where a share α of
    the elements is there, coefficients have noise 1/α, and bands are told by α M pixels: β grows
    by 1/α², and g = (1/α + x²)/(x² + β)/α.
    """
    values, turn = np.linalg.eigh(basis.T @ total @ basis)
    values, basis = np.maximum(values[::-1], 1e-12 * max(values[-1], 1e-300)), basis @ turn[:, ::-1]
    # LAPACK leaves signs open; what is drawn at random along an axis must not depend on that.
    largest = np.argmax(np.abs(basis), axis=0)
    basis = basis * np.where(basis[largest, np.arange(basis.shape[1])] < 0, -1.0, 1.0)
    pixels, bands = max(count, 1.0), len(total)
    beta = (bands - basis.shape[1]) / (pixels * share**2)
    excess = values / pixels - 1 - beta
    root = np.sqrt(np.maximum(excess**2 - 4 * beta, 0))
    above = excess > 2 * math.sqrt(beta)
    x2 = np.where(above, np.maximum((excess + root) / 2, 1e-12), 1.0)
    gain = np.where(above, (1 / share + x2) / (x2 + beta), 1.5) / share
    cos2 = np.clip((x2**2 - beta) / (x2**2 + beta * x2), 0, 1)
    carried = np.where(above, values / pixels - x2 * cos2 - 1, 2 * beta)
    noise = 1 + np.clip(carried, 0, 0.2) / np.where(above, 1 + x2, 1.0)
    power = np.where(above, x2, np.maximum(excess, LEAST))
    rest = unseen(x2[above], len(total), math.sqrt(beta), share < 1)
    return basis, gain / (power * pixels), noise, rest


def lost_outside(
    y: np.ndarray, basis: np.ndarray, values: np.ndarray, run: Run = in_turn
) -> tuple[float, float]:
    """Return the signal per pixel that lies outside B in a patch y, and its standard error.

    Signal is smooth in space and noise is not: what tiles of 5 × 5 pixels have on average beyond
    noise, of which B itself has taken a part.

    Parameters
    ----------
    values
        (k,) sum over the scene of the squared coefficients along each direction.
    """
    bands, k = basis.shape
    r, c = (min(SMALL_TILE, side) for side in y.shape[:2])
    down, across, n = y.shape[0] // r, y.shape[1] // c, r * c

    def power_of(row: int) -> np.ndarray:
        mean = y[row * r : (row + 1) * r, : across * c].sum(axis=0)
        mean = mean.reshape(across, c, bands).sum(axis=1) / n
        z = mean @ basis
        power = n * np.square(mean - z @ basis.T).sum(axis=1)
        power -= (bands - k) * (1 - n * (np.square(z) @ (1 / values)))
        return np.asarray(power)

    power = np.concatenate(run(power_of, range(down)))
    return float(power.mean() / n), math.sqrt(2 * (bands - k) / len(power)) / n


def squares(values: np.ndarray, run: Run = in_turn) -> np.ndarray:
    """Return the sum of squares (row, col) over the bands."""
    parts = [values[part] for part in strips(0, len(values), STRIP)]
    return np.concatenate(run(lambda y: np.einsum("yxp,yxp->yx", y, y), parts))


def project(values: np.ndarray, matrix: np.ndarray, left: int, run: Run = in_turn) -> np.ndarray:
    """Return values · matrix (row, col, n), in segments of 32 columns anchored to the scene.

    Products of one shape, a pixel always at the same place in them, give the same bits wherever a
    region begins; ``left`` is the scene's column that the values start at.
    """
    rows, cols, inner = values.shape
    out = np.empty((rows, cols, matrix.shape[1]))

    def fill(part: slice) -> None:
        for start in range(left // SEGMENT * SEGMENT, left + cols, SEGMENT):
            low, high = max(start, left), min(start + SEGMENT, left + cols)
            here = values[part, low - left : high - left]
            if high - low < SEGMENT:
                padded = np.zeros((len(here), SEGMENT, inner))
                padded[:, low - start : high - start] = here
                here = np.matmul(padded, matrix)[:, low - start : high - start]
                out[part, low - left : high - left] = here
            else:
                np.matmul(here, matrix, out=out[part, low - left : high - left])

    run(fill, strips(0, rows, STRIP))
    return out

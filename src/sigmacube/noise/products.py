"""Sums of products of spectra, and of those of neighbours, that many questions are answered by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sigmacube.core.parallel import ParallelMap, in_turn
from sigmacube.core.whitening import Noise

__all__ = ["Products"]


class Products(NamedTuple):
    """Sums over some windows; whoever asks needs no look at the spectra themselves."""

    number: int
    """Spectra."""
    mean: np.ndarray
    """(bands,) their mean."""
    own: np.ndarray
    """(bands, bands) sum of c cᵀ, c a spectrum beyond the mean."""
    beside: np.ndarray
    """(2, bands, bands) sum of a bᵀ + b aᵀ over neighbours down the rows, and across."""
    pairs: int
    """Neighbours, of both kinds."""

    @property
    def total(self) -> np.ndarray:
        """(bands, bands) sum of y yᵀ, y a spectrum as it is."""
        return self.own + self.number * np.outer(self.mean, self.mean)

    def whitened(self, noise: Noise) -> Products:
        """Return those of the spectra in units of some noise."""

        def white(matrix: np.ndarray) -> np.ndarray:
            return noise.whiten(noise.whiten(matrix).T)

        beside = np.stack([white(part) for part in self.beside])
        return Products(self.number, noise.whiten(self.mean), white(self.own), beside, self.pairs)

    @classmethod
    def of(
        cls, blocks: list[np.ndarray], valid: list[np.ndarray], run: ParallelMap = in_turn
    ) -> Products:
        """Return those of windows (rows, cols, bands), zero where pixels (rows, cols) are not."""
        count = sum(int(np.count_nonzero(part)) for part in valid)
        mean = np.sum([block.sum(axis=(0, 1)) for block in blocks], axis=0) / max(count, 1)

        def products(window: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, int]:
            block, there = window
            centred = block - mean
            if not there.all():
                centred *= there[..., None]
            own, found, pairs = _gram(centred), [], 0
            for axis in (0, 1):
                # 2ab = (a + b)² − a² − b²: a matrix times itself takes half the time.
                one, other = (centred[:-1], centred[1:]) if axis == 0 else (
                    centred[:, :-1], centred[:, 1:])  # fmt: skip
                ends = np.take(centred, (0, -1), axis=axis)
                found.append(_gram(one + other) + _gram(ends) - 2 * own)
                first, last = (there[:-1], there[1:]) if axis == 0 else (
                    there[:, :-1], there[:, 1:])  # fmt: skip
                pairs += int(np.count_nonzero(first & last))
            return np.stack([own, *found]), pairs

        parts = run(products, zip(blocks, valid, strict=True))
        sums = sum(part for part, _ in parts)
        return cls(count, mean, sums[0], sums[1:], sum(pairs for _, pairs in parts))


def _gram(spectra: np.ndarray) -> np.ndarray:
    """Return (bands, bands) sums of products of spectra (..., bands)."""
    flat = spectra.reshape(-1, spectra.shape[-1])
    return np.asarray(flat.T @ flat)

"""Elements that are hidden from the estimator and compared with what it says of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sigmacube.core.validity import valid_elements
from sigmacube.survey import Source

__all__ = ["Veiled"]

# Bytes of rows that are kept.
KEPT = 20_000_000


@dataclass(frozen=True, eq=False)
class Veiled:
    """A source some of whose elements are masked.

    Which ones depends on the seed and on their place in the scene alone, however it is read.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> veiled = Veiled(sc.Cube(np.zeros((40, 50, 6))), share=0.1, seed=1)
    >>> hidden = veiled.hidden(slice(0, 40), slice(0, 50))
    >>> bool(0.09 < hidden.mean() < 0.11)
    True
    >>> bool(np.array_equal(veiled.hidden(slice(7, 9), slice(20, 30)), hidden[7:9, 20:30]))
    True
    """

    source: Source
    share: float
    seed: int
    drawn: dict[int, np.ndarray] = field(default_factory=dict, repr=False)
    """Bits of rows that were drawn."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, cols, bands)."""
        return self.source.shape

    def hidden(self, rows: slice, cols: slice) -> np.ndarray:
        """Return (row, col, band) True for the hidden elements of a block, valid or not."""
        _, n_cols, n_bands = self.shape
        bits = np.stack([self._row(row) for row in range(rows.start, rows.stop)])
        lines = np.unpackbits(bits, axis=1, count=n_cols * n_bands).view(bool)
        return lines.reshape(-1, n_cols, n_bands)[:, cols]

    def _row(self, row: int) -> np.ndarray:
        """Return one row's bits. Blocks ask for it again and again: it is kept, to a limit."""
        if row in self.drawn:
            return self.drawn[row]
        draw = np.random.Generator(np.random.Philox(key=(self.seed, row)))
        bits = np.packbits(draw.random(self.shape[1:], dtype=np.float32) < self.share)
        if bits.nbytes * (len(self.drawn) + 1) <= KEPT:
            self.drawn[row] = bits
        return bits

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values and mask of a block, the hidden elements masked."""
        values, mask = self.source.block(rows, cols)
        return values, valid_elements(values, mask) & ~self.hidden(rows, cols)

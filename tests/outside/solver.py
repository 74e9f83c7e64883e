"""A solver: the best rank-one matrix."""

from __future__ import annotations

import numpy as np

from sigmacube import PatchSolution


class RankOne:
    """Called with a patch (pixels, bands) of unit noise; knows nothing of windows or scenes."""

    keeps_noise = False

    def __init__(self, rank: int | str) -> None:
        self.rank = rank

    def __call__(self, patch: np.ndarray) -> PatchSolution:
        left, values, right = np.linalg.svd(patch, full_matrices=False)
        first = values[0] * np.outer(left[:, 0], right[0])
        return PatchSolution.from_estimate(first, patch=patch)

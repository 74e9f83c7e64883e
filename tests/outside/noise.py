"""A noise estimator: the median size of differences between neighbours."""

from __future__ import annotations

import numpy as np

from sigmacube.core.parallel import ParallelMap
from sigmacube.noise.sample import NoiseSample


def by_median(sample: NoiseSample, run: ParallelMap) -> tuple[np.ndarray, None]:
    """Return (bands,) standard deviations; what differences say of correlation is not asked."""
    changes = [np.diff(block, axis=1).reshape(-1, block.shape[2]) for block in sample.blocks]
    return 1.4826 * np.nanmedian(np.abs(np.concatenate(changes)), axis=0) / np.sqrt(2), None

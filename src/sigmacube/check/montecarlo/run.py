"""The Monte Carlo run that users call."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.check.montecarlo.judging import judge
from sigmacube.check.montecarlo.result import MonteCarlo
from sigmacube.check.montecarlo.trials import make_trials
from sigmacube.core.levels import LEVELS
from sigmacube.core.progress import Progress, shown
from sigmacube.cube import Cube

if TYPE_CHECKING:
    import xarray as xr


def monte_carlo(
    truth: Cube | np.ndarray | xr.DataArray,
    noise: float | np.ndarray,
    *,
    trials: int = 100,
    impulses: float = 0.0,
    rng: int | np.random.Generator = 0,
    assumed: float | np.ndarray | str | None = None,
    sigma: str | None = None,
    levels: Sequence[float] = LEVELS,
    sample: int = 1000,
    checkpoint: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> MonteCarlo:
    r"""Add fresh noise to a truth many times, denoise each time, and count what the σ covers.

    An element is covered in a trial when :math:`|\hat W - \overline{\hat W}| \le k \hat\sigma
    \sqrt{1 - 1/T}`, with the mean over all T trials and k the normal quantile of the level; and
    when :math:`|\hat W - W^\star| \le k \hat\sigma` for the truth. The first tests the closed form
    alone, the second also the bias of the low-rank model.

    Parameters
    ----------
    truth
        (row, col, band) noise-free scene. For a real scene, its denoised version.
    noise
        Standard deviation of the noise to add (one, or one per band), or its (bands, bands)
        covariance.
    trials
        Number of observations.
    impulses
        Share of elements replaced by salt or pepper in every trial, see `synthetic.add_noise`.
    rng
        Seed. Trial t depends on it and on t alone: more trials continue the same series.
    assumed
        Noise that `denoise` is told, or the name of an estimator; by default the true noise.
    sigma
        ``"first"`` puts the closed form of the first observation to the test on all trials;
        ``"each"`` lets every trial bring its own. By default ``"first"``, and ``"each"`` with
        impulses, whose places differ from trial to trial.
    levels
        Nominal levels of the intervals.
    sample
        Elements drawn at random for the Shapiro-Wilk tests and the Q-Q plot.
    checkpoint
        Folder that keeps the trials: a run that was stopped goes on from there, and one with more
        ``trials`` adds to it. It takes 4 bytes per element and trial (8 with ``sigma="each"``). By
        default a temporary folder, removed at the end.
    workers
        Trials at a time; the number of processors by default. The figures are the same for any.
    progress
        True draws a bar; a function is called as ``progress(done, total)``, counted in trials.
    **options
        Options of `denoise`.

    Returns
    -------
    MonteCarlo
        Coverage, ratios, tests of normality, and plots of them.

    Examples
    --------
    >>> from sigmacube.check.montecarlo import monte_carlo
    >>> from sigmacube.synthetic import scene
    >>> truth = scene((24, 30, 40), endmembers=3, rng=1)
    >>> found = monte_carlo(truth, 0.002, trials=20, prior=None)
    >>> 0.93 < found.coverage[0.95] < 0.97
    True
    >>> bool(0.9 < found.std_ratio < 1.1)
    True

    An interval from half the noise covers too little, and this shows it:

    >>> wrong = monte_carlo(truth, 0.002, trials=20, assumed=0.001, prior=None, rank=3)
    >>> wrong.coverage[0.95] < 0.8
    True
    """
    if sigma is None:
        sigma = "each" if impulses else "first"
    where = nullcontext(checkpoint) if checkpoint is not None else tempfile.TemporaryDirectory()
    with where as folder:
        series = make_trials(
            truth,
            noise,
            Path(str(folder)),
            rng=rng,
            count=trials,
            impulses=impulses,
            assumed=assumed,
            sigma=sigma,
            options=options,
        )
        with shown(progress, "Trials", "trials") as move:
            series.run(workers=workers, progress=move)
        return judge(series, levels=levels, sample=sample, workers=workers)

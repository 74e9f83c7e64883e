"""`denoise`: any input in; decides between memory, tiles and Dask, and does nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from sigmacube.check.calibration import calibrated
from sigmacube.core.progress import Progress, shown
from sigmacube.cube import Cube
from sigmacube.pipeline import Noise, as_cube, denoise_cube
from sigmacube.result import DenoisedCube, LabelledCube, with_labels
from sigmacube.settings import Settings, takes_settings

if TYPE_CHECKING:
    import xarray as xr


@overload
def denoise(cube: xr.DataArray, noise: Noise = ..., **options: Any) -> LabelledCube: ...
@overload
def denoise(cube: Cube | np.ndarray, noise: Noise = ..., **options: Any) -> DenoisedCube: ...
@takes_settings
def denoise(
    cube: Cube | np.ndarray | xr.DataArray,
    noise: Noise = None,
    *,
    mask: np.ndarray | None = None,
    calibrate: bool = False,
    workers: int | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> DenoisedCube:
    """Denoise a cube and give every value its standard deviation.

    The scene is estimated window by window and overlapping windows are averaged; the standard
    deviation follows the noise through all of this. ``prior`` says what a window is taken for.

    Parameters
    ----------
    cube
        (row, col, band) values: a `Cube`, an array of any real type, or an `xarray.DataArray` with
        its dimensions in any order: then ``estimate`` and ``std`` are labelled as it is. If it
        holds a Dask array, so does the result: one pass over the data is made at once, the rest
        when values are asked for.
    noise
        Standard deviation of the noise (one, or one per band), its (bands, bands) covariance, a
        `SignalNoise` whose variance grows with the signal, or the name of an estimator:
        ``"regression"``, ``"differences"``, ``"residual"``. None estimates it by the last two
        together; ``result.settings["noise_source"]`` says what was used.
    mask
        True where values are valid; (row, col) or (row, col, band). Values that are not finite
        are masked anyway. Missing values of a pixel are estimated from its other bands and other
        pixels, with a larger standard deviation; a pixel without any valid value is NaN, and so is
        a band that no window over a pixel has seen.
    calibrate
        Scale the standard deviation of every band by what leaving elements out shows (see
        `sigmacube.holdout`), and record the factors in ``settings["calibration"]``.
    workers
        Threads; by default the number of processors, but one where windows are so small that
        more would be in each other's way. The result is the same for any number, to the last bit.
    progress
        True draws a bar; a function is called as ``progress(done, total)``, counted in windows.
    **options
        The fields of `Settings`.

    Returns
    -------
    DenoisedCube
        Estimate, standard deviation, ranks and what else they rest on. The standard deviation does
        not hold everything; ``caveats`` says what it lacks here.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> truth = sc.synthetic.scene((24, 30, 40), rng=1).values
    >>> noisy = truth + np.random.default_rng(2).normal(scale=0.05, size=truth.shape)
    >>> result = sc.denoise(noisy, 0.05, window=12)
    >>> bool(np.std(result.estimate - truth) < 0.5 * 0.05)
    True
    >>> inside = np.abs(result.estimate - truth) <= 1.96 * result.std
    >>> bool(0.9 < inside.mean() < 0.99)
    True
    """
    settings = Settings.of(options)
    if not isinstance(cube, Cube) and getattr(cube, "chunks", None) is not None:
        from sigmacube.tiles.lazy import denoise_lazily

        if calibrate:
            raise ValueError("Invalid calibrate with a Dask array. It needs a cube in memory.")
        lazy: Any = cube
        return with_labels(denoise_lazily(lazy, noise, settings, mask=mask))
    given, cube = cube, as_cube(cube, mask)
    fitted = settings.fitted(cube.shape)
    with shown(progress, "Denoising", "windows") as move:
        result = denoise_cube(cube, noise, fitted, workers=workers, progress=move)
    result = calibrated(result, cube) if calibrate else result
    return with_labels(result) if "xarray" in cube.metadata and given is not cube else result

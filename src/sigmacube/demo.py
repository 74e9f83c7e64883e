"""The built-in demonstration: denoise a scene whose truth is known, and check every claim."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from sigmacube import api, synthetic
from sigmacube.console import progress
from sigmacube.io.atomic import staged
from sigmacube.show import plots
from sigmacube.show.telling import telling_pixels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sigmacube.cube import Cube
    from sigmacube.result import DenoisedCube

SHAPE = (96, 128, 180)
NOISE_STD = 0.03
SHOWN_NM = 850.0
"""Wavelength of the maps: on the near-infrared plateau, where fields differ most."""


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration found."""

    noisy_rmse: float
    """Root mean square error of the noisy scene."""
    rmse: float
    """Root mean square error of the estimate."""
    claimed_std: float
    """Root mean square of the standard deviations that were claimed for it."""
    coverage: Mapping[float, float]
    """Share of the true values inside the interval, by its nominal level."""
    samples: float
    """Number of independent errors behind the coverage: sum of (sigma / noise) squared."""
    seconds: float
    """Time that denoising took."""
    result_path: Path
    """The estimate with its sigma, netCDF."""
    picture_path: Path
    """The picture."""


def run(
    out: str | Path,
    *,
    rng: int = 0,
    shape: tuple[int, int, int] = SHAPE,
    console: Console | None = None,
) -> DemoResult:
    """Denoise the built-in scene, compare with its truth, and leave a picture and a result.

    Parameters
    ----------
    out
        Folder for ``demo.nc`` and ``demo.png``; made if it does not exist.
    rng
        Seed of the scene and of the noise.
    shape
        (rows, cols, bands) of the scene, no smaller than one window of 20 pixels.
    console
        Where the table goes; the terminal by default.

    Returns
    -------
    DemoResult
        The numbers in the table, and the paths of the files.

    Examples
    --------
    >>> import tempfile
    >>> from rich.console import Console
    >>> from sigmacube import demo
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = demo.run(folder, shape=(24, 30, 40), console=Console(quiet=True))
    >>> found.rmse < found.noisy_rmse / 2
    True
    """
    out = Path(out)
    console = console or Console(highlight=False)
    out.mkdir(parents=True, exist_ok=True)
    truth = synthetic.scene(shape, rng=rng)
    # A seed of its own: the noise is not to know the scene.
    noisy = synthetic.add_noise(truth, NOISE_STD, rng=np.random.default_rng([rng, 1]))

    console.print(
        f"A scene of {shape[0]} × {shape[1]} pixels and {shape[2]} bands, "
        f"noise σ {NOISE_STD:g} in reflectance."
    )
    start = time.perf_counter()
    with progress("Denoising") as report:
        result = api.denoise(noisy, NOISE_STD, progress=report)
    seconds = time.perf_counter() - start
    found = _compare(truth, noisy, result, seconds, out)
    result.save(found.result_path, overwrite=True)
    with staged([found.picture_path], overwrite=True) as (picture,):
        _picture(truth, noisy, result, found).savefig(picture, format="png", dpi=170)
    _print(found, console)
    return found


def _compare(
    truth: Cube, noisy: Cube, result: DenoisedCube, seconds: float, out: Path
) -> DemoResult:
    """Put what was claimed beside what is true."""
    std = np.asarray(result.std)
    return DemoResult(
        noisy_rmse=_rms(noisy.values - truth.values),
        rmse=_rms(result.estimate - truth.values),
        claimed_std=_rms(std),
        coverage=plots.coverage(plots.standard_errors(result, truth)),
        samples=float(np.sum((std / NOISE_STD) ** 2)),
        seconds=seconds,
        result_path=out / "demo.nc",
        picture_path=out / "demo.png",
    )


def _print(found: DemoResult, console: Console) -> None:
    """Print the comparison, and what to run next."""
    look: dict[str, Any] = {"box": None, "show_header": False, "pad_edge": False}
    errors, shares = (Table(padding=(0, 2, 0, 0), **look) for _ in range(2))
    errors.add_row("Error before (RMSE)", f"{found.noisy_rmse:.5f}")
    gain = found.noisy_rmse / found.rmse
    errors.add_row("Error after (RMSE)", f"{found.rmse:.5f}", f"{gain:.1f} × smaller")
    ratio = found.claimed_std / found.rmse
    errors.add_row("Claimed σ (rms)", f"{found.claimed_std:.5f}", f"{ratio:.3f} × the actual error")
    errors.add_row("Time to denoise", f"{found.seconds:.1f} s")
    shares.add_row("Claimed coverage", *(f"{100 * level:.0f} %" for level in found.coverage))
    achieved = (f"[bold]{100 * share:.1f} %[/]" for share in found.coverage.values())
    shares.add_row("Achieved coverage", *achieved)
    console.print()
    for table in (errors, "", shares):
        console.print(table)
    console.print(f"\nPicture  {found.picture_path}\nResult   {found.result_path}\n\nNext:")
    _print_next(found, console)


def _print_next(found: DemoResult, console: Console) -> None:
    """Print what to run next: beside what it does, or above it where that would break a command."""
    program = _program()
    following = {
        f"{program} view {found.result_path}": "click a pixel, see its spectrum and σ",
        f"{program} report {found.result_path}": "one page to keep or print",
        f"{program} info FILE": "what your own scene holds, its noise",
        f"{program} denoise IN OUT": "denoise it",
    }
    wide = max(map(len, following))
    if wide + 3 + max(map(len, following.values())) <= console.width:
        lines = [f"{command:{wide}}   {does}" for command, does in following.items()]
    else:
        lines = [f"{command}\n    {does}" for command, does in following.items()]
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def _program() -> str:
    """Return how to call the command from this shell: by its path where it is not at hand."""
    if shutil.which("sigmacube") is not None:
        return "sigmacube"
    beside = Path(sys.executable).with_name("sigmacube")
    if not beside.exists():
        return f"{Path(sys.executable).name} -m sigmacube.cli"
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)


def _picture(truth: Cube, noisy: Cube, result: DenoisedCube, found: DemoResult) -> Figure:
    """Draw the scene before and after, its sigma, and three checks of that sigma."""
    from matplotlib.figure import Figure

    with plots.style():
        figure = Figure(figsize=(11.6, 5.78))
        # Set by hand: six boxes of one size, though only two of them have colourbars.
        boxes = {"left": 0.068, "right": 0.915, "bottom": 0.095, "top": 0.945}
        (before, after, sigma), (spectrum, calibration, error) = figure.subplots(
            2, 3, gridspec_kw=boxes | {"wspace": 0.25, "hspace": 0.27}
        )
        shown = [truth.nearest_band(nm) for nm in plots.COLOR_INFRARED]
        limits = plots.stretch_limits(truth.values[:, :, shown])
        plots.false_color(noisy, limits=limits, ax=before)
        before.set_title(f"Observed, noise σ {NOISE_STD:g}")
        plots.false_color(result, limits=limits, ax=after)
        after.set_title(f"Denoised, error {found.noisy_rmse / found.rmse:.1f} × smaller")
        plots.sigma_map(result, wavelength=SHOWN_NM, ax=sigma)
        sigma.set_title(f"σ of the estimate, {SHOWN_NM:.0f} nm")
        plots.error_map(result, truth, wavelength=SHOWN_NM, ax=error)
        error.set_title(f"Actual error / σ, {SHOWN_NM:.0f} nm")
        _, (row, col, _) = islice(telling_pixels(result, 1), 2)  # the lowest σ, and the highest
        for ax in (before, after, sigma, error):
            ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
            for color, width in (("white", 3.2), ("black", 1.2)):  # readable on any colour
                ax.plot(col, row, "o", ms=11, mfc="none", mec=color, mew=width)
        plots.spectrum(result, row=row, col=col, observed=noisy, truth=truth, ax=spectrum)
        spectrum.set_title("Ringed pixel, 95 % interval")
        plots.calibration(found.coverage, samples=found.samples, ax=calibration)
        calibration.set(title="Claimed and achieved coverage", aspect="auto")
    return figure


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))

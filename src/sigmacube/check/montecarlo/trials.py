"""Repeated observations of one truth, each denoised and kept on disk.

The element-wise mean of all trials is known only after the last one, and every trial is compared
with it. So the errors of each trial are kept, as single-precision files in a folder: one pass over
the noise instead of two, memory that does not depend on the number of trials, and a run that can
be stopped and taken up again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube._version import __version__
from sigmacube.check.calibration import calibrated
from sigmacube.core.parallel import parallel
from sigmacube.core.progress import Progress
from sigmacube.cube import Cube
from sigmacube.io.atomic import staged
from sigmacube.io.metadata import plain
from sigmacube.pipeline import as_cube, denoise_cube
from sigmacube.settings import Settings
from sigmacube.synthetic import add_noise

SIGMA_CHOICES = ("first", "each")
# What `denoise` takes that a trial settles itself.
_SETTLED = ("uncertainty",)


@dataclass(frozen=True, eq=False)
class Trials:
    """Noisy observations of one truth, and the error of each estimate.

    Trial ``t`` depends on the seed and on ``t`` alone, whatever the number of trials and workers.
    """

    truth: Cube
    """The noise-free scene."""
    noise: float | np.ndarray
    """Noise of every observation: standard deviation, one per band, or covariance of bands."""
    count: int
    """Number of trials."""
    folder: Path
    """Where errors and standard deviations are kept."""
    impulses: float = 0.0
    """Share of elements replaced by salt or pepper."""
    entropy: int = 0
    """Seed of the whole run."""
    assumed: float | np.ndarray | str | None = None
    """Noise that `denoise` is told, or the estimator it uses; None tells it the true one."""
    sigma: str = "first"
    """Whether the closed form of the first trial serves all, or each trial has its own."""
    options: Mapping[str, Any] | None = None
    """Options of `denoise`."""

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"Invalid trials {self.count}. There must be at least 2.")
        if self.sigma not in SIGMA_CHOICES:
            raise ValueError(f"Invalid sigma {self.sigma!r}. It must be 'first' or 'each'.")
        allowed = [one.name for one in fields(Settings) if one.name not in _SETTLED]
        allowed += ["mask", "calibrate"]
        for name in self.options or {}:
            if name not in allowed:
                raise TypeError(
                    f"Invalid option {name!r}. Options of denoise that a Monte Carlo run takes: "
                    f"{', '.join(allowed)}."
                )

    @property
    def n_elements(self) -> int:
        """Elements of the cube."""
        return int(np.prod(self.truth.shape))

    def observation(self, trial: int) -> Cube:
        """Return the noisy cube of one trial."""
        seed = np.random.SeedSequence(self.entropy, spawn_key=(trial,))
        rng = np.random.default_rng(seed)
        return add_noise(self.truth, self.noise, impulses=self.impulses, rng=rng)

    def denoised(self, trial: int, **changes: Any) -> Any:
        """Return the result of one trial, with some options changed."""
        noise = self.noise if self.assumed is None else self.assumed
        options = {**(self.options or {}), **changes}
        mask, workers = options.pop("mask", None), options.pop("workers", None)
        calibrate = options.pop("calibrate", False)
        cube = as_cube(self.observation(trial), mask)
        result = denoise_cube(cube, noise, Settings.of(options), workers=workers)
        return calibrated(result, cube) if calibrate else result

    def run(self, *, workers: int | None = None, progress: Progress | None = None) -> None:
        """Denoise all observations that the folder does not hold yet, ``workers`` at a time.

        ``progress(done, total)`` counts trials.
        """
        self._claim_folder()
        missing = [t for t in range(self.count) if not self._path("error", t).exists()]
        ready = self.count - len(missing)
        self._check_space(len(missing))
        report = None if progress is None else (lambda n: progress(ready + n, self.count))
        if report is not None:
            report(0)
        with parallel(workers) as run:
            run(self._run_trial, missing, done=report)

    def errors(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return (trials, elements) estimate minus truth, for a run of flat element indices."""
        return np.stack([self._part("error", t, start, stop) for t in range(self.count)])

    def std(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return the standard deviations claimed: (elements,), or (trials, elements) if each."""
        if self.sigma == "first":
            return self._part("sigma", 0, start, stop)
        return np.stack([self._part("sigma", t, start, stop) for t in range(self.count)])

    def first_std(self) -> np.ndarray:
        """Return (row, col, band) the standard deviations claimed by the first trial."""
        return self._part("sigma", 0, 0, None).reshape(self.truth.shape)

    def error_cubes(self) -> Iterator[np.ndarray]:
        """Yield estimate minus truth of one trial after the other, (row, col, band)."""
        for trial in range(self.count):
            yield self._part("error", trial, 0, None).reshape(self.truth.shape)

    def _run_trial(self, trial: int) -> None:
        own_sigma = self.sigma == "each" or trial == 0
        result = self.denoised(trial, uncertainty=own_sigma, workers=1)
        if own_sigma:
            _save(self._path("sigma", trial), result.std)
        # Errors rather than estimates: single precision then holds at any signal-to-noise ratio.
        _save(self._path("error", trial), result.estimate - self.truth.values)

    def _path(self, what: str, trial: int) -> Path:
        return self.folder / f"{what}-{trial:05d}.npy"

    def _part(self, what: str, trial: int, start: int, stop: int | None) -> np.ndarray:
        """Read a run of elements; the map is closed at once, so memory holds this part alone."""
        stored = np.load(self._path(what, trial), mmap_mode="r", allow_pickle=False)
        return np.array(stored[start:stop])

    def _claim_folder(self) -> None:
        """Make the folder, or make sure that it holds trials of this very run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        known, mine = self.folder / "run.json", self.fingerprint()
        if not known.exists():
            if any(self.folder.iterdir()):
                raise ValueError(
                    f"Invalid checkpoint {self.folder}: it holds files but no run.json. It must be "
                    "a new folder, or that of an earlier run."
                )
            with staged([known], overwrite=True) as (temporary,):
                temporary.write_text(json.dumps(mine, indent=1), encoding="utf-8")
            return
        theirs = json.loads(known.read_text())
        differing = sorted(k for k in {*mine, *theirs} if mine.get(k) != theirs.get(k))
        if differing:
            raise ValueError(
                f"Invalid checkpoint {self.folder}: it belongs to a run with other "
                f"{', '.join(differing)}. Choose another folder, or remove this one."
            )

    def fingerprint(self) -> dict[str, Any]:
        """Return what a trial depends on, as JSON. The number of trials is no part of it."""
        mask = self.truth.mask
        return {
            "truth": _digest(self.truth.values, *(() if mask is None else (mask,))),
            "noise": _digest(self.noise),
            "assumed": self.assumed if isinstance(self.assumed, str) else _digest(self.assumed),
            "impulses": self.impulses,
            "seed": str(self.entropy),
            "sigma": self.sigma,
            "options": {key: _told(value) for key, value in (self.options or {}).items()},
            "version": __version__,
        }

    def _check_space(self, missing: int) -> None:
        cubes = missing * (2 if self.sigma == "each" else 1) + 1
        needed, free = 4 * self.n_elements * cubes, shutil.disk_usage(self.folder).free
        if needed > free:
            raise ValueError(
                f"Invalid checkpoint {self.folder}: {missing} trials need {needed / 1e9:.1f} GB "
                f"there, and {free / 1e9:.1f} GB are free. Name a folder on a larger disk."
            )


def make_trials(
    truth: Cube | np.ndarray | Any,
    noise: float | np.ndarray,
    folder: Path,
    *,
    rng: int | np.random.Generator = 0,
    **fields: Any,
) -> Trials:
    """Return trials with their seed settled."""
    if isinstance(rng, np.random.Generator):
        entropy = int(rng.integers(2**63))
    elif isinstance(rng, int | np.integer) and rng >= 0:
        entropy = int(rng)
    else:
        raise ValueError(f"Invalid rng {rng!r}. It must be a seed from 0, or a Generator.")
    return Trials(as_cube(truth), noise, folder=folder, entropy=entropy, **fields)


def _save(path: Path, values: np.ndarray) -> None:
    """Write a flat single-precision array, whole or not at all."""
    with staged([path], overwrite=True) as (temporary,), temporary.open("wb") as file:
        np.save(file, np.asarray(values, dtype=np.float32).ravel(), allow_pickle=False)


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        array = np.asarray(np.nan if array is None else array)
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _told(value: Any) -> Any:
    """Return an option as JSON can hold it: an array by its digest, a function by its name."""
    if isinstance(value, np.ndarray):
        return _digest(value)
    if callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return plain(value)

"""How studies are run: scenes, number of trials, scratch space, and figures kept for a restart."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.check.montecarlo import MonteCarlo, Trials, judge
from sigmacube.check.montecarlo.trials import make_trials
from sigmacube.core.progress import Progress
from sigmacube.result import DenoisedCube

from ._report import write_text
from ._scenes import SCENES, Scene, load_scene

__all__ = ["Setting", "at_95", "defaults", "independent_std", "paper_setting", "pick"]

ProgressMaker = Callable[[str], AbstractContextManager[Progress | None]]

# Standard deviations that trials are judged by, from the trials.
FORMS: Mapping[str, Callable[[Trials], np.ndarray | None]] = {
    "own": lambda trials: None,
    "paper": lambda trials: trials.denoised(0, overlap="ratio").std,
    "first order": lambda trials: trials.denoised(0, finite_noise=False).std,
    "first": lambda trials: trials.first_std(),
    "halved": lambda trials: trials.first_std() / 2,
    "independent": lambda trials: independent_std(trials.denoised(0)),
    "one for all": lambda trials: _one_for_all(trials),
}


def _silent(label: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Setting:
    """What a study needs to know."""

    scratch: Path
    """Folder for trials and for figures that a restart takes up."""
    quick: bool = False
    """Small scenes and few trials."""
    data: Path | None = None
    """Folder with the scenes."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Scenes that the user passed: name to path."""
    workers: int | None = None
    """Trials at a time."""
    progress: ProgressMaker = _silent
    """Makes a progress bar for a label."""
    say: Callable[[str], None] = lambda text: None
    """Prints a line."""
    used: set[Path] = field(default_factory=set)
    """Figures in the scratch folder that this run made or took up."""

    @property
    def trials(self) -> int:
        """Number of Monte Carlo trials."""
        return 20 if self.quick else 100

    def scene_names(self) -> list[str]:
        """Return the scenes there are, the simulated one first."""
        found = [
            name
            for name, source in SCENES.items()
            if name in self.given
            or (self.data is not None and all((self.data / f).exists() for f in source.files))
        ]
        if "indian" not in found:
            found.insert(0, "fields")
        return found + [name for name in self.given if name not in SCENES]

    def main_scene(self) -> Scene:
        """Return the scene with a truth of its own."""
        return self.scene(self.scene_names()[0])

    def scene(self, name: str) -> Scene:
        """Return a scene as a truth."""
        return load_scene(name, self.given.get(name), self.data, quick=self.quick)

    @contextmanager
    def run_trials(
        self, scene: Scene, noise: float | np.ndarray, label: str, **fields: Any
    ) -> Iterator[Trials]:
        """Run Monte Carlo trials in scratch space; remove them afterwards."""
        options = {"prior": None, **fields.pop("options", {})}
        count = fields.pop("count", self.trials)
        key = _key(scene.truth, noise, options, fields)
        trials = make_trials(
            scene.truth, noise, self.scratch / f"trials-{key}", count=count, options=options,
            **fields,
        )  # fmt: skip
        with self.progress(label) as progress:
            trials.run(workers=self.workers, progress=progress)
        yield trials
        # Not in a finally clause: after an interruption the trials serve the restart.
        shutil.rmtree(trials.folder)

    def measure(
        self,
        scene: Scene,
        noise: float | np.ndarray,
        forms: tuple[str, ...] = ("own",),
        **fields: Any,
    ) -> dict[str, dict[str, Any]]:
        """Return the figures of a Monte Carlo run for each form of σ; from disk after a restart."""
        count = fields.get("count", self.trials)
        kept = self.scratch / f"figures-{_key(scene.truth, noise, forms, count, fields)}.json"
        self.used.add(kept)
        if kept.exists():
            found: dict[str, dict[str, Any]] = json.loads(kept.read_text(encoding="utf-8"))
            return found
        level = f"{noise:g}" if isinstance(noise, float) else "per band"
        label = f"{scene.name}, noise {level}, {fields.get('options') or 'defaults'}"
        start = time.perf_counter()
        with self.run_trials(scene, noise, label, **fields) as trials:
            figures = {}
            for form in forms:
                result = judge(trials, FORMS[form](trials), workers=self.workers)
                figures[form] = {**result.to_dict(), "qq": quantiles(result)}
        own = figures[forms[0]]
        own["seconds"] = round(time.perf_counter() - start, 1)
        write_text(kept, json.dumps(figures))
        mean, truth = (own[key]["0.95"] for key in ("coverage", "truth_coverage"))
        self.say(f"{label}: {mean:.4f}, truth {truth:.4f}, {own['seconds']:.0f} s")
        return figures

    def clear(self) -> None:
        """Remove what a restart would have taken up, but nothing of another run's."""
        for path in self.used:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # another run is at work there
            self.scratch.rmdir()


def quantiles(result: MonteCarlo) -> dict[str, Any]:
    """Return what a Q-Q plot needs: pooled quantiles, and the trials of three single elements."""
    from scipy.special import ndtr

    at = np.linspace(-3.5, 3.5, 57)
    pooled = np.quantile(result.sample_z, ndtr(at))
    picked = np.linspace(0, len(result.sample_z) - 1, 3).astype(int)
    single = [[round(float(v), 4) for v in np.sort(result.sample_z[n])] for n in picked]
    return {
        "theory": [round(float(v), 4) for v in at],
        "pooled": [round(float(v), 4) for v in pooled],
        "single": single,
        "single_p": [float(f"{result.shapiro_p[n]:.4g}") for n in picked],
        "positions": result.sample_positions[picked].tolist(),
    }


def defaults(setting: Setting, scene: Scene, noise: float) -> dict[str, dict[str, Any]]:
    """Return the figures of our defaults, and of two controls on the same trials.

    On a real scene components near the noise edge come and go with the noise, so that the σ of one
    observation is not that of another. There each trial is judged by its own σ, as users have it;
    ``"first"`` holds what the σ of the first observation says of all trials.
    """
    if scene.real:
        forms = ("own", "first", "halved", "independent")
        return setting.measure(scene, noise, forms, sigma="each")
    found = setting.measure(scene, noise, ("own", "halved", "independent"))
    return {**found, "first": found["own"]}


def paper_setting(
    setting: Setting, scene: Scene, noise: float, rank: int = 7
) -> dict[str, dict[str, Any]]:
    """Return the figures of the paper's estimator with three closed forms on the same trials."""
    options = {"rank": rank, "weights": "uniform"}
    return setting.measure(scene, noise, ("own", "paper", "first order"), options=options)


def at_95(figures: dict[str, Any], what: str = "coverage") -> float:
    """Return one figure at the 95 % level."""
    return float(figures[what]["0.95"])


def pick(figures: dict[str, Any]) -> dict[str, float]:
    """Return the figures at the 95 % level that tables and pictures show."""
    return {
        "mean": at_95(figures),
        "spread": at_95(figures, "coverage_spread"),
        "truth": at_95(figures, "truth_coverage"),
        "limit": at_95(figures, "spread_limit"),
        "std_ratio": figures["std_ratio"],
        "rmse": figures["relative_rmse"],
    }


def independent_std(result: DenoisedCube) -> np.ndarray:
    """Return σ as if overlapping windows had independent errors: Σ w² var / (Σ w)².

    Windows share most of their pixels, so this is far too small; studies use it as a control.
    """
    model = result.error_model
    if model is None:
        raise ValueError("Invalid result without its error model.")
    factors, grid = model.factors, model.factors.grid
    variance = np.zeros(grid.cube_shape)
    total = np.zeros(grid.cube_shape)
    for i, k, j in np.ndindex(factors.left.shape[:3]):
        rows, cols, bands = grid.slices(i, j, k)
        weight = factors.pixel_weights[i, k, j][..., None]
        left = factors.left[i, k, j] * factors.is_signal[i, k, j][:, None, None]
        right = factors.right[i, k, j] * factors.is_signal[i, k, j][:, None]
        a, b = np.square(left).sum(axis=0), np.square(right).sum(axis=0)
        own = a[..., None] + b - a[..., None] * b
        variance[rows, cols, bands] += weight**2 * own
        total[rows, cols, bands] += weight
    std = np.full(result.estimate.shape, np.nan)
    std[..., model.bands] = np.sqrt(variance) / total * factors.noise.std
    return std


def _one_for_all(trials: Trials) -> np.ndarray:
    """Return one σ for the whole scene, as large as the mean of the true ones."""
    own = trials.first_std()
    return np.full(trials.truth.shape, np.sqrt(np.nanmean(np.square(own, dtype=np.float64))))


def _key(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()[:16]

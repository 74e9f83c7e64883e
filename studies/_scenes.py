"""Scenes of the studies, each made a noise-free truth with bands between 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sigmacube import synthetic
from sigmacube.api import denoise
from sigmacube.cube import Cube

__all__ = ["SCENES", "Scene", "load_scene"]


@dataclass(frozen=True)
class SceneSource:
    """Where a scene comes from and what it is called."""

    title: str
    files: tuple[str, ...]
    """Below the data folder; more than one are tiles of a mosaic, row by row."""
    real: bool
    columns: int = 1
    """Tiles in a row of the mosaic."""


SCENES: Mapping[str, SceneSource] = {
    "indian": SceneSource("Indian Pines (simulated)", ("scenes/simu_indian.mat",), real=False),
    "pavia": SceneSource(
        "Pavia centre, crop (ROSIS)", ("scenes/pavia_centre_100x100x102.mat",), real=True
    ),
    "aviris": SceneSource("AVIRIS crop", ("scenes/aviris_90x90x224.mat",), real=True),
    "enmap": SceneSource(
        "Potsdam (EnMAP)",
        tuple(
            f"formats/enmap/enmap_potsdam_tile_{y}_{x}.tif" for y in (96, 128) for x in (96, 128)
        ),
        real=True,
        columns=2,
    ),
}
"""Scenes that are looked for in the data folder."""

TITLES = {"pavia-university": "University of Pavia", "washington": "Washington D.C."}
"""The paper's other scenes, which users pass by ``--scene NAME=PATH``."""


@dataclass(frozen=True, eq=False)
class Scene:
    """A truth to add noise to."""

    name: str
    title: str
    truth: np.ndarray
    """(row, col, band), bands scaled to [0, 1]."""
    real: bool
    """Whether the truth is a denoised real scene."""


def load_scene(name: str, path: str | None, data: Path | None, *, quick: bool = False) -> Scene:
    """Return a scene as a truth.

    Bands without any variation are dropped and the others scaled to [0, 1]. A real scene is then
    denoised with the paper's settings (rank 7, plain mean of windows) and serves as its own truth.

    Parameters
    ----------
    name
        One of `SCENES`, ``"fields"``, or any name with a ``path``.
    path
        File to read, with an optional crop: ``scene.mat@0:256,0:256`` (rows, cols).
    data
        Folder with the files of `SCENES`.
    quick
        Keep a small part only.
    """
    real = True
    if name == "fields":
        title, real = "built-in fields", False
        values = fields((64, 72, 60) if quick else (96, 128, 180))
    elif path is not None:
        known = SCENES.get(name)
        title = known.title if known else TITLES.get(name, name)
        real = known.real if known else True
        values = _read(path)
    else:
        source = SCENES[name]
        title, real = source.title, source.real
        if data is None:
            raise FileNotFoundError(f"Scene {name}: no data folder. Pass --scene {name}=FILE.")
        values = _mosaic([_read(str(data / file)) for file in source.files], source.columns)
    if quick:
        values = values[40:88, 30:86] if values.shape[0] >= 100 else values[:48, :56]
    scaled = scale_bands(values)
    if real:
        scaled = np.asarray(
            denoise(scaled, 1.0, prior=None, rank=7, weights="uniform", uncertainty=False).estimate
        )
    return Scene(name, title, scaled, real)


def fields(shape: tuple[int, int, int], rng: int = 0) -> np.ndarray:
    """Return a scene of fields with one spectrum each: the kind that simulated Indian Pines is.

    Parameters
    ----------
    shape
        (rows, cols, bands).
    rng
        Seed.

    Examples
    --------
    >>> import numpy as np
    >>> cube = fields((30, 40, 20))
    >>> 2 <= len(np.unique(cube.reshape(-1, 20), axis=0)) <= 9
    True
    """
    rows, cols, bands = shape
    random = np.random.default_rng(rng)
    count = max(3, rows * cols // 300)
    sites = random.random((count, 2)) * (rows, cols)
    y, x = np.mgrid[:rows, :cols]
    nearest = np.argmin((y[..., None] - sites[:, 0]) ** 2 + (x[..., None] - sites[:, 1]) ** 2, -1)
    # Pixels of the synthetic scene, spread over it, lend their spectra.
    spectra = synthetic.scene((64, 64, bands), endmembers=8, rng=rng).values[4::11, 4::11]
    library = np.asarray(spectra).reshape(-1, bands)
    chosen = random.choice(len(library), size=9, replace=False)
    return library[chosen[random.integers(9, size=count)]][nearest]


def scale_bands(values: np.ndarray) -> np.ndarray:
    """Return float64 values with every band scaled to [0, 1], without constant and empty bands.

    Examples
    --------
    >>> import numpy as np
    >>> cube = np.stack([[[1.0, 3.0]], [[5.0, 5.0]]], axis=-1)
    >>> scale_bands(cube)
    array([[[0.],
            [1.]]])
    """
    values = np.asarray(values, dtype=np.float64)
    values = values[..., np.isfinite(values).any(axis=(0, 1))]
    low, high = np.nanmin(values, axis=(0, 1)), np.nanmax(values, axis=(0, 1))
    varies = high > low
    return (values[..., varies] - low[varies]) / (high - low)[varies]


def _read(spec: str) -> np.ndarray:
    """Return the values of a file, NaN where it is masked, cropped as the name says."""
    from sigmacube.io import read

    name, _, crop = spec.partition("@")
    cube: Cube = read(name)
    values = np.asarray(cube.values, dtype=np.float64)
    if cube.mask is not None:
        values = np.where(np.broadcast_to(cube.mask, values.shape), values, np.nan)
    if not crop:
        return values
    try:
        rows, cols = (slice(*(int(n) if n else None for n in part.split(":")))
                      for part in crop.split(","))  # fmt: skip
    except ValueError:
        raise ValueError(
            f"Invalid crop {crop!r} of {name}. It must be such as 0:256,0:256 (rows, cols)."
        ) from None
    return values[rows, cols]


def _mosaic(tiles: list[np.ndarray], columns: int) -> np.ndarray:
    rows = [np.concatenate(tiles[n : n + columns], axis=1) for n in range(0, len(tiles), columns)]
    return np.concatenate(rows, axis=0)

"""Small scenes to try things on: made by code, so nothing is downloaded; each with its truth.

Every scene is registered with the checksum of what this code makes; `load` compares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sigmacube import synthetic
from sigmacube.core.card import Card, size_of, span_of, spread_of
from sigmacube.cube import Cube


@dataclass(frozen=True, eq=False)
class Dataset(Card):
    """A scene with known truth."""

    name: str
    about: str
    """What is on it."""
    noisy: Cube
    """What an instrument would have measured."""
    truth: Cube
    """What was there."""
    noise: float | np.ndarray
    """Standard deviation of the noise: one, or one per band."""
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What else is known, such as where a plume is."""

    def _facts(self) -> Mapping[str, str]:
        facts = {"name": self.name, "size": size_of(self.truth.shape)}
        facts |= span_of(self.truth.wavelengths) | {"noise σ": spread_of(self.noise)}
        return facts | ({"extra": ", ".join(self.extra)} if self.extra else {})

    def _notes(self) -> list[str]:
        return [self.about]

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the noisy cube as ENVI (``.hdr`` and a file of the same name without it).

        Examples
        --------
        >>> import tempfile, sigmacube as sc
        >>> path = sc.datasets.load("detectors").save(Path(tempfile.mkdtemp()) / "scene.hdr")
        >>> sc.read(path).shape
        (48, 60, 110)
        """
        from sigmacube.io import envi
        from sigmacube.io.atomic import staged

        path = Path(path)
        if path.suffix.lower() != ".hdr":
            raise ValueError(f"{path}: a scene cannot be written so. The suffix must be .hdr.")
        finals = [path.with_suffix(""), path]
        with staged(finals, overwrite=overwrite, stale=[]) as (data, header):
            envi.write_raster(
                data, header, self.noisy.values, dtype="float32", description=self.about,
                metadata=self.noisy.metadata, wavelengths=self.noisy.wavelengths,
            )  # fmt: skip
        return path


class Entry(NamedTuple):
    """A registered scene."""

    make: Callable[[], Dataset]
    sha256: str
    """Of the truth, see `checksum`."""


def names() -> list[str]:
    """Return the names of the scenes.

    Examples
    --------
    >>> names()
    ['detectors', 'fields', 'plume']
    """
    return sorted(REGISTRY)


def load(name: str) -> Dataset:
    """Make a scene, and compare it with its checksum.

    Parameters
    ----------
    name
        One of `names`.

    Examples
    --------
    >>> import sigmacube as sc
    >>> scene = sc.datasets.load("plume")
    >>> scene.noisy.shape, sorted(scene.extra)
    ((80, 100, 120), ['plume', 'plume_signature', 'target', 'target_signature'])
    """
    if name not in REGISTRY:
        raise ValueError(f"Invalid dataset {name!r}. It must be one of {', '.join(names())}.")
    entry = REGISTRY[name]
    made = entry.make()
    found = checksum(made.truth)
    if found != entry.sha256:
        raise ValueError(
            f"Invalid dataset {name!r}: its checksum is {found[:12]}…, not {entry.sha256[:12]}… as "
            "registered. This version of NumPy or SciPy makes another scene."
        )
    return made


def checksum(cube: Cube) -> str:
    """Return the SHA-256 of a cube's values in thousandths: last bits depend on the machine."""
    thousandths = np.round(1000 * cube.values).astype("<i2")
    return hashlib.sha256(np.ascontiguousarray(thousandths).tobytes()).hexdigest()


def _fields() -> Dataset:
    truth = synthetic.scene((96, 128, 180), rng=0)
    # A seed of its own: the noise is not to know the scene.
    noisy = synthetic.add_noise(truth, 0.03, rng=np.random.default_rng([0, 1]))
    about = "Farmland on both banks of a river, 180 bands from 400 to 2450 nm; the demo's scene."
    return Dataset("fields", about, _named(noisy, "fields"), truth, 0.03)


def _plume() -> Dataset:
    """Make a faint absorbing plume over fields with texture, and targets of one pixel each."""
    rng = np.random.default_rng(20)
    shape = (80, 100, 120)
    ground = synthetic.scene(shape, rng=7)
    nm = np.asarray(ground.wavelengths)
    texture = synthetic.fractal_texture(shape, endmembers=4, rng=8) - 0.5
    values = ground.values * (1 + 0.12 * texture)
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    # A gas that drifts from its source and widens: Gaussian across, thinning along.
    along, across = cols - 22.0, rows - 40.0 - 0.16 * (cols - 22.0)
    width = 2.0 + 0.09 * np.maximum(along, 0)
    column = np.where(along >= 0, np.exp(-0.5 * (across / width) ** 2) * 2.0 / width, 0.0)
    gas = _lines(nm, ((1666, 30, 0.25), (2200, 35, 0.45), (2310, 40, 1.0), (2380, 30, 0.8)))
    values = values * np.exp(-0.16 * column[:, :, None] * gas)
    target = np.zeros(shape[:2], dtype=bool)
    target[rng.integers(4, 76, 24), rng.integers(4, 96, 24)] = True
    paint = 0.25 + 0.2 / (1 + np.exp(-(nm - 900) / 60)) - 0.18 * _lines(nm, ((1730, 45, 1.0),))
    values[target] += 0.10 * (paint - values[target])
    truth = replace(ground, values=values, metadata={**ground.metadata, "name": "reflectance"})
    noisy = synthetic.add_noise(truth, 0.012, rng=np.random.default_rng([20, 1]))
    extra = {"plume": column, "plume_signature": gas, "target": target, "target_signature": paint}
    about = "A faint plume and 24 single-pixel targets over fields with texture."
    return Dataset("plume", about, _named(noisy, "plume"), truth, 0.012, extra)


def _lines(nm: np.ndarray, lines: tuple[tuple[float, float, float], ...]) -> np.ndarray:
    """Return a sum of Gaussian lines (centre nm, width nm, depth)."""
    shapes = [depth * np.exp(-0.5 * ((nm - centre) / width) ** 2) for centre, width, depth in lines]
    return np.sum(shapes, axis=0)


def _detectors() -> Dataset:
    """Make a scene of two detectors that overlap, noisier at their ends; two bad bands."""
    ground = synthetic.scene((48, 60, 400), rng=11)
    wanted = np.concatenate([np.linspace(420, 1000, 60), np.linspace(920, 2440, 50)])
    chosen = [ground.nearest_band(nm) for nm in wanted]
    nm = np.asarray(ground.wavelengths)[chosen]
    good = [band not in (78, 79) for band in range(len(nm))]
    about = {k: v for k, v in ground.metadata.items() if k != "fwhm"} | {"good_bands": good}
    truth = Cube(ground.values[:, :, chosen], nm, None, about)
    ends = [np.linspace(-1, 1, 60), np.linspace(-1, 1, 50)]
    noise = np.concatenate([0.008 + 0.02 * end**4 for end in ends])
    noisy = synthetic.add_noise(truth, noise, rng=np.random.default_rng([11, 1]))
    told = "Two detectors that overlap between 920 and 1000 nm, noisier at their ends; 2 bad bands."
    return Dataset("detectors", told, _named(noisy, "detectors"), truth, noise)


def _named(noisy: Cube, name: str) -> Cube:
    source: dict[str, Any] = {**noisy.metadata, "source": f"sigmacube dataset {name}"}
    return replace(noisy, metadata=source)


REGISTRY: Mapping[str, Entry] = {
    "detectors": Entry(
        _detectors, "5da55e2968af6d0493171d3a24582cb691d499d0ee985afa30e7e79fe8653db3"
    ),
    "fields": Entry(_fields, "c3d08801ad92b90b6dce8c4730d09a850a26d8833345dfaa3f32fb0fbd2078e0"),
    "plume": Entry(_plume, "a5408e72d3816aa008a5bbf1b46fee39c1c57f46b0a2e62be165482a16fdfb2c"),
}
"""All scenes by name."""

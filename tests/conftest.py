"""Scenes shared by the tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

# A user's script, which the type checker alone reads.
collect_ignore = ["typed/user_script.py"]
# Two BLAS threads on small matrices, times two test processes, is slower than one each.
threadpool_limits(1)
# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("sigmacube", deadline=None)
settings.load_profile("sigmacube")

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def stored_files_stay_as_they_are() -> Iterator[None]:
    """Hold all tests to writing nothing into the folders of stored values."""

    def stored() -> dict[Path, bytes]:
        folders = (Path(__file__).parent / name for name in ("data", "files"))
        return {p: p.read_bytes() for f in folders for p in f.rglob("*") if p.is_file()}

    before = stored()
    yield
    assert stored() == before


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder with the scenes and files kept beside the repository."""
    if not DATA.is_dir():
        pytest.skip("the scenes kept beside the repository are not here")
    return DATA


@pytest.fixture(scope="session")
def indian_pines(data_dir: Path) -> np.ndarray:
    """Simulated Indian Pines, 145 × 145 × 224, not scaled."""
    from scipy.io import loadmat

    return loadmat(data_dir / "scenes" / "simu_indian.mat")["simu_indian"]


def scale_bands(cube: np.ndarray) -> np.ndarray:
    """Scale every band to [0, 1], the paper's setting."""
    low, high = cube.min(axis=(0, 1)), cube.max(axis=(0, 1))
    return (cube - low) / (high - low)


@pytest.fixture(scope="session")
def indian_crop(indian_pines: np.ndarray) -> np.ndarray:
    """The crop of the theory's tables: rows 40:100, cols 30:90, bands scaled over the crop."""
    return scale_bands(indian_pines[40:100, 30:90])


def low_rank_cube(
    shape: tuple[int, int, int], rank: int, rng: np.random.Generator, strength: float = 1.0
) -> np.ndarray:
    """A cube that is exactly of low rank, with smooth abundances."""
    rows, cols, bands = shape
    y, x = np.mgrid[:rows, :cols] / max(rows, cols)
    phase = rng.uniform(0, 2 * np.pi, (rank, 2))
    maps = [
        np.cos((n + 1) * 3 * x + p) * np.cos((n + 1) * 2 * y + q) for n, (p, q) in enumerate(phase)
    ]
    return strength * np.stack(maps, axis=-1) @ rng.normal(size=(rank, bands))


@pytest.fixture(scope="session")
def load_benchmark() -> Iterator[Callable[[str], ModuleType]]:
    """Return a function that loads a benchmark as a module, by its name."""
    folder = Path(__file__).resolve().parents[1] / "benchmarks"

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    sys.path.insert(0, str(folder))  # benchmarks import each other
    yield load
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def resume(load_benchmark: Callable[[str], ModuleType]) -> Any:
    """The benchmark that kills runs."""
    return load_benchmark("resume")


@pytest.fixture(scope="module")
def killer(resume: Any) -> Iterator[Any]:
    """A process that starts runs and kills them."""
    with resume.Killer() as made:
        yield made

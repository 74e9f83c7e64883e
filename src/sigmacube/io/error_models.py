"""Error models in files: arrays of any kind of model, from a whole scene or tile by tile.

Arrays are called ``factor_<name>``; the attribute ``sigmacube_factors`` tells their kind and what
else is needed to read them. Files of the first release have no kind: they hold window factors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.stored import ArraySpec, ModelArrays, StoredErrors, is_packed, reader_of
from sigmacube.io.atomic import written_by_hdf5

if TYPE_CHECKING:
    import xarray as xr

    from sigmacube.result import DenoisedCube

PREFIX = "factor_"
ATTRIBUTE = "sigmacube_factors"
#: Versions of the layout: two of the first release, and that of any kind of model.
LAYOUTS = (1, 2, 3)
#: Sides of chunks along components, along what lies in the scene, and along all else.
_COMPONENTS, _IN_SCENE, _ELSE = 512, 64, 512

Create = Callable[[str, tuple[int, ...], tuple[int, ...], ArraySpec], Any]
"""Makes an array of a name, shape and chunks in the output, to be written to by slices."""


def arrays_of(result: DenoisedCube) -> ModelArrays:
    """Return what the error model of a result keeps, or say why there is nothing to keep."""
    model = result.known_errors()
    if not hasattr(model, "to_arrays"):
        raise ValueError("Invalid result: only a denoised cube has window factors to keep.")
    kept: ModelArrays = model.to_arrays()
    return kept


def factor_bytes(result: DenoisedCube) -> int:
    """Return how many bytes the error model of a result takes in a file, before compression.

    Examples
    --------
    >>> import sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> factor_bytes(sc.denoise(noisy, 0.05, window=12)) < 8 * noisy.values.size
    True
    """
    return arrays_of(result).nbytes


def pack(parts: Callable[[], Iterator[ModelArrays]], create: Create) -> str:
    """Write an error model, part after part; return the attribute that tells of it.

    Parameters
    ----------
    parts
        Gives the parts, whole scene or tiles, each time it is called: their shapes are looked at
        first. One part is in memory at a time.
    create
        Makes an array in the output.
    """
    plan = _plan(parts())
    specs = reader_of(plan.kind).arrays
    targets = {
        name: create(f"{PREFIX}{name}", shape, _chunks(specs[name], shape, plan), specs[name])
        for name, shape in plan.shapes.items()
    }
    begin: Counter[str] = Counter()
    once = set()
    for part in parts():
        for name, target in targets.items():
            spec = specs[name]
            key, is_new = _place(spec, part, plan.shapes[name], begin)
            if not is_new and name in once:
                continue
            once.add(name)
            size = tuple(piece.stop - piece.start for piece in key)
            if min(size, default=1) == 0:
                continue
            if name in part.shapes:
                values = part.arrays[name]
                target[key] = values + begin["component"] if spec.counts else values
            else:
                target[key] = np.full(size, spec.fill, dtype=spec.dtype)
        begin.update(_packed(part, specs))
    return json.dumps({"kind": plan.kind, "layout": LAYOUTS[-1], **plan.about})


@dataclass(frozen=True)
class _Plan:
    """An error model as its parts together make it."""

    kind: str
    about: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    placed: frozenset[str]
    """Dimensions along which parts lie side by side."""


def _plan(parts: Iterator[ModelArrays]) -> _Plan:
    """Return the arrays of a whole scene from the shapes of its parts."""
    shapes: dict[str, tuple[int, ...]] = {}
    packed: Counter[str] = Counter()
    for part in parts:
        specs = reader_of(part.kind).arrays
        packed.update(_packed(part, specs))
        for name, shape in part.shapes.items():
            shapes[name] = tuple(
                part.places[dim][2] if dim in part.places else size
                for dim, size in zip(specs[name].dims, shape, strict=True)
            )
    shapes = {
        name: tuple(
            packed.get(dim, size) for dim, size in zip(specs[name].dims, shape, strict=True)
        )
        for name, shape in shapes.items()
    }
    return _Plan(part.kind, part.about, shapes, frozenset(part.places))


def _packed(part: ModelArrays, specs: Mapping[str, ArraySpec]) -> dict[str, int]:
    """Return how long a part is along each packed dimension."""
    return {
        dim: size
        for name, shape in part.shapes.items()
        for dim, size in zip(specs[name].dims, shape, strict=True)
        if is_packed(dim)
    }


def _place(
    spec: ArraySpec, part: ModelArrays, whole: tuple[int, ...], begin: Mapping[str, int]
) -> tuple[tuple[slice, ...], bool]:
    """Return where a part's array goes in the whole, and whether every part has its own."""
    key = []
    packed = _packed(part, reader_of(part.kind).arrays)
    for dim, size in zip(spec.dims, whole, strict=True):
        if is_packed(dim):
            first = begin.get(dim, 0)
            key.append(slice(first, first + packed.get(dim, 0)))
        elif dim in part.places:
            key.append(slice(*part.places[dim][:2]))
        else:
            key.append(slice(0, size))
    own = any(is_packed(dim) or dim in part.places for dim in spec.dims)
    return tuple(key), own


def _chunks(spec: ArraySpec, shape: tuple[int, ...], plan: _Plan) -> tuple[int, ...]:
    longest = [
        _COMPONENTS if is_packed(dim) else _IN_SCENE if dim in plan.placed else _ELSE
        for dim in spec.dims
    ]
    return tuple(max(min(size, most), 1) for size, most in zip(shape, longest, strict=True))


@contextmanager
def creating(path: Path | str, *, zarr: bool) -> Iterator[tuple[Create, Callable[[str], None]]]:
    """Yield what makes arrays in a netCDF file or Zarr store, and what sets the attribute."""
    if zarr:
        from sigmacube.io.zarr import library

        root = library().open_group(path, mode="r+")
        yield _in_zarr(root), lambda text: root.update_attributes({ATTRIBUTE: text})
        return
    import h5netcdf

    with written_by_hdf5(path, "a") as opened, h5netcdf.File(opened, "a") as file:
        yield _in_netcdf(file), lambda text: file.attrs.__setitem__(ATTRIBUTE, text)


def _in_zarr(root: Any) -> Create:
    def create(name: str, shape: tuple[int, ...], chunks: tuple[int, ...], spec: ArraySpec) -> Any:
        return root.create_array(
            name,
            shape=shape,
            dtype=spec.dtype,
            chunks=chunks,
            dimension_names=[f"{PREFIX}{dim}" for dim in spec.dims],
            attributes={"long_name": spec.about, "units": "1"},
            fill_value=0,
        )

    return create


def _in_netcdf(file: Any) -> Create:
    def create(name: str, shape: tuple[int, ...], chunks: tuple[int, ...], spec: ArraySpec) -> Any:
        dims = tuple(f"{PREFIX}{dim}" for dim in spec.dims)
        for dim, size in zip(dims, shape, strict=True):
            if dim not in file.dimensions:
                file.dimensions[dim] = size
        array = file.create_variable(
            name, dims, spec.dtype, chunks=chunks, compression="gzip", compression_opts=4,
            shuffle=True,
        )  # fmt: skip
        array.attrs["long_name"], array.attrs["units"] = spec.about, "1"
        return array

    return create


def open_errors(
    dataset: xr.Dataset, noise: float | np.ndarray, n_bands: int
) -> StoredErrors | None:
    """Return the error model that an open dataset holds, or None; nothing large is read."""
    text = dataset.attrs.get(ATTRIBUTE)
    if text is None:
        return None
    about = json.loads(str(text))
    if not isinstance(about, dict) or about.get("layout") not in LAYOUTS:
        raise ValueError(
            f"window factors of another layout: {about!r:.60}. This version reads "
            f"{', '.join(map(str, LAYOUTS))}."
        )
    arrays = {
        str(name).removeprefix(PREFIX): dataset[name]
        for name in dataset.variables
        if str(name).startswith(PREFIX)
    }
    return reader_of(about.get("kind", "windows")).from_arrays(about, arrays, noise, n_bands)

"""Cubes and results of every format, damaged: they are read, or refused in one line.

A case takes a sound file, changes bytes, numbers, words or its length, and reads it as a user
would. It is clean if that gives values, or one error that names the file; a crash, a hang, memory
beyond the bound, a warning of a library or any other kind of error is bad.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import h5py
import numpy as np
from click.testing import CliRunner

import sigmacube as sc
from attacks._worker import Bad
from sigmacube import io
from sigmacube.cli import main
from sigmacube.io.result_file import open_result

SHAPE = (7, 6, 5)
#: Errors that a user is told in one line.
TOLD = (ValueError, OSError, MemoryError)
_WORDS = (
    b"", b"-1", b"0", b"1e999999", b"nan", b"inf", b"9" * 40, b"{", b"}", b"{" * 2000, b"\xff\xfe",
    b"%s%n", b"../../etc/passwd", b"null", b"[]", b"[" * 3000, b'"x"', b"true", b"1e-320", b"\0",
)  # fmt: skip


@cache
def _values() -> np.ndarray:
    return np.random.default_rng(0).normal(1, 0.1, SHAPE).astype(np.float32)


@cache
def _result() -> sc.DenoisedCube:
    return sc.denoise(_values(), 0.1, prior=None, window=4, step=2)


@cache
def _spatial() -> sc.DenoisedCube:
    noisy = sc.synthetic.add_noise(sc.synthetic.scene((16, 15, 8), rng=1), 0.05, rng=2)
    return sc.denoise(noisy, 0.05, prior="spatial")


def _envi(folder: Path, compressed: bool = False) -> Path:
    header = (
        "ENVI\ndescription = {a cube}\nsamples = 6\nlines = 7\nbands = 5\nheader offset = 0\n"
        "file type = ENVI Standard\ndata type = 4\ninterleave = bip\nbyte order = 0\n"
        "wavelength units = Nanometers\nwavelength = {450, 550, 650, 750, 850}\n"
        "fwhm = {9, 9, 9, 9, 9}\nbbl = {1, 1, 1, 1, 1}\nband names = {a, b, c, d, e}\n"
        "data ignore value = -9999\nreflectance scale factor = 10000\n"
        "map info = {UTM, 1, 1, 384342.3, 5818392.3, 30, 30, 33, North, WGS-84}\n"
    )
    content = _values().tobytes()
    if compressed:
        header += "file compression = 1\n"
        content = gzip.compress(content)
    (folder / "x.hdr").write_text(header)
    (folder / "x").write_bytes(content)
    return folder / "x.hdr"


def _hdf(folder: Path, name: str = "x.h5", **how: object) -> Path:
    with h5py.File(folder / name, "w") as file:
        cube = file.create_dataset("group/cube", data=_values(), **how)
        cube.attrs.update({"units": "1", "scale_factor": 0.5, "_FillValue": np.float32(-1)})
        for axis, dim in enumerate(("y", "x", "wavelength")):
            scale = file.create_dataset(f"group/{dim}", data=450.0 + 100 * np.arange(SHAPE[axis]))
            scale.make_scale(dim)
            cube.dims[axis].attach_scale(scale)
    return folder / name


def _classic(folder: Path) -> Path:
    from scipy.io import netcdf_file

    with netcdf_file(folder / "x.nc", "w") as file:
        for dim, size in zip("yxb", SHAPE, strict=True):
            file.createDimension(dim, size)
        file.createVariable("cube", "f4", ("y", "x", "b"))[:] = _values()
    return folder / "x.nc"


def _tiff(folder: Path) -> Path:
    from sigmacube.io.geotiff import write_raster

    metadata = {"transform": [30.0, 0.0, 5e5, 0.0, -30.0, 5e6], "fwhm": [9.0] * 5}
    centres = np.arange(450.0, 950.0, 100.0)
    write_raster(folder / "x.tif", _values(), dtype="float32", description="x", metadata=metadata,
                 wavelengths=centres)  # fmt: skip
    return folder / "x.tif"


def _matlab(folder: Path, packed: bool) -> Path:
    from scipy.io import savemat

    content = {"cube": _values(), "wavelengths": np.arange(450.0, 950.0, 100.0)}
    savemat(folder / "x.mat", content, do_compression=packed)
    return folder / "x.mat"


def _zarr(folder: Path, version: int) -> Path:
    import zarr

    root = zarr.open_group(folder / "x.zarr", mode="w", zarr_format=version)
    array = root.create_array("cube", shape=SHAPE, dtype="f4", chunks=(4, 6, 5))
    array[:] = _values()
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x", "wavelength"]
    root.create_array("wavelength", data=np.arange(450.0, 950.0, 100.0))
    return folder / "x.zarr"


def _npy(folder: Path) -> Path:
    np.save(folder / "x.npy", _values())
    return folder / "x.npy"


def _npz(folder: Path, packed: bool) -> Path:
    save = np.savez_compressed if packed else np.savez
    save(folder / "x.npz", cube=_values(), wavelengths=np.arange(450.0, 950.0, 100.0))
    return folder / "x.npz"


def _saved(name: str, *, spatial: bool = False, keep: bool = False) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        result = _spatial() if spatial else _result()
        return result.save(folder / name, **({"keep_factors": True} if keep else {}))

    return make


CUBES: dict[str, Callable[[Path], Path]] = {
    "envi": _envi,
    "envi.gz": lambda folder: _envi(folder, compressed=True),
    "hdf5": _hdf,
    "hdf5 chunks": lambda folder: _hdf(folder, chunks=(4, 3, 5), compression="gzip", shuffle=True),
    "netcdf": lambda folder: _hdf(folder, "x.nc"),
    "netcdf-3": _classic,
    "geotiff": _tiff,
    "matlab": lambda folder: _matlab(folder, packed=False),
    "matlab packed": lambda folder: _matlab(folder, packed=True),
    "matlab 7.3": lambda folder: _hdf(folder, "x.mat"),
    "zarr 2": lambda folder: _zarr(folder, 2),
    "zarr 3": lambda folder: _zarr(folder, 3),
    "npy": _npy,
    "npz": lambda folder: _npz(folder, packed=False),
    "npz packed": lambda folder: _npz(folder, packed=True),
}  # fmt: skip
RESULTS: dict[str, Callable[[Path], Path]] = {
    "result.nc": _saved("r.nc", keep=True),
    "result.zarr": _saved("r.zarr", keep=True),
    "result.hdr": _saved("r.hdr"),
    "result.tif": _saved("r.tif"),
    "spatial.nc": _saved("r.nc", spatial=True, keep=True),
    "spatial.zarr": _saved("r.zarr", spatial=True, keep=True),
}
FORMATS = {**CUBES, **RESULTS}


@cache
def _sound(name: str) -> tuple[Path, str]:
    """Return a folder with a sound file, made once, and the file's name."""
    folder = Path(mkdtemp())
    return folder, FORMATS[name](folder).name


def case(number: int, folder: Path) -> str:
    """Damage one file and read it."""
    return attempt(parts(number), number, folder)


def parts(number: int) -> list[int]:
    """Return the numbers of the damages of a case."""
    return list(range(int(np.random.default_rng([7, number]).choice([1, 1, 1, 2, 4]))))


def attempt(damages: list[int], number: int, folder: Path) -> str:
    """Read a file with some damages."""
    name = list(FORMATS)[number % len(FORMATS)]
    sound, file = _sound(name)
    shutil.copytree(sound, folder, dirs_exist_ok=True)
    for damage in damages:
        _damage(folder, np.random.default_rng([7, number, damage]))
    path = folder / file
    try:
        (_use_result if name in RESULTS else _use_cube)(path, number)
    except TOLD as error:
        _check_told(error, folder)
        return "refused"
    except UserWarning as warning:  # our own: what was assumed of a doubtful file
        if "axes" not in str(warning) and "Zarr hierarchy" not in str(warning):
            raise Bad(f"warning: {warning}") from warning
    return "read"


def _use_cube(path: Path, number: int) -> None:
    cube = io.read(path)
    with np.errstate(all="ignore"):
        np.asarray(cube.values).astype(float).sum()
    str(cube.metadata).encode()
    if number % 31 == 0 and cube.values.size < 1e5:
        _use_info(path)
    if number % 97 == 0 and min(cube.shape[:2]) >= 2 and cube.values.size < 1e5:
        sc.denoise(cube, 0.1, prior=None, window=2, step=1)


def _use_info(path: Path) -> None:
    """Ask for what is known of a file, as a user would."""
    done = CliRunner().invoke(main, ["info", str(path)])
    if done.exit_code not in (0, 2):
        raise Bad(f"info: exit code {done.exit_code}: {done.stderr[-300:]}")
    if not all(c.isprintable() or c == "\n" for c in done.output):
        raise Bad(f"info: orders to the terminal: {done.output!r:.300}")


def _use_result(path: Path, number: int) -> None:
    with open_result(path) as opened:
        opened.spectrum("estimate", 0, 0)
        if opened.has_errors and opened.shape[0] * opened.shape[1] < 1e4:
            model = opened.error_model
            assert model is not None
    if number % 41 == 0:
        from sigmacube.show.report import write_report

        write_report(path, path.parent / "page.html")


def _check_told(error: BaseException, folder: Path) -> None:
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    if not text or "\n" in text.strip() or len(text) > 2000:
        raise Bad(f"no single line: {text!r:.300}") from error
    if isinstance(error, UnicodeError) or not any(
        part in text for part in (str(folder), "x.", "r.", "/x", "/r", "page.html")
    ):
        raise Bad(f"names no file: {type(error).__name__} {text!r:.300}") from error


def _damage(folder: Path, rng: np.random.Generator) -> None:
    """Change one of the files of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        return
    small = [path for path in files if path.suffix in (".json", ".hdr") or path.name[0] == "."]
    file = files[rng.integers(len(files))]
    if small and rng.random() < 0.4:
        file = small[rng.integers(len(small))]
    content = bytearray(file.read_bytes())
    if rng.random() < 0.02:
        file.unlink()
        if rng.random() < 0.5:
            os.mkfifo(file)  # what reads it waits for ever
        return
    file.write_bytes(_changed(content, rng))


def _changed(content: bytearray, rng: np.random.Generator) -> bytes:
    size = max(len(content), 1)
    # Most of what decides how a file is read stands near its beginning.
    at = int(rng.integers(size) if rng.random() < 0.5 else rng.integers(min(size, 2048)))
    kind = rng.integers(9)
    if kind == 0 and content:
        content[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        stop = at + int(rng.integers(1, 9))
        content[at:stop] = rng.bytes(stop - at)
    elif kind == 2:
        del content[at:]
    elif kind == 3:
        content[at : at + 4] = (0, 1, 2**31 - 1, 2**32 - 1)[rng.integers(4)].to_bytes(4, "little")
    elif kind == 4:
        content[at : at + 8] = (2**63 - 1, 2**64 - 1, 2**40)[rng.integers(3)].to_bytes(8, "little")
    elif kind == 5:
        stop = int(rng.integers(at, min(size, at + 64) + 1))
        content[at:stop] = content[at:stop] * int(rng.integers(2, 4))
    elif kind == 6:
        content[at:at] = _WORDS[rng.integers(len(_WORDS))]
    else:
        _replace_word(content, rng)
    return bytes(content)


def _replace_word(content: bytearray, rng: np.random.Generator) -> None:
    """Replace a number or a word of a text."""
    found = list(re.finditer(rb"[0-9][0-9.eE+-]*|[A-Za-z_]{3,}", bytes(content[:65536])))
    if found:
        match = found[rng.integers(len(found))]
        content[match.start() : match.end()] = _WORDS[rng.integers(len(_WORDS))]

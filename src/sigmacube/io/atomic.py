"""Outputs that appear whole or not at all, also where the disk is full.

The HDF5 library does not survive a disk that is full: where its last writes fail, closing the file
ends the process. So it never hears of it. What does not fit on the disk any more stays in memory,
which is as much as the library has yet to write, and the error is raised once the file is closed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sigmacube.io.places import address_of, check_plain, local_path, printable

if TYPE_CHECKING:
    import xarray as xr

#: How often, and after how many seconds again, a folder is removed to which something still writes.
_TRIES, _PAUSE = 40, 0.05


def check_not_input(outputs: Sequence[str | Path], inputs: Sequence[str | Path | None]) -> None:
    """Refuse to write over an input, by whatever name it goes; addresses are compared as they are.

    Examples
    --------
    >>> check_not_input(["clean.nc"], ["noisy.nc", None])
    >>> check_not_input(["clean.nc"], ["./clean.nc"])
    Traceback (most recent call last):
    ...
    ValueError: clean.nc is part of the input. The output must have another name.
    """
    parts = [part for source in inputs if source is not None for part in _parts(source)]
    for output in outputs:
        if any(_is_within(place, part) for place in _parts(output)[:1] for part in parts):
            raise ValueError(f"{output} is part of the input. The output must have another name.")


def _parts(place: str | Path) -> list[Path | str]:
    """Return a file or store and the ENVI headers that belong to it, or an address."""
    address = address_of(place)
    if address is not None:
        return [address.rstrip("/")]
    path = local_path(place)
    check_plain(path)
    headers: list[Path] = []
    if path.name and path.name != "..":
        headers = [path.with_suffix(".hdr"), path.with_name(f"{path.name}.hdr")]
    return [file.resolve() for file in (path, *headers) if file is path or file.is_file()]


def _is_within(place: Path | str, part: Path | str) -> bool:
    """Tell whether two places are the same, or one is a store that the other lies in."""
    if isinstance(place, str) or isinstance(part, str):
        return place == part
    return place == part or any(
        outer.suffix == ".zarr" and outer in inner.parents
        for outer, inner in ((place, part), (part, place))
    )


def check_output(finals: Sequence[Path], *, overwrite: bool) -> None:
    """Raise an error where one of ``finals`` cannot be written.

    Parameters
    ----------
    finals
        Files or directories of one output.
    overwrite
        Whether existing ones may be replaced.
    """
    for final in finals:
        check_plain(final)
        folder = final.parent
        if not folder.exists():
            raise FileNotFoundError(f"{final}: the folder {folder} does not exist.")
        if not folder.is_dir():
            raise NotADirectoryError(f"{final}: {folder} is no folder.")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{final}: the folder {folder} is not writable.")
        if final.exists() and not overwrite:
            raise FileExistsError(
                f"{final} exists. It is only replaced with overwrite (--overwrite)."
            )
        if final.is_dir() and final.suffix != ".zarr":
            raise IsADirectoryError(f"{final} is a folder. The output must be a file.")
        if final.is_dir() and not _is_store(final):
            raise FileExistsError(
                f"{final} is a folder but no Zarr store, so it is not replaced. The output must "
                "have another name."
            )


def _is_store(folder: Path) -> bool:
    """Tell whether a folder is a Zarr store, or empty: nothing else is ever removed."""
    marks = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
    return any((folder / mark).is_file() for mark in marks) or not any(folder.iterdir())


@contextmanager
def staged(
    finals: Sequence[Path], *, overwrite: bool, stale: Sequence[Path] = ()
) -> Iterator[list[Path]]:
    """Yield temporary names for ``finals``; rename them all when the body has run to its end.

    The last of ``finals`` is the one that users name. It is removed first and renamed last, so
    where it exists the whole set does. After an error nothing is left; after a kill at most files
    whose names end in ``.partial``, which the next writing of the same output removes. With
    ``overwrite``, the files ``stale`` that an earlier output had and this one has not are removed.
    """
    check_output(finals, overwrite=overwrite)
    sweep(finals[-1])
    temporary = [_unfinished(final) for final in finals]
    try:
        yield temporary
        for path in temporary:
            flush(path)
        commit(temporary, finals, stale if overwrite else ())
    finally:
        with signals_put_off():
            for path in temporary:
                _discard(path)


def _unfinished(final: Path) -> Path:
    """Return a name beside ``final`` that `sweep` knows, for what is being made or removed."""
    mark = f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    return final.with_name(f".{final.name}.{mark}.partial")


def _discard(path: Path) -> None:
    """Remove what is unfinished; threads of an interrupted library may still write to it."""
    for _ in range(_TRIES):
        if not path.is_dir():
            break
        with suppress(OSError):
            shutil.rmtree(path)
        time.sleep(_PAUSE)
    remove(path)


def _host() -> str:
    """Return a short mark of this machine: other ones may write to the same folder."""
    return hashlib.blake2b(socket.gethostname().encode(), digest_size=4).hexdigest()


def sweep(final: Path) -> None:
    """Remove what processes of this machine that were killed have left of an output."""
    pattern = re.compile(rf"\..+\.{_host()}-(\d+)-[0-9a-f]+\.partial")
    for path in final.parent.iterdir():
        found = pattern.fullmatch(path.name)
        if found and path.name.startswith(f".{final.stem}") and not _is_alive(int(found[1])):
            remove(path)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def commit(temporary: Sequence[Path], finals: Sequence[Path], stale: Sequence[Path] = ()) -> None:
    """Give the temporary files their final names, the last one last.

    A folder that is replaced gets another name before it is removed: removing takes a while, and
    what a kill leaves of it must not bear the final name. Other signals wait until it is gone.
    """
    named, former = finals[-1], _unfinished(finals[-1])
    with signals_put_off():
        sweep(named)
        try:
            if named.is_dir():
                os.replace(named, former)
            elif len(finals) > 1:
                remove(named)
            for old in stale:
                remove(old)
            for source, final in zip(temporary, finals, strict=True):
                os.replace(source, final)
        except OSError:
            if former.is_dir() and not named.exists():
                os.replace(former, named)
            raise
        finally:
            _discard(former)


def flush(path: Path) -> None:
    """Bring a file's bytes to the disk before its name says that it is whole."""
    if path.is_file():
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def remove(path: Path) -> None:
    """Remove a file or a folder; nothing happens where there is none."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


_PAGE = 4096


@contextmanager
def written_by_hdf5(path: Path | str, mode: str = "w") -> Iterator[Any]:
    """Yield an open file for h5py and its relatives; ``mode`` is ``"w"`` or ``"a"``.

    Raises
    ------
    OSError
        At the end, where the disk did not take all of it.
    """
    file = _Patient(Path(path), "w+b" if mode == "w" else "r+b")
    try:
        with signals_put_off():
            yield file
    finally:
        file.close()
    if file.error is not None:
        raise file.error


@contextmanager
def signals_put_off() -> Iterator[None]:
    """Put Ctrl-C and SIGTERM off until something is done that must not end in its middle.

    An exception while HDF5 calls a file ends the process, one while a worker is started leaves the
    worker with half of what it has to know.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # exceptions of signals are raised in the main thread alone
        return
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in known.items() if callable(handler)}
    late: list[int] = []
    for number in handlers:
        signal.signal(number, lambda number, frame: late.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for last in late[:1]:
            signal.raise_signal(last)


def write_netcdf(made: xr.Dataset, path: Path, encoding: Mapping[Any, Any]) -> None:
    """Write a dataset as netCDF-4."""
    import h5netcdf
    from xarray.backends import H5NetCDFStore
    from xarray.backends.common import ArrayWriter

    made = made.copy()
    parts: list[Any] = [made, *made.variables.values()]
    for part in parts:
        part.attrs = {key: _storable(value) for key, value in part.attrs.items()}
    writer = ArrayWriter()
    with written_by_hdf5(path) as file, h5netcdf.File(file, "w") as store:
        made.dump_to_store(H5NetCDFStore(store), encoding=encoding, writer=writer)
        writer.sync()  # what Dask holds is written here, part by part


def _storable(value: Any) -> Any:
    """Return an attribute whose texts HDF5 can hold: marks for null and half characters."""
    if isinstance(value, str):
        return printable(value.replace("\0", "?"))
    return [_storable(item) for item in value] if isinstance(value, list | tuple) else value


class _Patient(io.RawIOBase):
    """A file whose failed writes go to memory; ``error`` is the first one."""

    def __init__(self, path: Path, mode: str) -> None:
        self._file = path.open(mode, buffering=0)
        self._place = str(path)
        self._at = 0
        self._size = self._file.seek(0, 2)
        self._pages: dict[int, bytearray] = {}
        self.error: OSError | None = None

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._at, self._size)[whence]
        self._at = base + offset
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._size = self._at if size is None else size
        if self.error is None:
            self._try(lambda: self._file.truncate(self._size))
        return self._size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._at))
        view[:count] = self._read(self._at, count)
        self._at += count
        return count

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self.error is None:
            self._try(lambda: self._store(view))
        if self.error is not None:
            self._remember(view)
        self._at += len(view)
        self._size = max(self._size, self._at)
        return len(view)

    def close(self) -> None:
        if not self.closed:
            self._try(self._file.close)
        super().close()

    def _try(self, action: Any) -> None:
        try:
            action()
        except OSError as error:
            if self.error is None:
                self.error = OSError(error.errno, error.strerror, self._place)

    def _store(self, view: memoryview) -> None:
        self._file.seek(self._at)
        done = 0
        while done < len(view):
            done += self._file.write(view[done:])

    def _read(self, start: int, count: int) -> bytes:
        """Return bytes as they would be on a disk with room."""
        self._file.seek(start)
        found = bytearray((self._file.read(count) or b"").ljust(count, b"\0"))
        for number in range(start // _PAGE, -(-(start + count) // _PAGE)):
            if number in self._pages:
                low, high = max(start, number * _PAGE), min(start + count, (number + 1) * _PAGE)
                inside = slice(low - number * _PAGE, high - number * _PAGE)
                found[low - start : high - start] = self._pages[number][inside]
        return bytes(found)

    def _remember(self, view: memoryview) -> None:
        """Keep what was to be written in pages of memory."""
        start, stop = self._at, self._at + len(view)
        for number in range(start // _PAGE, -(-stop // _PAGE)):
            if number not in self._pages:
                self._pages[number] = bytearray(self._read(number * _PAGE, _PAGE))
            low, high = max(start, number * _PAGE), min(stop, (number + 1) * _PAGE)
            inside = slice(low - number * _PAGE, high - number * _PAGE)
            self._pages[number][inside] = view[low - start : high - start]

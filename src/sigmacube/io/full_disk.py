"""A file for HDF5 to write to, which keeps the errors of the disk to itself until the end.

The HDF5 library does not survive a disk that is full: where its last writes fail, closing the file
ends the process. So it never hears of it. What does not fit on the disk any more stays in memory,
which is as much as the library has yet to write, and the error is raised once the file is closed.
"""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["write_netcdf", "written_by_hdf5"]

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
        with _signals_put_off():
            yield file
    finally:
        file.close()
    if file.error is not None:
        raise file.error


@contextmanager
def _signals_put_off() -> Iterator[None]:
    """Put signals off until HDF5 is done: an exception while it calls the file ends the process."""
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

    writer = ArrayWriter()
    with written_by_hdf5(path) as file, h5netcdf.File(file, "w") as store:
        made.dump_to_store(H5NetCDFStore(store), encoding=encoding, writer=writer)
        writer.sync()  # what Dask holds is written here, part by part


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

"""Outputs that appear whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sigmacube.io.places import address_of, local_path
from sigmacube.io.untrusted import check_plain

__all__ = ["check_not_input", "check_output", "staged"]

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
    _sweep(finals[-1])
    mark = f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    temporary = [final.with_name(f".{final.name}.{mark}.partial") for final in finals]
    try:
        yield temporary
        for path in temporary:
            flush(path)
        commit(temporary, finals, stale if overwrite else ())
    finally:
        for path in temporary:
            _discard(path)


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


def _sweep(final: Path) -> None:
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
    """Give the temporary files their final names, the last one last."""
    if len(finals) > 1 or finals[-1].is_dir():
        remove(finals[-1])
    for old in stale:
        remove(old)
    for source, final in zip(temporary, finals, strict=True):
        os.replace(source, final)


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

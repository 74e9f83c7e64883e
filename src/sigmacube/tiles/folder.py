"""A folder that all workers see: on a local disk, or at any address that fsspec knows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sigmacube.io.places import address_of
from sigmacube.tiles.faults import passing


@dataclass(frozen=True)
class Folder:
    """A folder whose files appear whole or not at all."""

    place: str

    @property
    def local(self) -> Path | None:
        """The folder on this machine; None where it lies elsewhere."""
        return None if address_of(self.place) else Path(self.place)

    def _remote(self) -> tuple[Any, str]:
        import fsspec

        files, root = fsspec.core.url_to_fs(self.place)
        return files, root

    def write(self, name: str, content: bytes | memoryview, fault: str | None = None) -> None:
        """Write a file under another name, bring it to the disk, and rename it."""
        if self.local is None:
            files, root = self._remote()
            files.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
            files.pipe_file(f"{root}/{name}", bytes(content))
            return
        final = self.local / name
        temporary = final.with_name(f".{final.name}.{os.getpid()}.partial")
        with temporary.open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            if fault:
                passing(fault)
            file.write(content[len(content) // 2 :])
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, final)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None where there is none."""
        try:
            if self.local is not None:
                return (self.local / name).read_bytes()
            files, root = self._remote()
            content: bytes = files.cat_file(f"{root}/{name}")
            return content
        except FileNotFoundError:
            return None

    def names(self, sub: str) -> list[str]:
        """Return the names of the whole files in a folder of it."""
        if self.local is not None:
            inner = self.local / sub
            found = [p.name for p in inner.iterdir()] if inner.is_dir() else []
        else:
            files, root = self._remote()
            listed = (
                files.ls(f"{root}/{sub}", detail=False) if files.exists(f"{root}/{sub}") else []
            )
            found = [str(entry).rpartition("/")[2] for entry in listed]
        return sorted(name for name in found if not name.startswith("."))

    def create(self, *subs: str) -> None:
        """Make the folder and folders in it."""
        if self.local is not None:
            for sub in ("", *subs):
                (self.local / sub).mkdir(exist_ok=True)

    def exists(self) -> bool:
        """Tell whether the folder is there."""
        if self.local is not None:
            return self.local.is_dir()
        files, root = self._remote()
        return bool(files.exists(root))

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        if self.local is not None:
            shutil.rmtree(self.local, ignore_errors=False)
            return
        files, root = self._remote()
        if files.exists(root):
            files.rm(root, recursive=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs away; the system frees the lock when a process dies."""
        if self.local is None:
            yield
            return
        try:
            import fcntl
        except ImportError:  # pragma: no cover - not on Windows
            yield
            return
        with (self.local / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise FileExistsError(f"{self.place}: another run is working on it.") from None
            yield

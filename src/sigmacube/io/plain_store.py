"""Zarr stores on this machine, of which nothing but files is opened; importing it needs zarr."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zarr.storage import LocalStore

from sigmacube.io.places import check_plain


class PlainStore(LocalStore):
    """A store that refuses pipes, sockets and devices: reading one of them may never end.

    Any document or chunk of a stranger's store may be one, and there are too many to look at them
    all beforehand.
    """

    async def get(self, key: str, *how: Any, **rest: Any) -> Any:
        """Return what is stored under a key."""
        check_plain(self.root / key)
        return await super().get(key, *how, **rest)

    def get_sync(self, key: str, *how: Any, **rest: Any) -> Any:
        """Return what is stored under a key, outside an event loop (zarr 3.1 and later)."""
        check_plain(self.root / key)
        return super().get_sync(key, *how, **rest)

    async def get_partial_values(
        self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]
    ) -> list[Any]:
        """Return parts of what is stored under some keys."""
        wanted = list(key_ranges)
        for key, _ in wanted:
            check_plain(self.root / key)
        return await super().get_partial_values(prototype, wanted)

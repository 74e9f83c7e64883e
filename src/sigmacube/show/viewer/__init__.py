"""The viewer: a local page to look at a result, pixel by pixel.

`serve` needs the ``view`` extra (bokeh); it is imported on first use.
"""

from __future__ import annotations

from typing import Any

__all__ = ["serve", "start"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sigmacube.show.viewer import server

    return getattr(server, name)

"""A sensor: HDF5 files of a camera, found by what they hold."""

from __future__ import annotations

from dataclasses import replace

from sigmacube.io.sensors.content import HdfContent
from sigmacube.io.source import Source
from sigmacube.io.variables import open_variables


def finds(content: HdfContent) -> bool:
    """Tell whether a file is of this camera."""
    return content.get("camera/frames") is not None


def opened(content: HdfContent) -> Source:
    """Open its cube, and say what took it."""
    source = open_variables(
        content.path, content.variables, variable="camera/frames", axes=content.axes or "brc"
    )
    return replace(source, metadata={**source.metadata, "instrument": "Garden camera"})

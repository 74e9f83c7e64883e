"""A format: text, one line per pixel, the number of columns in the first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, open_variables


def open_text(path: Path) -> Source:
    """Open a text file; the shape, type and a way to read a block are all that is needed."""
    with path.open(encoding="utf-8") as file:
        cols = int(file.readline())
        values = np.loadtxt(file)
    cube = values.reshape(-1, cols, values.shape[1])
    variable = Variable("cube", cube.shape, cube.dtype, lambda key: cube[key])
    return open_variables(path, [variable], variable="cube", axes="rcb")

"""The parsers of headers and of expressions, fed with anything: values or a `ValueError`.

Words of the grammars are put together at random.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attacks._worker import Bad
from sigmacube.io import crs, envi, source
from sigmacube.products import expressions

#: Cases that one number stands for.
BATCH = 500
_HEADER = (
    "ENVI", "\n", "\n", "samples", "lines", "bands", " = ", "=", "{", "}", ",", "1", "2", "-1",
    "wavelength", "wavelength units", "data type", "4", "interleave", "bip", "bsq", "byte order",
    "map info", "UTM", "1e999", "nan", "header offset", "file compression", ";", "NROWS", "NCOLS",
    "NBITS", "8", " ", "\t", "\r", "\0", "é", "fwhm", "bbl", "data gain values",
)  # fmt: skip
_FORMULA = (
    "b842", "b665", "b1", "b", "+", "-", "*", "/", "(", ")", "((((", "**", "2", "1e9", "1e999",
    ".", "_", "__import__", "(b842-b665)/(b842+b665)", "sqrt", "log", "exp", ",", " ", "lambda",
    "'", '"', "[", "]", "b842.real", "0", "\n", "😀", "if", "and", "<", "1j", "not", "@", ":=",
)  # fmt: skip


def case(number: int, folder: Path) -> dict[str, int]:
    """Feed all parsers with a batch of texts."""
    rng = np.random.default_rng([13, number])
    for done in range(BATCH):
        words = _HEADER if rng.random() < 0.5 else _FORMULA
        chosen = rng.integers(len(words), size=rng.integers(1, 40))
        try:
            feed("".join(words[i] for i in chosen), folder)
        except Bad as bad:
            raise Bad(str(bad), {"parsed": done}) from bad
    return {"parsed": BATCH}


def feed(text: str, folder: Path) -> None:
    """Give a text to every parser."""
    header = folder / "x.hdr"
    header.write_text(text, encoding="utf-8", errors="replace")
    centres = np.array([450.0, 665.0, 842.0])
    for parse in (
        lambda: envi._layout(envi.read_header(header)),
        lambda: envi._metadata(envi.read_header(header), 3),
        lambda: crs.from_map_info(text, None),
        lambda: source.parse_bands(text, 3, centres),
        lambda: expressions.parse(text),
    ):
        try:
            parse()
        except ValueError:
            pass
        except Exception as error:
            raise Bad(f"{type(error).__name__} for {text!r:.300}: {error}") from error

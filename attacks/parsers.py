"""The parsers of headers and of expressions, fed with anything: values or a `ValueError`.

With atheris installed (``pip install atheris``), ``python -m attacks.parsers`` lets the coverage
guide what is fed; without it, words of the grammar are put together at random.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType

import numpy as np

from attacks._worker import Bad
from sigmacube.io import crs, envi, source, wavelengths
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


def case(number: int, folder: Path) -> str:
    """Feed all parsers with a batch of texts."""
    rng = np.random.default_rng([13, number])
    for _ in range(BATCH):
        words = _HEADER if rng.random() < 0.5 else _FORMULA
        chosen = rng.integers(len(words), size=rng.integers(1, 40))
        feed("".join(words[i] for i in chosen), folder)
    return f"parsed {BATCH}"


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


def main() -> None:
    """Run under atheris until it is stopped, or for ``-runs=N``."""
    import tempfile

    import atheris

    folder = Path(tempfile.mkdtemp())

    def one(data: bytes) -> None:
        feed(data.decode("utf-8", "replace"), folder)

    for module in (envi, crs, source, wavelengths, expressions):
        for item in vars(module).values():
            if isinstance(item, FunctionType) and item.__module__ == module.__name__:
                atheris.instrument_func(item)
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

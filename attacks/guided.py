"""The same parsers, fed by coverage: what reaches new lines of them is changed further.

This takes atheris (``pip install atheris``). A case goes on with all texts that former cases found
worth keeping; a text that ends badly is made shorter as long as it does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType

from attacks import parsers
from attacks._worker import ROOT, Bad

#: Texts that one case feeds.
RUNS = 20_000


def needs() -> str | None:
    """Return what this attack lacks here."""
    return None if find_spec("atheris") else "pip install atheris"


def case(number: int, folder: Path) -> dict[str, int]:
    """Feed the parsers for a while."""
    corpus = Path(tempfile.gettempdir(), "corpus")  # for all cases of a process
    if not corpus.is_dir():
        _begin(corpus)
    done = _fuzz(folder, f"-runs={RUNS}", f"-seed={number + 1}", str(corpus))
    if done.returncode:
        for found in folder.glob("crash-*"):
            _fuzz(folder, "-minimize_crash=1", "-runs=3000", str(found))
        raise Bad(f"exit code {done.returncode}: {_reason(done.stdout + done.stderr)}")
    return {"fed": RUNS}


def _fuzz(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "attacks.guided", *options]
    words += ["-max_len=2000", "-timeout=10", "-rss_limit_mb=2000", f"-artifact_prefix={folder}/"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, check=False, text=True,
                          errors="replace", timeout=600)  # fmt: skip


def _reason(said: str) -> str:
    told = [line for line in said.splitlines() if line.startswith("Bad") or "ERROR" in line]
    return " ".join(told or said.splitlines()[-3:])[:400]


def _begin(corpus: Path) -> None:
    """Let the first texts be the words that the other attack puts together."""
    corpus.mkdir()
    for number, word in enumerate((*parsers._HEADER, *parsers._FORMULA)):
        (corpus / f"word-{number}").write_text(word, encoding="utf-8")
    sound = "ENVI\nsamples = 6\nlines = 7\nbands = 3\ndata type = 4\nwavelength = {450, 550, 650}\n"
    (corpus / "header").write_text(sound)
    (corpus / "map").write_text("{UTM, 1, 1, 384342.3, 5818392.3, 30, 30, 33, North, WGS-84}")


def _main() -> None:
    import atheris

    from sigmacube.io import crs, envi, source, wavelengths
    from sigmacube.products import expressions

    folder = Path(tempfile.mkdtemp())

    def one(data: bytes) -> None:
        parsers.feed(data.decode("utf-8", "replace"), folder)

    for module in (envi, crs, source, wavelengths, expressions):
        for item in vars(module).values():
            if isinstance(item, FunctionType) and item.__module__ == module.__name__:
                atheris.instrument_func(item)
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    _main()

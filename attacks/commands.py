"""Bad command lines: one line that begins with ``Error:``, exit code 2 or 1, nothing written.

Commands run in this process, as a shell would run them but for the start of Python. A case takes a
sound command and spoils an option, an argument, a file or a combination of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from attacks._worker import Bad

_VALUES = (
    "", "-1", "0", "1e999", "nan", "inf", "-inf", "x", "../..", "/", "/dev/zero", "{}", "[]", "%s",
    "1x1x1x1", "0x0", "999999999999", "1e-320", "\u202e", "a" * 5000, "s3://", "file://other/x.nc",
    "http://127.0.0.1:9/x.zarr", "$(id)", "'; drop", "--", "-", "none.npy", "auto", "robust", "2.5",
)  # fmt: skip
_OPTIONS = {
    "denoise": (
        "--noise", "--window", "--step", "--rank", "--solver", "--prior", "--overlap", "--weights",
        "--mask", "--workers", "--tile", "--memory", "--scheduler", "--bands", "--scale",
        "--nodata", "--variable", "--axes", "--data", "--dtype", "--wavelengths", "--resume",
        "--keep-factors", "--threads", "--overwrite", "--dark", "--white", "--join",
    ),
    "info": ("--bands", "--scale", "--nodata", "--variable", "--axes", "--data", "--json"),
    "validate": ("--method", "--trials", "--share", "--seed", "--noise", "--window", "--tile",
                 "--memory", "--plot", "--json"),
    "product": ("--index", "--expr", "--aggregate", "--labels", "--resample", "-o", "--of",
                "--tolerance", "--tile", "--workers"),
    "report": ("-o", "--observed", "--calibration", "--overwrite"),
    "view": ("--port", "--observed"),
    "study": ("--list", "--quick"),
}  # fmt: skip
_FLAGS = ("--resume", "--keep-factors", "--threads", "--overwrite", "--json", "--list", "--quick")
_SOUND = ("--noise", "0.1", "--window", "4", "--step", "2", "--prior", "none")


def case(number: int, folder: Path) -> str:
    """Run one bad command."""
    return attempt(parts(number), number, folder)


def parts(number: int) -> list[str]:
    """Return the words of a command that is almost sound."""
    return _words(np.random.default_rng([11, number]))


def attempt(words: list[str], number: int, folder: Path) -> str:
    """Run the command of these words."""
    from sigmacube.cli import main

    os.chdir(folder)
    _prepare(folder)
    before = _files(folder)
    done = CliRunner().invoke(main, words)
    os.chdir("/")
    _check(done, words, _files(folder) - before)
    return "refused" if done.exit_code else "allowed"


def _prepare(folder: Path) -> None:
    np.save(folder / "in.npy", np.random.default_rng(0).normal(5, 0.1, (8, 9, 5)))
    (folder / "text.nc").write_text("no netCDF")
    (folder / "empty.npy").touch()
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _words(rng: np.random.Generator) -> list[str]:
    """Return a command that is almost sound."""
    command = str(rng.choice([*_OPTIONS, "denoise", "denoise"]))
    inputs = ("in.npy", "text.nc", "empty.npy", "sub", "pipe", "none.nc", "-", "", "\0", "in.npy/x")
    source = "in.npy" if rng.random() < 0.5 else inputs[rng.integers(len(inputs))]
    words = [command, source]
    if command == "denoise":
        outputs = ("out.nc", "out.zarr", "out.hdr", "out.tif", "out.xyz", "sub", "in.npy", "out",
                   "none/o.nc", "pipe", "", "file:///nowhere/o.nc", "/dev/full")  # fmt: skip
        words += [outputs[rng.integers(len(outputs))], *_SOUND]
    if command == "study":
        words[1] = str(rng.choice(["none", "../coverage", "__init__"]))
    if command == "view":
        words = [command, str(rng.choice(["none.nc", "text.nc", "pipe", "sub", ""]))]
    known = _OPTIONS[command]
    for _ in range(int(rng.integers(1, 4))):
        option = known[rng.integers(len(known))]
        words.append(option)
        if option not in _FLAGS:
            words.append(_VALUES[rng.integers(len(_VALUES))])
    if rng.random() < 0.1:
        words.insert(int(rng.integers(len(words))), _VALUES[rng.integers(len(_VALUES))])
    return words


def _check(done: object, words: list[str], made: set[str]) -> None:
    code, text = done.exit_code, done.stderr  # type: ignore[attr-defined]
    shown = " ".join(words)[:300]
    if code not in (0, 1, 2):
        raise Bad(f"exit code {code}: {shown}")
    if "Traceback" in text or "(--debug shows where)" in text:
        raise Bad(f"raw error: {shown}: {text[-300:]}")
    if code:
        errors = [line for line in text.splitlines() if line.startswith("Error: ")]
        if len(errors) != 1 or text.splitlines()[-1] != errors[0]:
            raise Bad(f"not one line: {shown}: {text[-300:]!r}")
        left = {name for name in made if ".run" not in name.split("/")[0]}
        if left:
            raise Bad(f"left {sorted(left)[:3]}: {shown}")

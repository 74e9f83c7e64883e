"""What the first hour costs a newcomer, with its limits; ends with exit code 1 where one is passed.

python benchmarks/first_hour.py            all of it
python benchmarks/first_hour.py import     one of import, types, wheel, tutorials

* import: processor time of ``import sigmacube`` over that of ``import numpy``, least of ten runs
* types: mypy on a user's script (tests/typed), and on one that is wrong
* wheel: its size, built here
* tutorials: seconds that the code of each takes from scratch, one process each
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMPORT_RATIO, WHEEL_MB, TUTORIAL_SECONDS = 1.2, 2.0, 180.0
_COST = "import {}, resource; r = resource.getrusage(0); print(r.ru_utime + r.ru_stime)"
_WRONG = "import sigmacube as sc\n\nnumber: int = sc.denoise(sc.read('x.hdr')).estimate\n"
_PAGE = "import sys; sys.path.insert(0, {!r}); from pathlib import Path; from run import run_page; "
_PAGE += "print(run_page(Path({!r})))"

Row = tuple[str, str, bool]


def output(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"Error: {command}\n{done.stdout}{done.stderr}")
    return done.stdout


def importing() -> Iterator[Row]:
    runs: dict[str, list[float]] = {"numpy": [], "sigmacube": []}
    for _ in range(10):
        for name, costs in runs.items():
            costs.append(float(output(sys.executable, "-c", _COST.format(name))))
    ours, numpy = (min(runs[name]) for name in ("sigmacube", "numpy"))
    text = f"{ours / numpy:.2f} × numpy ({1e3 * ours:.0f} and {1e3 * numpy:.0f} ms)"
    yield f"import sigmacube (at most {IMPORT_RATIO:g})", text, ours <= IMPORT_RATIO * numpy


def types() -> Iterator[Row]:
    script = ROOT / "tests" / "typed" / "user_script.py"
    mypy = [sys.executable, "-m", "mypy", "--strict"]
    done = subprocess.run([*mypy, script], capture_output=True, text=True, check=False, cwd=ROOT)
    yield "mypy --strict on a user's script", done.stdout.strip(), done.returncode == 0
    with tempfile.TemporaryDirectory() as folder:
        wrong = Path(folder, "wrong.py")
        wrong.write_text(_WRONG)
        done = subprocess.run([*mypy, wrong], capture_output=True, text=True, check=False, cwd=ROOT)
    yield (
        "  and on one that is wrong",
        done.stdout.splitlines()[0].split(": ", 2)[-1],
        (done.returncode == 1),
    )


def wheel() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        output(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
        size = next(Path(folder).glob("*.whl")).stat().st_size / 1e6
    yield f"wheel (at most {WHEEL_MB:g} MB)", f"{size:.2f} MB", size <= WHEEL_MB


def tutorials() -> Iterator[Row]:
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        if page.stem == "index":
            continue
        code = _PAGE.format(str(ROOT / "docs" / "extensions"), str(page))
        seconds = float(output(sys.executable, "-W", "ignore", "-c", code).splitlines()[-1])
        label = f"tutorial {page.stem} (at most {TUTORIAL_SECONDS:.0f} s)"
        yield label, f"{seconds:.1f} s", seconds <= TUTORIAL_SECONDS


PARTS = {"import": importing, "types": types, "wheel": wheel, "tutorials": tutorials}


def main() -> None:
    good = True
    for name in sys.argv[1:] or PARTS:
        for label, text, met in PARTS[name]():
            print(f"{label:44} {text:40} {'met' if met else 'MISSED'}", flush=True)
            good &= met
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()

"""Install the wheel into an empty environment, run the demonstration from it, and tell its size.

Usage: python benchmarks/dist.py [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

#: MB that a wheel may have.
LARGEST = 2.0


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise SystemExit(f"Error: {len(wheels)} wheels in {folder}. There must be one.")
    size = wheels[0].stat().st_size / 1e6
    print(f"{wheels[0].name}  {size:.2f} MB (at most {LARGEST:g})")
    if size > LARGEST:
        raise SystemExit(f"Error: the wheel has {size:.2f} MB. It must have at most {LARGEST:g}.")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        venv.create(place / "venv", with_pip=True)
        tools = place / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
        run(place, tools / "python", "-m", "pip", "install", "--quiet", wheels[0].resolve())
        run(place, tools / "sigmacube", "--version")
        run(place, tools / "sigmacube", "demo", "--out", "demo")
        made = sorted(path.name for path in (place / "demo").iterdir())
        print(f"installed without extras, and made {', '.join(made)}")


def run(place: Path, *command: object) -> None:
    """Run a command in a folder of its own: nothing of a clone can be imported there."""
    subprocess.run([str(part) for part in command], cwd=place, check=True)


if __name__ == "__main__":
    main()

"""Picture what the commands print, in terminals of 80 and 140 columns, light and dark.

Run from the root of the repository: ``python docs/figures/screens.py FOLDER``. Needs tmux, whose
terminal is the real thing (what breaks a line there breaks it for a user), and chromium. One
picture per command, to be looked at; exit code 1 where a word was broken at the end of a line.
"""

from __future__ import annotations

import argparse
import base64
import re
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI, TerminalTheme
from rich.text import Text

import sigmacube as sc

WIDTHS = (80, 140)
#: The colours of xterm, on white.
LIGHT = TerminalTheme(
    (255, 255, 255), (0, 0, 0),
    [(0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205),
     (229, 229, 229)],
)  # fmt: skip
THEMES = {"light": LIGHT, "dark": MONOKAI}
SCREENS = {
    "help": ["sigmacube --help"],
    "help_denoise": ["sigmacube denoise --help"],
    "demo": ["sigmacube demo --out demo"],
    "info": ["sigmacube info scene.hdr", "sigmacube info emit.nc"],
    "denoise": ["sigmacube denoise scene.hdr clean.nc --keep-factors --overwrite"],
    "tiles": ["sigmacube denoise scene.hdr tiles.nc --tile 30x30 --workers 1 --overwrite"],
    "validate": ["sigmacube validate scene.hdr"],
    "product": ["sigmacube product clean.nc --index ndvi --overwrite"],
    "map": ["sigmacube map clean.nc --bands 450nm:900nm --overwrite"],
    "report": ["sigmacube report clean.nc --overwrite"],
    "study": ["sigmacube study --list"],
    "errors": [
        "sigmacube denois scene.hdr", "sigmacube info nothing.hdr",
        "sigmacube denoise scene.hdr clean.nc", "sigmacube denoise scene.hdr x.nc --window 0",
        "sigmacube denoise scene.hdr x.nc --rank 5", "sigmacube product clean.nc --index nonsense",
        "sigmacube info scene.hdr --variable x", "sigmacube report scene.hdr",
    ],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SCREENS)}; all by default")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    broken = []
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        make(Path(work))
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
        for name in asked.names or SCREENS:
            parts = []
            for width in WIDTHS:
                screen = typed(SCREENS[name], width, Path(work))
                parts += [picture(screen, width, theme) for theme in THEMES]
                broken += [f"{name}, {width} columns: {line}" for line in cut(screen, width)]
            page = browser.new_page(viewport={"width": 1460, "height": 100})
            page.set_content(f"<body style='margin: 0; background: grey'>{''.join(parts)}</body>")
            page.screenshot(path=asked.folder / f"{name}.png", full_page=True)
            page.close()
            print(asked.folder / f"{name}.png", flush=True)
        browser.close()
    if broken:
        raise SystemExit("\n".join(["words that were cut:", *broken]))


def make(work: Path) -> None:
    """Write the files that the commands take."""
    from sigmacube.io.sensors.samples import write_sample

    sc.datasets.load("detectors").save(work / "scene.hdr")
    write_sample("emit-l1b", work).path.rename(work / "emit.nc")


def typed(commands: list[str], width: int, work: Path) -> str:
    """Return what a terminal shows, with its colours, when commands are typed into it."""
    tmux = ["tmux", "-L", "sigmacube-screens", "-f", "/dev/null"]
    code = f"'{sys.executable}' -m sigmacube.cli"
    script = [f"printf '$ {line}\\n'; {line.replace('sigmacube', code, 1)}" for line in commands]
    (work / "script.sh").write_text("\n".join([*script, "touch done", "sleep 100"]))
    (work / "done").unlink(missing_ok=True)
    start = ["new-session", "-d", "-x", str(width), "-y", "120", "sh script.sh"]
    subprocess.run([*tmux, *start], cwd=work, check=True)
    try:
        for _ in range(1200):
            time.sleep(0.25)
            if (work / "done").exists():
                break
        time.sleep(0.25)
        shown = subprocess.run(
            [*tmux, "capture-pane", "-e", "-p"], capture_output=True, text=True, check=True
        )
        return shown.stdout.rstrip() + "\n"
    finally:
        subprocess.run([*tmux, "kill-session"], check=False)


def cut(screen: str, width: int) -> list[str]:
    """Return the lines that end at the rim of the terminal in the midst of a word."""
    lines = [re.sub(r"\x1b(\[[0-9;]*m|\(B)", "", line) for line in screen.splitlines()]
    return [
        a for a, b in pairwise(lines) if len(a) >= width and a[-1].isalnum() and b[:1].isalnum()
    ]


def picture(screen: str, width: int, theme: str) -> str:
    """Return a screen as a picture for a page."""
    with open("/dev/null", "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(screen))
        drawn = console.export_svg(title=f"{width} columns, {theme}", theme=THEMES[theme])
    coded = base64.b64encode(drawn.encode()).decode()
    return f"<img width={9 * width} src='data:image/svg+xml;base64,{coded}'>"


if __name__ == "__main__":
    main()

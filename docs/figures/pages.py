"""Take the pictures of the report and of the viewer, in a headless Chromium.

Run from the root of the repository: ``python docs/figures/pages.py`` (or ``make pictures``). Makes
the built-in scene, denoises it, writes the report, opens both pages and saves
``docs/images/report.png`` and ``docs/images/viewer.png``; ``--narrow DIR`` also saves both as they
look in a narrow window.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import sigmacube as sc
from sigmacube.show.report import write_report

IMAGES = Path(__file__).resolve().parents[1] / "images"
NOISE = 0.03
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
# (row, col) of the pinned pixels: crop, quarry.
PINNED = ((8, 30), (75, 100))


def main() -> None:
    """Make the result, and the pictures of its pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--narrow", type=Path, help="folder for pictures of narrow windows")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Error: no chromium found. The pictures need one.")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        make(folder)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        report(browser, folder, options.narrow)
        viewer(browser, folder, options.narrow)
        browser.close()


def make(folder: Path) -> None:
    """Write the noisy scene, the result and its report."""
    truth = sc.synthetic.scene((96, 128, 180), rng=0)
    noisy = sc.synthetic.add_noise(truth, NOISE, rng=np.random.default_rng([0, 1]))
    np.save(folder / "scene.npy", noisy.values.astype(np.float32))
    cube = sc.Cube(noisy.values, noisy.wavelengths, None, {**noisy.metadata, "source": "scene.npy"})
    sc.denoise(cube, NOISE).save(folder / "scene_clean.zarr", keep_factors=True)
    write_report(folder / "scene_clean.zarr", folder / "report.html")


def report(browser: Any, folder: Path, narrow: Path | None) -> None:
    """Picture the upper part of the report."""
    for width, height, out in windows("report", (1080, 1330), narrow):
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto((folder / "report.html").as_uri())
        save(page.screenshot(), out)
        page.close()


def viewer(browser: Any, folder: Path, narrow: Path | None) -> None:
    """Picture the viewer with two pinned pixels and the mean of a region."""
    command = [sys.executable, "-u", "-m", "sigmacube.cli", "view", "--no-browser"]
    server = subprocess.Popen(
        [*command, str(folder / "scene_clean.zarr")], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    url = None
    while url is None:
        url = next((w for w in server.stdout.readline().split() if w.startswith("http")), None)
    try:
        for width, height, out in windows("viewer", (1280, 770), narrow):
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(url)
            use(page)
            save(page.screenshot(full_page=width < 800), out)
            page.close()
    finally:
        server.terminate()
        server.wait(20)


def use(page: Any) -> None:
    """Look at sigma, pin pixels, drag a region."""
    page.wait_for_selector(".value")
    page.locator("select").first.select_option(label="σ")
    page.wait_for_timeout(1500)
    for row, col in PINNED:
        page.mouse.click(*place(page, row, col))
        page.wait_for_timeout(800)
        page.get_by_role("button", name="Pin", exact=True).click()
        page.wait_for_timeout(800)
    start, end = place(page, 19.6, 109.6), place(page, 30.4, 121.4)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    page.mouse.up()
    page.locator(".value").filter(has_text="mean of").wait_for()
    page.wait_for_timeout(2500)
    page.mouse.click(2, 2)  # takes the frame of the keyboard's focus away
    page.wait_for_timeout(500)


def place(page: Any, row: float, col: float) -> Any:
    """Return where a pixel of the scene is on the screen."""
    return page.evaluate(
        """([col, row]) => {
          const [view] = [...Bokeh.index.query((view) => view.model.name == "image")]
          const box = view.canvas_view.el.getBoundingClientRect(), frame = view.frame
          return [box.left + frame.x_scale.compute(col), box.top + frame.y_scale.compute(row)]
        }""",
        [col, row],
    )


def windows(name: str, size: tuple[int, int], narrow: Path | None) -> list[tuple[int, int, Path]]:
    found = [(*size, IMAGES / f"{name}.png")]
    if narrow is not None:
        narrow.mkdir(parents=True, exist_ok=True)
        found.append((420, 1500, narrow / f"{name}_narrow.png"))
    return found


def save(shot: bytes, out: Path) -> None:
    """Write a picture with 256 colours: a quarter of the size, and nobody sees the difference."""
    image = Image.open(BytesIO(shot)).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(out, optimize=True)
    print(f"{out}  {out.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()

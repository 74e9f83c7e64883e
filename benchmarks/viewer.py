"""Time from a click to a spectrum, and memory, of the viewer on a large Zarr result.

    python benchmarks/viewer.py [--shape 1000x1000x200] [--clicks 60]

Makes the result in a temporary folder, opens the page in a headless Chromium where there is one,
and prints the times that a user waits. The verdict is the worst of the 95 %: below 200 ms.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

LIMIT_MS = 200.0
CHUNK = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="1000x1000x200")
    parser.add_argument("--clicks", type=int, default=60)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        measure(options.inside, options.clicks)
        return
    shape = tuple(int(side) for side in options.shape.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.zarr")
        start = time.perf_counter()
        write(path, shape)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        seconds = time.perf_counter() - start
        print(f"{options.shape} result, {size / 1e9:.2f} GB on disk, made in {seconds:.0f} s")
        # A process of its own, so that its memory is that of the viewer alone.
        command = [sys.executable, __file__, "--inside", str(path)]
        subprocess.run([*command, "--clicks", str(options.clicks)], check=True)


def write(path: Path, shape: tuple[int, ...]) -> None:
    """Write a result of random fields, in the layout that `DenoisedCube.save` makes."""
    import zarr

    import sigmacube as sc

    rows, cols, bands = shape
    tiny = np.ones((2, 2, bands), dtype=np.float32)
    windows = ((rows - 20) // 4 + 1, (cols - 20) // 4 + 1)
    rng = np.random.default_rng(0)
    sc.DenoisedCube(
        tiny,
        tiny,
        rng.integers(2, 9, windows),
        0.03,
        rng.normal(1, 0.02, windows),
        wavelengths=np.linspace(400, 2450, bands),
        metadata={"name": "reflectance", "units": "1"},
        settings={"window": [20, 20, bands], "step": [4, 4, bands], "solver": "svd"},
    ).save(path)
    group = zarr.open_group(path, mode="r+")
    base = np.abs(np.cumsum(rng.normal(0, 0.01, (6, bands)), axis=1)) + 0.1
    for name, scale in (("reflectance", 1.0), ("reflectance_uncertainty", 0.02)):
        attributes = dict(group[name].attrs)
        del group[name]
        array = group.create_array(
            name,
            shape=(bands, rows, cols),
            chunks=(CHUNK, CHUNK, CHUNK),
            dtype="float32",
            fill_value=float("nan"),
            dimension_names=("wavelength", "y", "x"),
            attributes=attributes,
        )
        for top in range(0, rows, CHUNK):
            height = min(CHUNK, rows - top)
            kinds = rng.integers(0, 6, (height, cols))
            values = base[kinds] * scale + rng.normal(0, 0.003 * scale, (height, cols, bands))
            array[:, top : top + height] = np.moveaxis(values, 2, 0).astype(np.float32)
    for name in ("err_corr_y", "err_corr_x"):
        del group[name]


def measure(path: Path, clicks: int) -> None:
    """Print what a user waits for, and the memory it took."""
    from bokeh.document import Document as BokehDocument

    from sigmacube.io.result_file import open_result
    from sigmacube.show.viewer.app import Document

    print(f"load of this machine             {os.getloadavg()[0]:7.1f} on {os.cpu_count()} cores")
    before = memory()
    start = time.perf_counter()
    source = open_result(path)
    page = Document(BokehDocument(), source)
    page.build()
    print(f"first picture (three bands)      {time.perf_counter() - start:7.2f} s")
    rng = np.random.default_rng(1)
    rows, cols, bands = source.shape
    taps = []
    for row, col in zip(rng.integers(0, rows, clicks), rng.integers(0, cols, clicks), strict=True):
        start = time.perf_counter()
        page.tap(int(col), int(row))
        taps.append(1000 * (time.perf_counter() - start))
    report("click to spectrum, server", taps)
    page.set_band(0)
    page.band.value = 10
    near = []
    for band in range(11, 21):
        start = time.perf_counter()
        page.band.value = band
        near.append(1000 * (time.perf_counter() - start))
    report("next band, already read", near)
    start = time.perf_counter()
    page.kind.value = "sigma"
    page.band.value = bands // 2
    print(f"another cube and band, two reads {time.perf_counter() - start:7.2f} s")
    whole = 8e-6 * rows * cols * bands
    print(f"memory used by all this          {memory() - before:7.0f} MB (cubes: {whole:.0f} MB)")
    source.close()
    verdict = in_browser(path, clicks)
    worst = np.percentile(taps, 95) if verdict is None else verdict
    print(f"{'OK' if worst < LIMIT_MS else 'TOO SLOW'}: {worst:.0f} ms, limit {LIMIT_MS:.0f} ms")


def report(label: str, times: list[float]) -> None:
    middle, high, most = (*np.percentile(times, (50, 95)), max(times))
    print(f"{label:32} {middle:7.0f} ms median, {high:.0f} ms at 95 %, {most:.0f} ms at most")


def memory() -> float:
    """Return the peak resident memory in MB, of this process alone (Linux)."""
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def in_browser(path: Path, clicks: int) -> float | None:
    """Return the 95 % time from a mouse click to the new numbers on a real page, in ms."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        print("no browser: the page itself is not measured")
        return None
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-u", "-m", "sigmacube.cli", "view", str(path), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
    try:
        with sync_playwright() as playwright:
            flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            browser = playwright.chromium.launch(executable_path=found, args=flags)
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(url)
            page.wait_for_selector(".value")
            page.wait_for_function(
                "[...Bokeh.index.query((v) => v.model.name == 'image')][0]"
                ".model.title.text != 'Reading…'",
                timeout=120_000,
            )
            page.evaluate(_WATCH)
            times = [click(page, i * 0.618 % 1, i * 0.414 % 1) for i in range(clicks)]
            browser.close()
    finally:
        server.terminate()
        server.wait(20)
    report("click to spectrum, in the page", times)
    return float(np.percentile(times, 95))


def click(page: Any, x: float, y: float) -> float:
    """Click at shares (x, y) of the scene; return the ms until the spectrum is drawn."""
    page.evaluate("window.waited = null")
    page.mouse.click(*page.evaluate(_PLACE, [x, y]))
    page.wait_for_function("window.waited != null")
    waited = float(page.evaluate("window.waited"))
    page.wait_for_timeout(350)  # apart, or two clicks would be a double one
    return waited


_PLACE = """([x, y]) => {
  const [view] = [...Bokeh.index.query((view) => view.model.name == "image")]
  const box = view.canvas_view.el.getBoundingClientRect(), frame = view.frame
  const whole = view.model.renderers[0].glyph
  const col = x * (whole.right.value - 1), row = y * (whole.top.value - 1)
  return [box.left + frame.x_scale.compute(col), box.top + frame.y_scale.compute(row)]
}"""

# From the release of the button to the frame after the new spectrum has arrived.
_WATCH = """() => {
  const [view] = [...Bokeh.index.query((view) => view.model.name == "spectrum")]
  const lines = view.model.renderers.find((r) => r.glyph.type == "MultiLine").data_source
  let start = 0
  window.addEventListener("pointerup", () => { start = performance.now() }, {capture: true})
  lines.properties.data.change.connect(() => requestAnimationFrame(() => setTimeout(() => {
    window.waited = performance.now() - start
  })))
}"""


if __name__ == "__main__":
    main()

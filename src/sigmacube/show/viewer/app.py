"""The viewer's page: controls, and what happens when they are used.

Everything that comes from the page is checked here or in `spectra.pixel_at`: a page can send any
value of the right type for a control, whatever the limits that it shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.document import Document as BokehDocument
from bokeh.events import DoubleTap, RangesUpdate, Reset, SelectionGeometry, Tap
from bokeh.layouts import column, row
from bokeh.models import (
    Button,
    ColumnDataSource,
    CustomJS,
    Div,
    NumericInput,
    RangeSlider,
    Select,
    Slider,
)

from sigmacube.cube import Cube
from sigmacube.io.observed import name_of
from sigmacube.io.result_file import ResultFile
from sigmacube.io.source import Source
from sigmacube.show.viewer import picture as pictures
from sigmacube.show.viewer import spectra
from sigmacube.show.viewer.panes import COLORS, ImagePane, SpectrumPane
from sigmacube.show.viewer.picture import Part, Picture
from sigmacube.show.viewer.spectra import Region, Spectrum

__all__ = ["Document"]

MAX_PINS = len(COLORS) - 1
#: Seconds between two looks at a picture that is still being read.
_PARTIAL = 0.4


class Document:
    """One open page.

    Parameters
    ----------
    doc
        Bokeh's document.
    source, observed
        The result, and its noisy input where it is at hand.
    executor
        Reads pictures beside the page; None reads at once (results in memory, tests).
    """

    def __init__(
        self,
        doc: BokehDocument,
        source: ResultFile,
        observed: Cube | Source | None = None,
        executor: ThreadPoolExecutor | None = None,
    ) -> None:
        self.doc, self.source, self.observed, self.executor = doc, source, observed, executor
        self.presets = pictures.presets(source)
        self.kinds = dict(pictures.kinds(source))
        rows, cols, _ = source.shape
        self.part = Part.of(source.shape, (0, rows - 1, 0, cols - 1))
        self.current: Spectrum | None = None
        self.pins: list[tuple[Spectrum, str]] = []
        self.wanted = 0
        self.image = ImagePane(source.shape)
        self.spectrum = SpectrumPane(source.wavelengths, source.good_bands, self._quantity())

    def build(self) -> None:
        """Make the page."""
        self._make_controls()
        self._make_buttons()
        self._connect()
        self.doc.title = f"{self.source.name} · sigmacube"
        self.doc.template = _TEMPLATE
        self.doc.add_root(self._layout())
        rows, cols, _ = self.source.shape
        self.choose(Region(rows // 2, cols // 2))
        self.refresh()
        if self.executor is not None:
            self.doc.on_session_destroyed(lambda _: self._end())

    # The page

    def _make_controls(self) -> None:
        bands, nm = self.source.shape[2], self.source.wavelengths
        first = next(iter(self.presets.values()))
        self.kind = Select(title="Show", options=list(self.kinds.items()), value="rgb", width=210)
        self.preset = Select(title="Colours", options=list(self.presets), width=170)
        self.preset.value = next(iter(self.presets))
        self.band = Slider(
            title="Band", start=0, end=max(bands - 1, 1), step=1, value=first[0], width=250
        )
        self.nm = NumericInput(title="Wavelength (nm)", mode="float", width=120)
        self.nm.visible = nm is not None
        self.stretch = RangeSlider(
            title="Stretch (percentiles)", start=0, end=100, step=0.5, value=(2, 98), width=210
        )
        self.readout = Div(text="", sizing_mode="stretch_width", name="readout")
        self.status = Div(text="", name="status", sizing_mode="stretch_width")
        self._name_band()

    def _make_buttons(self) -> None:
        self.pin = Button(label="Pin", button_type="primary", width=70, name="pin")
        self.clear = Button(label="Clear pins", width=90, name="clear")
        self.save_csv = Button(label="Spectra as CSV", width=130, name="csv")
        self.save_png = Button(label="View as PNG", width=110, name="png")
        self.download = ColumnDataSource({"text": [], "name": []})
        # A model that only its own callback knows would not reach the page.
        self.save_csv.tags = [self.download]
        stem = Path(self.source.name).stem
        self.download.js_on_change("data", CustomJS(args={"box": self.download}, code=_SAVE_TEXT))
        self.save_png.js_on_event(
            "button_click",
            CustomJS(
                args={
                    "image": self.image.figure,
                    "spectrum": self.spectrum.figure,
                    "name": f"{stem}_view.png",
                    "title": self.source.name,
                },
                code=_SAVE_PNG,
            ),
        )

    def _layout(self) -> Any:
        wide: dict[str, Any] = {"sizing_mode": "stretch_width"}
        wrap = {"flex-wrap": "wrap", "align-items": "end"}
        controls = row(
            self.kind, self.preset, self.band, self.nm, self.stretch, styles=wrap, **wide
        )
        buttons = row(self.pin, self.clear, self.save_csv, self.save_png, styles=wrap, **wide)
        half = {"flex": "1 1 440px", "min-width": "min(440px, 100%)"}
        left = column(self.image.figure, self.status, styles=half, **wide)
        right = column(self.spectrum.figure, self.readout, buttons, styles=half, **wide)
        panes = row(left, right, styles={"flex-wrap": "wrap", "gap": "12px"}, **wide)
        return column(Div(text=self._header(), **wide), controls, panes, **wide)

    def _header(self) -> str:
        about, (rows, cols, bands) = self.source.about, self.source.shape
        nm = self.source.wavelengths
        facts = [f"{rows} × {cols} pixels", f"{bands} bands"]
        facts += [] if nm is None else [f"{np.nanmin(nm):.0f} to {np.nanmax(nm):.0f} nm"]
        noise = self.source.noise_std
        facts.append(f"noise σ {np.nanmedian(noise):.3g}" + (" (median)" if np.ptp(noise) else ""))
        if self.observed is not None:
            facts.append(f"observed: {name_of(self.observed)}")
        solver = about.settings.get("solver")
        facts += [f"solver {solver}"] if solver else []
        told = " · ".join(escape(fact) for fact in facts)
        return f"<b style='font-size:17px'>{escape(self.source.name)}</b>&ensp;<span>{told}</span>"

    def _quantity(self) -> str:
        metadata = self.source.about.metadata
        name, unit = str(metadata.get("name") or "value"), str(metadata.get("units") or "")
        return f"{name} ({unit})" if unit not in ("", "1") else name

    # What the user does

    def _connect(self) -> None:
        for control in (self.kind, self.preset):
            control.on_change("value", lambda attr, old, new: self.refresh())
        self.band.on_change("value", lambda attr, old, new: self.set_band(self.band.value))
        self.nm.on_change("value", lambda attr, old, new: self.set_wavelength(self.nm.value))
        self.stretch.on_change("value_throttled", lambda attr, old, new: self.refresh())
        # Two quick clicks are a double one, wherever they were.
        for click in (Tap, DoubleTap):
            self.image.figure.on_event(click, lambda event: self.tap(event.x, event.y))
        self.image.figure.on_event(SelectionGeometry, self.select)
        self.image.figure.on_event(RangesUpdate, self.move)
        self.image.figure.on_event(Reset, lambda _: self.move(None))
        self.spectrum.figure.on_event(Tap, lambda event: self.pick_band(event.x))
        self.pin.on_click(lambda _: self.add_pin())
        self.clear.on_click(lambda _: self.clear_pins())
        self.save_csv.on_click(lambda _: self.export())

    def tap(self, x: object, y: object) -> None:
        """Show the pixel that was clicked."""
        region = spectra.pixel_at(x, y, self.source.shape)
        if region is not None:
            self.choose(region)

    def select(self, event: Any) -> None:
        """Show the mean over the rectangle that was dragged."""
        box = event.geometry if isinstance(event.geometry, dict) else {}
        if not getattr(event, "final", True) or box.get("type") != "rect":
            return
        region = spectra.region_at(
            (box.get("x0"), box.get("x1")), (box.get("y0"), box.get("y1")), self.source.shape
        )
        if region is not None:
            self.choose(region)

    def move(self, event: Any) -> None:
        """Read what a zoomed image needs: finer pixels of a smaller part."""
        rows, cols, _ = self.source.shape
        box: tuple[Any, ...] = (0, rows - 1, 0, cols - 1)
        if event is not None:
            box = (event.y0, event.y1, event.x0, event.x1)
        top, bottom, left, right = (spectra.finite_number(edge) for edge in box)
        if top is None or bottom is None or left is None or right is None:
            return
        part = Part.of(self.source.shape, (top, bottom, left, right))
        if part.step == 1:
            # The whole scene at full resolution serves every zoom.
            whole = Part.of(self.source.shape, (0, rows - 1, 0, cols - 1))
            part = whole if whole.step == 1 else part
        if part != self.part:
            self.part = part
            self.refresh()

    def set_band(self, value: object) -> None:
        """Show another band; a picture in colours gives way to that of the band."""
        self._name_band()
        if self.kind.value == "rgb":
            self.kind.value = "band"
        else:
            self.refresh()

    def set_wavelength(self, value: object) -> None:
        """Show the band nearest to a wavelength."""
        nm, wanted = self.source.wavelengths, spectra.finite_number(value)
        if nm is not None and wanted is not None:
            self.band.value = int(np.nanargmin(np.abs(nm - wanted)))

    def pick_band(self, x: object) -> None:
        """Show the band that was clicked in the spectrum."""
        wanted = spectra.finite_number(x)
        if wanted is not None:
            self.band.value = int(np.nanargmin(np.abs(self.spectrum.x - wanted)))

    def add_pin(self) -> None:
        """Keep the current spectrum for comparison."""
        if self.current is None or len(self.pins) >= MAX_PINS:
            self._say(f"{MAX_PINS} spectra are pinned; clear them to pin others.")
            return
        if any(spectrum.region == self.current.region for spectrum, _ in self.pins):
            return
        used = {color for _, color in self.pins}
        color = next(color for color in COLORS[1:] if color not in used)
        self.pins.append((self.current, color))
        self._draw_spectra()

    def clear_pins(self) -> None:
        """Forget all pinned spectra."""
        self.pins = []
        self._draw_spectra()

    def export(self) -> None:
        """Hand the spectra that are shown to the browser, as CSV."""
        shown = [spectrum for spectrum, _ in self._shown()]
        unit = str(self.source.about.metadata.get("units") or "")
        text = spectra.csv_text(shown, self.source.wavelengths, unit)
        self.download.data = {
            "text": [text],
            "name": [f"{Path(self.source.name).stem}_spectra.csv"],
        }

    # What follows

    def choose(self, region: Region) -> None:
        """Show the spectrum of a region."""
        try:
            self.current = spectra.read(self.source, region, self.observed)
        except ValueError as error:
            self._say(str(error))
            return
        self._say("")
        self._draw_spectra()
        if not region.is_pixel and self.source.has_errors:
            self._later(lambda: spectra.exact_region_std(self.source, region), self._set_exact)

    def _set_exact(self, std: np.ndarray | None) -> None:
        """Put the exact sigma of a region's mean in the place of the bound."""
        now = self.current
        if std is not None and now is not None and not now.region.is_pixel:
            self.current = Spectrum(now.region, now.estimate, std, now.observed, "exact")
            self._draw_spectra()

    def refresh(self) -> None:
        """Read and draw the picture that the controls ask for."""
        self.wanted += 1
        number, kind, part = self.wanted, self._kind(), self.part
        band, colors, percentiles = self._band(), self._colors(), self._percentiles()
        self.preset.visible = kind == "rgb"
        self.stretch.disabled = kind in ("rank", "residual", "rejected")
        self._draw_readout()
        last = time.monotonic()

        def progress(unfinished: np.ndarray) -> bool:
            nonlocal last
            if kind != "rgb" and time.monotonic() - last > _PARTIAL:
                last = time.monotonic()
                values = unfinished.copy()
                values = values / self.source.noise_std[band] if kind == "ratio" else values
                look = pictures.scaled(values, kind, percentiles)
                self.doc.add_next_tick_callback(lambda: self._draw(number, look, part))
            return number == self.wanted

        def work() -> Picture:
            return pictures.make(
                self.source,
                kind,
                part,
                band=band,
                colors=colors,
                percentiles=percentiles,
                progress=None if self.executor is None else progress,
            )

        self.status.text = "" if self.executor is None else "Reading…"
        self._later(work, lambda picture: self._draw(number, picture, part, last=True))

    def _draw(self, number: int, picture: Picture, part: Part, *, last: bool = False) -> None:
        if number != self.wanted:
            return
        kind = self._kind()
        self.image.show(picture, part, self._title(kind))
        if last:
            thin = f"Every {part.step}th pixel is shown; zoom in for all." if part.step > 1 else ""
            self.status.text = f"<small>{thin}</small>"

    def _title(self, kind: str) -> str:
        named = self.kinds[kind]
        if kind == "rgb":
            nm = self.source.wavelengths
            names = [str(b) if nm is None else f"{nm[b]:.0f}" for b in self._colors()]
            return "R {}, G {}, B {} {}".format(*names, "(bands)" if nm is None else "nm")
        return named if kind in ("rank", "residual") else f"{named}, {self._at(self._band())}"

    def _shown(self) -> list[tuple[Spectrum, str]]:
        """Return the current spectrum and the pinned ones, without doubles."""
        if self.current is None:
            return list(self.pins)
        others = [pin for pin in self.pins if pin[0].region != self.current.region]
        return [(self.current, COLORS[0]), *others]

    def _draw_spectra(self) -> None:
        shown = self._shown()
        if shown:
            self.spectrum.show(shown)
        marks = [(s.region, color) for s, color in shown]
        self.image.mark(marks[::-1])
        self._draw_readout()

    def _draw_readout(self) -> None:
        band = self._band()
        self.spectrum.band.location = float(self.spectrum.x[band])
        lines = []
        for spectrum, color in self._shown():
            value, label = spectrum.estimate[band], escape(spectrum.region.label)
            text = f"{value:.5g}" if np.isfinite(value) else "no value"
            more = "no σ"
            if spectrum.std is not None and np.isfinite(value):
                text += f" ± {spectrum.std[band]:.3g}"
                more = (
                    f"95 %: {spectrum.low[band]:.5g} to {spectrum.high[band]:.5g}"
                    f"{_TRUST[spectrum.std_kind]}"
                )
            dot = f"<span style='color:{color}'>●</span>"
            lines.append(f"<div class=value>{dot} {label}: <b>{text}</b> ({more})</div>")
        self.readout.text = f"<div>At {self._at(band)}</div>{''.join(lines)}"

    # Values of the controls, within their limits

    def _kind(self) -> str:
        return self.kind.value if self.kind.value in self.kinds else "rgb"

    def _colors(self) -> list[int]:
        return self.presets.get(self.preset.value) or next(iter(self.presets.values()))

    def _band(self) -> int:
        value = spectra.finite_number(self.band.value)
        return 0 if value is None else int(np.clip(round(value), 0, self.source.shape[2] - 1))

    def _percentiles(self) -> tuple[float, float]:
        try:
            low, high = (float(np.clip(value, 0, 100)) for value in self.stretch.value)
        except (TypeError, ValueError):
            return 2.0, 98.0
        return (low, high) if low < high else (min(low, 99.5), min(low, 99.5) + 0.5)

    def _at(self, band: int) -> str:
        nm = self.source.wavelengths
        return f"band {band}" if nm is None else f"{nm[band]:.1f} nm"

    def _name_band(self) -> None:
        nm = self.source.wavelengths
        if nm is not None:
            self.nm.value = round(float(nm[self._band()]), 2)

    def _say(self, text: str) -> None:
        self.status.text = f"<small>{escape(text)}</small>"

    def _later(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do ``work`` beside the page, then ``done`` with what it gave on the page's own thread."""
        if self.executor is None:
            done(work())
            return

        def run() -> None:
            try:
                found = work()
            except Exception as error:  # a damaged file must show on the page, not in a thread
                text = str(error)
                self.doc.add_next_tick_callback(lambda: self._say(text))
                return
            self.doc.add_next_tick_callback(lambda: done(found))

        self.executor.submit(run)

    def _end(self) -> None:
        self.wanted += 1
        if self.executor is not None:
            self.executor.shutdown(wait=False, cancel_futures=True)


_TRUST = {
    "exact": "",
    "approximate": "; σ approximate, from the scene's mean error correlation",
    "bound": "; σ at most this, errors taken as fully correlated",
}

_SAVE_TEXT = """
if (box.data.text.length == 0) return
const link = document.createElement("a")
const blob = new Blob([box.data.text[0]], {type: "text/csv;charset=utf-8"})
link.href = URL.createObjectURL(blob)
link.download = box.data.name[0]
link.click()
setTimeout(() => URL.revokeObjectURL(link.href), 1000)
"""

_SAVE_PNG = """
const canvases = [image, spectrum].map((model) => {
  return cb_context.index.find_one(model).export("png", true).canvas
})
const gap = 20, head = 46
const out = document.createElement("canvas")
out.width = canvases.reduce((sum, c) => sum + c.width + gap, gap)
out.height = Math.max(...canvases.map((c) => c.height)) + head + gap
const pen = out.getContext("2d")
pen.fillStyle = "white"
pen.fillRect(0, 0, out.width, out.height)
pen.fillStyle = "#222"
pen.font = "bold 20px sans-serif"
pen.fillText(title, gap, 30)
let x = gap
for (const c of canvases) { pen.drawImage(c, x, head); x += c.width + gap }
out.toBlob((blob) => {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
})
"""

_TEMPLATE = """
{% block postamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  html, body { margin: 0; background: #fff; color: #222; }
  body { padding: 10px 14px; font: 14px/1.45 system-ui, "Segoe UI", "Helvetica Neue", Arial,
    sans-serif; display: block !important; }
</style>
{% endblock %}
"""

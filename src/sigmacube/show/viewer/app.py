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

from sigmacube.core.card import count_of, size_of
from sigmacube.cube import Cube
from sigmacube.io.observed import name_of
from sigmacube.io.result_file import ResultFile
from sigmacube.io.source import Source
from sigmacube.show.key_figures import unexplained_of
from sigmacube.show.place import Place
from sigmacube.show.viewer import picture as pictures
from sigmacube.show.viewer import scripts, spectra
from sigmacube.show.viewer.image_pane import ImagePane
from sigmacube.show.viewer.picture import Part, Picture
from sigmacube.show.viewer.spectra import Region, Spectrum
from sigmacube.show.viewer.spectrum_pane import COLORS, SpectrumPane

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
        self.groups = pictures.kinds(source, observed=observed is not None)
        self.kinds = {key: name for group in self.groups.values() for key, name in group}
        self.place = Place.of(source.about.metadata)
        rows, cols, _ = source.shape
        self.part = Part.of(source.shape, (0, rows - 1, 0, cols - 1))
        self.odd = {(int(r), int(c)) for r, c in unexplained_of(source.about)}
        self.current: Spectrum | None = None
        self.pins: list[tuple[Spectrum, str]] = []
        self.wanted = 0
        self.image = ImagePane(source.shape, self.place, unexplained_of(source.about))
        self.spectrum = SpectrumPane(
            source.wavelengths, source.good_bands, self._quantity(), source.noise_std
        )

    def build(self) -> None:
        """Make the page."""
        self._make_controls()
        self._make_buttons()
        self._connect()
        self.doc.title = f"{self.source.name} · sigmacube"
        self.doc.template = scripts.TEMPLATE
        self.doc.add_root(self._layout())
        rows, cols, _ = self.source.shape
        self.choose(Region(rows // 2, cols // 2))
        self.refresh()
        if self.executor is not None:
            self.doc.on_session_destroyed(self._end)

    # The page

    def _make_controls(self) -> None:
        bands, nm = self.source.shape[2], self.source.wavelengths
        first = next(iter(self.presets.values()))
        groups: Any = self.groups
        self.kind = Select(title="Show", options=groups, value="rgb", width=225, name="kind")
        self.second = Select(
            title="Compare with", options={"": [("", "nothing")], **groups}, value="", width=225,
            name="second",
        )  # fmt: skip
        self.swipe = Slider(
            title="Swipe (percent)", start=0, end=100, step=1, value=50, width=160, name="swipe",
            visible=False,
        )  # fmt: skip
        self.preset = Select(title="Colours", options=list(self.presets), width=170)
        self.preset.value = next(iter(self.presets))
        self.band = Slider(
            title="Band", start=0, end=max(bands - 1, 1), step=1, value=first[0], width=220,
            name="band",
        )  # fmt: skip
        self.nm = NumericInput(title="Wavelength (nm)", mode="float", width=120)
        self.nm.visible = nm is not None
        self.stretch = RangeSlider(
            title="Stretch (percentiles)", start=0, end=100, step=0.5, value=(2, 98), width=210
        )
        self.readout = Div(text="", sizing_mode="stretch_width", name="readout")
        self.status = Div(text="", name="status", sizing_mode="stretch_width")
        self._name_band()

    def _make_buttons(self) -> None:
        self.flicker = Button(label="Flicker", width=80, name="flicker", visible=False)
        self.pin = Button(label="Pin", button_type="primary", width=70, name="pin")
        self.clear = Button(label="Clear pins", width=90, name="clear")
        self.save_csv = Button(label="Spectra as CSV", width=130, name="csv")
        self.save_png = Button(label="View as PNG", width=110, name="png")
        self.download = ColumnDataSource({"text": [], "name": []})
        # A model that only its own callback knows would not reach the page.
        self.save_csv.tags = [self.download]
        stem = Path(self.source.name).stem
        self.download.js_on_change(
            "data", CustomJS(args={"box": self.download}, code=scripts.SAVE_TEXT)
        )
        self.save_png.js_on_event(
            "button_click",
            CustomJS(
                args={
                    "models": [self.image.figure, self.spectrum.figure, self.spectrum.sigma],
                    "name": f"{stem}_view.png",
                    "title": self.source.name,
                },
                code=scripts.SAVE_PNG,
            ),
        )

    def _layout(self) -> Any:
        wide: dict[str, Any] = {"sizing_mode": "stretch_width"}
        wrap = {"flex-wrap": "wrap", "align-items": "end"}
        controls = row(
            self.kind, self.second, self.swipe, self.flicker, self.preset, self.band, self.nm,
            self.stretch, styles=wrap, **wide,
        )  # fmt: skip
        buttons = row(self.pin, self.clear, self.save_csv, self.save_png, styles=wrap, **wide)
        half = {"flex": "1 1 440px", "min-width": "min(440px, 100%)"}
        left = column(self.image.figure, self.status, styles=half, **wide)
        right = column(
            self.spectrum.figure, self.spectrum.sigma, self.readout, buttons, styles=half, **wide
        )
        panes = row(left, right, styles={"flex-wrap": "wrap", "gap": "12px"}, **wide)
        keys = Div(text=_KEYS_HELP, stylesheets=[_KEYS_STYLE], **wide)
        return column(Div(text=self._header(), **wide), controls, panes, keys, **wide)

    def _header(self) -> str:
        about, (rows, cols, bands) = self.source.about, self.source.shape
        nm = self.source.wavelengths
        facts = [size_of((rows, cols, bands))]
        facts += [] if nm is None else [f"{np.nanmin(nm):.0f} to {np.nanmax(nm):.0f} nm"]
        noise = self.source.noise_std
        facts.append(f"noise σ {np.nanmedian(noise):.3g}" + (" (median)" if np.ptp(noise) else ""))
        if self.observed is not None:
            facts.append(f"observed: {name_of(self.observed)}")
        solver = about.settings.get("solver")
        facts += [f"solver {solver}"] if solver else []
        odd = len(unexplained_of(about))
        facts += [f"{count_of(odd, 'unexplained pixel')} (◇)"] if odd else []
        told = " · ".join(escape(fact) for fact in facts)
        name = f"<b style='font-size:17px'>{escape(self.source.name)}</b>"
        return f"{name}&ensp;<span>{told}</span>{self._caveats()}"

    def _caveats(self) -> str:
        """Return what σ does not hold on this scene, open for everybody to read."""
        sentences = "".join(f"<li>{escape(text)}</li>" for text in self.source.about.caveats)
        if not sentences:
            return ""
        return (
            "<details open class=caveats style='border-left:3px solid #D55E00;padding:2px 10px;"
            "margin-top:6px'><summary><b>What σ does not hold here</b></summary>"
            f"<ul style='margin:2px 0'>{sentences}</ul></details>"
        )

    def _quantity(self) -> str:
        metadata = self.source.about.metadata
        name, unit = str(metadata.get("name") or "value"), str(metadata.get("units") or "")
        return f"{name} ({unit})" if unit not in ("", "1") else name

    # What the user does

    def _connect(self) -> None:
        self.second.on_change("value", lambda attr, old, new: self.compare())
        over = {"over": self.image.over, "swipe": self.swipe, "line": self.image.line}
        for model, change in ((self.swipe, "value"), (self.image.over, "data")):
            model.js_on_change(change, CustomJS(args=over, code=scripts.SWIPE))
        turn = CustomJS(args={"swipe": self.swipe, "button": self.flicker}, code=scripts.FLICKER)
        self.flicker.js_on_event("button_click", turn)
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
        single = {"rgb": "band", "observed_rgb": "observed"}
        if self._second() in single:
            self.second.value = single[self._second()]
        if self.kind.value in single:
            self.kind.value = single[self.kind.value]
        else:
            self.refresh()

    def compare(self) -> None:
        """Draw another picture over the first, or none."""
        self.swipe.visible = self.flicker.visible = bool(self._second())
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
        other = self._second()
        self.preset.visible = "rgb" in kind or "rgb" in other
        self.stretch.disabled = kind in ("rank", "residual", "rejected", "z")
        self._draw_readout()
        last = time.monotonic()

        def progress(unfinished: np.ndarray) -> bool:
            nonlocal last
            if kind in ("band", "sigma", "ratio") and time.monotonic() - last > _PARTIAL:
                last = time.monotonic()
                values = unfinished.copy()
                values = values / self.source.noise_std[band] if kind == "ratio" else values
                look = pictures.scaled(values, kind, percentiles)
                self.doc.add_next_tick_callback(lambda: self._draw(number, look, part))
            return number == self.wanted

        def made(wanted: str, seen: Any = None) -> Picture:
            return pictures.make(
                self.source, wanted, part, band=band, colors=colors, percentiles=percentiles,
                observed=self.observed, progress=seen,
            )  # fmt: skip

        def work() -> tuple[Picture, Picture | None]:
            first = made(kind, None if self.executor is None else progress)
            return first, made(other) if other else None

        self.status.text = "" if self.executor is None else "Reading…"
        self._later(work, lambda both: self._draw(number, both[0], part, last=True, over=both[1]))

    def _draw(
        self,
        number: int,
        picture: Picture,
        part: Part,
        *,
        last: bool = False,
        over: Picture | None = None,
    ) -> None:
        if number != self.wanted:
            return
        kind = self._kind()
        self.image.show(picture, part, self._title(kind))
        if last:
            self.image.show_second(
                over, part, self.kinds[self._second()].split(",")[0] if over else ""
            )
            thin = f"Every {part.step}th pixel is shown; zoom in for all." if part.step > 1 else ""
            self.status.text = f"<small>{thin}</small>"

    def _title(self, kind: str) -> str:
        named = self.kinds[kind]
        if kind in ("rgb", "observed_rgb"):
            nm = self.source.wavelengths
            names = [str(b) if nm is None else f"{nm[b]:.0f}" for b in self._colors()]
            unit = "(bands)" if nm is None else "nm"
            return "{}, R {} G {} B {} {}".format(named.split(",")[0], *names, unit)
        named = named.removesuffix(", one band")
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
            where = self._where(spectrum.region)
            lines += [f"<div class=where style='padding-left:18px'>{where}</div>"] if where else []
        self.readout.text = f"<div>At {self._at(band)}</div>{''.join(lines)}"

    def _where(self, region: Region) -> str:
        """Return the place of a region's middle on the map, and whether it is explained."""
        row, col = region.top + (region.height - 1) / 2, region.left + (region.width - 1) / 2
        told = [] if self.place is None else [self.place.text(row, col)]
        odd = region.is_pixel and (region.top, region.left) in self.odd
        told += ["no window explains this spectrum: kept, with a larger σ"] if odd else []
        return escape(" · ".join(told))

    # Values of the controls, within their limits

    def _second(self) -> str:
        return self.second.value if self.second.value in self.kinds else ""

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

    def _end(self, _: object) -> None:
        self.wanted += 1
        if self.executor is not None:
            self.executor.shutdown(wait=False, cancel_futures=True)


_TRUST = {
    "exact": "",
    "approximate": "; σ approximate, from the scene's mean error correlation",
    "bound": "; σ at most this, errors taken as fully correlated",
}

_KEYS_HELP = (
    "<small>Keys: <kbd>o</kbd> observed, <kbd>d</kbd> denoised, <kbd>r</kbd> removed, "
    "<kbd>s</kbd> σ, <kbd>z</kbd> removed over noise; <kbd>←</kbd> <kbd>→</kbd> band; "
    "<kbd>f</kbd> the one or the other picture, <kbd>[</kbd> <kbd>]</kbd> swipe; "
    "<kbd>p</kbd> pin, <kbd>c</kbd> clear.</small>"
)
_KEYS_STYLE = "kbd { border: 1px solid #bbb; border-radius: 3px; padding: 0 4px; }"

"""The spectrum pane of the viewer: spectra with their intervals, and σ below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    CrosshairTool,
    CustomJS,
    CustomJSTickFormatter,
    DataRange1d,
    HoverTool,
    PanTool,
    ResetTool,
    SaveTool,
    Span,
    WheelZoomTool,
)
from bokeh.plotting import figure

from sigmacube.show import plots
from sigmacube.show.look import CURVES, GREY
from sigmacube.show.viewer import scripts
from sigmacube.show.viewer.spectra import Spectrum

#: Of the current pixel and of the pinned ones.
COLORS = CURVES
_HEIGHT = 520
_SIGMA_HEIGHT = 170


class SpectrumPane:
    """Spectra with their 95 % intervals over a panel of σ.

    Lines break at bad and missing bands, and where wavelengths jump or go back.
    """

    def __init__(
        self,
        wavelengths: np.ndarray | None,
        good: np.ndarray,
        quantity: str,
        noise: np.ndarray | None = None,
    ) -> None:
        self.x, x_label = plots.band_axis(wavelengths, len(good))
        self.good = good
        self.figure = figure(
            height=_HEIGHT - _SIGMA_HEIGHT,
            sizing_mode="stretch_width",
            x_axis_label=x_label,
            y_axis_label=quantity,
            y_range=DataRange1d(range_padding=0.06, only_visible=True),
            x_range=DataRange1d(range_padding=0.01),
            tools=[PanTool(), ResetTool(), SaveTool(filename="spectrum")],
            name="spectrum",
        )
        self._add_glyphs()
        self._add_sigma(noise)
        cursor = Span(dimension="height", line_color="#777", line_width=1)
        for plot in (self.figure, self.sigma):
            zoom = WheelZoomTool(dimensions="width")
            # One cursor for both panels.
            plot.add_tools(zoom, CrosshairTool(overlay=cursor))
            plot.toolbar.active_scroll = zoom
            plot.xaxis.ticker.desired_num_ticks = 7
            plain(plot)
        self.figure.xaxis.visible = False
        self.sigma.toolbar_location = None
        self.sigma.yaxis.ticker.desired_num_ticks = 4

    def _add_glyphs(self) -> None:
        plot = self.figure
        self.band = Span(location=0, dimension="height", line_color="#777", line_dash="dotted")
        plot.add_layout(self.band)
        self._areas = ColumnDataSource({"xs": [], "ys": [], "color": []})
        self._lines = ColumnDataSource({"xs": [], "ys": [], "color": [], "label": []})
        self._dots = ColumnDataSource({"x": [], "y": []})
        names = ("x", "estimate", "std", "low", "high", "band")
        self.points = ColumnDataSource({name: [] for name in names})
        plot.patches("xs", "ys", source=self._areas, color="color", alpha=0.25, line_alpha=0)
        self.observed = plot.scatter(
            "x", "y", source=self._dots, size=4, color=GREY, line_alpha=0,
            legend_label="observed",
        )  # fmt: skip
        plot.multi_line(
            "xs", "ys", source=self._lines, color="color", line_width=2, legend_field="label"
        )
        points = plot.scatter("x", "estimate", source=self.points, size=7, alpha=0)
        legend = plot.legend[0]
        legend.update(
            location="left", background_fill_alpha=0, border_line_alpha=0, ncols=3, padding=2,
            margin=4, spacing=12, glyph_width=16, label_text_font_size="12px", label_standoff=4,
        )  # fmt: skip
        # Outside: inside it would hide what the user came to see.
        plot.center.remove(legend)
        plot.add_layout(legend, "above")
        narrow = CustomJS(args={"legend": legend}, code=scripts.LEGEND)
        plot.js_on_change("inner_width", narrow)
        tips = [
            ("band", "@band"),
            ("estimate", "@estimate{%.5g}"),
            ("σ", "@std{%.3g}"),
            ("95 %", "@low{%.5g} to @high{%.5g}"),
        ]
        if self.figure.xaxis[0].axis_label != "band":
            tips[0] = ("wavelength", "@x{%.1f} nm (band @band)")
        formats = {f"@{name}": "printf" for name in ("x", "estimate", "std", "low", "high")}
        plot.add_tools(
            HoverTool(renderers=[points], tooltips=tips, formatters=formats, mode="vline")
        )

    def _add_sigma(self, noise: np.ndarray | None) -> None:
        """Add the panel of σ: at high signal-to-noise the interval is thinner than its line."""
        self.sigma = figure(
            height=_SIGMA_HEIGHT,
            sizing_mode="stretch_width",
            x_range=self.figure.x_range,
            y_range=DataRange1d(range_padding=0.08, start=0),
            x_axis_label=self.figure.xaxis[0].axis_label,
            y_axis_label="σ",
            tools=[],
            toolbar_location=None,
            name="sigma",
        )
        self._sigmas = ColumnDataSource({"xs": [], "ys": [], "color": []})
        if noise is not None:
            named = f"noise σ (median {np.nanmedian(noise):.3g})"
            x, y = plots.with_gaps(self.x, np.array(noise, dtype=float), good=self.good)
            self.sigma.line(x, y, color=GREY, line_dash="dashed", legend_label=named)
        # The noise may be many times larger: the range follows σ, which is what is to be seen.
        lines = self.sigma.multi_line("xs", "ys", source=self._sigmas, color="color", line_width=2)
        self.sigma.y_range.renderers = [lines]
        self.sigma.add_layout(self.band)
        for legend in [*self.sigma.legend]:  # outside, as that of the spectra
            legend.update(
                background_fill_alpha=0, border_line_alpha=0, padding=0, margin=2,
                label_text_font_size="11px", location="right",
            )  # fmt: skip
            self.sigma.center.remove(legend)
            self.sigma.add_layout(legend, "above")

    def show(self, spectra: Sequence[tuple[Spectrum, str]]) -> None:
        """Draw spectra with their colours; the first is the current one, whose values hover.

        As lists: every array would be two messages of its own to the page.
        """
        lines: dict[str, list[Any]] = {"xs": [], "ys": [], "color": [], "label": []}
        areas: dict[str, list[Any]] = {"xs": [], "ys": [], "color": []}
        sigmas: dict[str, list[Any]] = {"xs": [], "ys": [], "color": []}
        # The current one last, on top.
        for spectrum, color in reversed(spectra):
            x, y = plots.with_gaps(self.x, spectrum.estimate, good=self.good)
            line = (x.tolist(), y.tolist(), color, spectrum.region.label)
            for key, item in zip(lines, line, strict=True):
                lines[key].append(item)
            if spectrum.std is None:
                continue
            at, std = plots.with_gaps(self.x, spectrum.std, good=self.good)
            for key, item in zip(sigmas, (at.tolist(), std.tolist(), color), strict=True):
                sigmas[key].append(item)
            for xs, ys in self._outlines(spectrum):
                for key, item in zip(areas, (xs.tolist(), ys.tolist(), color), strict=True):
                    areas[key].append(item)
        self._lines.data, self._areas.data, self._sigmas.data = lines, areas, sigmas
        self._hover(spectra[0][0])

    def _outlines(self, spectrum: Spectrum) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the closed outline of the interval between every two gaps."""
        x, low, high = plots.with_gaps(self.x, spectrum.low, spectrum.high, good=self.good)
        filled = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
        cuts = np.flatnonzero(np.diff(filled.astype(int))) + 1
        runs = [run for run in np.split(np.arange(len(x)), cuts) if len(run) and filled[run[0]]]
        return [
            (np.concatenate([x[run], x[run][::-1]]), np.concatenate([low[run], high[run][::-1]]))
            for run in runs
            if len(run) > 1
        ]

    def _hover(self, spectrum: Spectrum) -> None:
        kept = np.flatnonzero(self.good & np.isfinite(spectrum.estimate))
        std = np.full(len(self.x), np.nan) if spectrum.std is None else spectrum.std
        columns = {
            "x": self.x,
            "estimate": spectrum.estimate,
            "std": std,
            "low": spectrum.low,
            "high": spectrum.high,
            "band": np.arange(len(self.x)),
        }
        self.points.data = {name: values[kept].tolist() for name, values in columns.items()}
        noisy = spectrum.observed
        shown = kept if noisy is None else kept[np.isfinite(noisy[kept])]
        self.observed.visible = noisy is not None
        dots = (self.x[:0], self.x[:0]) if noisy is None else (self.x[shown], noisy[shown])
        self._dots.data = {name: item.tolist() for name, item in zip("xy", dots, strict=True)}


def plain(plot: Any) -> None:
    """Give a figure the looks of the package."""
    plot.toolbar.logo = None
    plot.toolbar_location = "above"
    plot.title.text_font_size = "14px"
    plot.outline_line_color = "#999"
    plot.background_fill_color = "white"
    for axis in plot.axis:
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = "13px"
        axis.major_label_text_font_size = "12px"
        axis.minor_tick_line_color = None
    plot.grid.grid_line_alpha = 0.35
    # Zooming out of a scene leads to half and negative pixels; their numbers would only confuse.
    plot.axis.formatter = CustomJSTickFormatter(
        code="return Math.abs(tick) < 1e-9 ? '0' : String(Number(tick.toPrecision(6)))"
    )

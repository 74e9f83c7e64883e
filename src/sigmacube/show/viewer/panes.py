"""The two panes of the viewer: an image to click, and spectra with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh import palettes
from bokeh.models import (
    BoxSelectTool,
    ColorBar,
    ColumnDataSource,
    CrosshairTool,
    CustomJSTickFormatter,
    DataRange1d,
    HoverTool,
    LinearColorMapper,
    PanTool,
    ResetTool,
    SaveTool,
    Span,
    WheelZoomTool,
)
from bokeh.plotting import figure

from sigmacube.show import plots
from sigmacube.show.viewer.picture import Part, Picture
from sigmacube.show.viewer.spectra import Region, Spectrum

__all__ = ["ImagePane", "SpectrumPane", "COLORS"]

#: Of the current pixel and of the pinned ones: Okabe and Ito's, the faint ones left out.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
NO_DATA = "#d9d9d9"
_HEIGHT = 500
_DIGITS = {"@value": "printf", "@red": "printf", "@green": "printf", "@blue": "printf"}


def _palette(name: str, picture: Picture) -> Sequence[str]:
    if name == "cividis":
        steps = round(float(picture.high[0] - picture.low[0]))
        return palettes.cividis(max(2, min(steps, 256)))
    if name == "diverging":
        return palettes.interp_palette(palettes.RdBu11, 255)
    return {"gray": palettes.Greys256, "viridis": palettes.Viridis256}[name]


class ImagePane:
    """The scene, with the marks of what is shown beside it."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        rows, cols, _ = shape
        self.figure = figure(
            height=_HEIGHT,
            sizing_mode="stretch_width",
            match_aspect=True,
            x_range=DataRange1d(range_padding=0, bounds=(-0.5 - cols, 2 * cols)),
            y_range=DataRange1d(range_padding=0, flipped=True, bounds=(-0.5 - rows, 2 * rows)),
            x_axis_label="column",
            y_axis_label="row",
            title="Reading…",  # from the start, or the picture would move when it gets one
            tools=[],
            name="image",
        )
        self._add_pictures(rows, cols)
        self._add_marks()
        self._add_tools()
        _plain(self.figure)

    def _add_pictures(self, rows: int, cols: int) -> None:
        plot = self.figure
        frame = plot.quad(
            left=-0.5, right=cols - 0.5, bottom=-0.5, top=rows - 0.5, color=NO_DATA, line_alpha=0
        )
        # The ranges follow the scene, not the part of it that happens to be drawn.
        plot.x_range.renderers = plot.y_range.renderers = [frame]
        place = {"x": "x", "y": "y", "dw": "dw", "dh": "dh"}
        self._mapper = LinearColorMapper(palette=palettes.Viridis256, nan_color=NO_DATA)
        self._values = ColumnDataSource({key: [] for key in ("value", *place)})
        self._colors = ColumnDataSource(
            {key: [] for key in ("rgba", "red", "green", "blue", *place)}
        )
        self.scalar = plot.image("value", source=self._values, color_mapper=self._mapper, **place)
        self.color = plot.image_rgba("rgba", source=self._colors, **place)
        self._bar = ColorBar(color_mapper=self._mapper, width=12, padding=4, major_tick_in=0)
        plot.add_layout(self._bar, "right")

    def _add_marks(self) -> None:
        plot = self.figure
        self._marks = ColumnDataSource({key: [] for key in ("x", "y", "color")})
        self._boxes = ColumnDataSource(
            {key: [] for key in ("left", "right", "top", "bottom", "color")}
        )
        box = {"left": "left", "right": "right", "top": "top", "bottom": "bottom"}
        for color, width in (("white", 4), ("color", 2)):
            plot.quad(source=self._boxes, fill_alpha=0, line_color=color, line_width=width, **box)
            plot.scatter(
                "x", "y", source=self._marks, size=13, fill_alpha=0, line_color=color,
                line_width=width,
            )  # fmt: skip

    def _add_tools(self) -> None:
        place = ("pixel (row, col)", "$y{0}, $x{0}")
        zoom = WheelZoomTool()
        box = BoxSelectTool(renderers=[], description="Region: drag for the mean of a rectangle")
        tools = [
            box,
            PanTool(),
            zoom,
            ResetTool(),
            SaveTool(filename="scene"),
            HoverTool(
                renderers=[self.scalar],
                tooltips=[place, ("value", "@value{%.4g}")],
                formatters=_DIGITS,
            ),
            HoverTool(
                renderers=[self.color],
                tooltips=[place, ("R, G, B", "@red{%.4g}, @green{%.4g}, @blue{%.4g}")],
                formatters=_DIGITS,
            ),
        ]
        self.figure.add_tools(*tools)
        self.figure.toolbar.active_drag = box
        self.figure.toolbar.active_scroll = zoom

    def show(self, picture: Picture, part: Part, title: str) -> None:
        """Draw a picture in its place."""
        x, y, width, height = part.extent
        place = {"x": [x], "y": [y], "dw": [width], "dh": [height]}
        is_color = picture.palette == "rgb"
        if is_color:
            red, green, blue = np.moveaxis(picture.values.astype(np.float32), 2, 0)
            channels = {"red": [red], "green": [green], "blue": [blue]}
            self._colors.data = {"rgba": [picture.rgba()], **channels, **place}
        else:
            self._mapper.update(
                palette=list(_palette(picture.palette, picture)),
                low=float(picture.low[0]),
                high=float(picture.high[0]),
            )
            self._values.data = {"value": [picture.values.astype(np.float32)], **place}
        self.color.visible, self.scalar.visible = is_color, not is_color
        self._bar.visible = not is_color
        self.figure.title.text = title

    def mark(self, regions: Sequence[tuple[Region, str]]) -> None:
        """Mark regions, given with their colours."""
        pixels = [item for item in regions if item[0].is_pixel]
        boxes = [item for item in regions if not item[0].is_pixel]
        marks = {
            "x": [region.left for region, _ in pixels],
            "y": [region.top for region, _ in pixels],
            "color": [color for _, color in pixels],
        }
        outlines = {
            "left": [region.left - 0.5 for region, _ in boxes],
            "right": [region.left + region.width - 0.5 for region, _ in boxes],
            "top": [region.top - 0.5 for region, _ in boxes],
            "bottom": [region.top + region.height - 0.5 for region, _ in boxes],
            "color": [color for _, color in boxes],
        }
        # Bokeh sends what is set, even where nothing changed.
        for source, data in ((self._marks, marks), (self._boxes, outlines)):
            if dict(source.data) != data:
                source.data = data


class SpectrumPane:
    """Spectra with their 95 % intervals, broken at bad bands."""

    def __init__(self, wavelengths: np.ndarray | None, good: np.ndarray, quantity: str) -> None:
        self.x = np.arange(len(good), dtype=float) if wavelengths is None else wavelengths
        self.good = good
        self.figure = figure(
            height=_HEIGHT,
            sizing_mode="stretch_width",
            x_axis_label="band" if wavelengths is None else "wavelength (nm)",
            y_axis_label=quantity,
            y_range=DataRange1d(range_padding=0.06, only_visible=True),
            x_range=DataRange1d(range_padding=0.01),
            tools=[PanTool(), ResetTool(), SaveTool(filename="spectrum"), CrosshairTool()],
            name="spectrum",
        )
        self._add_glyphs()
        zoom = WheelZoomTool(dimensions="width")
        self.figure.add_tools(zoom)
        self.figure.toolbar.active_scroll = zoom
        self.figure.xaxis.ticker.desired_num_ticks = 7
        _plain(self.figure)

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
            "x", "y", source=self._dots, size=4, color="#8C8C8C", line_alpha=0,
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

    def show(self, spectra: Sequence[tuple[Spectrum, str]]) -> None:
        """Draw spectra with their colours; the first is the current one, whose values hover.

        As lists: every array would be two messages of its own to the page.
        """
        lines: dict[str, list[Any]] = {"xs": [], "ys": [], "color": [], "label": []}
        areas: dict[str, list[Any]] = {"xs": [], "ys": [], "color": []}
        # The current one last, on top.
        for spectrum, color in reversed(spectra):
            x, y = plots.with_gaps(self.x, spectrum.estimate, good=self.good)
            line = (x.tolist(), y.tolist(), color, spectrum.region.label)
            for key, item in zip(lines, line, strict=True):
                lines[key].append(item)
            if spectrum.std is None:
                continue
            for xs, ys in self._outlines(spectrum):
                for key, item in zip(areas, (xs.tolist(), ys.tolist(), color), strict=True):
                    areas[key].append(item)
        self._lines.data, self._areas.data = lines, areas
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


def _plain(plot: Any) -> None:
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

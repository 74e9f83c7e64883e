"""The image pane of the viewer: pictures to click, compare and swipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh import palettes
from bokeh.models import (
    BoxSelectTool,
    ColorBar,
    ColumnDataSource,
    CustomJSHover,
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

from sigmacube.show.look import NO_DATA
from sigmacube.show.place import Place
from sigmacube.show.viewer.picture import Part, Picture
from sigmacube.show.viewer.spectra import Region
from sigmacube.show.viewer.spectrum_pane import plain

_DIGITS = {"@value": "printf", "@red": "printf", "@green": "printf", "@blue": "printf"}

#: Columns that say where a picture lies: its corner, its width and height.
_PLACE = ("x", "y", "dw", "dh")


def _place(part: Part) -> dict[str, list[float]]:
    return {key: [value] for key, value in zip(_PLACE, part.extent, strict=True)}


class ImagePane:
    """The scene, with the marks of what is shown beside it."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        place: Place | None = None,
        unexplained: np.ndarray | None = None,
    ) -> None:
        rows, cols, _ = shape
        self._place = place
        self.figure = figure(
            aspect_ratio=1.3,  # not one height for all: on a phone most of it would be empty
            sizing_mode="scale_width",
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
        self._add_overlay()
        self._add_unexplained(unexplained)
        self._add_marks()
        self._add_tools()
        plain(self.figure)

    def _add_pictures(self, rows: int, cols: int) -> None:
        plot = self.figure
        frame = plot.quad(
            left=-0.5, right=cols - 0.5, bottom=-0.5, top=rows - 0.5, color=NO_DATA, line_alpha=0
        )
        # The ranges follow the scene, not the part of it that happens to be drawn.
        plot.x_range.renderers = plot.y_range.renderers = [frame]
        place = {key: key for key in _PLACE}
        self._mapper = LinearColorMapper(palette=palettes.Viridis256, nan_color=NO_DATA)
        self._values = ColumnDataSource({key: [] for key in ("value", *_PLACE)})
        colors = ("rgba", "red", "green", "blue")
        self._colors = ColumnDataSource({key: [] for key in (*colors, *_PLACE)})
        self.scalar = plot.image("value", source=self._values, color_mapper=self._mapper, **place)
        self.color = plot.image_rgba("rgba", source=self._colors, **place)
        self._bar = ColorBar(color_mapper=self._mapper, width=12, padding=4, major_tick_in=0)
        plot.add_layout(self._bar, "right")

    def _add_overlay(self) -> None:
        """Add the second picture, drawn over the first right of a line."""
        self.over = ColumnDataSource({key: [] for key in ("rgba", "full", *_PLACE)})
        place = {key: key for key in _PLACE}
        self.second = self.figure.image_rgba("rgba", source=self.over, **place)
        self.line = Span(dimension="height", location=0, visible=False)
        self.line.update(line_color="black", line_width=2, line_dash="dashed")
        self.figure.add_layout(self.line)

    def _add_unexplained(self, places: np.ndarray | None) -> None:
        """Mark pixels whose spectrum no window explains."""
        found = np.empty((0, 2), dtype=int) if places is None else np.asarray(places)
        self.odd = ColumnDataSource({"y": found[:, 0].tolist(), "x": found[:, 1].tolist()})
        for color, width in (("white", 3.5), ("black", 1.2)):
            self.figure.scatter(
                "x", "y", source=self.odd, marker="diamond", size=11, fill_alpha=0,
                line_color=color, line_width=width, name="unexplained",
            )  # fmt: skip

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
        place = [("pixel (row, col)", "$y{0}, $x{0}")]
        formats: dict[str, Any] = dict(_DIGITS)
        if self._place is not None:
            # By the screen's x: a formatter of $x would be that of the column as well.
            place.append((self._place.name or "map", "$sx{custom}"))
            formats["$sx"] = CustomJSHover(code=self._place.script())
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
                tooltips=[*place, ("value", "@value{%.4g}")],
                formatters=formats,
            ),
            HoverTool(
                renderers=[self.color],
                tooltips=[*place, ("R, G, B", "@red{%.4g}, @green{%.4g}, @blue{%.4g}")],
                formatters=formats,
            ),
        ]
        self.figure.add_tools(*tools)
        self.figure.toolbar.active_drag = box
        self.figure.toolbar.active_scroll = zoom

    def show(self, picture: Picture, part: Part, title: str) -> None:
        """Draw a picture in its place."""
        place = _place(part)
        is_color = picture.palette == "rgb"
        if is_color:
            red, green, blue = np.moveaxis(picture.values.astype(np.float32), 2, 0)
            channels = {"red": [red], "green": [green], "blue": [blue]}
            self._colors.data = {"rgba": [picture.rgba()], **channels, **place}
        else:
            self._mapper.update(
                palette=picture.colors(), low=float(picture.low[0]), high=float(picture.high[0])
            )
            self._values.data = {"value": [picture.values.astype(np.float32)], **place}
        self.color.visible, self.scalar.visible = is_color, not is_color
        self._bar.visible = not is_color
        self.figure.title.text = title

    def show_second(self, picture: Picture | None, part: Part, title: str = "") -> None:
        """Draw a second picture over the first, or none; both names are then in the title."""
        if picture is None:
            self.over.data = {key: [] for key in self.over.data}
            self.line.visible = False
            return
        packed = picture.rgba()
        self.over.data = {"rgba": [packed], "full": [packed.copy()], **_place(part)}
        self.figure.title.text = f"{self.figure.title.text} ◂ ▸ {title}"

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

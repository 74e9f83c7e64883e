"""One self-contained HTML page about a result: pictures inside, nothing loaded from anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube._version import __version__
from sigmacube.core.card import size_of
from sigmacube.core.validity import finite_mean
from sigmacube.core.whitening import std_of_noise
from sigmacube.core.windows import window_sides
from sigmacube.cube import Cube
from sigmacube.io.atomic import check_output, staged
from sigmacube.io.cf import REFERENCES
from sigmacube.io.observed import block_of, observed_for, picture_of
from sigmacube.io.places import check_plain
from sigmacube.io.result_file import ResultFile, open_result
from sigmacube.io.source import Source
from sigmacube.show import plots
from sigmacube.show.key_figures import data_uri, key_figures, unexplained_of
from sigmacube.show.look import CSS
from sigmacube.show.place import Place
from sigmacube.show.telling import Pixel, telling_pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sigmacube.result import DenoisedCube

#: Elements of a cube that the pictures are made of; larger scenes are thinned.
_LIMIT = 25_000_000
#: Unexplained pixels that are named.
_LISTED = 40
#: Values of a setting that are listed one by one.
_FEW = 12


def write_report(
    result: DenoisedCube | str | Path,
    out: str | Path,
    *,
    observed: Any = None,
    calibration: Any = None,
    overwrite: bool = True,
) -> Path:
    """Write one HTML page about a result.

    The page holds its pictures, needs no network, and prints to A4 or letter.

    Parameters
    ----------
    result
        A result, or the path of one.
    out
        The page, ``.html``.
    observed
        The noisy input (a path, `Cube` or array) for the picture before. A file beside a saved
        result that has the input's name is found by itself.
    calibration
        What was found about coverage: an object with ``coverage`` (from `sc.holdout` or
        `sc.monte_carlo`), a mapping from nominal level to coverage, or the path of a JSON
        file that has it under ``coverage``.
    overwrite
        Whether an existing page may be replaced.

    Returns
    -------
    Path
        ``out``.

    Examples
    --------
    >>> import tempfile, sigmacube as sc
    >>> from sigmacube.show.report import write_report
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> page = write_report(
    ...     sc.denoise(noisy, 0.05, window=12), Path(tempfile.mkdtemp()) / "report.html",
    ...     observed=noisy,
    ... )
    >>> "://" in page.read_text(encoding="utf-8")
    False
    """
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"{out}: a report cannot have the suffix {out.suffix!r}. It must be .html."
        )
    check_output([out], overwrite=overwrite)
    check = _read(calibration) if isinstance(calibration, str | Path) else calibration
    achieved = _coverage(check)
    with open_result(result) as source:
        _check_scene(check, source)
        before = observed_for(observed, result, source)
        page = _Page(source, before, achieved).html()
    with staged([out], overwrite=overwrite) as (temporary,):
        temporary.write_text(page, encoding="utf-8")
    return out


def _read(path: str | Path) -> Any:
    """Return what a JSON file holds."""
    check_plain(Path(path))
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON ({error}).") from None


def _coverage(given: Any) -> dict[float, float] | None:
    """Return achieved coverage by nominal level, from any of the accepted forms."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        given = given.get("coverage", given)
    given = getattr(given, "coverage", given)
    try:
        shares = {float(level): float(share) for level, share in given.items()}
    except (AttributeError, TypeError, ValueError):
        shares = {}
    if not shares or not all(0 < level < 1 and 0 <= s <= 1 for level, s in shares.items()):
        raise ValueError(
            "Invalid calibration. It must map nominal levels to coverage, both between 0 and 1, "
            'such as {"0.95": 0.948}.'
        )
    return shares


def _check_scene(given: Any, source: ResultFile) -> None:
    """Refuse the check of another scene, where both say which one it was."""
    theirs = given.get("scene") if isinstance(given, Mapping) else getattr(given, "scene", None)
    ours = source.about.settings.get("scene")
    if theirs and ours and theirs != ours:
        raise ValueError(
            f"Invalid calibration: it is a check of another scene ({theirs}). It must be one of "
            f"{source.name} ({ours})."
        )


class _Page:
    """What the sections of a page share."""

    def __init__(
        self,
        source: ResultFile,
        observed: Cube | Source | None,
        coverage: dict[float, float] | None,
    ) -> None:
        self.source, self.observed = source, observed
        self.result, self.step = source.thinned(_LIMIT)
        self.coverage = coverage or _recorded(self.result.settings)
        self.pixels = list(telling_pixels(self.result, self.step))

    def html(self) -> str:
        """Return the whole page."""
        parts = [self.scene(), self.spectra(), self.why(), self.noise()]
        parts += [self.calibration()] if self.coverage else []
        parts += [self.settings(), _cite()]
        title = escape(self.source.name)
        return _TEMPLATE.format(
            title=title, style=_STYLE, header=self.header(), body="\n".join(parts)
        )

    def header(self) -> str:
        """Return the title and the key figures."""
        figures = key_figures(self.result)
        rows, cols, bands = self.source.shape
        figures["size"] = size_of((rows, cols, bands))
        tiles = "".join(
            f"<div class=tile><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>"
            for label, text in figures.items()
        )
        settings = self.result.settings
        made = f"sigmacube {settings.get('version', __version__)}"
        nth = {2: "second", 3: "third"}.get(self.step, f"{self.step}th")
        thin = f" Figures and maps use every {nth} pixel." if self.step > 1 else ""
        what = (
            f"Denoised by {escape(made)} with windows of {_sides(settings.get('window'))} pixels "
            f"every {_sides(settings.get('step'))}, solver {escape(str(settings.get('solver')))}. "
            f"σ is the standard deviation of the estimate's error: {self._held}."
        )
        return (
            f"<h1>{escape(self.source.name)}</h1><p class=lead>{what}{thin}</p>"
            f"{self._caveats()}<dl class=tiles>{tiles}</dl>"
        )

    @property
    def _spatial(self) -> bool:
        return self.result.settings.get("prior") == "spatial"

    @property
    def _held(self) -> str:
        """What σ holds, in words."""
        lost = ", and signal that was lost" if self._spatial else "; signal that was lost is not"
        return f"noise that passed the denoising{lost}"

    def _caveats(self) -> str:
        """Return what σ does not hold on this scene, before everything else."""
        told = "".join(f"<li>{escape(text)}</li>" for text in self.source.about.caveats)
        if not told:
            return ""
        return f"<div class=caveats><b>What σ does not hold here</b><ul>{told}</ul></div>"

    def scene(self) -> str:
        """Return the scene before and after, and sigma."""
        result = self.result
        shown = plots.usable_bands(result.estimate, self.source.good_bands)
        chosen = plots.color_bands(shown, result.wavelengths)
        limits = plots.stretch_limits(result.estimate[:, :, chosen])
        pictures: list[tuple[str, Any]] = []
        if self.observed is not None:
            noisy = picture_of(self.observed, chosen, self.step)
            pictures.append(("Observed", lambda ax: _color(noisy, limits, ax)))
        after = result.estimate[:, :, chosen]
        pictures.append(("Denoised", lambda ax: _color(after, limits, ax)))
        if result.std is not None:
            pictures.append(("", lambda ax: plots.sigma_map(result, ax=ax)))
            # With one noise level for all bands both maps are the same picture.
            if np.ndim(result.noise):
                pictures.append(("", lambda ax: plots.sigma_ratio_map(result, ax=ax)))
        image = self._maps(pictures, marks=True)
        colors = (
            "bands " + ", ".join(str(band) for band in chosen)
            if result.wavelengths is None
            else ", ".join(f"{result.wavelengths[band]:.0f}" for band in chosen) + " nm"
        )
        caption = (
            f"Red, green and blue are {colors}, all pictures on one scale. Circles mark the pixels "
            "whose spectra follow."
        )
        if result.std is not None and np.ndim(result.noise):
            caption += " σ relative to the noise says how much of the noise is left."
        return _section("The scene", image + _caption(caption))

    def spectra(self) -> str:
        """Return the spectra of a few telling pixels."""
        if not self.pixels:
            return _section("Spectra", "<p>No pixel has values.</p>")
        images = [
            _drawn((4.0, 3.6), f"Spectrum of pixel {number}",
                   partial(self._spectrum, pixel=pixel, number=number))
            for number, pixel in enumerate(self.pixels, start=1)
        ]  # fmt: skip
        caption = (
            "Estimate with its 95 % interval"
            + (", observed values as dots." if self.observed is not None else ".")
            + (
                " Below each the interval about the estimate."
                if self.result.std is not None
                else ""
            )
            + " Lines break at bad bands. Classes are groups of similar spectra (k-means); each is "
            "shown by the pixel nearest to its centre."
        )
        return _section("Spectra", _grid(images) + _caption(caption))

    def why(self) -> str:
        """Return where sigma is large, and why."""
        result = self.result
        rank = self.source.window_image("ranks", step=self.step)
        residual = self.source.window_image("residual_ratio", step=self.step)
        pictures: list[tuple[str, Any]] = [
            ("", lambda ax: plots.rank_map(rank, ax=ax)),
            ("", lambda ax: plots.residual_map(residual, ax=ax)),
        ]
        if result.rejected is not None:
            pictures.append(("", lambda ax: plots.rejected_map(result, ax=ax)))
        caption = (
            "Rank: how many spectra describe a window; each adds to σ. Residual: what was removed, "
            "over what the noise predicts. Well above 1 windows miss signal"
            + ("" if self._spatial else ", and σ does not hold that bias")
            + "; well below 1 the noise was taken too large."
        )
        table = "" if result.std is None else self._sigma_table(rank)
        return _section(
            "Where σ is large, and why",
            table + self._maps(pictures) + _caption(caption) + self._unexplained(),
        )

    def _unexplained(self) -> str:
        """Return the pixels whose spectrum no window explains."""
        places = unexplained_of(self.source.about)
        if not len(places):
            return ""
        named = ", ".join(f"({row}, {col})" for row, col in places[:_LISTED].tolist())
        more = f" and {len(places) - _LISTED:,} more" if len(places) > _LISTED else ""
        return _caption(
            f"Pixels whose spectrum no window explains, as (row, col): {named}{more}. They are "
            "kept as they were measured, with a larger σ."
        )

    def noise(self) -> str:
        """Return noise and sigma per band."""
        result = self.result
        if result.std is None:
            return _section(
                "Noise", f"<p>{escape(key_figures(result)['noise σ'])}. No σ was computed.</p>"
            )
        name = "Noise per band"
        image = _drawn(
            (7.4, 2.9), name, lambda figure: plots.noise_spectrum(result, ax=figure.subplots())
        )
        origin = str(result.settings.get("noise_source", "not stated"))
        told = "given by the user" if origin == "given" else f"from: {origin}"
        caption = _caption(f"The noise was {escape(told)}.")
        return _section(name, f"<div class=plot>{image}</div>{caption}")

    def calibration(self) -> str:
        """Return achieved against claimed coverage."""
        coverage = self.coverage or {}
        image = _drawn(
            (4.6, 4.2), "Calibration",
            lambda figure: plots.calibration(coverage, ax=figure.subplots()),
        )  # fmt: skip
        rows = "".join(
            f"<tr><td>{100 * level:g} %</td><td>{100 * share:.1f} %</td></tr>"
            for level, share in sorted(coverage.items())
        )
        table = f"<table><tr><th>claimed</th><th>achieved</th></tr>{rows}</table>"
        return _section("Calibration", f"<div class=pair><div>{image}</div>{table}</div>")

    def settings(self) -> str:
        """Return the settings and what the input said about itself."""
        # Long lists, and what has no text form.
        skip = {"good_bands", "fwhm", "band_names", "scale_factor", "add_offset", "envi"}
        skip |= {"location", "xarray", "map_info", "calibration", "crs_wkt", "transform"}
        skip |= {"caveats"}  # told at the top
        if self._spatial:
            skip |= {"overlap", "weights", "finite_noise"}  # options of the other family
        blocks = []
        about = dict(self.result.metadata)
        place = Place.of(about)
        about |= {} if place is None else {"first pixel": place.text(0, 0)}
        for title, content in (("Options", self.result.settings), ("Input", about)):
            rows = "".join(
                f"<tr><th>{escape(_words(key))}</th><td>{escape(_readable(value))}</td></tr>"
                for key, value in content.items()
                if key not in skip and _readable(value)
            )
            if rows:
                blocks.append(f"<div><h3>{title}</h3><table>{rows}</table></div>")
        return _section("Settings", f"<div class=columns>{''.join(blocks)}</div>")

    def _maps(self, pictures: list[tuple[str, Any]], *, marks: bool = False) -> str:
        """Draw maps of one size, and return them as images side by side."""
        from matplotlib.figure import Figure

        rows, cols = self.result.estimate.shape[:2]
        width, left, right, below, above = 4.0, 0.58, 0.98, 0.52, 0.32
        tall = min(max((width - left - right) * rows / cols, 1.2), 6.0)
        height = tall + below + above
        images = []
        for title, draw in pictures:
            with plots.style():
                figure = Figure(figsize=(width, height))
                # By hand: pictures with and without a colourbar are to have the same size.
                box = (left / width, below / height, 1 - (left + right) / width, tall / height)
                ax = draw(figure.add_axes(box))
                ax.set_title(title or ax.get_title())
                if self.step > 1:
                    step = self.step
                    for axis in (ax.xaxis, ax.yaxis):
                        axis.set_major_formatter(lambda value, _, s=step: f"{value * s:g}")
                if marks:
                    self._mark(ax)
            images.append(_image(figure, ax.get_title(), dpi=150))
        return _grid(images)

    def _mark(self, ax: Axes) -> None:
        for number, pixel in enumerate(self.pixels, start=1):
            at = (pixel.col / self.step, pixel.row / self.step)
            for color, width in (("white", 2.6), ("black", 1.1)):
                ax.plot(*at, "o", ms=7, mfc="none", mec=color, mew=width)
            ax.annotate(
                str(number), at, xytext=(5, 4), textcoords="offset points", fontsize=9,
                weight="bold", color="black",
                bbox={"boxstyle": "circle,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.85},
            )  # fmt: skip

    def _spectrum(self, figure: Figure, pixel: Pixel, number: int) -> None:
        source, (row, col, why), noisy = self.source, pixel, None
        if self.observed is not None:
            noisy = block_of(self.observed, slice(row, row + 1), slice(col, col + 1))[0, 0]
        if "std" in source.cubes:
            ax, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.6, 1))
        else:
            ax, below = figure.subplots(), None
        plots.spectrum(
            source.spectrum("estimate", row, col).astype(np.float64),
            source.spectrum("std", row, col) if "std" in source.cubes else None,
            wavelengths=source.wavelengths,
            good_bands=source.good_bands,
            observed=noisy,
            ax=ax,
            below=below,
        )
        ax.set_ylabel(plots.quantity(self.result))
        ax.set_title(f"{number}  {why} ({row}, {col})")
        if number > 1 and (legend := ax.get_legend()) is not None:
            legend.remove()

    def _sigma_table(self, rank: np.ndarray) -> str:
        """Return sigma by rank, and at the edge of the scene against inside."""
        assert self.result.std is not None
        relative = np.asarray(self.result.std / std_of_noise(self.result.noise))
        left = np.sqrt(finite_mean(np.square(relative), axis=2))
        window = window_sides(self.result.settings, "window") or (2, 2)
        inside = np.zeros(left.shape, dtype=bool)
        margins = [max(1, side // 2 // self.step) for side in window]
        inside[margins[0] : -margins[0], margins[1] : -margins[1]] = True
        lines = [(f"rank {low}" if low == high else f"rank {low} to {high}", part)
                 for low, high, part in _rank_groups(rank)]  # fmt: skip
        lines += [("near the edge of the scene", ~inside), ("inside", inside)]
        rows = "".join(
            f"<tr><td>{label}</td><td>{100 * part.mean():.0f} %</td>"
            f"<td>{100 * np.nanmedian(left[part]):.1f} %</td></tr>"
            for label, part in lines
            if np.isfinite(left[part]).any()
        )
        return (
            "<table class=narrow><tr><th>pixels</th><th>share of the scene</th>"
            f"<th>σ relative to the noise (median)</th></tr>{rows}</table>"
        )


def _rank_groups(rank: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield (lowest, highest, pixels) of at most five groups of ranks."""
    values = np.unique(rank[np.isfinite(rank)]).astype(int)
    for group in np.array_split(values, min(5, len(values))):
        low, high = int(group[0]), int(group[-1])
        yield low, high, (rank >= low) & (rank <= high)


def _color(values: np.ndarray, limits: np.ndarray, ax: Axes) -> Axes:
    """Draw three channels, red first."""
    channels = (0.0, 1.0, 2.0)
    return plots.false_color(
        values, wavelengths=np.array(channels), colors=channels, limits=limits, ax=ax
    )


def _recorded(settings: Mapping[str, Any]) -> dict[float, float] | None:
    """Return the coverage that a hold-out check left with the result."""
    for key in ("calibration", "holdout"):
        found = settings.get(key)
        if isinstance(found, Mapping) and isinstance(found.get("coverage"), Mapping):
            return _coverage(found)
    return None


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{content}</section>"


def _grid(images: list[str]) -> str:
    return f"<div class=grid>{''.join(images)}</div>"


def _caption(text: str) -> str:
    return f"<p class=caption>{text}</p>"


def _drawn(size: tuple[float, float], alt: str, draw: Callable[[Figure], Any]) -> str:
    """Return what is drawn on a new figure of a size as an image."""
    from matplotlib.figure import Figure

    with plots.style():
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
    return _image(figure, alt)


def _image(figure: Figure, alt: str, **options: Any) -> str:
    return f'<img alt="{escape(alt)}" src="{data_uri(figure, "svg", **options)}">'


def _sides(value: Any) -> str:
    """Return a window's or step's (rows, cols) as text."""
    if isinstance(value, list | tuple) and len(value) >= 2:
        return escape(f"{value[0]} × {value[1]}" if value[0] != value[1] else str(value[0]))
    return escape(str(value))


def _words(key: object) -> str:
    """Return the name of an option as words."""
    return str(key).replace("_", " ")


def _readable(value: Any) -> str:
    """Return a setting as people read it: no brackets, no quotes, few digits.

    Examples
    --------
    >>> _readable([20, 20, 110]), _readable(None), _readable({"kind": "per band", "lag": 0.01234})
    ('20, 20, 110', 'none', 'kind: per band; lag: 0.01234')
    """
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{_words(k)}: {_readable(v)}" for k, v in value.items())
    if isinstance(value, list | tuple | np.ndarray):
        items = [_readable(one) for one in value]
        if len(items) > _FEW:
            return f"{len(items):,} values, {items[0]} to {items[-1]}"
        return ", ".join(items)
    text = str(value)
    return text if len(text) <= 300 else f"{text[:297]}…"


def _cite() -> str:
    made = datetime.now(UTC).strftime("%Y-%m-%d")
    text = (
        f"Song, J., Xia, S., Wang, J., Patel, M., Chen, D. (2021). {REFERENCES}. And the software: "
        f"sigmacube, version {__version__}."
    )
    return _section(
        "How to cite",
        f"<p>{escape(text)}</p>"
        f"<p class=caption>Page made on {made} by sigmacube {__version__}.</p>",
    )


_TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title} · sigmacube report</title>
<style>{style}</style>
</head>
<body>
<header>{header}</header>
<main>
{body}
</main>
</body>
</html>
"""

_STYLE = (
    CSS
    + """
body { padding: 32px 28px 48px; max-width: 1060px; }
img { display: block; width: 100%; height: auto; }
.lead { margin: 0 0 18px; max-width: 75ch; color: #444; }
.caption { margin: 6px 0 0; max-width: 90ch; color: #555; font-size: 13.5px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(228px, 1fr)); gap: 8px;
  margin: 0; }
.tile { border-left: 3px solid var(--accent); background: var(--panel); padding: 7px 11px; }
.tile dt { font-size: 12.5px; color: #555; }
.tile dd { margin: 0; font-weight: 600; font-size: 14px; overflow-wrap: anywhere; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 10px; }
.narrow { margin-bottom: 16px; }
.pair { display: flex; flex-wrap: wrap; gap: 28px; align-items: center; }
.pair > div { flex: 0 1 460px; }
.plot { max-width: 720px; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(290px, 1fr)); gap: 24px; }
.columns table { width: 100%; }
.columns th { white-space: nowrap; overflow-wrap: normal; width: 9em; }
@media (max-width: 560px) { body { padding: 18px 14px 32px; } }
@media print {
  @page { margin: 14mm 13mm; }
  body { padding: 0; max-width: none; font-size: 10.5pt; }
  .grid { grid-template-columns: repeat(2, 1fr); }
  img, .tile, table, .tiles { break-inside: avoid; }
  h2 { break-after: avoid; margin-top: 18px; }
  .tile { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
)

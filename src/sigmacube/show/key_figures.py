"""Key figures of a result: what a terminal, a notebook and the report say of it first."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.card import card_html, count_of, size_of, span_of, spread_of
from sigmacube.core.whitening import std_of_noise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sigmacube.show.plots import Result

#: A window fits when its residual variance is within this factor of what the noise predicts.
FIT = 1.25
#: Pixels along the longer side of the notebook's picture.
_THUMBNAIL = 160
#: Elements that medians are taken of; larger cubes are thinned, or looking would take minutes.
_ENOUGH = 4_000_000


def key_figures(result: Result) -> dict[str, str]:
    """Return the figures that say most about a result, as label and text.

    Examples
    --------
    >>> import sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> figures = key_figures(sc.denoise(noisy, 0.05, window=12))
    >>> figures["size"], figures["noise σ"]
    ('24 × 30 pixels, 40 bands', '0.05 (given)')
    """
    figures = {"size": size_of(result.estimate.shape)} | span_of(result.wavelengths)
    figures["noise σ"] = _noise_text(result)
    if _is_lazy(result.estimate):
        return figures | {"values": "not computed yet"}
    every = _thinning(result.estimate.shape)
    if result.std is not None:
        std = np.asarray(result.std[every])
        finite = std[np.isfinite(std)]
        figures["σ of the estimate"] = f"median {np.median(finite):.3g}" if finite.size else "none"
        left = std / std_of_noise(result.noise)
        left = left[np.isfinite(left)]
        if left.size:
            figures["noise left"] = f"{100 * np.median(left):.0f} % (median)"
    return figures | _window_figures(result) | _element_figures(result, every)


def _window_figures(result: Result) -> dict[str, str]:
    figures = {}
    ranks = np.asarray(result.ranks)
    if ranks.size:
        span = f"median {np.median(ranks):.0f}, {ranks.min()} to {ranks.max()}"
        figures["rank of windows"] = span
    ratio = np.asarray(result.residual_ratio)
    ratio = ratio[np.isfinite(ratio)]
    if ratio.size:
        fit = np.mean((ratio < FIT) & (ratio > 1 / FIT))
        figures["model fits in"] = f"{100 * fit:.0f} % of {count_of(ratio.size, 'window')}"
    return figures


def _element_figures(result: Result, every: tuple[slice, slice]) -> dict[str, str]:
    figures = {}
    if result.rejected is not None:
        share = float(np.mean(np.asarray(result.rejected[every])))
        figures["rejected"] = f"{100 * share:.2g} % of elements"
    pixels = unexplained_of(result)
    if len(pixels):
        figures["unexplained"] = f"{count_of(len(pixels), 'pixel')}, kept with a larger σ"
    missing = float(np.mean(~np.isfinite(np.asarray(result.estimate[every]))))
    if missing:
        figures["no data"] = f"{100 * missing:.2g} % of elements"
    return figures


def unexplained_of(result: Result) -> np.ndarray:
    """Return the (pixels, 2) rows and columns of spectra that no window explains."""
    found = result.unexplained
    return np.asarray([] if found is None else found, dtype=np.int64).reshape(-1, 2)


def _noise_text(result: Result) -> str:
    levels = std_of_noise(result.noise)
    if levels.ndim and not _is_lazy(result.estimate):  # bands without data have no noise to tell
        values = np.asarray(result.estimate[_thinning(result.estimate.shape)])
        levels = levels[np.isfinite(values).any(axis=(0, 1))]
    kind = ("", ", per band", ", band covariance")[np.ndim(result.noise)]
    origin = str(result.settings.get("noise_source", ""))
    return spread_of(levels) + kind + (f" ({origin})" if origin else "")


def _is_lazy(values: object) -> bool:
    return getattr(values, "chunks", None) is not None


def _thinning(shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Return slices of rows and columns that leave few enough elements for a quick look."""
    step = max(1, int(np.ceil(np.sqrt(np.prod(shape, dtype=np.float64) / _ENOUGH))))
    return slice(None, None, step), slice(None, None, step)


def repr_html(result: Result) -> str:
    """Return the page that notebooks show: the scene, its sigma, the key figures, the caveats."""
    name = str(result.metadata.get("source") or result.metadata.get("name") or "")
    picture = "" if _is_lazy(result.estimate) else (
        f"<img alt='Estimate and its standard deviation' src='{_thumbnail(result)}' "
        "style='max-width:440px;width:100%;background:#fff'>"
    )  # fmt: skip
    title = f"{type(result).__name__} {name}".strip()
    return card_html(title, key_figures(result), result.caveats, picture=picture)


def _thumbnail(result: Result) -> str:
    from matplotlib.figure import Figure

    from sigmacube.show import plots

    rows, cols, _ = result.estimate.shape
    step = max(1, -(-max(rows, cols) // _THUMBNAIL))
    with plots.style():
        count = 1 if result.std is None else 2
        tall = np.clip(rows / cols, 0.35, 1.6)
        figure = Figure(figsize=(2.45 * count, 2.3 * tall + 0.35), layout="constrained")
        axes = np.atleast_1d(figure.subplots(1, count))
        nm = result.wavelengths
        plots.false_color(np.asarray(result.estimate[::step, ::step]), wavelengths=nm, ax=axes[0])
        axes[0].set_title("estimate")
        if result.std is not None:
            plots.sigma_map(np.asarray(result.std[::step, ::step]), ax=axes[1])
            axes[1].set_title("σ, rms over bands")
        for ax in axes:
            ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    return data_uri(figure, "png", dpi=110)


def data_uri(figure: Figure, kind: str, **options: Any) -> str:
    """Return a figure as a ``data:`` address of kind ``"png"`` or ``"svg"``."""
    import matplotlib as mpl

    from sigmacube.show import plots

    buffer = BytesIO()
    # A fixed salt and no date: the same result gives the same bytes.
    with plots.style(), mpl.rc_context({"svg.hashsalt": "sigmacube"}):
        plain = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, metadata=plain, **options)
    mime = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    return f"data:{mime};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"

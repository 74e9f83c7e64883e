"""A result at a glance: its key figures as text, and as the small page that notebooks show."""

from __future__ import annotations

import base64
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sigmacube.show.plots import Result

__all__ = ["key_figures", "repr_html", "data_uri", "FIT"]

#: A window fits when its residual variance is within this factor of what the noise predicts.
FIT = 1.25
#: Pixels along the longer side of the notebook's picture.
_THUMBNAIL = 160


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
    rows, cols, bands = result.estimate.shape
    figures = {"size": f"{rows} × {cols} pixels, {bands} bands"}
    if result.wavelengths is not None:
        nm = np.asarray(result.wavelengths)
        figures["wavelengths"] = f"{np.nanmin(nm):.0f} to {np.nanmax(nm):.0f} nm"
    figures["noise σ"] = _noise_text(result)
    if result.std is not None:
        std = result.std[np.isfinite(result.std)]
        figures["σ of the estimate"] = f"median {np.median(std):.3g}" if std.size else "none"
        left = relative_std(result)
        left = left[np.isfinite(left)]
        if left.size:
            figures["noise left"] = f"{100 * np.median(left):.0f} % (median)"
    ranks = np.asarray(result.ranks)
    figures["rank of windows"] = f"median {np.median(ranks):.0f}, {ranks.min()} to {ranks.max()}"
    ratio = result.residual_ratio[np.isfinite(result.residual_ratio)]
    if ratio.size:
        fit = np.mean((ratio < FIT) & (ratio > 1 / FIT))
        figures["model fits in"] = f"{100 * fit:.0f} % of {ratio.size} windows"
    if result.rejected is not None:
        figures["rejected"] = f"{100 * np.mean(result.rejected):.2g} % of elements"
    missing = float(np.mean(~np.isfinite(result.estimate)))
    if missing:
        figures["no data"] = f"{100 * missing:.2g} % of elements"
    return figures


def relative_std(result: Result) -> np.ndarray:
    """Return sigma over the noise, cube-like."""
    noise = np.asarray(result.noise, dtype=np.float64)
    level = np.sqrt(np.diag(noise)) if noise.ndim == 2 else noise
    if result.std is None:
        raise ValueError("Invalid request: the result was made with uncertainty=False.")
    return np.asarray(result.std / level)


def _noise_text(result: Result) -> str:
    noise = np.asarray(result.noise, dtype=np.float64)
    origin = str(result.settings.get("noise_source", ""))
    told = f" ({origin})" if origin else ""
    if noise.ndim == 0:
        return f"{float(noise):.3g}{told}"
    std = np.sqrt(np.diag(noise)) if noise.ndim == 2 else noise
    std = std[np.isfinite(std)]
    kind = "band covariance" if noise.ndim == 2 else "per band"
    if std.size == 0:
        return f"{kind}{told}"
    return f"median {np.median(std):.3g}, {std.min():.2g} to {std.max():.2g}, {kind}{told}"


def repr_html(result: Result) -> str:
    """Return the page that notebooks show: the scene, its sigma, the key figures."""
    title = escape(str(result.metadata.get("source") or result.metadata.get("name") or ""))
    cells = "".join(
        f'<tr><th style="text-align:left;padding:1px 14px 1px 0;font-weight:600">{escape(label)}'
        f'</th><td style="text-align:left;padding:1px 0">{escape(text)}</td></tr>'
        for label, text in key_figures(result).items()
    )
    named = f" <span style='opacity:.7'>{title}</span>" if title else ""
    return (
        "<div class='sigmacube' style='display:flex;flex-wrap:wrap;gap:18px;align-items:center'>"
        f"<img alt='Estimate and its standard deviation' src='{_thumbnail(result)}' "
        "style='max-width:440px;width:100%;background:#fff'>"
        f"<div><div style='font-weight:700;margin-bottom:4px'>DenoisedCube{named}</div>"
        f"<table style='border-collapse:collapse;font-size:90%'>{cells}</table></div></div>"
    )


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
        plots.false_color(result.estimate[::step, ::step], wavelengths=nm, ax=axes[0])
        axes[0].set_title("estimate")
        if result.std is not None:
            plots.sigma_map(result.std[::step, ::step], ax=axes[1])
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

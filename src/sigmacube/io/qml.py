"""Styles for QGIS (.qml): it takes the one beside an image of the same name by itself."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

__all__ = ["style"]

# Colours that stay in order in grey and to colour-blind eyes: values, and their σ.
_VALUES = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
_SIGMA = ("#fcfdbf", "#fc8961", "#b73779", "#51127c", "#000004")


def style(
    names: Sequence[str], ranges: Sequence[tuple[float, float]], *, sequential: bool = False
) -> str:
    """Return the style of an image: its first band in colours from low to high.

    Parameters
    ----------
    names, ranges
        Of the bands: what they are called, and from where to where colours run.
    sequential
        Whether values are standard deviations: pale where they are small.

    Examples
    --------
    >>> text = style(["ndvi", "ndvi σ"], [(0.1, 0.9), (0.0, 0.02)])
    >>> ElementTree.fromstring(text).find(".//rasterrenderer").get("classificationMax")
    '0.9'
    """
    low, high = ranges[0]
    colours = _SIGMA if sequential else _VALUES
    root = ElementTree.Element("qgis", {"version": "3.22", "styleCategories": "AllStyleCategories"})
    pipe = ElementTree.SubElement(root, "pipe")
    renderer = ElementTree.SubElement(
        pipe,
        "rasterrenderer",
        {"type": "singlebandpseudocolor", "band": "1", "opacity": "1", "alphaBand": "-1",
         "nodataColor": "", "classificationMin": f"{low:.6g}",
         "classificationMax": f"{high:.6g}"},
    )  # fmt: skip
    shader = ElementTree.SubElement(renderer, "rastershader")
    ramp = ElementTree.SubElement(
        shader,
        "colorrampshader",
        {"colorRampType": "INTERPOLATED", "classificationMode": "1", "clip": "0",
         "minimumValue": f"{low:.6g}", "maximumValue": f"{high:.6g}", "labelPrecision": "4"},
    )  # fmt: skip
    for number, colour in enumerate(colours):
        value = low + (high - low) * number / (len(colours) - 1)
        item = {"value": f"{value:.6g}", "label": f"{value:.4g}", "color": colour, "alpha": "255"}
        ElementTree.SubElement(ramp, "item", item)
    ElementTree.SubElement(pipe, "brightnesscontrast", {"brightness": "0", "contrast": "0"})
    ElementTree.SubElement(root, "customproperties")
    note = ElementTree.SubElement(root, "abstract")
    note.text = "; ".join(f"band {i}: {name}" for i, name in enumerate(names[:20], start=1))
    body = ElementTree.tostring(root, encoding="unicode")
    return f"<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n{body}\n"

"""Styles for QGIS (.qml): it takes the one beside an image of the same name by itself."""

from __future__ import annotations

__all__ = ["style"]

# Colours that stay in order in grey and to colour-blind eyes: values, and their σ.
_VALUES = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
_SIGMA = ("#fcfdbf", "#fc8961", "#b73779", "#51127c", "#000004")
# What QGIS 3 writes for a band in colours. Limits are "None": without it they are made anew.
_STYLE = """<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>
<qgis version="3.22" styleCategories="Symbology">
 <pipe>
  <rasterrenderer type="singlebandpseudocolor" band="1" opacity="1" alphaBand="-1" nodataColor=""
   classificationMin="{low:.6g}" classificationMax="{high:.6g}">
   <rasterTransparency/>
   <minMaxOrigin>
    <limits>None</limits><extent>WholeRaster</extent><statAccuracy>Exact</statAccuracy>
    <cumulativeCutLower>0.02</cumulativeCutLower><cumulativeCutUpper>0.98</cumulativeCutUpper>
    <stdDevFactor>2</stdDevFactor>
   </minMaxOrigin>
   <rastershader>
    <colorrampshader colorRampType="INTERPOLATED" classificationMode="1" clip="0"
     minimumValue="{low:.6g}" maximumValue="{high:.6g}" labelPrecision="4">
{items}
    </colorrampshader>
   </rastershader>
  </rasterrenderer>
  <brightnesscontrast brightness="0" contrast="0" gamma="1"/>
  <huesaturation saturation="0" grayscaleMode="0" colorizeOn="0"/>
  <rasterresampler maxOversampling="2"/>
 </pipe>
 <blendMode>0</blendMode>
</qgis>
"""


def style(low: float, high: float, *, sequential: bool = False) -> str:
    """Return the style of an image: its first band in colours from low to high.

    Parameters
    ----------
    low, high
        From where to where colours run.
    sequential
        Whether values are standard deviations: pale where they are small.

    Examples
    --------
    >>> from xml.etree import ElementTree
    >>> ElementTree.fromstring(style(0.1, 0.9)).find(".//rasterrenderer").get("classificationMax")
    '0.9'
    """
    colours = _SIGMA if sequential else _VALUES
    values = [low + (high - low) * step / (len(colours) - 1) for step in range(len(colours))]
    items = "\n".join(
        f'     <item value="{value:.6g}" label="{value:.4g}" color="{colour}" alpha="255"/>'
        for value, colour in zip(values, colours, strict=True)
    )
    return _STYLE.format(low=low, high=high, items=items)

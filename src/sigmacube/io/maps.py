"""Maps: values with their σ as cloud-optimised GeoTIFFs, with a style for QGIS beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube._version import __version__
from sigmacube.io.atomic import staged
from sigmacube.io.geotiff import opened, placing
from sigmacube.io.metadata import to_json
from sigmacube.io.ortho import Lookup, lookup_of
from sigmacube.io.source import parse_bands

if TYPE_CHECKING:
    from sigmacube.products import Product
    from sigmacube.result import DenoisedCube

SUFFIXES = (".tif", ".tiff")


@dataclass(frozen=True, eq=False)
class _Layer:
    """One band of a map, read when it is written."""

    name: str
    read: Callable[[], np.ndarray]
    tags: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""


def write_product(
    product: Product, path: str | Path, *, ortho: bool = False, overwrite: bool = False
) -> Path:
    """Write a product as a map; the first band holds the values, the second their σ.

    A product of several bands becomes a pair: ``name.tif`` and ``name_uncert.tif``.

    Parameters
    ----------
    product
        With rows and columns.
    path
        ``.tif``.
    ortho
        Whether to put a scene in sensor geometry on a map, nearest neighbour.
    overwrite
        Whether existing files may be replaced.
    """
    path = Path(path)
    rows, cols = product.estimate.shape[:2]
    lookup = lookup_of(product.metadata, (rows, cols)) if ortho else None
    unit = str(product.metadata.get("units") or "")
    tags = {"sigmacube_product": to_json(product.settings)}
    if product.estimate.ndim == 2:
        layers = [
            _Layer(product.name, lambda: np.asarray(product.estimate), {}, unit),
            _Layer(f"{product.name} σ", lambda: np.asarray(product.std), {}, unit),
        ]
        images = {path: layers}
    else:
        beside = path.with_name(f"{path.stem}_uncert{path.suffix}")
        images = {
            file: _layers(partial(_plane, values), range(values.shape[2]), product.wavelengths,
                          unit, mark)
            for file, values, mark in ((beside, product.std, " σ"), (path, product.estimate, ""))
        }  # fmt: skip
    _write(images, path, product.metadata, lookup, tags, overwrite)
    return path


def _plane(values: Any, band: int) -> np.ndarray:
    return np.asarray(values[..., band])


def _layers(
    read: Callable[[int], np.ndarray],
    bands: Iterable[int],
    wavelengths: np.ndarray | None,
    unit: str,
    mark: str,
) -> list[_Layer]:
    """Return bands of a cube as layers, with a mark behind their names."""
    layers = []
    for band in map(int, bands):
        name, tags = f"band {band}", {}
        if wavelengths is not None:
            centre = float(wavelengths[band])
            name = f"{centre:.1f} nm"
            tags = {"wavelength": repr(centre), "wavelength_units": "Nanometers"}
        layers.append(_Layer(f"{name}{mark}", partial(read, band), tags, unit))
    return layers


def write_result(
    result: DenoisedCube | str | Path,
    path: str | Path,
    *,
    bands: Any = None,
    ortho: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a result as a pair of maps, ``name.tif`` and ``name_uncert.tif``, band by band.

    Parameters
    ----------
    result
        A result or the file of one; files are read band by band, however large.
    path
        ``.tif``.
    bands
        Bands to keep, as for `sigmacube.read`.
    ortho
        Whether to put a scene in sensor geometry on a map, nearest neighbour.
    overwrite
        Whether existing files may be replaced.

    Examples
    --------
    >>> import tempfile, rasterio, sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = write_result(sc.denoise(noisy, 0.05), folder / "map.tif", bands="600nm:700nm")
    >>> sorted(file.name for file in folder.iterdir())
    ['map.qml', 'map.tif', 'map_uncert.qml', 'map_uncert.tif']
    """
    from sigmacube.io.result_file import open_result

    path = Path(path)
    with open_result(result) as source:
        count = source.shape[2]
        chosen = range(count) if bands is None else parse_bands(bands, count, source.wavelengths)
        metadata = source.about.metadata
        lookup = lookup_of(metadata, source.shape[:2]) if ortho else None
        tags = {"sigmacube_settings": to_json(source.about.settings)}
        unit = str(metadata.get("units") or "")
        beside = path.with_name(f"{path.stem}_uncert{path.suffix}")
        images = {
            file: _layers(partial(source.image, name), chosen, source.wavelengths, unit, mark)
            for name, file, mark in (("std", beside, " σ"), ("estimate", path, ""))
            if name in source.cubes
        }
        _write(images, path, metadata, lookup, tags, overwrite)
    return path


def _write(
    images: Mapping[Path, Sequence[_Layer]],
    path: Path,
    metadata: Mapping[str, Any],
    lookup: Lookup | None,
    tags: Mapping[str, str],
    overwrite: bool,
) -> None:
    """Write images and their styles, all of them or none; the one that was named comes last."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{path}: maps cannot be written with suffix {path.suffix!r}. It must be one of "
            f"{', '.join(SUFFIXES)}."
        )
    finals = [file for image in images for file in (image.with_suffix(".qml"), image)]
    pair = [path.with_name(f"{path.stem}{part}{path.suffix}") for part in ("_uncert", "")]
    every = [file for image in pair for file in (image.with_suffix(".qml"), image)]
    stale = [file for file in every if file not in finals]
    place = dict(metadata) if lookup is None else lookup.metadata(metadata)
    about = dict(tags)
    if place.get("acquisition_time"):
        about["acquisition_time"] = str(place["acquisition_time"])
    if lookup is not None:
        about["sigmacube_ortho"] = f"nearest neighbour, by {lookup.source}"
    with staged(finals, overwrite=overwrite, stale=stale) as temporary:
        names = dict(zip(finals, temporary, strict=True))
        for image, layers in images.items():
            low, high = _write_cog(names[image], layers, place, lookup, about)
            text = style(low, high, sequential=image.stem.endswith("_uncert"))
            names[image.with_suffix(".qml")].write_text(text, encoding="utf-8")


def _write_cog(
    path: Path,
    layers: Sequence[_Layer],
    place: Mapping[str, Any],
    lookup: Lookup | None,
    tags: Mapping[str, str],
) -> tuple[float, float]:
    """Write one image; return the range of its first band, without the outermost two per cent."""
    import rasterio.shutil

    plain = path.with_name(f"{path.name}.plain")
    first = layers[0].read()
    first = first if lookup is None else lookup.gather(first)
    rows, cols = first.shape
    options = {"width": cols, "height": rows, "count": len(layers), "dtype": "float32",
               "nodata": float("nan"), "bigtiff": "if_safer", "interleave": "band"}  # fmt: skip
    try:
        with opened(plain, "w", **options, **placing(place)) as file:
            what = f"Map by sigmacube {__version__}"
            file.update_tags(TIFFTAG_IMAGEDESCRIPTION=what, **tags)
            for number, layer in enumerate(layers, start=1):
                values = first
                if number > 1:
                    values = layer.read() if lookup is None else lookup.gather(layer.read())
                file.write(np.ascontiguousarray(values, dtype=np.float32), number)
                file.set_band_description(number, layer.name)
                file.set_band_unit(number, layer.unit)
                file.update_tags(number, **layer.tags)
        rasterio.shutil.copy(
            str(plain), str(path), driver="COG", compress="deflate", predictor="yes",
            overview_resampling="nearest", bigtiff="if_safer",
        )  # fmt: skip
    finally:
        plain.unlink(missing_ok=True)
    return _range(first)


def _range(values: np.ndarray) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0, 1.0
    low, high = np.percentile(known, [2, 98])
    return float(low), float(high if high > low else low + (abs(low) or 1.0))


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

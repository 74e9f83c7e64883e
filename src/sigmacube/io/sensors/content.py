"""What readers of sensors look into: the arrays of an HDF5 file, the files of a folder or zip."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np

from sigmacube.io.places import check_plain, opened_hdf5, printable
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, open_variables

#: No product's XML file is larger; what is, is no such file.
_MAX_XML = 256 * 2**20


@dataclass(frozen=True, eq=False)
class HdfContent:
    """What an HDF5 file holds, none of it read, and what the user asked for."""

    place: Path | str
    attrs: Mapping[str, Any]
    variables: tuple[Variable, ...]
    variable: str | None = None
    axes: str | Sequence[str] | None = None
    join: str | None = None

    @property
    def path(self) -> Path:
        """The file, as it is called in metadata and messages."""
        return Path(self.place)

    def get(self, name: str) -> Variable | None:
        """Return the array of a name with its groups, upper or lower case."""
        wanted = name.lower()
        return next((v for v in self.variables if v.name.lower() == wanted), None)

    def need(self, name: str, what: str) -> Variable:
        """Return the array of a name, or say what is missing without it."""
        found = self.get(name)
        if found is None:
            raise ValueError(f"{self.place}: {what} without {name}. The file must have it.")
        return found

    def cube(self, name: str | None, variables: Sequence[Variable] | None = None) -> Source:
        """Open the array of a name, or the one that is a cube, among all or some of them."""
        among = self.variables if variables is None else variables
        return open_variables(self.path, among, attrs=self.attrs, variable=name, axes=self.axes)

    def under(self, group: str) -> list[Variable]:
        """Return the arrays of a group and its groups."""
        start = group.lower().rstrip("/") + "/"
        return [v for v in self.variables if v.name.lower().startswith(start)]

    def group_attrs(self, group: str) -> dict[str, Any]:
        """Return the attributes of a group; none where it is absent."""
        from sigmacube.io.hdf import attributes

        with opened_hdf5(self.place) as file:
            found = file.get(group)
            return {} if found is None else attributes(found.attrs)

    def says(self, word: str, *keys: str) -> bool:
        """Tell whether a word stands in one of the file's attributes."""
        return any(word.lower() in str(self.attrs.get(key, "")).lower() for key in keys)

    def location(self, lat: Variable | None, lon: Variable | None) -> dict[str, np.ndarray]:
        """Return the latitude and longitude of every pixel, as far as there are any."""
        if lat is None or lon is None:
            return {}
        arrays = {"lat": lat.all(), "lon": lon.all()}
        return {k: np.asarray(v, dtype=np.float64) for k, v in arrays.items()}


def as_text(value: Any) -> Any:
    """Return bytes, also a single one in an array, as text; everything else as it is."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "SO" and value.size == 1:
        return as_text(value.reshape(-1)[0])
    return value


def epsg_wkt(code: float | str) -> str:
    """Return the coordinate system of an EPSG code as WKT.

    Examples
    --------
    >>> epsg_wkt(32633)[:6]
    'PROJCS'
    """
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        return str(CRS.from_epsg(int(float(code))).to_wkt())
    except (CRSError, ValueError):
        raise ValueError(f"EPSG code {code} is not known.") from None


@dataclass(frozen=True)
class ProductFolder:
    """The files of a product: in a folder, or in a zip file."""

    path: Path
    """What the user named."""
    root: Path
    """The folder or the zip file."""
    xml: str
    """Name of the XML file in it."""
    names: tuple[str, ...]

    @classmethod
    def create(cls, path: Path) -> ProductFolder:
        """Look into a folder, a zip file, or the folder of an XML file."""
        if path.suffix.lower() == ".xml":
            names = tuple(sorted(item.name for item in path.parent.iterdir()))
            return cls(path, path.parent, path.name, names)
        if path.is_dir():
            names = tuple(sorted(item.name for item in path.iterdir()))
        else:
            names = _zipped(path)
        found = [name for name in names if name.upper().endswith("METADATA.XML")]
        if len(found) != 1:
            what = "folder" if path.is_dir() else "zip file"
            count = "no METADATA.XML" if not found else f"{len(found)} METADATA.XML files"
            raise ValueError(
                f"{path} is a {what} with {count} in it. It must be a file, a .zarr store, or hold "
                "one EnMAP or DESIS product."
            )
        return cls(path, path, found[0], names)

    def metadata(self) -> ElementTree.Element:
        """Return the XML file."""
        if self.root.is_dir():
            check_plain(self.root / self.xml)
            size = (self.root / self.xml).stat().st_size
        else:
            with zipfile.ZipFile(self.root) as file:
                size = file.getinfo(self.xml).file_size
        if size > _MAX_XML:
            raise ValueError(f"{self.path}: {self.xml} is too large ({size} bytes).")
        try:
            if self.root.is_dir():
                return ElementTree.fromstring((self.root / self.xml).read_bytes())
            with zipfile.ZipFile(self.root) as file:
                return ElementTree.fromstring(file.read(self.xml))
        except (ElementTree.ParseError, zipfile.BadZipFile, EOFError) as error:
            raise ValueError(f"{self.path}: {self.xml} is not readable as XML ({error}).") from None

    def find(self, ending: str) -> str | None:
        """Return the file of this product whose name ends so, also as a cloud-optimised copy."""
        stem = PurePosixPath(self.xml).name[: -len("-METADATA.XML")]
        folder = str(PurePosixPath(self.xml).parent)
        for name in self.names:
            parent, own = str(PurePosixPath(name).parent), PurePosixPath(name).name
            if parent != folder or not own.startswith(stem):
                continue
            rest = own[len(stem) :].lstrip("-").upper().removesuffix(".TIFF").removesuffix(".TIF")
            if own.upper().endswith((".TIF", ".TIFF")) and rest in (ending, f"{ending}_COG"):
                return name
        return None

    def image(self, name: str) -> str:
        """Return what rasterio calls a file of the product."""
        if self.root.is_dir():
            return str(self.root / name)
        return f"/vsizip/{self.root.resolve()}/{name}"

    @property
    def files(self) -> tuple[Path, ...]:
        """What lies on the disk, to be watched for changes."""
        if not self.root.is_dir():
            return (self.root,)
        stem = self.xml[: -len("-METADATA.XML")]
        return tuple(self.root / name for name in self.names if name.startswith(stem))


def _zipped(path: Path) -> tuple[str, ...]:
    try:
        with zipfile.ZipFile(path) as file:
            return tuple(file.namelist())
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path}: not readable as a zip file ({error}).") from None


SURFACE_REFLECTANCE = "surface_bidirectional_reflectance"
RADIANCE = "toa_outgoing_radiance_per_unit_wavelength"


def radiance(units: str) -> dict[str, str]:
    """Return the metadata of radiance at the sensor.

    Examples
    --------
    >>> radiance("uW/cm^2/SR/nm")["units"]
    'uW/cm^2/sr/nm'
    """
    return {"name": "radiance", "standard_name": RADIANCE, "units": units.replace("SR", "sr")}


def reflectance() -> dict[str, str]:
    """Return the metadata of surface reflectance."""
    return {"name": "reflectance", "standard_name": SURFACE_REFLECTANCE, "units": "1"}


def quantity_of(metadata: Mapping[str, Any]) -> str | None:
    """Return "radiance" or "reflectance" where the metadata of a cube say so, else None.

    Examples
    --------
    >>> quantity_of({"name": "toa_radiance"}), quantity_of({"name": "cube"})
    ('radiance', None)
    """
    words = " ".join(str(metadata.get(k, "")) for k in ("standard_name", "name", "long_name"))
    found = [what for what in ("radiance", "reflectance") if what in words.lower()]
    return found[0] if len(found) == 1 else None

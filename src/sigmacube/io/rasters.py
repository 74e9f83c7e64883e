"""Results as rasters: an ENVI or GeoTIFF pair, with what has no raster form as JSON beside it.

``name`` and ``name_uncert`` hold the estimate and its standard deviation, ``name_windows`` the rank
and the residual ratio of every window, ``name_rejected`` the elements that a robust solver set
aside, and ``name.hdr.sigmacube.json`` or ``name.tif.sigmacube.json`` noise, settings, version and
the input's metadata.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube._version import __version__
from sigmacube.io import envi, geotiff
from sigmacube.io.metadata import NOT_TEXT, read_sidecar, sidecar, to_json
from sigmacube.io.result_file import ResultFile
from sigmacube.io.source import Source

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube


class _Rasters(ABC):
    """What ENVI and GeoTIFF results share: which parts there are, and their order."""

    holds_errors = False

    def files(self, path: Path, *, uncertainty: bool, rejected: bool) -> list[Path]:
        parts = ["_windows", *["_rejected"] * rejected, *["_uncert"] * uncertainty, ""]
        return [sidecar(path), *(file for part in parts for file in self.raster(path, part))]

    def write(
        self, result: DenoisedCube, names: Mapping[Path, Path], path: Path, dtype: str
    ) -> None:
        version = str(result.settings.get("version", __version__))
        text = to_json(_document(result, version), indent=1)
        names[sidecar(path)].write_text(text + "\n", encoding="utf-8")
        parts: list[tuple[str, np.ndarray, str, str]] = []
        if result.rejected is not None:
            parts.append(("_rejected", result.rejected.astype(np.uint8), "uint8", "Rejected"))
        if result.std is not None:
            parts.append(("_uncert", result.std, dtype, "Standard deviation of the estimate"))
        parts.append(("", result.estimate, dtype, f"Estimate, sigmacube {version}"))
        maps: dict[str, Any] = {"dtype": "float32", "description": "Windows"}
        maps |= {"metadata": {"band_names": _window_names(result)}, "wavelengths": None}
        self.put(self._named(names, path, "_windows"), _window_maps(result), maps, None)
        told = {"metadata": dict(result.metadata), "wavelengths": result.wavelengths}
        for part, values, kind, what in parts:
            how = {"dtype": kind, "description": what, **told}
            self.put(self._named(names, path, part), values, how, result.settings)

    def _named(self, names: Mapping[Path, Path], path: Path, part: str) -> dict[Path, Path]:
        """Return the final names of one raster's files, and those to write to."""
        return {file: names[file] for file in self.raster(path, part)}

    def open(self, path: Path) -> ResultFile:
        """Open a result; what lies beside it tells which parts there are."""
        document = read_sidecar(path)
        if not document:
            missing = f"{sidecar(path).name} is missing beside it"
            raise ValueError(f"{path}: no result of sigmacube, {missing}.")
        rasters = {"estimate": self.get(path, "")}
        if document["uncertainty"]:
            rasters["std"] = self.get(path, "_uncert")
        if document["rejected"]:
            rasters["rejected"] = self.get(path, "_rejected")

        def load(key: str, rows: slice, cols: slice, bands: slice) -> np.ndarray:
            return np.asarray(rasters[key].load(rows, cols)[..., bands])

        source = rasters["estimate"]
        about = self._about(document, path, source)
        # A memory map reads single bands; other rasters give whole blocks of rows and columns.
        bands = 1 if source.lazy else source.shape[2]
        sides = (min(64, source.shape[0]), source.shape[1], bands)
        return ResultFile(path.name, about, tuple(rasters), source.shape, sides, load)

    def _about(self, document: Mapping[str, Any], path: Path, source: Source) -> DenoisedCube:
        """Return a result with one pixel of its cubes."""
        from sigmacube.result import DenoisedCube

        noise = np.asarray(document["noise"], dtype=float)
        windows = self.get(path, "_windows").read().values
        ranks, ratio = np.split(windows.astype(np.float32), 2, axis=2)
        if not (np.abs(ranks) < 2**31).all():
            raise ValueError("damaged: the ranks are no numbers.")
        if not document["cuts_bands"]:
            ranks, ratio = ranks[:, :, 0], ratio[:, :, 0]
        pixel = source.block(slice(0, 1), slice(0, 1))[0]
        power, odd = document.get("noise_power"), document.get("unexplained")
        return DenoisedCube(
            estimate=pixel,
            std=pixel if document["uncertainty"] else None,
            ranks=ranks.astype(np.int32),
            noise=float(noise) if noise.ndim == 0 else noise,
            residual_ratio=np.ascontiguousarray(ratio),
            noise_power=None if power is None else np.asarray(power),
            unexplained=None if odd is None else np.asarray(odd, dtype=np.int64).reshape(-1, 2),
            wavelengths=source.wavelengths,
            metadata=document["metadata"],
            settings=document["settings"],
        )

    @abstractmethod
    def raster(self, path: Path, part: str) -> list[Path]:
        """Return the files of one raster."""

    @abstractmethod
    def get(self, path: Path, part: str) -> Source:
        """Open one raster."""

    @abstractmethod
    def put(
        self,
        files: Mapping[Path, Path],
        values: np.ndarray,
        how: dict[str, Any],
        settings: Mapping[str, Any] | None,
    ) -> None:
        """Write one raster; ``files`` are the final names, and those to write to."""


def _document(result: DenoisedCube, version: str) -> dict[str, Any]:
    return {
        "sigmacube": version,
        "settings": dict(result.settings),
        "metadata": {k: v for k, v in result.metadata.items() if k not in NOT_TEXT},
        "noise": result.noise,
        "noise_power": result.noise_power,
        "unexplained": None if result.unexplained is None else np.asarray(result.unexplained),
        "uncertainty": result.std is not None,
        "rejected": result.rejected is not None,
        "cuts_bands": result.ranks.ndim == 3,
    }


def _window_maps(result: DenoisedCube) -> np.ndarray:
    shape = (*result.ranks.shape[:2], -1)
    maps = (result.ranks.reshape(shape), result.residual_ratio.reshape(shape))
    return np.concatenate([np.asarray(m, dtype=np.float32) for m in maps], axis=2)


def _window_names(result: DenoisedCube) -> list[str]:
    layers = 1 if result.ranks.ndim == 2 else result.ranks.shape[2]
    number = [""] if layers == 1 else [f" {i}" for i in range(layers)]
    return [f"{what}{n}" for what in ("rank", "residual ratio") for n in number]


class _Envi(_Rasters):
    """``name`` with ``name.hdr``; or ``name.img`` where the user gave that."""

    def raster(self, path: Path, part: str) -> list[Path]:
        suffix = path.suffix if path.suffix.lower() != ".hdr" else ""
        stem = f"{path.stem}{part}"
        data, header = path.with_name(stem + suffix), path.with_name(f"{stem}.hdr")
        return [header, data] if suffix else [data, header]

    def get(self, path: Path, part: str) -> Source:
        return envi.open_source(self.raster(path, part)[-1])

    def put(
        self,
        files: Mapping[Path, Path],
        values: np.ndarray,
        how: dict[str, Any],
        settings: Mapping[str, Any] | None,
    ) -> None:
        kinds = {final.suffix.lower() == ".hdr": file for final, file in files.items()}
        envi.write_raster(kinds[False], kinds[True], values, **how)


class _GeoTiff(_Rasters):
    """``name.tif`` and ``name_uncert.tif``."""

    def raster(self, path: Path, part: str) -> list[Path]:
        return [path.with_name(f"{path.stem}{part}{path.suffix}")]

    def get(self, path: Path, part: str) -> Source:
        return geotiff.open_source(self.raster(path, part)[0])

    def put(
        self,
        files: Mapping[Path, Path],
        values: np.ndarray,
        how: dict[str, Any],
        settings: Mapping[str, Any] | None,
    ) -> None:
        tags = None
        if settings is not None:
            tags = {"sigmacube_metadata": to_json(how["metadata"])}
            tags["sigmacube_settings"] = to_json(settings)
        geotiff.write_raster(next(iter(files.values())), values, tags=tags, **how)


ENVI = _Envi()
GEOTIFF = _GeoTiff()

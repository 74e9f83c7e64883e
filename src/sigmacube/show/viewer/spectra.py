"""What the spectrum pane shows: spectra of pixels and region means, with their sigma."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from math import ceil, floor

import numpy as np

from sigmacube.core.levels import half_width
from sigmacube.core.validity import finite_mean
from sigmacube.cube import Cube
from sigmacube.io.observed import block_of
from sigmacube.io.result_file import ResultFile
from sigmacube.io.source import Source

#: Pixels of the largest region whose mean is taken: what is read stays below 100 MB.
MAX_REGION = 40_000
Z95 = half_width(0.95)


@dataclass(frozen=True)
class Region:
    """A rectangle of pixels; one pixel is the smallest."""

    top: int
    left: int
    height: int = 1
    width: int = 1

    @property
    def is_pixel(self) -> bool:
        """Whether it is a single pixel."""
        return self.height == self.width == 1

    @property
    def rows(self) -> slice:
        """Its rows."""
        return slice(self.top, self.top + self.height)

    @property
    def cols(self) -> slice:
        """Its columns."""
        return slice(self.left, self.left + self.width)

    @property
    def label(self) -> str:
        """Its name in legends and files.

        Examples
        --------
        >>> Region(3, 4).label, Region(3, 4, 10, 20).label
        ('pixel (3, 4)', 'mean of rows 3-12, cols 4-23')
        """
        if self.is_pixel:
            return f"pixel ({self.top}, {self.left})"
        bottom, right = self.top + self.height - 1, self.left + self.width - 1
        return f"mean of rows {self.top}-{bottom}, cols {self.left}-{right}"


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Values of a region with their standard deviation."""

    region: Region
    estimate: np.ndarray
    """(bands,) values, NaN where there are none."""
    std: np.ndarray | None
    """(bands,) standard deviation."""
    observed: np.ndarray | None = None
    """(bands,) noisy input."""
    std_kind: str = "exact"
    """``"exact"``, ``"approximate"`` (mean correlation of the scene) or ``"bound"`` (errors taken
    as fully correlated: σ is no larger)."""

    @property
    def low(self) -> np.ndarray:
        """Lower end of the 95 % interval."""
        return self.estimate - (0 if self.std is None else Z95 * self.std)

    @property
    def high(self) -> np.ndarray:
        """Upper end of the 95 % interval."""
        return self.estimate + (0 if self.std is None else Z95 * self.std)


def pixel_at(x: object, y: object, shape: tuple[int, int, int]) -> Region | None:
    """Return the pixel at a place of the image pane; None outside the scene or for no numbers.

    Examples
    --------
    >>> pixel_at(3.4, 1.6, (5, 10, 3)), pixel_at(float("nan"), 1, (5, 10, 3))
    (Region(top=2, left=3, height=1, width=1), None)
    """
    numbers = [finite_number(value) for value in (x, y)]
    if None in numbers:
        return None
    col, row = (round(number) for number in numbers if number is not None)
    return Region(row, col) if 0 <= row < shape[0] and 0 <= col < shape[1] else None


def region_at(
    x: tuple[object, object], y: tuple[object, object], shape: tuple[int, int, int]
) -> Region | None:
    """Return the pixels whose centres lie in a box of the image pane; None where there are none.

    Examples
    --------
    >>> region_at((0.6, 3.2), (-9.0, 2.0), (5, 10, 3))
    Region(top=0, left=1, height=3, width=3)
    """
    numbers = [finite_number(value) for value in (*x, *y)]
    if None in numbers:
        return None
    x0, x1, y0, y1 = (number for number in numbers if number is not None)
    left, right = max(0, ceil(min(x0, x1))), min(shape[1] - 1, floor(max(x0, x1)))
    top, bottom = max(0, ceil(min(y0, y1))), min(shape[0] - 1, floor(max(y0, y1)))
    if right < left or bottom < top:
        return None
    return Region(top, left, bottom - top + 1, right - left + 1)


def finite_number(value: object) -> float | None:
    """Return what a page sent as a number of a sensible size; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value) if abs(value) < 1e9 else float("inf")
    return number if np.isfinite(number) else None


def read(source: ResultFile, region: Region, observed: Cube | Source | None = None) -> Spectrum:
    """Read the spectrum of a pixel, or the mean over a region."""
    has_std = "std" in source.cubes
    if region.is_pixel:
        row, col = region.top, region.left
        return Spectrum(
            region,
            source.spectrum("estimate", row, col).astype(np.float64),
            source.spectrum("std", row, col).astype(np.float64) if has_std else None,
            None if observed is None else block_of(observed, region.rows, region.cols)[0, 0],
        )
    if region.height * region.width > MAX_REGION:
        raise ValueError(
            f"Invalid region of {region.height} × {region.width} pixels. "
            f"It must have at most {MAX_REGION:,}."
        )
    mean = finite_mean(source.block("estimate", region.rows, region.cols), (0, 1))
    std, kind = _region_std(source, region) if has_std else (None, "exact")
    noisy = None if observed is None else block_of(observed, region.rows, region.cols)
    noisy = None if noisy is None else finite_mean(noisy, (0, 1))
    return Spectrum(region, mean, std, noisy, kind)


def _region_std(source: ResultFile, region: Region) -> tuple[np.ndarray, str]:
    """Return the standard deviation of a region's mean, and how far it can be trusted."""
    std = source.block("std", region.rows, region.cols).astype(np.float64)
    finite = np.isfinite(std)
    share = np.where(finite, std, 0.0)
    count = np.maximum(finite.sum(axis=(0, 1)), 1)
    empty = ~finite.any(axis=(0, 1))
    if source.correlation is not None:
        along_rows = source.correlation(0, region.rows).astype(np.float64)
        along_cols = source.correlation(1, region.cols).astype(np.float64)
        # Var = Σ σ_p σ_q R_rows R_cols over pairs of pixels, one axis after the other.
        other = np.einsum("ik,kjb->ijb", along_rows, share, optimize=True)
        other = np.einsum("jl,ilb->ijb", along_cols, other, optimize=True)
        variance = np.einsum("ijb,ijb->b", share, other)
        return np.where(empty, np.nan, np.sqrt(np.maximum(variance, 0)) / count), "approximate"
    return np.where(empty, np.nan, share.sum(axis=(0, 1)) / count), "bound"


def exact_region_std(source: ResultFile, region: Region) -> np.ndarray | None:
    """Return the exact standard deviation of a region's mean; None where factors were not kept."""
    model = source.error_model
    if model is None:
        return None
    filled = np.isfinite(source.block("estimate", region.rows, region.cols)).any(axis=2)
    if not filled.any():
        return None
    weights = np.zeros(source.shape[:2])
    weights[region.rows, region.cols] = filled / filled.sum()
    return model.region_covariance(weights).std()


def csv_text(spectra: Sequence[Spectrum], wavelengths: np.ndarray | None, unit: str) -> str:
    """Return spectra as CSV, one line per band; columns named after their pixels.

    Examples
    --------
    >>> one = Spectrum(Region(3, 4), np.array([0.5]), np.array([0.01]))
    >>> print(csv_text([one], np.array([850.0]), ""))
    band,wavelength_nm,"pixel (3, 4) estimate","pixel (3, 4) sigma"
    0,850.0,0.5,0.01
    <BLANKLINE>
    """
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["band"] + (["wavelength_nm"] if wavelengths is not None else [])
    columns: list[np.ndarray] = []
    told = f" [{unit}]" if unit not in ("", "1") else ""
    for spectrum in spectra:
        parts = {
            "estimate": spectrum.estimate,
            "sigma": spectrum.std,
            "observed": spectrum.observed,
        }
        for name, values in parts.items():
            if values is not None:
                doubtful = name == "sigma" and spectrum.std_kind != "exact"
                kind = f" ({spectrum.std_kind})" if doubtful else ""
                head.append(f"{spectrum.region.label} {name}{kind}{told}")
                columns.append(values)
    writer.writerow(head)
    for band in range(len(columns[0]) if columns else 0):
        line = [band] + ([float(wavelengths[band])] if wavelengths is not None else [])
        cells = [float(column[band]) for column in columns]
        # The nine digits that single precision needs; nothing for no value.
        writer.writerow([*line, *(f"{v:.9g}" if np.isfinite(v) else "" for v in cells)])
    return out.getvalue()

"""Band centres and widths: any unit in, nanometres out, without losing a digit."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

#: Names under which files keep the band centres, their widths and the good-band flags.
NAMES = ("wavelengths", "wavelength", "wavelength_nm", "wavelengths_nm", "center_wavelength",
         "central_wavelength", "band_center", "band_centers", "centers", "lambda", "wl", "wvl",
         "wave")  # fmt: skip
FWHM_NAMES = ("fwhm", "fwhms", "band_width", "bandwidth", "full_width_half_max")
GOOD_NAMES = ("good_wavelengths", "good_bands", "bbl", "good_band", "bad_band_list")

# Units by their factor to nanometres, as exact decimals; mu is the micro sign, or the Greek one.
_UNITS = {
    "1": "nm nanometer nanometre",
    "1000": "um µm μm micron micrometer micrometre",
    "0.1": "angstrom",
    "1000000": "mm millimeter millimetre",
    "10000000": "cm centimeter centimetre",
    "1000000000": "m meter metre",
}
_FACTORS = {unit: factor for factor, units in _UNITS.items() for unit in units.split()}
_WAVENUMBERS = ("wavenumber", "cm-1", "cm^-1", "1/cm")
#: Powers of ten that doubles hold, with room for a change of units.
_MAX_EXPONENT = 140
_UNSTATED = ("", "unknown", "none", "unitless", "1")


def numbers(items: Sequence[Any], what: str) -> list[Decimal]:
    """Return ``items`` as exact decimals; ``what`` names them in the error.

    Examples
    --------
    >>> numbers(["0.389750", " 1.5 "], "wavelength")
    [Decimal('0.389750'), Decimal('1.5')]
    """
    found = []
    for item in items:
        try:
            number = Decimal(item.strip()) if isinstance(item, str) else Decimal(float(item))
        except (ArithmeticError, TypeError, ValueError):
            raise ValueError(f"Invalid {what} {item!r}. It must be a number.") from None
        # Beyond the range of doubles it would become infinite, or zero, later on.
        if not number.is_finite() or (number and abs(number.adjusted()) > _MAX_EXPONENT):
            raise ValueError(f"Invalid {what} {item!r}. It must be a finite number.")
        found.append(number)
    return found


def to_nanometres(
    centres: Sequence[Any],
    units: str | None = None,
    fwhm: Sequence[Any] | None = None,
) -> tuple[np.ndarray | None, list[float] | None, str | None]:
    """Convert band centres and widths to nanometres.

    Text is converted as decimal numbers, so 0.38975 micrometres is 389.75 nm to the last bit.

    Parameters
    ----------
    centres
        Band centres, as text or numbers.
    units
        What the file calls their unit; None, ``"Unknown"`` and the like: guessed from the values.
    fwhm
        Full widths at half maximum in the same unit, or None.

    Returns
    -------
    wavelengths, fwhm, note
        In nanometres; None where the unit is not one of length. The note says what was assumed.

    Examples
    --------
    >>> to_nanometres(["0.389750", "0.397250"], "Micrometers")
    (array([389.75, 397.25]), None, None)
    >>> to_nanometres([426.82, 436.99], "Unknown")[2]
    'wavelengths carry no unit; nanometres assumed from their values'
    """
    values = numbers(centres, "wavelength")
    widths = None if fwhm is None else numbers(fwhm, "fwhm")
    if any(value < 0 for value in values):
        raise ValueError(f"Invalid wavelength {min(values)}. It must not be negative.")
    key = (units or "").strip().lower()
    note = None
    if key in _WAVENUMBERS:
        return _from_wavenumbers(values, widths)
    if key in _UNSTATED:
        factor, note = _guess(values)
    else:
        factor = _FACTORS.get(key) or _FACTORS.get(key.removesuffix("s"))
        if factor is None:
            note = f"wavelengths are given in {units!r}, which is no length; they are left out"
    if factor is None:
        return None, None, note
    scale = Decimal(factor)
    centres_nm = np.array([float(value * scale) for value in values])
    widths_nm = None if widths is None else [float(width * scale) for width in widths]
    return centres_nm, widths_nm, note


def _guess(values: list[Decimal]) -> tuple[str | None, str]:
    positive = [value for value in values if value > 0]
    if positive and all(Decimal("0.1") <= value <= 50 for value in positive):
        return "1000", "wavelengths carry no unit; micrometres assumed from their values"
    if positive and all(100 <= value <= 50_000 for value in positive):
        return "1", "wavelengths carry no unit; nanometres assumed from their values"
    return None, "wavelengths carry no unit and fit neither nm nor micrometres; they are left out"


def _from_wavenumbers(
    values: list[Decimal], widths: list[Decimal] | None
) -> tuple[np.ndarray, list[float] | None, None]:
    if any(value == 0 for value in values):
        raise ValueError("Invalid wavenumber 0. It must be positive.")
    centres = np.array([float(10_000_000 / value) for value in values])
    if widths is None:
        return centres, None, None
    spans = zip(widths, values, strict=True)
    return centres, [float(10_000_000 * width / value**2) for width, value in spans], None

"""A landscape with known truth: fields, a river, a road, woods and a quarry."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sigmacube.cube import Cube

FIRST_NM, LAST_NM = 400.0, 2450.0

# Borders are drawn on a grid this much finer than the pixels, then averaged: that makes the mixed
# pixels that a sensor sees along every border.
SUPERSAMPLING = 4

# Side of a typical field in pixels: a 20 x 20 window then sees one field, or two to four.
FIELD_SIDE = 30.0


@dataclass(frozen=True)
class _Material:
    """One endmember: a continuum times Gaussian absorption features."""

    name: str
    continuum: tuple[tuple[float, float], ...]
    """(nm, reflectance) knots of a monotone cubic."""
    features: tuple[tuple[float, float, float], ...] = ()
    """(centre nm, width nm, depth 0..1) of every absorption."""

    def spectrum(self, wavelengths: np.ndarray) -> np.ndarray:
        """Return the reflectance at ``wavelengths`` (nm)."""
        from scipy.interpolate import PchipInterpolator

        nm, reflectance = zip(*self.continuum, strict=True)
        spectrum = PchipInterpolator(nm, reflectance)(wavelengths)
        for centre, width, depth in self.features:
            spectrum = spectrum * (1 - depth * np.exp(-0.5 * ((wavelengths - centre) / width) ** 2))
        return spectrum

    def variant(self, number: int, rng: np.random.Generator) -> _Material:
        """Return a relative of this material: other brightness, slope and feature depths."""
        bright, slope = rng.uniform(0.75, 1.15), rng.uniform(-0.25, 0.25)
        tilted = tuple(
            (nm, min(r * bright * (nm / 1200) ** slope, 0.8)) for nm, r in self.continuum
        )
        depths = tuple((c, w, min(d * rng.uniform(0.6, 1.4), 0.95)) for c, w, d in self.features)
        return _Material(f"{self.name} {number}", tilted, depths)


# fmt: off
# Liquid water in leaves: the four bands that field spectra of any green plant show.
_LEAF_WATER = ((970, 24, 0.10), (1200, 38, 0.20), (1450, 52, 0.62), (1940, 62, 0.80))

# Ordered by role, so that a scene of few endmembers still has plants, soil and water in it.
_MATERIALS = (
    _Material("crop", (
        (400, 0.035), (450, 0.040), (500, 0.048), (553, 0.105), (600, 0.065), (672, 0.036),
        (690, 0.055), (715, 0.210), (745, 0.450), (780, 0.520), (900, 0.540), (1080, 0.540),
        (1300, 0.470), (1660, 0.340), (1800, 0.300), (2200, 0.180), (2450, 0.085),
    ), _LEAF_WATER),
    _Material("loam", (
        (400, 0.045), (500, 0.075), (600, 0.125), (700, 0.155), (800, 0.180), (1000, 0.220),
        (1300, 0.270), (1700, 0.305), (2100, 0.310), (2300, 0.290), (2450, 0.265),
    ), (
        (490, 35, 0.10), (880, 70, 0.06), (1415, 24, 0.10), (1920, 36, 0.20), (2207, 24, 0.14),
    )),
    _Material("water", (
        (400, 0.050), (480, 0.062), (560, 0.078), (620, 0.055), (690, 0.040), (740, 0.020),
        (810, 0.017), (900, 0.010), (1100, 0.008), (1400, 0.006), (2450, 0.005),
    )),
    _Material("concrete", (
        (400, 0.130), (480, 0.190), (600, 0.255), (800, 0.290), (1200, 0.325), (1700, 0.345),
        (2100, 0.340), (2450, 0.290),
    ), ((1420, 30, 0.05), (1930, 40, 0.14), (2205, 22, 0.04), (2338, 28, 0.12))),
    _Material("stubble", (
        (400, 0.075), (500, 0.130), (600, 0.235), (700, 0.330), (800, 0.405), (1000, 0.490),
        (1300, 0.540), (1650, 0.515), (1850, 0.470), (2200, 0.390), (2450, 0.260),
    ), (
        (680, 14, 0.05), (1195, 32, 0.05), (1460, 48, 0.22), (1725, 24, 0.06), (1930, 46, 0.30),
        (2100, 42, 0.16), (2290, 30, 0.11),
    )),
    _Material("limestone", (
        (400, 0.190), (500, 0.270), (600, 0.345), (800, 0.430), (1200, 0.510), (1700, 0.550),
        (2100, 0.540), (2450, 0.450),
    ), (
        (870, 60, 0.02), (1410, 24, 0.05), (1910, 34, 0.13), (2155, 22, 0.05), (2338, 30, 0.34),
    )),
    _Material("conifer", (
        (400, 0.018), (500, 0.022), (552, 0.042), (600, 0.030), (675, 0.020), (700, 0.050),
        (725, 0.140), (755, 0.230), (800, 0.255), (900, 0.270), (1080, 0.270), (1300, 0.215),
        (1660, 0.125), (2200, 0.060), (2450, 0.030),
    ), _LEAF_WATER),
    _Material("clay", (
        (400, 0.060), (500, 0.090), (560, 0.150), (600, 0.250), (700, 0.335), (800, 0.355),
        (900, 0.355), (1200, 0.440), (1700, 0.490), (2100, 0.480), (2450, 0.420),
    ), (
        (530, 28, 0.12), (870, 60, 0.13), (1400, 18, 0.10), (1912, 32, 0.12), (2165, 14, 0.11),
        (2207, 15, 0.24), (2380, 22, 0.06),
    )),
)
# fmt: on
_CROP, _LOAM, _WATER, _CONCRETE, _STUBBLE, _LIMESTONE = range(6)


def scene(
    shape: tuple[int, int, int] = (96, 128, 180),
    *,
    endmembers: int = 6,
    rng: int | np.random.Generator = 0,
) -> Cube:
    """Make a noise-free scene of farmland seen by an imaging spectrometer.

    Straight-edged fields on both banks of a meandering river, a road, a few farm buildings and a
    quarry. Every pixel is a brightness times a linear mixture of ``endmembers`` reflectance
    spectra, so the (pixels, bands) matrix has at most that rank; a 20 x 20 window sees two to five
    of them. Pixels along borders are mixed by the area that each side takes.

    Parameters
    ----------
    shape
        (rows, cols, bands). Objects keep their size in pixels: a larger scene has more fields.
    endmembers
        Number of materials, at least 2. In this order: crop, loam, water, concrete, stubble,
        limestone, conifer, clay; further ones are variants of these.
    rng
        Seed or generator. The same seed gives the same scene.

    Returns
    -------
    Cube
        float64 reflectance in [0, 1] at wavelengths from 400 to 2450 nm. ``metadata`` names the
        endmembers.

    Notes
    -----
    Shapes and positions of the spectral features (red edge; liquid water at 970, 1200, 1450 and
    1940 nm; clay at 2200 nm; carbonate at 2330 nm; cellulose at 2100 nm) are those of field
    spectra, the values themselves are invented. There is no atmosphere: the bands at 1400 and
    1900 nm, which a real sensor loses to water vapour, are as good as all others.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube.synthetic import scene
    >>> truth = scene((40, 50, 60), endmembers=4)
    >>> truth.shape
    (40, 50, 60)
    >>> int(np.linalg.matrix_rank(truth.values.reshape(-1, 60)))
    4
    """
    rows, cols, bands = check_shape(shape)
    if not is_int(endmembers) or endmembers < 2:
        raise ValueError(f"Invalid endmembers {endmembers}. It must be an integer of at least 2.")
    rng = np.random.default_rng(rng)
    wavelengths = np.linspace(FIRST_NM, LAST_NM, bands)
    materials = list(_MATERIALS[:endmembers])
    for index in range(len(_MATERIALS), endmembers):  # variants, once the table is used up
        parent = _MATERIALS[index % len(_MATERIALS)]
        materials.append(parent.variant(index // len(_MATERIALS) + 1, rng))
    spectra = np.stack([material.spectrum(wavelengths) for material in materials])

    labels, recipes, tilt = _map(rows, cols, endmembers, rng)
    blocks = labels.reshape(rows, SUPERSAMPLING, cols, SUPERSAMPLING)
    shares = [share[blocks].mean(axis=(1, 3)) for share in recipes.T]
    abundances = np.stack(shares, axis=-1)
    brightness = _brightness(rows, cols, tilt, rng)
    values = (brightness[..., None] * abundances) @ spectra

    metadata = {
        "name": "reflectance",
        "units": "1",
        "fwhm": [(LAST_NM - FIRST_NM) / max(bands - 1, 1)] * bands,
        "endmembers": [material.name for material in materials],
        "source": "synthetic scene",
    }
    return Cube(np.clip(values, 0.0, 1.0), wavelengths=wavelengths, metadata=metadata)


def _map(
    rows: int, cols: int, endmembers: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """Lay out the land: fine label map, mixture of every label, direction of the fields."""
    y, x = ((np.arange(n * SUPERSAMPLING) + 0.5) / SUPERSAMPLING for n in (rows, cols))
    y, x = y[:, None], x[None, :]  # of the fine grid, in pixels
    size = min(rows, cols)
    scale = min(1.0, size / 60)
    river, bank = _river(y, x, rows, cols, scale, rng)
    tilt = rng.uniform(0.15, 0.45) * rng.choice([-1, 1])
    side = max(min(FIELD_SIDE, 0.45 * math.sqrt(rows * cols)), 1.0)
    labels = _fields(y, x, bank, side, tilt, rng)
    recipes = [_field_recipe(endmembers, rng) for _ in range(int(labels.max()) + 1)]

    def paint(where: np.ndarray, material: int) -> None:
        labels[where] = len(recipes)
        recipes.append(np.eye(endmembers)[material])

    if endmembers > _LIMESTONE:
        paint(_blob(y, x, rows, cols, 9.0 * scale, rng), _LIMESTONE)
    if endmembers > _WATER:
        paint(river, _WATER)
    if endmembers > _CONCRETE:
        road, farm = _road_and_farm(y, x, rows, cols, scale, rng)
        paint(road | (farm & ~river), _CONCRETE)
    return labels, np.array(recipes), tilt


def _river(
    y: np.ndarray, x: np.ndarray, rows: int, cols: int, scale: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return where the river flows, and which bank every point lies on."""
    phase, other = rng.uniform(0, 2 * math.pi, 2)
    middle = cols * rng.uniform(0.30, 0.70) + (y - rows / 2) * rng.uniform(-0.5, 0.5)
    middle = middle + scale * (
        9.0 * np.sin(2 * math.pi * y / 85 + phase) + 3.0 * np.sin(2 * math.pi * y / 37 + other)
    )
    half_width = scale * (2.6 + 0.8 * np.sin(2 * math.pi * y / 60 + other))
    # Across the flow: a slanted reach is not to look wider than a straight one.
    slope = np.gradient(middle[:, 0], y[:, 0])[:, None] if y.size > 1 else np.zeros((1, 1))
    return np.abs(x - middle) < half_width * np.hypot(1, slope), x > middle


def _fields(
    y: np.ndarray,
    x: np.ndarray,
    bank: np.ndarray,
    side: float,
    tilt: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Cut each bank into fields of about ``side`` pixels by straight, nearly parallel lines."""
    labels = np.zeros(bank.shape, dtype=np.int32)
    width = bank.shape[1]
    flat = bank.ravel()
    pending = [(np.flatnonzero(flat), tilt), (np.flatnonzero(~flat), tilt + rng.uniform(0.2, 0.5))]
    count = 0
    while pending:
        points, angle = pending.pop()
        py, px = y[points // width, 0], x[0, points % width]
        if points.size <= rng.uniform(0.7, 1.5) * (side * SUPERSAMPLING) ** 2:
            labels.ravel()[points] = count
            count += 1
            continue
        along = px * math.cos(angle) + py * math.sin(angle)
        across = py * math.cos(angle) - px * math.sin(angle)
        axis = along if np.ptp(along) > np.ptp(across) else across
        skew = axis + rng.uniform(-0.08, 0.08) * (across if axis is along else along)
        cut = np.quantile(skew, rng.uniform(0.38, 0.62))
        pending += [(points[skew <= cut], angle), (points[skew > cut], angle)]
    return labels


def _field_recipe(endmembers: int, rng: np.random.Generator) -> np.ndarray:
    """Mix one field: a main material over soil, at one of a few covers.

    Many looks come from few materials, which keeps the local rank low: a field that is half
    covered differs from a full one without adding a spectrum.
    """
    recipe = np.zeros(endmembers)
    # Crop counts twice: it is farmland. Beyond the table's first six, all are field materials.
    mains = [_CROP, _CROP, _LOAM] + [m for m in range(_STUBBLE, endmembers) if m != _LIMESTONE]
    main = rng.choice(mains)
    cover = rng.choice([1.0, 0.8, 0.5]) if main != _LOAM else 1.0
    recipe[main] += cover
    recipe[_LOAM] += 1 - cover
    return recipe


def _blob(
    y: np.ndarray, x: np.ndarray, rows: int, cols: int, radius: float, rng: np.random.Generator
) -> np.ndarray:
    """Return a rounded region with a wavy border, away from the image's edge."""
    cy = rows * rng.uniform(0.2, 0.8)
    cx = cols * (rng.uniform(0.12, 0.25) if rng.random() < 0.5 else rng.uniform(0.75, 0.88))
    turn = rng.uniform(0, math.pi)
    along = (x - cx) * math.cos(turn) + (y - cy) * math.sin(turn)
    across = (y - cy) * math.cos(turn) - (x - cx) * math.sin(turn)
    angle = np.arctan2(across, along)
    wave = np.zeros_like(angle)
    for lobes, depth in ((1, 0.20), (2, 0.12), (3, 0.09), (5, 0.05)):
        wave += depth * np.cos(lobes * angle + rng.uniform(0, 2 * math.pi))
    return np.hypot(0.75 * along, 1.2 * across) < radius * (1 + wave)


def _road_and_farm(
    y: np.ndarray, x: np.ndarray, rows: int, cols: int, scale: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return a gently curved road across the scene, and the buildings of a farm beside it."""
    level, slope = rows * rng.uniform(0.3, 0.7), rng.uniform(-0.35, 0.35)
    bend, phase = scale * rng.uniform(3, 6), rng.uniform(0, 2 * math.pi)

    def middle(at: np.ndarray) -> np.ndarray:
        return level + slope * (at - cols / 2) + bend * np.sin(2 * math.pi * at / 140 + phase)

    road = np.abs(y - middle(x)) < 0.9 * max(scale, 0.5)
    farm = np.zeros(road.shape, dtype=bool)
    start = cols * rng.uniform(0.15, 0.75)
    for _ in range(6):
        bx = start + scale * rng.uniform(0, 16)
        by = middle(np.array(bx)) + scale * rng.choice([-1, 1]) * rng.uniform(3.0, 6.0)
        half_x, half_y = scale * rng.uniform(0.9, 2.0, 2)
        dy, dx = y - by - slope * (x - bx), x - bx
        farm |= (np.abs(dx) < half_x) & (np.abs(dy) < half_y)
    return road, farm


def _brightness(rows: int, cols: int, tilt: float, rng: np.random.Generator) -> np.ndarray:
    """Return the illumination and growth of every pixel: smooth patches and faint tillage lines.

    One factor per pixel, the same at all bands: it changes no rank.
    """
    from scipy.ndimage import gaussian_filter

    patches = gaussian_filter(rng.standard_normal((rows, cols)), 4.0, mode="reflect")
    patches /= max(float(np.abs(patches).max()), 1e-12)
    y, x = np.mgrid[:rows, :cols]
    tillage = np.sin(2 * math.pi * (y * math.cos(tilt) - x * math.sin(tilt)) / 5.0)
    return 1 + 0.10 * patches + 0.02 * tillage


def check_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return ``shape`` if it has three positive axes, or say what is wrong with it."""
    if len(shape) != 3 or not all(is_int(n) and n > 0 for n in shape):
        raise ValueError(f"Invalid shape {shape}. It must be (rows, cols, bands), each at least 1.")
    rows, cols, bands = shape
    return rows, cols, bands


def check_share(name: str, share: float) -> None:
    """Refuse a share outside 0..1."""
    if not 0 <= share <= 1:
        raise ValueError(f"Invalid {name} {share}. It must be a share between 0 and 1.")


def is_int(value: object) -> bool:
    """Tell whether a value is a whole number, and no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)

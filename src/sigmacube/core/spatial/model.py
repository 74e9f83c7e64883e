"""What a scene knows as a whole: subspace, noise in space, and how large errors are."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from sigmacube.core.spatial.geometry import Windows, window_sizes

__all__ = ["RiskTable", "SpatialModel"]


@dataclass(frozen=True, eq=False)
class RiskTable:
    """Mean squared error of the final estimate, as windows of one size see it."""

    kept: np.ndarray
    """(rings · bins,) per coefficient of a kept direction, by class."""
    dropped: np.ndarray
    """(levels, rings) per coefficient of a direction below the window's edge."""
    levels: np.ndarray
    """(levels − 1,) bounds of what is left in dropped directions, per coefficient."""


@dataclass(frozen=True, eq=False)
class SpatialModel:
    """The scene's knowledge that every region needs; arrays and numbers only."""

    shape: tuple[int, int, int]
    """Rows, columns and bands of the scene."""
    windows: tuple[tuple[int, int], ...]
    """(size, step) of the windows, as asked for."""
    basis: np.ndarray
    """(P, k) B, orthonormal, strongest direction first."""
    strength: np.ndarray
    """(k,) g_i / λ_i: the error of B at a pixel is a^g_u = Σ_i z_ui² g_i / λ_i."""
    noise_power: tuple[np.ndarray, ...]
    """Per size, (rows, cols) N(f): power of the noise at each spatial frequency, mean one."""
    edges: np.ndarray
    """(sizes,) largest singular value of noise in a window, n pixels by k directions."""
    risk: tuple[RiskTable, ...]
    """Per size, how large errors are."""
    gain: np.ndarray
    """(k,) what the variance along each direction of B is multiplied by."""
    spread_bounds: np.ndarray
    """(classes − 1,) bounds of the spread of windows at a pixel, over the root of its claim."""
    spread_factor: np.ndarray
    """(classes,) what the variance is multiplied by."""
    residual_scale: np.ndarray
    """(2, 3) of the tests inside and outside the subspace: centre and width on ordinary pixels, and
    the score that foreign pixels begin at."""
    missing: bool
    """Whether the scene has missing elements anywhere."""
    hole_factor: float
    """What the variance of a pixel that was not observed at all is multiplied by."""

    @property
    def sizes(self) -> tuple[Windows, ...]:
        """The windows of every size."""
        return window_sizes(self.shape[:2], self.windows)

    @property
    def band_share(self) -> np.ndarray:
        """(P,) c_v = ‖B_v‖²."""
        return np.sum(self.basis**2, axis=1)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return everything as arrays by name, for a file or another process."""
        arrays = {
            field.name: np.asarray(getattr(self, field.name))
            for field in fields(self)
            if field.name not in ("noise_power", "risk")
        }
        for i, (power, table) in enumerate(zip(self.noise_power, self.risk, strict=True)):
            arrays[f"noise_power_{i}"] = power
            for field in fields(table):
                arrays[f"risk_{field.name}_{i}"] = getattr(table, field.name)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> SpatialModel:
        """Return the model that `to_arrays` wrote."""
        count = sum(name.startswith("noise_power_") for name in arrays)
        risk = (
            RiskTable(*(np.asarray(arrays[f"risk_{f.name}_{i}"]) for f in fields(RiskTable)))
            for i in range(count)
        )
        rows, cols, bands = (int(n) for n in arrays["shape"])
        plain = ("basis", "strength", "edges", "gain", "spread_bounds", "spread_factor", "residual_scale")
        return cls(
            shape=(rows, cols, bands),
            windows=tuple((int(w), int(s)) for w, s in arrays["windows"]),
            noise_power=tuple(np.asarray(arrays[f"noise_power_{i}"]) for i in range(count)),
            risk=tuple(risk),
            missing=bool(arrays["missing"]),
            hole_factor=float(arrays["hole_factor"]),
            **{name: np.asarray(arrays[name]) for name in plain},
        )

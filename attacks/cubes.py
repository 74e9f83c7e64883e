"""Cubes of all shapes, values, masks and noises, with all options: each gets values and their σ.

Most cases are valid. A case is clean if the estimate is finite where the data are valid and NaN
elsewhere, σ is finite and positive there, no warning is raised, and two workers give the same bits
as one; or if it is refused in one line that names what was given. Hypothesis makes the cases and,
where one is bad, finds the smallest that is.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import sigmacube as sc
from attacks._worker import Bad

#: Cases that one number stands for.
BATCH = 20
_SCALES = (1.0, 1.0, 1.0, 1.0, 1e4, 1e4, 1e-4, 1e-4, 1e30, 1e-30, 1e60, 1e-60, 1e160, 1e-160)
_DTYPES = ("f8", "f8", "f4", "i2", "u2", "u1", "i4", ">f4")


@st.composite
def scenes(draw: Any) -> dict[str, Any]:
    """Draw a cube with its noise and mask."""
    least = draw(st.sampled_from([1, 2, 4, 4, 4, 4, 4, 4, 4, 4]))  # windows fit into most of them
    most = draw(st.sampled_from([8, 12, 16, 24]))
    rows, cols = (draw(st.integers(least, most)) for _ in range(2))
    bands = draw(st.integers(min(least, 2), draw(st.sampled_from([6, 12, 20]))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rank = draw(st.integers(0, 3))
    values = rng.normal(size=(rows * cols, rank)) @ rng.normal(size=(rank, bands))
    values = (5 + values + 0.1 * rng.normal(size=values.shape)).reshape(rows, cols, bands)
    special = draw(st.sampled_from(["none"] * 8 + ["flat", "dead band", "impulses", "one value"]))
    if special == "flat":
        values[:] = 1.0
    elif special == "dead band":
        values[..., draw(st.integers(0, bands - 1))] = 0.0
    elif special == "impulses":
        values[rng.random(values.shape) < 0.1] = 100.0
    elif special == "one value":
        values[:] = 5.0
        values[0, 0, 0] = 6.0
    dtype = draw(st.sampled_from(_DTYPES))
    scale = draw(st.sampled_from(_SCALES)) if dtype == "f8" else 1.0
    if np.dtype(dtype).kind != "f":
        values, scale = values.clip(0, 12), 20.0
    values = (values * scale).astype(dtype)
    noise = _noise(draw, bands, scale)
    values, mask = _gaps(draw, rng, values)
    return {"cube": values, "noise": noise, "mask": mask}


def _noise(draw: Any, bands: int, scale: float) -> Any:
    kinds = {"level": 8, "bands": 4, "covariance": 3, "signal": 2, "estimated": 4, "tiny": 0.2}
    names = [name for name, share in kinds.items() for _ in range(int(5 * share))]
    kind = draw(st.sampled_from(names))
    level = 0.1 * scale
    if kind == "bands":
        return level * np.linspace(0.5, 1.5, bands)
    if kind in ("covariance", "signal") and 1e-100 < scale < 1e100:  # its square must be a number
        if kind == "signal":
            return sc.SignalNoise(0.1 * level / 5, 0.9 * level**2)
        distance = np.abs(np.subtract.outer(np.arange(bands), np.arange(bands)))
        return level**2 * 0.4**distance
    if kind == "estimated":
        return draw(st.sampled_from([None, None, None, "regression", "differences", "residual"]))
    return 1e-320 if kind == "tiny" else level


def _gaps(draw: Any, rng: np.random.Generator, values: np.ndarray) -> tuple[np.ndarray, Any]:
    kind = draw(st.sampled_from(["none"] * 4 + ["few", "most", "pixels", "one", "nan", "strip"]))
    shape = values.shape
    if kind == "none":
        return values, None
    if kind in ("few", "most"):
        return values, rng.random(shape) < (0.9 if kind == "few" else 0.2)
    if kind == "pixels":
        return values, rng.random(shape[:2]) < 0.5
    if kind == "one":
        mask = np.zeros(shape[:2], dtype=bool)
        mask[shape[0] // 2, shape[1] // 2] = True
        return values, mask
    if kind == "strip":
        mask = np.zeros(shape[:2], dtype=bool)
        mask[:, shape[1] // 2] = True
        return values, mask
    if values.dtype.kind == "f":
        values = values.copy()
        values[rng.random(shape) < 0.2] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    return values, None


@st.composite
def options(draw: Any) -> dict[str, Any]:
    """Draw options that go together."""
    window = draw(st.integers(2, 14) if draw(st.integers(0, 9)) == 0 else st.integers(2, 6))
    chosen: dict[str, Any] = {"window": window, "step": draw(st.integers(1, window))}
    chosen["solver"] = draw(st.sampled_from(["svd"] * 4 + ["robust", "godec", "ssgodec", "rpca"]))
    chosen["uncertainty"] = draw(st.sampled_from([True, True, True, False]))
    if draw(st.booleans()):
        if chosen["solver"] not in ("svd", "robust"):
            chosen["solver"] = "svd"
        return {"prior": "spatial", **chosen} if draw(st.booleans()) else {
            "prior": "spatial", "solver": chosen["solver"], "uncertainty": chosen["uncertainty"]
        }  # fmt: skip
    if draw(st.integers(0, 7)) == 0:  # windows that differ by axis
        chosen["window"] = (window, draw(st.integers(2, 6)), draw(st.sampled_from([None, 2, 5])))
        chosen["step"] = tuple(None if w is None else min(2, w) for w in chosen["window"])
    chosen |= {
        "overlap": draw(st.sampled_from(["exact", "ratio"])),
        "weights": draw(st.sampled_from(["precision", "uniform"])),
        "finite_noise": draw(st.booleans()),
        "rank": draw(st.sampled_from(["auto", "auto", 1, 2, 5])),
    }
    return {"prior": None, **chosen}


def case(number: int, folder: Path) -> dict[str, int]:
    """Try a batch of cubes."""
    found: dict[str, int] = {}
    failed = False

    @seed(number)
    @settings(max_examples=BATCH, database=None, deadline=None, derandomize=False,
              suppress_health_check=list(HealthCheck), print_blob=False)  # fmt: skip
    @given(scenes(), options())
    def attack(scene: dict[str, Any], chosen: dict[str, Any]) -> None:
        nonlocal failed
        (folder / "options.txt").write_text(repr(chosen))
        with (folder / "scene.pickle").open("wb") as file:
            pickle.dump(scene, file)
        try:
            kind = check(scene, chosen)
        except Exception:
            failed = True  # from now on smaller ones are looked for, which do not count
            raise
        if not failed:
            found[kind] = found.get(kind, 0) + 1

    try:
        attack()
    except Exception as error:
        error.kinds = found  # type: ignore[attr-defined]
        raise
    return found


def check(scene: dict[str, Any], chosen: dict[str, Any]) -> str:
    """Denoise a cube and check what is promised; return whether it was not refused."""
    try:
        result = sc.denoise(**scene, **chosen, workers=1)
    except ValueError as error:
        text = str(error)
        if isinstance(error, np.linalg.LinAlgError) or "\n" in text or not _is_refusal(text):
            raise Bad(f"no refusal: {type(error).__name__}: {text}") from error
        return "refused"
    valid = _valid(scene)
    estimate = np.asarray(result.estimate, dtype=float)
    if not np.isfinite(estimate[valid]).all():
        raise Bad("the estimate is not finite where the data are valid")
    kind = "denoised"
    if result.std is not None:
        std = np.asarray(result.std, dtype=float)[valid]
        # A window without components has an error of zero, see docs/decisions/0005.
        may_be_zero = chosen["prior"] is None and int(np.min(result.ranks)) == 0
        right = np.isfinite(std) & ((std >= 0) if may_be_zero else (std > 0))
        if not right.all():
            raise Bad(f"σ is not positive: {std[~right][:3]}")
        kind = "denoised" if (std > 0).all() else "without-components"
    other = sc.denoise(**scene, **chosen, workers=2)
    for name in ("estimate", "std") if result.std is not None else ("estimate",):
        if not np.array_equal(getattr(result, name), getattr(other, name), equal_nan=True):
            raise Bad(f"two workers give another {name}")
    return kind


def _valid(scene: dict[str, Any]) -> np.ndarray:
    """Return where a scene has data."""
    with np.errstate(all="ignore"):
        valid = np.isfinite(scene["cube"].astype(float))
    if scene["mask"] is not None:
        mask = scene["mask"]
        valid = valid & (mask[..., None] if mask.ndim == 2 else mask)
    valid &= ~_is_constant(np.asarray(scene["cube"]), valid)  # a dead band holds no data
    return np.asarray(valid)


def _is_constant(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Tell which bands have one value only."""
    bands = [values[..., band][valid[..., band]] for band in range(values.shape[2])]
    return np.array([found.size == 0 or found.min() == found.max() for found in bands])


def _is_refusal(text: str) -> bool:
    """Tell whether a text is one that is meant for users."""
    return any(word in text for word in ("must", "Invalid", "cannot", "no valid", "too few"))

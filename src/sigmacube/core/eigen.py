"""Leading eigenpairs of a window's Gram matrix, exact and with the interpreter lock released.

A window needs the few eigenpairs above the noise edge of a matrix of 100-400 bands. Two ways lead
there, and both give the same pairs:

* LAPACK's ``dsyevr`` on a range of values or indices: always right, half the cost of a full
  decomposition. It is reached through SciPy's published C interface, because the calls in
  `scipy.linalg` hold the interpreter lock and threads over windows would queue up.
* Filtered subspace iteration from the scene's own dominant directions: twice as fast where the
  signal stands well above the noise. A Cholesky factorisation then proves that no eigenvalue
  above the edge was missed (Sylvester's law of inertia); if it cannot, LAPACK decides.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

__all__ = ["all_below", "leading_eigenpairs"]

# Residual of an eigenpair relative to its distance from the noise bulk, at which it counts as
# converged: an angle of 1e-8 moves the estimate by some 1e-9 of the noise.
TOLERANCE = 1e-8
MAX_DEGREE = 12
GROWTH = 12.0
MAX_ROUNDS = 6


def leading_eigenpairs(
    gram: np.ndarray,
    *,
    floor: float | None = None,
    count: int | None = None,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenpairs above ``floor``, or the ``count`` largest, in descending order.

    Parameters
    ----------
    gram
        (bands, bands) symmetric positive semi-definite matrix, float64.
    floor
        Eigenvalues must exceed this. Give either ``floor`` or ``count``.
    count
        How many eigenpairs.
    start
        (bands, k) orthonormal columns close to the wanted space; only used with ``floor``. It
        changes the time, and the result below 1e-8 of the noise.

    Returns
    -------
    (values, vectors)
        (k,) eigenvalues and (bands, k) orthonormal eigenvectors.

    Examples
    --------
    >>> import numpy as np
    >>> values, vectors = leading_eigenpairs(np.diag([1.0, 9.0, 4.0]), floor=2.0)
    >>> values
    array([9., 4.])
    """
    if floor is None:
        if count is None:
            raise ValueError("Invalid request: neither floor nor count was given. Give one.")
        return _lapack_range(gram, count=count)
    if start is not None:
        pairs = _filtered_iteration(gram, floor, start)
        if pairs is not None:
            return pairs
    return _lapack_range(gram, floor=floor)


def _filtered_iteration(
    gram: np.ndarray, floor: float, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return all eigenpairs above ``floor`` by subspace iteration; None if it fails."""
    locked_values, locked = np.empty(0), np.empty((len(gram), 0))
    block = np.linalg.qr(gram @ np.linalg.qr(gram @ start)[0])[0]
    values, block, residual = _rayleigh_ritz(gram, block)
    for _ in range(MAX_ROUNDS):
        cut = values[-1]
        if cut >= floor:  # the block is too small to hold every component above the floor
            return None
        above = int(np.count_nonzero(values > floor))
        converged = residual[:above] <= TOLERANCE * (values[:above] - cut)
        ready = above if converged.all() else int(np.argmin(converged))
        if ready:  # take them out: the filter then sees a spectrum of smaller range
            gram = gram - (block[:, :ready] * values[:ready]) @ block[:, :ready].T
            locked_values = np.concatenate([locked_values, values[:ready]])
            locked = np.concatenate([locked, block[:, :ready]], axis=1)
            values, block = values[ready:], block[:, ready:]
        if ready == above:
            return (locked_values, locked) if all_below(gram, floor) else None
        filtered = _chebyshev_filter(gram, block, cut, _safe_degree(values[0] / cut))
        values, block, residual = _rayleigh_ritz(gram, np.linalg.qr(filtered)[0])
    return None


def _safe_degree(spread: float) -> int:
    """Return the filter degree that lets the strongest component outgrow the weakest by 1e12.

    A filter of degree m separates them by about (4 spread)^m; beyond 1e12 the weaker columns would
    drown in rounding errors of the stronger ones before they are made orthogonal again.
    """
    return int(np.clip(GROWTH / np.log10(4.0 * spread), 1, MAX_DEGREE))


def _rayleigh_ritz(
    matrix: np.ndarray, basis: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Ritz values (descending), Ritz vectors and residual norms on an orthonormal basis."""
    image = matrix @ basis
    values, rotation = np.linalg.eigh(basis.T @ image)
    values, rotation = values[::-1], rotation[:, ::-1]
    vectors = basis @ rotation
    error = image @ rotation - vectors * values
    return values, vectors, np.sqrt(np.einsum("ij,ij->j", error, error))


def _chebyshev_filter(matrix: np.ndarray, block: np.ndarray, cut: float, degree: int) -> np.ndarray:
    """Apply the Chebyshev polynomial that damps eigenvalues in [0, cut] to the block."""
    scale = 2.0 / cut
    previous, current = block, scale * (matrix @ block) - block
    for _ in range(degree - 1):
        previous, current = current, 2.0 * (scale * (matrix @ current) - current) - previous
    return current


def all_below(matrix: np.ndarray, bound: float) -> bool:
    """Tell whether every eigenvalue of a symmetric matrix is below ``bound``, to 1e-5 of it.

    Single precision is enough: the dominant components are gone, and an eigenvalue that close to
    the noise edge is as likely noise as signal.
    """
    size = len(matrix)
    shifted = np.multiply(matrix, -1 / bound, dtype=np.float32, casting="same_kind")
    shifted.reshape(-1)[:: size + 1] += 1
    info = ctypes.c_int(0)
    order = ctypes.c_int(size)
    _lapack("spotrf")(b"L", ctypes.byref(order), _address(shifted), ctypes.byref(order),
                      ctypes.byref(info))  # fmt: skip
    return info.value == 0


def _lapack_range(
    gram: np.ndarray, *, floor: float = 0.0, count: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return leading eigenpairs by LAPACK ``dsyevr``, by index if ``count`` is given."""
    size = len(gram)
    most = size if count is None else count
    matrix = np.array(gram, order="C")  # destroyed by LAPACK; symmetric, so C order serves
    values = np.empty(size)
    vectors = np.empty((most, size))  # rows here are the columns LAPACK writes
    support = np.empty(2 * max(1, most), dtype=np.intc)
    work = np.empty(40 * size)
    iwork = np.empty(10 * size, dtype=np.intc)
    found, info = ctypes.c_int(0), ctypes.c_int(0)
    by = ctypes.byref
    _lapack("dsyevr")(
        b"V", b"V" if count is None else b"I", b"L",
        by(ctypes.c_int(size)), _address(matrix), by(ctypes.c_int(size)),
        by(ctypes.c_double(floor)), by(ctypes.c_double(np.inf if count else _bound(gram, floor))),
        by(ctypes.c_int(size - most + 1)), by(ctypes.c_int(size)), by(ctypes.c_double(0.0)),
        by(found), _address(values), _address(vectors), by(ctypes.c_int(size)),
        _address(support), _address(work), by(ctypes.c_int(work.size)),
        _address(iwork), by(ctypes.c_int(iwork.size)), by(info),
    )  # fmt: skip
    if info.value != 0:
        raise RuntimeError(f"LAPACK dsyevr failed with info {info.value}.")
    kept = found.value
    return values[:kept][::-1].copy(), np.ascontiguousarray(vectors[:kept][::-1].T)


def _bound(gram: np.ndarray, floor: float) -> float:
    """Return a number above every eigenvalue and above ``floor``."""
    return max(2.0 * float(np.trace(gram)), 2.0 * floor, 1.0)


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@cache
def _lapack(name: str) -> Any:
    """Return a LAPACK routine from SciPy's C interface; a call through ctypes frees the lock."""
    from scipy.linalg import cython_lapack

    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = api.PyCapsule_GetName(capsule)
    address = api.PyCapsule_GetPointer(capsule, signature)
    arguments = [ctypes.c_char_p if part.strip().startswith(b"char") else ctypes.c_void_p
                 for part in signature[signature.index(b"(") + 1 : -1].split(b",")]  # fmt: skip
    return ctypes.CFUNCTYPE(None, *arguments)(address)

"""Leading eigenpairs of a window's Gram matrix, exact and with the interpreter lock released.

A window needs the few eigenpairs above the noise edge of a matrix of 100-400 bands. Two ways lead
there, and both give the same pairs:

* LAPACK on a range of values or indices: always right, a third of the cost of a full
  decomposition. It is reached through SciPy's published C interface, because the calls in
  `scipy.linalg` hold the interpreter lock and threads over windows would queue up.
* Filtered subspace iteration from the scene's own dominant directions: twice as fast where the
  signal stands well above the noise. A Cholesky factorisation then proves that no eigenvalue
  above the edge was missed (Sylvester's law of inertia); if it cannot, LAPACK decides.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np

__all__ = ["leading_eigenpairs"]

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
    """Return all eigenpairs above ``floor`` by subspace iteration; None if it fails.

    Vectors are rows here.
    """
    locked_values, locked = [], []
    block = _orthonormal(_orthonormal(start.T @ gram) @ gram)
    values, block, residual = _rayleigh_ritz(gram, block)
    for _ in range(MAX_ROUNDS):
        cut = values[-1]
        if cut >= floor:  # the block is too small to hold every component above the floor
            return None
        above = int(np.count_nonzero(values > floor))
        excess = residual[:above] / (TOLERANCE * (values[:above] - cut))
        converged = excess <= 1
        ready = above if converged.all() else int(np.argmin(converged))
        if ready:  # take them out: the filter then sees a spectrum of smaller range
            found = block[:ready]
            gram = gram - (found.T * values[:ready]) @ found
            locked_values.append(values[:ready])
            locked.append(found)
            values, block = values[ready:], block[ready:]
        if ready == above:
            if not locked or not _all_below(gram, floor):
                return None
            return np.concatenate(locked_values), np.concatenate(locked).T
        enough = _needed_degree(excess[ready:], values[: above - ready] / cut)
        degree = min(enough, _safe_degree(values[0] / cut))
        filtered = _chebyshev_filter(gram, block, cut, degree)
        values, block, residual = _rayleigh_ritz(gram, _orthonormal(filtered))
    return None


def _needed_degree(excess: np.ndarray, strengths: np.ndarray) -> int:
    """Return the filter degree that should bring all pairs to convergence.

    A filter step shrinks the error of a pair at ``strengths`` times the cut by x + √(x² − 1),
    x = 2 strengths − 1; ``excess`` is the residual over what is tolerated.
    """
    x = 2 * strengths - 1
    steps = np.log(excess) / np.log(x + np.sqrt(x * x - 1))
    return int(np.ceil(steps.max())) + 1


def _safe_degree(spread: float) -> int:
    """Return the filter degree that lets the strongest component outgrow the weakest by 1e12.

    A filter of degree m separates them by about (4 spread)^m; beyond 1e12 the weaker columns would
    drown in rounding errors of the stronger ones before they are made orthogonal again.
    """
    return int(np.clip(GROWTH / np.log10(4.0 * spread), 1, MAX_DEGREE))


def _orthonormal(block: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the rows, overwriting them.

    `numpy.linalg.qr` spends more time on R, which nobody needs, than on Q.
    """
    count, size = block.shape
    room = _workspace(size)
    at, n_work, info = room.at, _int(room.work.size), ctypes.c_int(0)
    rows, n = _int(count), _int(size)
    where = ctypes.c_void_p(block.__array_interface__["data"][0])
    _lapack("dgeqrf")(n, rows, where, n, at["reflectors"], at["work"], n_work, ctypes.byref(info))
    _lapack("dorgqr")(
        n, rows, rows, where, n, at["reflectors"], at["work"], n_work, ctypes.byref(info)
    )
    return block


def _rayleigh_ritz(
    matrix: np.ndarray, basis: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Ritz values (descending), Ritz vectors and residual norms on an orthonormal basis."""
    image = basis @ matrix
    values, rotation = np.linalg.eigh(image @ basis.T)
    values, rotation = values[::-1], rotation.T[::-1]
    vectors = rotation @ basis
    error = rotation @ image
    error -= values[:, None] * vectors
    return values, vectors, np.sqrt(np.einsum("ij,ij->i", error, error))


def _chebyshev_filter(matrix: np.ndarray, block: np.ndarray, cut: float, degree: int) -> np.ndarray:
    """Apply the Chebyshev polynomial that damps eigenvalues in [0, cut] to the rows of a block."""
    scale = 2.0 / cut
    previous, current = block, scale * (block @ matrix) - block
    for _ in range(degree - 1):
        previous, current = current, 2.0 * (scale * (current @ matrix) - current) - previous
    return current


def _all_below(matrix: np.ndarray, bound: float) -> bool:
    """Tell whether every eigenvalue of a symmetric matrix is below ``bound``, to 1e-5 of it.

    Single precision is enough: the dominant components are gone, and an eigenvalue that close to
    the noise edge is as likely noise as signal.
    """
    room = _workspace(len(matrix))
    np.multiply(matrix, -1 / bound, out=room.single, casting="same_kind")
    room.single.reshape(-1)[:: room.size + 1] += 1
    info = ctypes.c_int(0)
    n = _int(room.size)
    _lapack("spotrf")(b"L", n, room.at["single"], n, ctypes.byref(info))
    return info.value == 0


def _lapack_range(
    gram: np.ndarray, *, floor: float = 0.0, count: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return leading eigenpairs by LAPACK, by index if ``count`` is given, else above ``floor``.

    Tridiagonal reduction, relatively robust representations on the wanted range, and back. The
    driver ``dsyevr`` would do the same by bisection and inverse iteration, a sixth slower.
    """
    room = _workspace(len(gram))
    size, most = room.size, room.size if count is None else count
    np.copyto(room.matrix, gram)  # symmetric, so LAPACK may read it in either order
    found, info = ctypes.c_int(0), ctypes.c_int(0)
    n, n_work, at = _int(size), _int(room.work.size), room.at
    _lapack("dsytrd")(
        b"L", n, at["matrix"], n, at["diagonal"], at["beside"], at["reflectors"], at["work"],
        n_work, ctypes.byref(info),
    )  # fmt: skip
    _lapack("dstemr")(
        b"V", b"V" if count is None else b"I", n, at["diagonal"], at["beside"], _double(floor),
        _double(_bound(gram, floor)), _int(size - most + 1), n, ctypes.byref(found), at["values"],
        at["vectors"], n, _int(most), at["support"], _int(1), at["work"], n_work, at["integers"],
        _int(room.integers.size), ctypes.byref(info),
    )  # fmt: skip
    if info.value != 0:
        raise RuntimeError(f"LAPACK dstemr failed with info {info.value}.")
    kept = found.value
    _lapack("dormtr")(
        b"L", b"L", b"N", n, _int(kept), at["matrix"], n, at["reflectors"], at["vectors"], n,
        at["work"], n_work, ctypes.byref(info),
    )  # fmt: skip
    # A single row reversed and transposed is contiguous already; the workspace must not leak out.
    return room.values[:kept][::-1].copy(), room.vectors[:kept][::-1].T.copy(order="C")


class _Workspace:
    """Arrays that LAPACK writes to, with their addresses, for matrices of one size."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.matrix = np.empty((size, size))
        self.single = np.empty((size, size), dtype=np.float32)
        self.diagonal, self.beside, self.reflectors = (np.empty(size) for _ in range(3))
        self.values, self.vectors = np.empty(size), np.empty((size, size))  # rows: eigenvectors
        self.work, self.integers = np.empty(64 * size), np.empty(10 * size, dtype=np.intc)
        self.support = np.empty(2 * size, dtype=np.intc)
        self.at = {name: ctypes.c_void_p(array.ctypes.data) for name, array in vars(self).items()
                   if isinstance(array, np.ndarray)}  # fmt: skip


_per_thread = threading.local()


def _workspace(size: int) -> _Workspace:
    """Return this thread's workspace; only the last size is kept."""
    room = getattr(_per_thread, "room", None)
    if room is None or room.size != size:
        room = _per_thread.room = _Workspace(size)
    return room


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _double(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))


def _bound(gram: np.ndarray, floor: float) -> float:
    """Return a number above every eigenvalue and above ``floor``."""
    return max(2.0 * float(np.trace(gram)), 2.0 * floor, 1.0)


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

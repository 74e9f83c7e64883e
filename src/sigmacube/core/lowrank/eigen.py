"""Leading eigenpairs of a window's Gram matrix by LAPACK, with the interpreter lock released.

A window needs the few eigenpairs above the noise edge of a matrix of 100-400 bands. LAPACK on a
range of values or indices finds them at a third of the cost of a full decomposition. It is reached
through SciPy's published C interface, because the calls in `scipy.linalg` hold the interpreter lock
and threads over windows would queue up.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np

__all__ = ["Certificate", "all_below", "leading_eigenpairs"]

# dstemr's check for high relative accuracy, which Gram matrices do not need: when it is on and no
# eigenvalue lies in the range, LAPACK reads a block number that it never wrote, and may crash.
TRYRAC = 0


def leading_eigenpairs(
    gram: np.ndarray, *, floor: float | None = None, count: int | None = None
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
    return _lapack_range(gram, floor=floor)


def all_below(matrices: np.ndarray, bounds: np.ndarray) -> list[bool]:
    """Tell whether every eigenvalue of a symmetric matrix is below its bound, to 1e-5 of it.

    Parameters
    ----------
    matrices
        (matrices, bands, bands) without dominant components. Single precision is enough for the
        rest: an eigenvalue that close to the noise edge is as likely noise as signal.
    bounds
        (matrices,) the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> all_below(np.diag([1.0, 2.0, 3.0])[None].repeat(2, axis=0), np.array([3.01, 2.99]))
    [True, False]
    """
    certificate, none = Certificate(matrices.shape[1]), np.empty((0, matrices.shape[1]))
    return [certificate.holds(matrix, none[:, 0], none, float(bound))
            for matrix, bound in zip(matrices, bounds, strict=True)]  # fmt: skip


class Certificate:
    """Proves that a symmetric matrix has no eigenvalue above a bound but those that are known.

    By a Cholesky factorisation in single precision of the bound minus the matrix without its known
    pairs. The room for it is used again and again, because it just fits into the cache.

    Examples
    --------
    >>> import numpy as np
    >>> matrix, pair = np.diag([1.0, 900.0, 3.0]), (np.array([900.0]), np.array([[0.0, 1.0, 0.0]]))
    >>> Certificate(3).holds(matrix, *pair, bound=3.01), Certificate(3).holds(matrix, *pair, 2.99)
    (True, False)
    """

    def __init__(self, size: int) -> None:
        self.known = np.empty((size, size))
        self.slack = np.empty((size, size), dtype=np.float32)

    def holds(
        self, matrix: np.ndarray, values: np.ndarray, vectors: np.ndarray, bound: float
    ) -> bool:
        """Tell whether all eigenvalues but those of known pairs (vectors as rows) are below."""
        np.matmul((vectors * values[:, None]).T, vectors, out=self.known)
        np.subtract(self.known, matrix, out=self.slack, casting="same_kind")
        self.slack.ravel()[:: len(matrix) + 1] += np.float32(bound)
        n, info = _int(len(matrix)), ctypes.c_int(0)
        _lapack("spotrf")(b"L", n, ctypes.c_void_p(self.slack.ctypes.data), n, ctypes.byref(info))
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
        at["vectors"], n, _int(most), at["support"], _int(TRYRAC), at["work"], n_work,
        at["integers"], _int(room.integers.size), ctypes.byref(info),
    )  # fmt: skip
    if info.value != 0:
        raise RuntimeError(f"LAPACK dstemr failed with info {info.value}.")
    kept = found.value
    if kept:
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
        self.diagonal, self.beside, self.reflectors = (np.empty(size) for _ in range(3))
        self.values, self.vectors = np.empty(size), np.empty((size, size))  # rows: eigenvectors
        self.work = np.empty(64 * size)
        # Zeros, not empty: where no eigenvalue lies in the range, dstemr follows integers that it
        # has not set.
        self.integers = np.zeros(10 * size, dtype=np.intc)
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
    # Prototypes of one's own: attributes of `pythonapi` are made on first use, and two threads that
    # do so at once could call one without its result type, which cuts the address to 32 bits.
    get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)
    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    signature = get_name(("PyCapsule_GetName", ctypes.pythonapi))(capsule)
    address = get_pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, signature)
    arguments = [ctypes.c_char_p if part.strip().startswith(b"char") else ctypes.c_void_p
                 for part in signature[signature.index(b"(") + 1 : -1].split(b",")]  # fmt: skip
    return ctypes.CFUNCTYPE(None, *arguments)(address)

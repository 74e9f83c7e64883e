"""Leading eigenpairs: both ways against a full decomposition."""

from __future__ import annotations

import numpy as np
import pytest

from sigmacube.core.eigen import _all_below, _filtered_iteration, leading_eigenpairs
from sigmacube.core.rank import noise_edge


def patch(strengths: tuple[float, ...], rng: np.random.Generator, n: int = 200, p: int = 90):
    """A patch of unit noise with components of the given strengths relative to the edge."""
    edge = noise_edge(n, p)
    u = np.linalg.qr(rng.normal(size=(n, len(strengths))))[0]
    v = np.linalg.qr(rng.normal(size=(p, len(strengths))))[0]
    return (u * (np.array(strengths) * edge)) @ v.T + rng.normal(size=(n, p)), v


STRENGTHS = [(30.0, 5.0, 1.6), (3e4, 2e2, 1.3), (8.0,), (1.15, 1.1), ()]


@pytest.mark.parametrize("strengths", STRENGTHS)
def test_floor_gives_all_pairs_above_it(strengths: tuple[float, ...]) -> None:
    rng = np.random.default_rng(1)
    y, _ = patch(strengths, rng)
    gram = y.T @ y
    floor = noise_edge(*y.shape) ** 2
    expected, vectors = np.linalg.eigh(gram)
    above = expected > floor
    start = np.linalg.qr(rng.normal(size=(90, 7)))[0]
    for guess in (None, start):
        values, found = leading_eigenpairs(gram, floor=floor, start=guess)
        # Rounding of the Gram matrix itself, 1e-16 of the largest eigenvalue, is the limit.
        atol = 1e-15 * expected[-1]
        np.testing.assert_allclose(values, expected[above][::-1], rtol=1e-9, atol=atol)
        projection = vectors[:, above] @ vectors[:, above].T
        np.testing.assert_allclose(found @ found.T, projection, atol=1e-7)


def test_count_gives_the_largest() -> None:
    y, _ = patch((10.0, 2.0), np.random.default_rng(2))
    gram = y.T @ y
    expected, vectors = np.linalg.eigh(gram)
    values, found = leading_eigenpairs(gram, count=6)
    np.testing.assert_allclose(values, expected[::-1][:6], rtol=1e-11)
    np.testing.assert_allclose(found @ found.T, vectors[:, -6:] @ vectors[:, -6:].T, atol=1e-9)


def test_a_start_blind_to_a_component_cannot_hide_it() -> None:
    """The certificate fails where the iteration missed something, and LAPACK steps in."""
    rng = np.random.default_rng(3)
    p = 60
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    spectrum = np.full(p, 1.0)
    spectrum[:3] = (500.0, 100.0, 40.0)
    gram = (basis * spectrum) @ basis.T
    blind = basis[:, [0, 2, 10, 11, 12]]  # exactly orthogonal to the second component
    assert _filtered_iteration(gram, 10.0, blind) is None
    values, _ = leading_eigenpairs(gram, floor=10.0, start=blind)
    np.testing.assert_allclose(values, [500.0, 100.0, 40.0])


def test_certificate_counts_the_largest_eigenvalue() -> None:
    matrix = np.diag([1.0, 2.0, 3.0])
    assert _all_below(matrix, 3.01)
    assert not _all_below(matrix, 2.99)


def test_neither_floor_nor_count_is_refused() -> None:
    with pytest.raises(ValueError, match="neither floor nor count"):
        leading_eigenpairs(np.eye(3))


def test_one_eigenpair_is_not_overwritten_by_the_next_call() -> None:
    first = leading_eigenpairs(np.diag([9.0, 1.0, 1.0]), floor=4.0)[1]
    kept = first.copy()
    leading_eigenpairs(np.diag([1.0, 9.0, 1.0]), floor=4.0)
    np.testing.assert_array_equal(first, kept)


def test_results_do_not_share_the_workspace() -> None:
    """A second call must not change what the first returned, not even for a single vector."""
    first, second = np.diag([1.0, 9.0, 4.0]), np.diag([7.0, 1.0, 2.0])
    for request in ({"count": 1}, {"floor": 5.0}, {"count": 2}):
        values, vectors = leading_eigenpairs(first, **request)
        before = values.copy(), vectors.copy()
        leading_eigenpairs(second, **request)
        np.testing.assert_array_equal(values, before[0])
        np.testing.assert_array_equal(vectors, before[1])

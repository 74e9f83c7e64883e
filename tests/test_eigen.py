"""Leading eigenpairs: both ways against a full decomposition."""

from __future__ import annotations

import numpy as np
import pytest

from sigmacube.core.lowrank.eigen import all_below, leading_eigenpairs
from sigmacube.core.lowrank.iteration import iterate_above
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
    iterated = iterate_above(gram[None], np.array([floor]), start)[0]
    assert (iterated is None) == (len(strengths) == 0)
    for pairs in (leading_eigenpairs(gram, floor=floor), iterated):
        if pairs is None:
            continue
        values, found = pairs
        # Rounding of the Gram matrix itself, 1e-16 of the largest eigenvalue, is the limit.
        atol = 1e-15 * expected[-1]
        np.testing.assert_allclose(values, expected[above][::-1], rtol=1e-9, atol=atol)
        projection = vectors[:, above] @ vectors[:, above].T
        np.testing.assert_allclose(found @ found.T, projection, atol=1e-6)


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
    seeing = basis[:, [0, 1, 2, 10, 11]]
    floors = np.array([10.0])
    assert iterate_above(gram[None], floors, blind) == [None]
    values, _ = iterate_above(gram[None], floors, seeing)[0]
    np.testing.assert_allclose(values, [500.0, 100.0, 40.0])


def test_a_block_too_small_for_all_components_gives_no_answer() -> None:
    gram = np.diag([500.0, 100.0, 40.0, 1.0, 1.0])[None]
    assert iterate_above(gram, np.array([10.0]), np.eye(5)[:, :3]) == [None]


def test_a_stack_gives_the_bits_of_its_matrices_alone() -> None:
    rng = np.random.default_rng(4)
    strengths = [(30.0, 5.0, 1.6), (8.0,), (), (1.2, 1.1), (3e4, 2e2, 1.3), (50.0, 40.0, 2.0)]
    patches = [patch(strength, rng)[0] for strength in strengths]
    grams = np.stack([y.T @ y for y in patches])
    floors = np.array([noise_edge(*y.shape) ** 2 for y in patches])
    start = np.linalg.qr(rng.normal(size=(90, 7)))[0]
    together = iterate_above(grams, floors, start)
    assert sum(pairs is not None for pairs in together) >= 4
    for i, pairs in enumerate(together):
        alone = iterate_above(grams[i : i + 1], floors[i : i + 1], start)[0]
        assert (pairs is None) == (alone is None)
        if pairs is not None and alone is not None:
            np.testing.assert_array_equal(pairs[0], alone[0])
            np.testing.assert_array_equal(pairs[1], alone[1])


def test_matrices_of_very_different_strength_share_a_stack_without_overflow() -> None:
    rng = np.random.default_rng(5)
    patches = [patch(strength, rng)[0] for strength in [(1e20, 1e19, 3.0), (1.12, 1.08)]]
    grams = np.stack([y.T @ y for y in patches])
    floors = np.array([noise_edge(*y.shape) ** 2 for y in patches])
    start = np.linalg.qr(rng.normal(size=(90, 8)))[0]
    with np.errstate(all="raise", under="ignore"):
        _, weak = iterate_above(grams, floors, start)
    expected = np.linalg.eigvalsh(grams[1])
    np.testing.assert_allclose(weak[0], expected[expected > floors[1]][::-1], rtol=1e-9)


def test_certificate_counts_the_largest_eigenvalue() -> None:
    matrices = np.stack([np.diag([1.0, 2.0, 3.0])] * 2)
    assert all_below(matrices, np.array([3.01, 2.99])) == [True, False]


def test_neither_floor_nor_count_is_refused() -> None:
    with pytest.raises(ValueError, match="neither floor nor count"):
        leading_eigenpairs(np.eye(3))


def test_results_do_not_share_the_workspace() -> None:
    """A second call must not change what the first returned, not even for a single vector."""
    first, second = np.diag([1.0, 9.0, 4.0]), np.diag([7.0, 1.0, 2.0])
    for request in ({"count": 1}, {"floor": 5.0}, {"count": 2}):
        values, vectors = leading_eigenpairs(first, **request)
        before = values.copy(), vectors.copy()
        leading_eigenpairs(second, **request)
        np.testing.assert_array_equal(values, before[0])
        np.testing.assert_array_equal(vectors, before[1])


@pytest.mark.parametrize("size", [3, 30, 224])
def test_nothing_above_the_floor_gives_nothing(size: int) -> None:
    noise = np.random.default_rng(0).normal(size=(2 * size, size))
    gram = noise.T @ noise
    values, vectors = leading_eigenpairs(gram, floor=2 * np.linalg.norm(gram, 2))
    assert values.shape == (0,)
    assert vectors.shape == (size, 0)


def test_a_fresh_workspace_survives_a_range_without_eigenvalues():
    """LAPACK reads integers that it has not set there: garbage among them must not crash it."""
    from sigmacube.core.lowrank import eigen

    assert not eigen._Workspace(40).integers.any()
    gram = np.diag(np.arange(1.0, 41.0))
    values, vectors = leading_eigenpairs(gram, floor=50.0)
    assert values.shape == (0,)
    assert vectors.shape == (40, 0)

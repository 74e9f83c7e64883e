"""Shortcuts of the spatial estimator give what the long way gives."""

from __future__ import annotations

import numpy as np
import pytest

from sigmacube.core.rank import noise_edge
from sigmacube.core.spatial.axes import principal, updated
from sigmacube.core.spatial.geometry import Box, Windows, added_up
from sigmacube.core.spatial.holes import find_holes


def windows(seed: int, n: int, k: int) -> np.ndarray:
    """Windows of three strong components in unit noise, strengths well apart."""
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((6, n, 3)) * [80, 40, 20]
    axes = np.linalg.qr(rng.standard_normal((6, k, 3)))[0]
    return signal @ axes.transpose(0, 2, 1) + rng.standard_normal((6, n, k))


def fitted(flat: np.ndarray, vectors: np.ndarray, rank: int) -> np.ndarray:
    """What is left of windows along their leading directions."""
    V = vectors[:, :, :rank].astype(np.float64)
    return flat @ V @ V.transpose(0, 2, 1)


@pytest.mark.parametrize(("n", "k"), [(60, 12), (12, 30)])
def test_axes_of_nearby_data_follow_to_second_order(n: int, k: int) -> None:
    flat, edge = windows(1, n, k), noise_edge(n, k)
    near = principal(flat, edge)[2]
    probe = np.random.default_rng(2).standard_normal(flat.shape)
    errors = []
    for step in (0.1, 0.05):
        moved = flat + step * probe
        values, vectors, axes = principal(moved, edge)
        again, guess = updated(moved, edge, near)
        assert np.array_equal(np.count_nonzero(again > edge**2, axis=1), axes.rank)
        np.testing.assert_allclose(again[:, :3], values[:, :3], rtol=1e-2)
        change = fitted(moved, vectors, 3) - fitted(flat, principal(flat, edge)[1], 3)
        error = fitted(moved, guess, 3) - fitted(moved, vectors, 3)
        errors.append(np.linalg.norm(error) / np.linalg.norm(change))
    assert errors[0] < 0.05
    # Control: the old axes miss what the directions themselves do.
    kept = fitted(moved, principal(flat, edge)[1], 3) - fitted(moved, vectors, 3)
    assert np.linalg.norm(kept) / np.linalg.norm(change) > 3 * errors[1]


def test_windows_of_noise_alone_have_rank_zero_either_way() -> None:
    n, k = 25, 16
    edge = noise_edge(n, k)
    noise = np.random.default_rng(3).standard_normal((200, n, k))
    values, _, axes = principal(noise, edge)
    top = np.linalg.norm(noise, ord=2, axis=(1, 2))
    assert np.array_equal(axes.rank > 0, top > edge)
    np.testing.assert_allclose(values.sum(axis=1), np.square(noise).sum(axis=(1, 2)), rtol=1e-5)
    noise[:, :, 0] += 20 * np.linspace(-1, 1, n)  # control
    assert np.all(principal(noise, edge)[2].rank >= 1)


@pytest.mark.parametrize("part", [Box(0, 5, 0, 8), Box(1, 4, 3, 8), Box(4, 5, 2, 3)])
def test_windows_are_added_up_as_one_by_one(part: Box) -> None:
    grid = Windows.create((20, 31), size=6, step=4)
    assert (len(grid.rows), len(grid.cols)) == (5, 8)
    values = np.random.default_rng(4).standard_normal((*part.shape, 6, 6, 3))
    span = grid.span(part)
    expected = np.zeros((*span.shape, 3))
    for i, j in np.ndindex(*part.shape):
        y = grid.rows.starts[part.top + i] - span.top
        x = grid.cols.starts[part.left + j] - span.left
        expected[y : y + 6, x : x + 6] += values[i, j]
    np.testing.assert_allclose(added_up(grid, part, values), expected, atol=1e-12)


def test_holes_solve_as_dense_matrices() -> None:
    rng = np.random.default_rng(5)
    bands, k = 30, 8
    basis = np.linalg.qr(rng.standard_normal((bands, k)))[0]
    kept = rng.random((7, 9, bands)) > rng.choice([0.0, 0.05, 0.6], (7, 9, 1))
    holes = find_holes(kept, basis)
    seen, guess = rng.standard_normal((2, int(holes.where.sum()), k))
    trust = rng.uniform(0.1, 0.5, k)
    for number, there in enumerate(kept[holes.where]):
        A = basis[there].T @ basis[there]
        expected = np.linalg.solve(A + np.diag(trust), seen[number] + trust * guess[number])
        np.testing.assert_allclose(holes.solve(seen, guess, trust)[number], expected, atol=1e-9)
        expected = (np.eye(k) - A) @ seen[number]
        np.testing.assert_allclose(holes.unseen(seen)[number], expected, atol=1e-9)
        expected = np.diag(basis @ np.linalg.inv(A + 0.1 * np.eye(k)) @ basis.T)
        np.testing.assert_allclose(holes.diagonal(basis, 0.1)[number], expected, atol=1e-9)
    part = holes.part(np.s_[2:5, 1:7])
    inside = np.zeros(holes.where.shape, dtype=bool)
    inside[2:5, 1:7] = True
    mine = inside[holes.where]
    np.testing.assert_array_equal(part.unseen(seen[mine]), holes.unseen(seen)[mine])

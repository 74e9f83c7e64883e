"""The SVD solver is the truncated SVD; the noise edge lets one pure-noise window in 500 pass."""

from __future__ import annotations

import numpy as np
import pytest

from sigmacube.core.lowrank.solvers import PatchSolution, SvdSolver
from sigmacube.core.rank import noise_edge


@pytest.mark.parametrize("shape", [(150, 40), (30, 70), (64, 64)])
@pytest.mark.parametrize("rank", ["auto", 1, 5])
def test_equals_truncated_svd(shape: tuple[int, int], rank: int | str) -> None:
    rng = np.random.default_rng(0)
    n, p = shape
    signal = 8 * rng.normal(size=(n, 3)) @ rng.normal(size=(3, p))
    patch = signal + rng.normal(size=shape)
    solution = SvdSolver(rank)(patch)
    u, d, vt = np.linalg.svd(patch, full_matrices=False)
    r = 3 if rank == "auto" else rank
    assert solution.rank == r
    np.testing.assert_allclose(solution.estimate, (u[:, :r] * d[:r]) @ vt[:r], atol=1e-8)
    np.testing.assert_allclose(solution.residual, np.sum(d[r:] ** 2), rtol=1e-8)
    np.testing.assert_allclose(solution.left.T @ solution.left, np.eye(r), atol=1e-9)


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e9])
def test_exact_at_any_signal_to_noise(scale: float) -> None:
    """A float64 Gram matrix would lose the noise floor at the highest of these."""
    rng = np.random.default_rng(1)
    signal = scale * np.outer(rng.normal(size=120), rng.normal(size=50))
    weak = 40 * np.outer(
        *(v / np.linalg.norm(v) for v in (rng.normal(size=120), rng.normal(size=50)))
    )
    patch = signal + weak + rng.normal(size=(120, 50))
    assert SvdSolver()(patch).rank == 2


def test_noise_free_patch_of_low_rank_is_returned_as_it_is() -> None:
    rng = np.random.default_rng(2)
    patch = 1e4 * rng.normal(size=(80, 3)) @ rng.normal(size=(3, 30))
    solution = SvdSolver()(patch)
    assert solution.rank == 3
    np.testing.assert_allclose(solution.estimate, patch, rtol=1e-9, atol=1e-6)


def test_all_zero_patch_has_rank_zero() -> None:
    assert SvdSolver()(np.zeros((20, 6))).rank == 0
    assert SvdSolver(3)(np.zeros((20, 6))).rank == 0


@pytest.mark.statistical
@pytest.mark.parametrize("shape", [(200, 30), (60, 60), (36, 80)])
def test_noise_edge_lets_few_pure_noise_windows_pass(shape: tuple[int, int]) -> None:
    """Expected 0.2 %; of 1500 patches 3 ± 1.7. An edge 5 % lower must let far more pass."""
    rng = np.random.default_rng(4)
    trials = 1500
    noise = rng.normal(size=(trials, *shape))
    largest = np.sqrt(np.linalg.eigvalsh(noise @ noise.transpose(0, 2, 1))[:, -1])
    edge = noise_edge(*shape)
    assert np.count_nonzero(largest > edge) <= 12
    assert np.count_nonzero(largest > edge * 0.95) > 100


def test_solution_from_a_low_rank_matrix() -> None:
    rng = np.random.default_rng(5)
    estimate = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 9))
    solution = PatchSolution.from_estimate(estimate, patch=estimate + 1)
    assert solution.rank == 2
    np.testing.assert_allclose(solution.estimate, estimate, atol=1e-12)
    assert solution.residual == pytest.approx(30 * 9)

"""The solvers that set elements aside, one patch at a time."""

from __future__ import annotations

import numpy as np
import pytest

from sigmacube.core.lowrank.solvers import (
    GoDecSolver,
    RobustSolver,
    RpcaSolver,
    SemiSoftGoDecSolver,
    SvdSolver,
)
from sigmacube.core.lowrank.solvers.low_rank import LowRank
from sigmacube.core.lowrank.solvers.repeated import Repeats
from sigmacube.core.lowrank.solvers.robust import even_odds_cut
from sigmacube.core.lowrank.solvers.weighted import alternate, leverages

SOLVERS = (RobustSolver, GoDecSolver, SemiSoftGoDecSolver, RpcaSolver)


def signal_of(rng: np.random.Generator, n: int = 120, p: int = 70, rank: int = 3) -> np.ndarray:
    """Components well above the noise edge √n + √p ≈ 19."""
    left = np.linalg.qr(rng.normal(size=(n, rank)))[0]
    right = np.linalg.qr(rng.normal(size=(p, rank)))[0]
    return (left * np.linspace(300, 80, rank)) @ right.T


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(array**2)))


@pytest.fixture
def wild(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Signal, a patch of it with noise and 10 % impulses of any size, and where these are."""
    signal = signal_of(rng)
    patch = signal + rng.normal(size=signal.shape)
    impulses = rng.random(patch.shape) < 0.1
    patch[impulses] += rng.uniform(-40, 40, impulses.sum())
    return signal, patch, impulses


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.mark.parametrize("kind", SOLVERS)
def test_impulses_do_not_reach_the_estimate(kind: type, wild: tuple) -> None:
    signal, patch, impulses = wild
    solution = kind()(patch)
    assert solution.rank == 3
    ideal = np.sqrt(3 * (120 + 70 - 3) / (120 * 70) / 0.9)
    limit = {RpcaSolver: 2.0, RobustSolver: 1.15}.get(kind, 1.3)
    assert rms(solution.estimate - signal) < limit * ideal
    # Control: least squares has no defence.
    assert rms(SvdSolver()(patch).estimate - signal) > 3 * ideal
    large = impulses & (np.abs(patch - signal) > 6)
    assert not solution.kept[large].any()


@pytest.mark.parametrize("kind", SOLVERS)
def test_patch_is_left_alone(kind: type, wild: tuple) -> None:
    before = wild[1].copy()
    missing = np.zeros(before.shape, dtype=bool)
    missing[::7, ::5] = True
    kind()(wild[1], missing=missing)
    np.testing.assert_array_equal(wild[1], before)


@pytest.mark.parametrize("kind", SOLVERS)
def test_what_missing_values_hold_does_not_matter(kind: type, wild: tuple) -> None:
    _, patch, _ = wild
    missing = np.random.default_rng(3).random(patch.shape) < 0.1
    other = np.where(missing, 123.0, patch)
    one, two = kind()(patch, missing=missing), kind()(other, missing=missing)
    np.testing.assert_allclose(one.estimate, two.estimate, atol=1e-6)
    assert not one.kept[missing].any()


@pytest.mark.parametrize("kind", SOLVERS)
@pytest.mark.parametrize("shape", [(30, 50), (50, 30), (9, 40)])
def test_fixed_rank_and_any_shape(kind: type, shape: tuple[int, int]) -> None:
    patch = np.random.default_rng(1).normal(size=shape) + 20
    solution = kind(2)(patch)
    assert solution.left.shape == (shape[0], 2)
    np.testing.assert_allclose(solution.left.T @ solution.left, np.eye(2), atol=1e-6)
    np.testing.assert_allclose(solution.right.T @ solution.right, np.eye(2), atol=1e-6)


@pytest.mark.parametrize("kind", [RobustSolver, GoDecSolver, SemiSoftGoDecSolver])
def test_pure_noise_has_rank_zero(kind: type) -> None:
    patch = np.random.default_rng(5).normal(size=(100, 60))
    assert kind()(patch).rank == 0


def test_robust_without_impulses_is_as_good_as_svd(rng: np.random.Generator) -> None:
    signal = signal_of(rng)
    patch = signal + rng.normal(size=signal.shape)
    robust, plain = RobustSolver()(patch), SvdSolver()(patch)
    assert rms(robust.estimate - signal) < 1.02 * rms(plain.estimate - signal)
    assert robust.kept.mean() > 0.999
    assert robust.sandwich == pytest.approx(1, abs=0.05)


def test_high_signal_to_noise_keeps_the_noise_floor(rng: np.random.Generator) -> None:
    signal = 1e5 * signal_of(rng) / 300
    patch = signal + rng.normal(size=signal.shape)
    patch[5, 7] += 500
    solution = RobustSolver()(patch)
    assert solution.rank == 3
    assert rms(solution.estimate - signal) < 0.3
    assert not solution.kept[5, 7]


def test_published_projection_is_random_but_repeatable(wild: tuple) -> None:
    solver = SemiSoftGoDecSolver(3, 3.0, "random")
    one, again = solver(wild[1]), solver(wild[1])
    np.testing.assert_array_equal(one.estimate, again.estimate)
    other = SemiSoftGoDecSolver(3, 3.0, "random", seed=1)(wild[1])
    assert rms(one.estimate - other.estimate) > 0


def test_pursuit_is_exact_without_noise() -> None:
    rng = np.random.default_rng(8)
    low = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 50))
    sparse = np.where(rng.random(low.shape) < 0.05, rng.uniform(-50, 50, low.shape), 0)
    full, found = RpcaSolver()._pursue(low + sparse, None)
    np.testing.assert_allclose(full, low, atol=1e-3)
    np.testing.assert_allclose(found, sparse, atol=1e-3)


def test_cardinality_sets_that_share_aside(wild: tuple) -> None:
    solution = GoDecSolver(cardinality=0.2)(wild[1])
    assert 1 - solution.kept.mean() == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GoDecSolver(threshold=0), "Invalid threshold 0. It must be above zero."),
        (lambda: GoDecSolver(cardinality=1.0), "Invalid cardinality 1.0. It must be a share"),
        (lambda: SemiSoftGoDecSolver(threshold=-1), "Invalid threshold -1"),
        (lambda: SemiSoftGoDecSolver(projection="any"), "Invalid projection 'any'"),
        (lambda: SemiSoftGoDecSolver(projection="random"), "Invalid rank 'auto' with random"),
    ],
)
def test_bad_parameters_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        make()


def test_fit_to_kept_elements_is_a_minimum(rng: np.random.Generator) -> None:
    signal = signal_of(rng)
    patch = signal + rng.normal(size=signal.shape)
    kept = rng.random(patch.shape) > 0.3
    low = alternate(patch, kept, LowRank.leading(np.where(kept, patch, 0), 3), 1e-9)
    residual = np.where(kept, patch - low.matrix(), 0)
    left, values, right = low.factors()
    # The gradient is that of the prior, which is weak.
    assert np.abs(residual @ right).max() < 0.05 * values.min()
    assert np.abs(left.T @ residual).max() < 0.05 * values.min()
    assert np.sum(residual**2) < np.sum(np.where(kept, patch - signal, 0) ** 2)


def test_leverages_against_plain_loops(rng: np.random.Generator) -> None:
    left = np.linalg.qr(rng.normal(size=(20, 2)))[0]
    right = np.linalg.qr(rng.normal(size=(15, 2)))[0]
    kept = rng.random((20, 15)) > 0.3
    rho, gamma = leverages(left, np.full(2, 1e6), right, kept)
    for u, v in ((0, 0), (7, 3), (19, 14)):
        by_pixel = right[kept[u]].T @ right[kept[u]]
        by_band = left[kept[:, v]].T @ left[kept[:, v]]
        assert rho[u, v] == pytest.approx(right[v] @ np.linalg.solve(by_pixel, right[v]), rel=1e-4)
        assert gamma[u, v] == pytest.approx(left[u] @ np.linalg.solve(by_band, left[u]), rel=1e-4)


def test_leverages_stay_finite_where_nothing_is_left(rng: np.random.Generator) -> None:
    left = np.linalg.qr(rng.normal(size=(20, 2)))[0]
    right = np.linalg.qr(rng.normal(size=(15, 2)))[0]
    kept = np.ones((20, 15), dtype=bool)
    kept[4] = False
    kept[:, 9] = False
    rho, gamma = leverages(left, np.array([90.0, 50.0]), right, kept)
    assert np.isfinite(rho).all()
    assert np.isfinite(gamma).all()
    assert rho[4].max() > 20 * rho[5].max()


def test_digitised_noise_does_not_count_as_stuck(rng: np.random.Generator) -> None:
    patch = np.round(rng.normal(size=(400, 30)) / 0.1) * 0.1
    repeats = Repeats.find(patch)
    assert repeats is not None
    assert repeats.certain(patch).mean() == 0
    assert repeats.likely(patch, np.zeros_like(patch)).mean() < 0.01


def test_saturation_is_found_in_digitised_data(rng: np.random.Generator) -> None:
    signal = np.linspace(-8, 8, 400)[:, None] * np.ones(30)
    patch = np.round((signal + rng.normal(size=signal.shape)) / 0.1) * 0.1
    stuck = rng.random(patch.shape) < 0.15
    patch[stuck] = 0.5
    repeats = Repeats.find(patch)
    found = repeats.certain(patch) | repeats.likely(patch, signal)
    assert found[stuck].mean() > 0.95
    assert found[~stuck].mean() < 0.02


def test_hidden_impulses_are_found_when_they_repeat(rng: np.random.Generator) -> None:
    """Zeros that lie within the noise of a dark signal: no residual could tell."""
    signal = np.full((400, 40), 1.0)
    patch = signal + rng.normal(size=signal.shape)
    stuck = rng.random(patch.shape) < 0.2
    patch[stuck] = 0.0
    solution = RobustSolver()(patch)
    assert not solution.kept[stuck].any()
    assert abs(np.mean(solution.estimate - signal)) < 0.03
    # Control: with values that do not repeat, the pull is there.
    patch[stuck] = rng.normal(scale=1e-3, size=stuck.sum())
    assert np.mean(RobustSolver()(patch).estimate - signal) < -0.1


def test_cut_follows_the_density_of_impulses(rng: np.random.Generator) -> None:
    cuts = []
    for share in (0.0, 0.05, 0.3):
        residual = rng.normal(size=50_000)
        wild = rng.random(residual.size) < share
        residual[wild] = rng.uniform(-10, 10, wild.sum())
        cuts.append(even_odds_cut(np.abs(residual), residual.size))
    assert cuts[0] > 3.5
    assert cuts[0] > cuts[1] > cuts[2] > 2


def test_large_ranks_take_a_shortcut_to_the_same_place(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal = signal_of(rng, rank=5)
    patch = signal + rng.normal(size=signal.shape)
    kept = rng.random(patch.shape) > 0.05
    start = LowRank.leading(np.where(kept, patch, signal), 5)
    values = start.factors()[1]

    def both() -> tuple[np.ndarray, np.ndarray]:
        low = alternate(patch, kept, start, 1e-6)
        left, _, right = low.factors()
        rho, gamma = leverages(left, values, right, kept)
        return low.matrix(), rho + gamma

    exact, exact_leverage = both()
    monkeypatch.setattr("sigmacube.core.lowrank.solvers.weighted.LARGE_RANK", 4)
    quick, quick_leverage = both()
    assert rms(exact - quick) < 0.02 * rms(exact - signal) + 0.02
    np.testing.assert_allclose(np.median(quick_leverage / exact_leverage), 1, atol=0.02)

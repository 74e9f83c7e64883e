"""Leading eigenpairs against a full decomposition, and where LAPACK has trouble."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sigmacube as sc
from sigmacube.core import rank
from sigmacube.core.rank import is_below, leading_eigenpairs, noise_edge


def patch(strengths: tuple[float, ...], rng: np.random.Generator, n: int = 200, p: int = 90):
    """A patch of unit noise with components of the given strengths relative to the edge."""
    edge = noise_edge(n, p)
    u = np.linalg.qr(rng.normal(size=(n, len(strengths))))[0]
    v = np.linalg.qr(rng.normal(size=(p, len(strengths))))[0]
    return (u * (np.array(strengths) * edge)) @ v.T + rng.normal(size=(n, p))


STRENGTHS = [(30.0, 5.0, 1.6), (3e4, 2e2, 1.3), (8.0,), (1.15, 1.1), ()]


def check_above(gram: np.ndarray, floor: float) -> None:
    """Compare the pairs above a floor with those of a full decomposition."""
    values, found = leading_eigenpairs(gram, floor=floor)
    expected, vectors = np.linalg.eigh(gram)
    above = expected > floor
    # Rounding of the Gram matrix itself, 1e-16 of the largest eigenvalue, is the limit.
    atol = 1e-15 * expected[-1]
    np.testing.assert_allclose(values, expected[above][::-1], rtol=1e-9, atol=atol)
    projection = vectors[:, above] @ vectors[:, above].T
    np.testing.assert_allclose(found @ found.T, projection, atol=1e-6)


@pytest.mark.parametrize("strengths", STRENGTHS)
def test_floor_gives_all_pairs_above_it(strengths: tuple[float, ...]) -> None:
    y = patch(strengths, np.random.default_rng(1))
    check_above(y.T @ y, noise_edge(*y.shape) ** 2)


def test_a_window_that_lapack_once_gave_up_on(data_dir: Path) -> None:
    path = data_dir / "gram_no_convergence.npz"
    if not path.exists():
        pytest.skip("the Gram matrix kept beside the repository is not here")
    with np.load(path) as file:
        check_above(file["gram"], float(file["floor"]))


def test_no_convergence_falls_back_to_the_full_decomposition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = patch((10.0, 2.0), np.random.default_rng(2))
    gram, floor = y.T @ y, noise_edge(*y.shape) ** 2
    expected = {"floor": leading_eigenpairs(gram, floor=floor)}
    expected["count"] = leading_eigenpairs(gram, count=6)

    def fail(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(rank, "eigh", fail)
    for name, request in (("floor", floor), ("count", 6)):
        values, vectors = leading_eigenpairs(gram, **{name: request})
        np.testing.assert_allclose(values, expected[name][0], rtol=1e-11)
        known = expected[name][1]
        np.testing.assert_allclose(vectors @ vectors.T, known @ known.T, atol=1e-9)


def test_a_coarsely_quantised_scene_is_denoised() -> None:
    """Values in steps as large as the noise: many equal spectra, many equal eigenvalues."""
    truth = sc.synthetic.scene((33, 30, 60), rng=1).values
    step = 0.05
    noisy = truth + np.random.default_rng(2).normal(scale=0.02, size=truth.shape)
    coarse = step * np.round(noisy / step)
    result = sc.denoise(coarse, step / np.sqrt(12), window=12)
    assert np.isfinite(result.estimate).all()
    assert np.std(result.estimate - truth) < np.std(coarse - truth)


def test_count_gives_the_largest() -> None:
    y = patch((10.0, 2.0), np.random.default_rng(2))
    gram = y.T @ y
    expected, vectors = np.linalg.eigh(gram)
    values, found = leading_eigenpairs(gram, count=6)
    np.testing.assert_allclose(values, expected[::-1][:6], rtol=1e-11)
    np.testing.assert_allclose(found @ found.T, vectors[:, -6:] @ vectors[:, -6:].T, atol=1e-9)


def test_certificate_counts_the_largest_eigenvalue() -> None:
    matrix = np.diag([1.0, 2.0, 3.0])
    assert is_below(matrix, 3.01)
    assert not is_below(matrix, 2.99)


def test_neither_floor_nor_count_is_refused() -> None:
    with pytest.raises(ValueError, match="neither floor nor count"):
        leading_eigenpairs(np.eye(3))


@pytest.mark.parametrize("size", [3, 30, 224])
def test_nothing_above_the_floor_gives_nothing(size: int) -> None:
    noise = np.random.default_rng(0).normal(size=(2 * size, size))
    gram = noise.T @ noise
    values, vectors = leading_eigenpairs(gram, floor=2 * np.linalg.norm(gram, 2))
    assert values.shape == (0,)
    assert vectors.shape == (size, 0)

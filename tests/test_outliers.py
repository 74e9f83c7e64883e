"""Values far outside the noise are set aside; surfaces, lines and clean scenes are left alone."""

from __future__ import annotations

import numpy as np
import pytest

import sigmacube as sc
from sigmacube.core.spatial import completing
from sigmacube.noise.stripes import striped_lines

SIGMA = 0.03


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return sc.synthetic.rare_materials((44, 40, 60), rng=5)


def noisy(truth: np.ndarray, rng: int) -> np.ndarray:
    return truth + SIGMA * np.random.default_rng(rng).standard_normal(truth.shape)


def error(result: sc.DenoisedCube, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(result.estimate - truth)))) / SIGMA


def hit(cube: np.ndarray, share: float, rng: int) -> np.ndarray:
    """Return a cube with impulses of any size, which no value of it repeats."""
    draw = np.random.default_rng(rng)
    return np.where(draw.random(cube.shape) < share, draw.uniform(-1, 2, cube.shape), cube)


def test_a_few_impulses_are_set_aside_by_default(truth, monkeypatch):
    values = hit(noisy(truth, 1), 0.02, 2)
    result = sc.denoise(values, workers=1)
    assert error(result, truth) < 0.25
    assert result.rejected is None
    assert any("were set aside" in sentence for sentence in result.caveats)
    monkeypatch.setattr("sigmacube.survey.WILD", np.inf)  # the control: nothing is set aside
    assert error(sc.denoise(values, workers=1), truth) > 0.5


def test_a_clean_scene_is_the_same_to_the_bit(truth, monkeypatch):
    values = noisy(truth, 3)
    result = sc.denoise(values, workers=1)
    assert not any("set aside" in sentence for sentence in result.caveats)
    monkeypatch.setattr("sigmacube.survey.WILD", np.inf)
    again = sc.denoise(values, workers=1)
    np.testing.assert_array_equal(result.estimate, again.estimate)
    np.testing.assert_array_equal(result.std, again.std)


def test_robust_keeps_rare_materials(truth, monkeypatch):
    values = hit(noisy(truth, 4), 0.05, 5)
    assert error(sc.denoise(values, solver="robust", workers=1), truth) < 0.6
    # The control: every spectrum is taken apart, explained or not, shared by others or not.
    monkeypatch.setattr(completing, "MISFIT", np.inf)
    monkeypatch.setattr(completing, "SPARED", 0.0)
    assert error(sc.denoise(values, solver="robust", workers=1), truth) > 1.2


def test_robust_fit_finds_impulses_of_a_thousand_times_the_noise():
    rng = np.random.default_rng(6)
    directions = np.linalg.qr(rng.normal(size=(90, 12)))[0]
    spectra = 3000 * rng.normal(size=(4, 30, 12)) @ directions.T
    impulses = rng.random(spectra.shape) < 0.1
    values = spectra + rng.normal(size=spectra.shape) + np.where(impulses, 900.0, 0.0)
    known = completing.Completion(
        directions, np.full(12, 9e6), np.zeros(90), 4.0, 1.0, np.full((2, 90), np.nan), 1.0,
        np.ones(90), 0.3,
    )  # fmt: skip
    kept = known.complete(values, np.ones(values.shape, dtype=bool), 0)[1]
    assert not kept[impulses].any()
    assert kept[~impulses].mean() > 0.99


def test_a_line_of_three_bands_is_no_impulse():
    residual = np.zeros((1, 1, 12))
    residual[..., 4:7] = [-5.0, -9.0, -4.0]
    residual[..., 9] = 12.0
    found = completing._lines(residual)
    assert found[0, 0].nonzero()[0].tolist() == [4, 5, 6]


def lines_of(cube: np.ndarray) -> np.ndarray:
    there = np.ones(cube.shape, dtype=bool)
    return striped_lines(
        cube.shape[1], cube.shape[0], cube.shape[2],
        lambda part, start, stop: (cube[part, start:stop], there[part, start:stop]),
    )  # fmt: skip


def test_a_stripe_is_as_strong_along_all_of_its_line():
    cube = np.random.default_rng(7).normal(size=(60, 40, 12))
    stripe, surface = cube.copy(), cube.copy()
    stripe[:, 17, 2] += 8
    surface[:, 17, 2] += np.linspace(1, 60, 60)
    assert np.argwhere(lines_of(stripe)).tolist() == [[17, 2]]
    assert not lines_of(surface).any()

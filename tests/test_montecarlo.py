"""Monte Carlo: right where the closed form is right, wrong where it is wrong, the same any way."""

import json
import math
import os
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sigmacube.api import denoise
from sigmacube.check.montecarlo import MonteCarlo, judge, monte_carlo
from sigmacube.check.montecarlo.judging import binomial_limits, ratio_limit, shapiro_p
from sigmacube.check.montecarlo.trials import make_trials
from sigmacube.core.lowrank.solvers import PatchSolution, SvdSolver
from sigmacube.cube import Cube

NOISE, TRIALS, WINDOW = 0.02, 30, 10
OPTIONS: dict[str, Any] = {"prior": None, "window": WINDOW, "step": 5}


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    """Three strong components in every window: their number is never in doubt."""
    rng = np.random.default_rng(1)
    return (rng.normal(size=(24 * 31, 3)) @ rng.normal(size=(3, 40))).reshape(24, 31, 40) / 10


@pytest.fixture(scope="module")
def found(truth: np.ndarray) -> MonteCarlo:
    return monte_carlo(truth, NOISE, trials=TRIALS, sample=300, **OPTIONS)


def coverage_tolerance(found: MonteCarlo, level: float) -> float:
    """Four standard errors of a share, by the independent errors there are, plus 1 % of model."""
    samples = found.degrees_of_freedom * found.trials
    return 4 * math.sqrt(level * (1 - level) / samples) + 0.01


@pytest.mark.statistical
def test_coverage_is_nominal_at_all_levels(found):
    assert list(found.coverage) == [0.5, 0.68, 0.9, 0.95, 0.99]
    for level in found.coverage:
        tolerance = coverage_tolerance(found, level)
        assert found.coverage[level] == pytest.approx(level, abs=tolerance)
        assert found.truth_coverage[level] == pytest.approx(level, abs=2 * tolerance)


@pytest.mark.statistical
def test_spread_and_ratio_reach_their_sampling_limits(found):
    assert found.std_ratio == pytest.approx(1, abs=0.02)
    assert found.std_ratio_spread == pytest.approx(found.std_ratio_limit, rel=0.15)
    assert found.coverage_spread[0.95] == pytest.approx(found.spread_limit[0.95], rel=0.15)


@pytest.mark.statistical
def test_wrong_noise_is_reported_as_wrong(truth, found):
    wrong = monte_carlo(
        truth, NOISE, trials=TRIALS, assumed=NOISE / 2, rank=3, sample=50, **OPTIONS
    )
    for level in wrong.coverage:
        assert wrong.coverage[level] < level - 2 * coverage_tolerance(found, level)
    assert wrong.std_ratio < 0.7


@pytest.mark.statistical
def test_bias_shows_in_the_truth_alone(truth):
    """A solver that shrinks: its scatter is covered, the truth is not."""

    def shrunk(patch: np.ndarray) -> PatchSolution:
        solution = SvdSolver()(patch)
        return replace(solution, singular_values=0.9 * solution.singular_values)

    low = monte_carlo(truth, NOISE, trials=TRIALS, solver=shrunk, sample=50, **OPTIONS)
    assert 0.93 < low.coverage[0.95] < 0.99
    assert low.truth_coverage[0.95] < 0.7
    assert low.bias == pytest.approx(0.1 * np.sqrt(np.mean(truth**2)), rel=0.01)


def test_figures_match_the_definitions(truth, tmp_path):
    """Block-wise sums against the plain formulas, on all trials in memory."""
    trials = make_trials(truth, NOISE, tmp_path / "t", count=6, options=OPTIONS)
    trials.run(workers=1)
    found = judge(trials, sample=20)
    errors, std = trials.errors().astype(float), trials.std().astype(float)
    deviation = np.abs(errors - errors.mean(axis=0))
    inside = (deviation <= 1.959964 * std * math.sqrt(1 - 1 / 6)).mean(axis=0)
    assert found.coverage[0.95] == pytest.approx(inside.mean(), abs=1e-5)
    assert found.coverage_spread[0.95] == pytest.approx(inside.std(), abs=1e-5)
    assert found.truth_coverage[0.95] == pytest.approx(
        np.mean(np.abs(errors) <= 1.959964 * std), abs=1e-5
    )
    assert found.rmse == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-6)
    first = denoise(trials.observation(0), NOISE, **OPTIONS)
    np.testing.assert_allclose(errors[0], (first.estimate - truth).ravel(), atol=1e-6)
    np.testing.assert_allclose(std, first.std.ravel(), rtol=1e-6)


def test_ratio_limit_against_simulation():
    s = np.random.default_rng(0).normal(size=(40_000, 12)).std(axis=1, ddof=1)
    assert ratio_limit(12) == pytest.approx(np.std(1 / s) / np.mean(1 / s), rel=0.02)
    assert math.isnan(ratio_limit(3))


def test_blocks_do_not_matter(truth, tmp_path, monkeypatch):
    trials = make_trials(truth, NOISE, tmp_path / "t", count=5, options=OPTIONS)
    trials.run(workers=1)
    whole = judge(trials, sample=20)
    monkeypatch.setattr("sigmacube.check.montecarlo.judging.BLOCK_BYTES", 5 * 4 * 777)
    parts = judge(trials, sample=20)
    assert parts.coverage == pytest.approx(whole.coverage, abs=1e-12)
    np.testing.assert_array_equal(parts.sample_z, whole.sample_z)
    np.testing.assert_array_equal(parts.std_ratio_map, whole.std_ratio_map)


def test_workers_do_not_matter(truth):
    one, three = (
        monte_carlo(truth, NOISE, trials=5, workers=n, sample=20, **OPTIONS) for n in (1, 3)
    )
    assert one.to_json() == three.to_json()
    np.testing.assert_array_equal(one.std_ratio_map, three.std_ratio_map)


def test_trials_do_not_depend_on_their_number(truth, tmp_path):
    five = make_trials(truth, NOISE, tmp_path / "a", count=5)
    np.testing.assert_array_equal(
        five.observation(3).values, replace(five, count=9).observation(3).values
    )
    other = make_trials(truth, NOISE, tmp_path / "a", count=5, rng=1)
    assert not np.array_equal(five.observation(3).values, other.observation(3).values)
    assert not np.array_equal(five.observation(3).values, five.observation(4).values)


def test_generator_as_seed(truth):
    a, b = (
        monte_carlo(truth, NOISE, trials=2, rng=np.random.default_rng(5), sample=5, **OPTIONS)
        for _ in range(2)
    )
    assert a.rmse == b.rmse


def test_memory_does_not_grow_with_trials(truth, tmp_path, monkeypatch):
    monkeypatch.setattr("sigmacube.check.montecarlo.judging.BLOCK_BYTES", 1 << 18)

    def peak(count: int) -> int:
        tracemalloc.start()
        monte_carlo(truth, NOISE, trials=count, workers=1, sample=10, **OPTIONS)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(2)
    assert peak(24) < 1.1 * peak(3)


def test_checkpoint_is_taken_up_and_extended(truth, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    monte_carlo(truth, NOISE, trials=4, checkpoint=folder, sample=10, **OPTIONS)
    seen = []
    more = monte_carlo(
        truth, NOISE, trials=6, checkpoint=folder, sample=10, workers=1,
        progress=lambda done, total: seen.append((done, total)), **OPTIONS,
    )  # fmt: skip
    assert seen == [(4, 6), (5, 6), (6, 6)]
    assert more.to_json() == monte_carlo(truth, NOISE, trials=6, sample=10, **OPTIONS).to_json()
    assert not list(folder.glob(".*"))

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("nothing is left to denoise")

    monkeypatch.setattr("sigmacube.check.montecarlo.trials.denoise_cube", fail, raising=True)
    # The options are checked against the signature of denoise, which is gone: none given here.
    again = make_trials(truth, NOISE, folder, count=6)
    assert again.fingerprint()["truth"] == json.loads((folder / "run.json").read_text())["truth"]


def test_checkpoint_of_another_run_is_refused(truth, tmp_path):
    folder = tmp_path / "run"
    monte_carlo(truth, NOISE, trials=2, checkpoint=folder, sample=5, **OPTIONS)
    with pytest.raises(ValueError, match=r"other noise, seed\. Choose another folder"):
        monte_carlo(truth, 2 * NOISE, trials=2, checkpoint=folder, rng=1, **OPTIONS)
    with pytest.raises(ValueError, match="other options"):
        monte_carlo(truth, NOISE, trials=2, checkpoint=folder, rank=2, **OPTIONS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match=r"no run\.json"):
        monte_carlo(truth, NOISE, trials=2, checkpoint=tmp_path / "full", **OPTIONS)


def test_killed_run_goes_on(truth, tmp_path):
    """A process that is killed leaves whole trials, and the rest gives the same figures."""
    np.save(tmp_path / "truth.npy", truth)
    folder = tmp_path / "run"
    code = (
        "import numpy as np; from sigmacube.check.montecarlo import monte_carlo\n"
        f"monte_carlo(np.load({str(tmp_path / 'truth.npy')!r}), {NOISE}, trials=2000, workers=1,"
        f" checkpoint={str(folder)!r}, prior=None, window={WINDOW}, step=5)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    while len(list(folder.glob("error-*"))) < 2 and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    done = len(list(folder.glob("error-*")))
    assert 2 <= done < 2000
    resumed = monte_carlo(truth, NOISE, trials=done + 2, checkpoint=folder, sample=10, **OPTIONS)
    fresh = monte_carlo(truth, NOISE, trials=done + 2, sample=10, **OPTIONS)
    assert resumed.to_json() == fresh.to_json()


def test_each_trial_its_own_sigma(truth):
    plain = monte_carlo(truth, NOISE, trials=4, sigma="each", sample=10, **OPTIONS)
    assert plain.sigma == "each"
    assert monte_carlo(truth, NOISE, trials=2, sample=5, **OPTIONS).sigma == "first"
    impulses = monte_carlo(truth, NOISE, trials=3, impulses=0.1, sample=5, **OPTIONS)
    assert impulses.sigma == "each"
    # Impulses that nobody told the solver of: the truth is missed.
    assert impulses.truth_coverage[0.95] < 0.9


def test_masked_elements_do_not_count(truth):
    holed = truth.copy()
    holed[3:6, 4:9] = np.nan
    holed[..., 7] = np.nan
    found = monte_carlo(holed, NOISE, trials=4, sample=50, **OPTIONS)
    missing = np.isnan(holed)
    np.testing.assert_array_equal(np.isnan(found.std_ratio_map), missing)
    assert np.isfinite(found.rmse)
    assert not missing[tuple(found.sample_positions.T)].any()


def test_cube_with_noise_per_band_and_covariance(truth):
    std = np.linspace(0.01, 0.03, truth.shape[2])
    cube = Cube(truth, wavelengths=np.linspace(400, 900, truth.shape[2]))
    for noise in (std, np.diag(std**2)):
        found = monte_carlo(cube, noise, trials=3, sample=5, **OPTIONS)
        assert found.relative_rmse == pytest.approx(found.rmse / np.sqrt(np.mean(std**2)))


def test_truth_is_not_written_to(truth):
    before = truth.copy()
    truth.flags.writeable = False
    try:
        monte_carlo(truth, NOISE, trials=2, sample=5, **OPTIONS)
    finally:
        truth.flags.writeable = True
    np.testing.assert_array_equal(truth, before)


def test_bad_input_is_refused(truth):
    with pytest.raises(ValueError, match=r"Invalid trials 1\. There must be at least 2"):
        monte_carlo(truth, NOISE, trials=1)
    with pytest.raises(ValueError, match="Invalid sigma 'best'"):
        monte_carlo(truth, NOISE, sigma="best")
    with pytest.raises(ValueError, match="Invalid rng -1"):
        monte_carlo(truth, NOISE, rng=-1)
    with pytest.raises(TypeError, match="Invalid option 'uncertainty'"):
        monte_carlo(truth, NOISE, uncertainty=False)
    with pytest.raises(ValueError, match="Invalid level 1"):
        monte_carlo(truth, NOISE, trials=2, levels=(1.0,), **OPTIONS)


def test_too_little_disk_is_told_beforehand(truth, monkeypatch):
    import shutil

    monkeypatch.setattr(
        "sigmacube.check.montecarlo.trials.shutil.disk_usage",
        lambda folder: shutil._ntuple_diskusage(10, 10, 1000),
    )
    with pytest.raises(ValueError, match="Name a folder on a larger disk"):
        monte_carlo(truth, NOISE, trials=2, **OPTIONS)


def test_shapiro_rejects_what_is_not_normal():
    rng = np.random.default_rng(0)
    low, high = binomial_limits(0.05, 800)
    assert low <= np.mean(shapiro_p(rng.normal(size=(800, 50))) < 0.05) <= high
    assert np.mean(shapiro_p(rng.laplace(size=(800, 50))) < 0.05) > 3 * high


@pytest.mark.statistical
def test_share_of_normal_elements(found):
    low, high = found.shapiro_limits
    assert low < 0.05 < high
    # Elements of one small scene are correlated: allow twice the binomial width.
    assert 2 * low - 0.05 <= found.shapiro_rejected <= 2 * high - 0.05


def test_json_holds_all_figures(found, tmp_path):
    record = json.loads(found.to_json(tmp_path / "mc.json"))
    assert (tmp_path / "mc.json").read_text() == found.to_json()
    assert record["coverage"]["0.95"] == pytest.approx(found.coverage[0.95], rel=1e-5)
    assert record["shapiro_elements"] == 300
    assert record["trials"] == TRIALS


def test_plots(found):
    import matplotlib.pyplot as plt

    ax = found.plot_qq(elements=3)
    assert "300 elements" in ax.get_title()
    assert len(found.plot().axes) >= 3
    plt.close("all")

"""The hold-out check: right where σ is right, and it must notice where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import sigmacube as sc
from sigmacube.check.holdout import holdout
from sigmacube.estimators.spatial import SpatialEstimator

NOISE = 0.03


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return sc.synthetic.scene((62, 50, 48), rng=3).values


@pytest.fixture(scope="module")
def noisy(truth: np.ndarray) -> np.ndarray:
    return truth + np.random.default_rng(1).normal(scale=NOISE, size=truth.shape)


@pytest.mark.statistical
def test_right_noise_is_trusted(noisy: np.ndarray) -> None:
    check = holdout(noisy, noise=NOISE)
    for level, share in check.coverage.items():
        assert share == pytest.approx(level, abs=3 * check.coverage_error[level] + 0.004)
    assert check.z_std == pytest.approx(1, abs=0.02)
    assert check.trusted
    assert check.verdict.endswith("trust them.")


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "word"), [(0.6, "too small"), (1.6, "too large")])
def test_wrong_noise_is_noticed(noisy: np.ndarray, factor: float, word: str) -> None:
    check = holdout(noisy, noise=factor * NOISE, prior=None)
    assert not check.trusted
    assert f"σ is {word}" in check.verdict
    assert check.factor == pytest.approx(1 / factor, rel=0.2)


def test_noise_kept_as_signal_is_noticed(truth: np.ndarray) -> None:
    n_bands = truth.shape[2]
    mixing = 0.8 ** np.abs(np.subtract.outer(np.arange(n_bands), np.arange(n_bands)))
    white = np.random.default_rng(2).normal(size=truth.shape)
    noisy = truth + NOISE * white @ np.linalg.cholesky(mixing).T
    check = holdout(noisy, noise="regression", prior=None)
    assert not check.trusted
    assert "noise was kept as signal" in check.verdict
    assert holdout(noisy, prior=None).trusted


def test_noise_that_differs_between_bands_is_named(truth: np.ndarray) -> None:
    std = np.geomspace(0.02, 0.04, truth.shape[2])
    noisy = truth + np.random.default_rng(2).normal(size=truth.shape) * std
    check = holdout(noisy, noise=float(np.sqrt(np.mean(std**2))), prior=None)
    assert "differs between bands" in check.verdict
    assert check.band_factors[-1] > 1.4 * check.band_factors[0]


def test_resampled_scenes_are_told(truth: np.ndarray) -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(scale=NOISE, size=(truth.shape[0] + 1, *truth.shape[1:]))
    noisy = truth + (noise[1:] + 0.5 * noise[:-1]) / np.sqrt(1.25)
    check = holdout(noisy, prior=None)
    assert check.noise_lag1 > 0.1
    assert "correlated between neighbouring pixels" in check.verdict
    assert "prior='spatial'" in check.verdict
    assert "neighbouring pixels" in sc.denoise(noisy, prior=None).caveats[0]


def test_calibration_scales_sigma_and_is_recorded(noisy: np.ndarray, truth: np.ndarray) -> None:
    wrong = np.full(truth.shape[2], NOISE)
    wrong[10:20] *= 1.5
    plain = sc.denoise(noisy, wrong, prior=None)
    check = holdout(noisy, result=plain)
    result = plain.calibrated(check.band_factors)
    np.testing.assert_allclose(result.std, plain.std * check.band_factors, rtol=1e-6)
    assert result.settings["calibration"] == pytest.approx(check.band_factors)
    assert result.functional_std({(5, 6, 12): 1.0}) == pytest.approx(result.std[5, 6, 12], rel=1e-3)
    assert np.median(check.band_factors[10:20]) == pytest.approx(1 / 1.5, rel=0.05)
    same = sc.denoise(noisy, wrong, calibrate=True, prior=None)
    factors = np.array(same.settings["calibration"])
    np.testing.assert_allclose(same.std, plain.std * factors, rtol=1e-6)
    # Bands that are clearly wrong are mended, others are left alone.
    assert np.median(factors[10:20]) == pytest.approx(1 / 1.5, rel=0.1)
    assert np.mean(np.delete(factors, np.s_[10:20]) == 1) > 0.9


def test_calibration_stays_away_from_what_it_cannot_mend(truth: np.ndarray) -> None:
    noisy = truth + np.random.default_rng(2).normal(scale=NOISE, size=truth.shape)
    clipped = np.clip(noisy, *np.quantile(truth, (0.2, 0.8)))
    result = sc.denoise(clipped, calibrate=True)
    assert any("clipped" in sentence for sentence in result.caveats)
    assert set(result.settings["calibration"]) == {1.0}


def test_masks_and_constant_bands_do_not_count(noisy: np.ndarray) -> None:
    cube = noisy.copy()
    cube[5:15, 8:20] = np.nan
    cube[..., 7] = 0.4
    cube[..., 9] = np.nan
    check = holdout(cube)
    assert np.isnan(check.band_coverage[[7, 9]]).all()
    assert check.n_elements <= (62 * 50 - 120) * 46
    assert check.trusted


def test_tables_and_json(noisy: np.ndarray, tmp_path: Path) -> None:
    check = holdout(noisy)
    assert len(check.brightness) == 5
    assert check.brightness[0].high <= check.brightness[-1].low
    assert 0 < check.coverage_error[0.95] < 0.01
    facts = json.loads(check.to_json(tmp_path / "check.json"))
    assert facts == json.loads((tmp_path / "check.json").read_text())
    assert facts["coverage"]["0.95"] == pytest.approx(check.coverage[0.95], rel=1e-9)
    assert len(facts["band_factors"]) == noisy.shape[2]


def test_plot_has_its_three_panels(noisy: np.ndarray, tmp_path: Path) -> None:
    figure = holdout(noisy, noise=NOISE).plot()
    titles = [ax.get_title() for ax in figure.axes]
    assert titles[:3] == ["Calibration", "By band (± 2 standard errors)", "By brightness"]
    figure.savefig(tmp_path / "check.png")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"share": 0.5}, "Invalid share 0.5"), ({"prior": "guess"}, "Invalid prior")],
)
def test_bad_options(noisy: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        holdout(noisy, **options)


def test_validate_command(noisy: np.ndarray, tmp_path: Path) -> None:
    from sigmacube.cli import main

    np.save(tmp_path / "scene.npy", noisy)
    scene, picture = str(tmp_path / "scene.npy"), tmp_path / "check.png"
    told = CliRunner().invoke(main, ["validate", scene, "--plot", str(picture)])
    assert told.exit_code == 0, told.output
    assert "trust them" in told.output
    assert picture.stat().st_size > 10_000
    told = CliRunner().invoke(main, ["validate", scene, "--noise", "0.018", "--json"])
    assert json.loads(told.stdout)["trusted"] is False


@pytest.fixture
def beside(truth: np.ndarray, tmp_path: Path) -> Path:
    """A folder with a scene and a result that was made of it with half of its noise."""
    scene = truth[:30, :28, :24] + np.random.default_rng(4).normal(scale=NOISE, size=(30, 28, 24))
    np.save(tmp_path / "scene.npy", scene)
    made = sc.denoise(sc.read(tmp_path / "scene.npy"), NOISE / 2, prior=None, window=12)
    made.save(tmp_path / "clean.nc")
    return tmp_path


def validate(*words: object) -> Any:
    from sigmacube.cli import main

    return CliRunner().invoke(main, ["validate", *(str(word) for word in words)])


def test_a_result_is_checked_on_its_source(beside: Path) -> None:
    """With its own noise and settings; what the user gives comes before them."""
    told = validate(beside / "clean.nc", "--json")
    assert told.exit_code == 0, told.output
    assert "clean.nc is a result" in told.stderr
    assert "scene.npy is checked" in told.stderr
    by_hand = holdout(np.load(beside / "scene.npy"), noise=NOISE / 2, prior=None, window=12)
    found = json.loads(told.stdout)
    assert found["z_std"] == pytest.approx(by_hand.z_std, rel=1e-6)
    assert found["trusted"] is False
    tiles = validate(beside / "clean.nc", "--json", "--tile", "24x28")
    assert json.loads(tiles.stdout)["z_std"] == pytest.approx(by_hand.z_std, rel=1e-6)
    mended = json.loads(validate(beside / "clean.nc", "--json", "--noise", str(NOISE)).stdout)
    assert mended["z_std"] == pytest.approx(by_hand.z_std / 2, rel=0.1)


def test_a_result_without_its_source(beside: Path, tmp_path_factory: Any) -> None:
    away = tmp_path_factory.mktemp("away")
    (beside / "clean.nc").rename(away / "clean.nc")
    told = validate(away / "clean.nc")
    assert told.exit_code == 2
    assert "made from scene.npy, which is not beside it. --observed names the scene" in told.stderr
    assert len(told.stderr.splitlines()) == 1
    found = validate(away / "clean.nc", "--observed", beside / "scene.npy", "--json")
    assert found.exit_code == 0, found.output
    told = validate(beside / "scene.npy", "--observed", beside / "scene.npy")
    assert told.exit_code == 2
    assert "It goes with a result" in told.stderr


def test_a_result_beside_another_scene(beside: Path) -> None:
    scene = np.load(beside / "scene.npy")
    np.save(beside / "scene.npy", scene + 0.1)
    told = validate(beside / "clean.nc")
    assert told.exit_code == 2
    assert "other values than" in told.stderr
    np.save(beside / "scene.npy", scene[:, :, :20])
    told = validate(beside / "clean.nc")
    assert told.exit_code == 2
    assert "It must be that of the result" in told.stderr


@pytest.mark.parametrize("function", [sc.holdout, sc.denoise])
def test_a_result_is_no_scene(function: Any, noisy: np.ndarray) -> None:
    result = sc.denoise(noisy[:20, :20, :12], NOISE, prior=None, window=10)
    with pytest.raises(ValueError, match="a DenoisedCube, which is a result"):
        function(result)


def test_validate_by_monte_carlo(noisy: np.ndarray, tmp_path: Path) -> None:
    from sigmacube.cli import main

    np.save(tmp_path / "scene.npy", noisy[:24, :26, :30])
    options = ["--method", "monte-carlo", "--trials", "4", "--window", "12", "--noise", "0.03"]
    told = CliRunner().invoke(main, ["validate", str(tmp_path / "scene.npy"), *options])
    assert told.exit_code == 0, told.output
    assert "predicted / actual" in told.output


def test_info_command_describes_the_noise(noisy: np.ndarray, tmp_path: Path) -> None:
    from sigmacube.cli import main

    cube = noisy.copy()
    cube[..., 5] = 0.0
    np.save(tmp_path / "scene.npy", cube)
    told = CliRunner().invoke(main, ["info", str(tmp_path / "scene.npy")])
    assert told.exit_code == 0, told.output
    assert "SNR by band" in told.output
    assert "constant" in told.output


@pytest.mark.data
@pytest.mark.parametrize("name", ["pavia", "aviris", "enmap"])
def test_real_scenes_pass(data_dir: Path, name: str) -> None:
    check = holdout(real_scene(data_dir, name), step=20, prior=None)
    assert 0.93 <= check.coverage[0.95] <= 0.97
    # A tenth of EnMAP's values was clipped at zero: these spread less than the noise did.
    assert 0.45 <= check.coverage[0.5] <= (0.58 if name == "enmap" else 0.56)
    # Where the product was not resampled the removed part is white.
    assert abs(check.removed_lag1 - max(check.noise_lag1, 0)) < 0.03


@pytest.mark.statistical
def test_scattered_gaps_need_one_round_of_filling_and_gaps_of_the_scene_three(
    noisy: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn, rounds = SpatialEstimator.learn_gaps, []

    def with_rounds(wanted: int | None) -> None:
        def learnt(self: SpatialEstimator, scene: Any, run: Any, *, whole: bool) -> Any:
            arrays = learn(self, scene, run, whole=whole)
            if wanted is not None:
                arrays["fillings"] = np.array(wanted)
            rounds.append(int(arrays["fillings"]))
            return arrays

        monkeypatch.setattr(SpatialEstimator, "learn_gaps", learnt)

    with_rounds(None)
    one = holdout(noisy, noise=NOISE)
    with_rounds(3)
    three = holdout(noisy, noise=NOISE)
    assert one.z_std == pytest.approx(three.z_std, rel=1e-3)
    for level, share in one.coverage.items():
        assert share == pytest.approx(three.coverage[level], abs=one.coverage_error[level] / 3)
        truth = three.truth_coverage[level]
        assert one.truth_coverage[level] == pytest.approx(truth, abs=0.002)
    with_rounds(None)
    lacking = np.where(np.random.default_rng(4).random(noisy.shape) < 0.05, np.nan, noisy)
    holdout(lacking, noise=NOISE)
    assert rounds == [1, 3, 3]


def real_scene(folder: Path, name: str) -> np.ndarray:
    from scipy.io import loadmat

    if name == "pavia":
        return loadmat(folder / "scenes" / "pavia_centre_100x100x102.mat")["data"]
    if name == "aviris":
        return loadmat(folder / "scenes" / "aviris_90x90x224.mat")["hsi_img"]
    import rasterio

    tiles = []
    for row in (96, 128):
        line = []
        for col in (96, 128):
            path = folder / "formats" / "enmap" / f"enmap_potsdam_tile_{row}_{col}.tif"
            with rasterio.open(path) as source:
                line.append(source.read().transpose(1, 2, 0).astype(float))
        tiles.append(np.concatenate(line, axis=1))
    cube = np.concatenate(tiles, axis=0)
    return np.where(cube == -32768, np.nan, cube)

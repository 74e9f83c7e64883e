"""What a scene tells of its own noise is kept in σ or in the caveats, and shown everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

import sigmacube as sc
from sigmacube import pipeline
from sigmacube.check.verdict import Levels, predicted
from sigmacube.core.spatial.faint import faint_signal
from sigmacube.core.whitening import Noise
from sigmacube.noise import shared
from sigmacube.noise.estimation import estimate_noise
from sigmacube.noise.sample import NoiseSample
from sigmacube.synthetic import fractal_texture, rare_materials, smooth_fields
from sigmacube.tiles import denoise_file

STD = 0.03


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return smooth_fields((48, 44, 40), rng=3)


def observed(truth: np.ndarray, seed: int = 1) -> np.ndarray:
    return truth + STD * np.random.default_rng(seed).standard_normal(truth.shape)


def covered(result: sc.DenoisedCube, truth: np.ndarray) -> float:
    return float(np.mean(np.abs(result.estimate - truth) <= 1.96 * result.std))


@pytest.mark.parametrize("axis", [0, 1])
def test_offsets_of_lines_are_taken_out(truth: np.ndarray, axis: int) -> None:
    rng = np.random.default_rng(4)
    offsets = np.expand_dims(STD * rng.standard_normal((truth.shape[axis], 40)), 1 - axis)
    result = sc.denoise(observed(truth) + offsets)
    assert ("Rows", "Columns")[axis] in result.caveats[0]
    kept = np.sqrt(np.mean((result.estimate - truth) ** 2))
    assert kept < 0.5 * STD
    assert covered(result, truth) > 0.85
    # Control: σ that knows nothing of offsets.
    plain = sc.denoise(observed(truth))
    assert covered(plain, truth) > 0.9
    assert np.mean(np.abs(result.estimate - truth) <= 1.96 * plain.std) < 0.8
    assert plain.caveats == []


def test_offsets_that_windows_smooth_away_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = rare_materials((64, 60, 75), rng=5)

    def size_of_errors() -> float:
        error = claim = 0.0
        for seed in (11, 12, 13, 14):
            rng = np.random.default_rng(seed)
            offsets = STD * rng.standard_normal((len(truth), 1, truth.shape[2]))
            result = sc.denoise(observed(truth, seed + 10) + offsets, workers=1)
            error += np.sum(np.square(result.estimate - truth))
            claim += np.sum(np.square(result.std))
        return float(np.sqrt(error / claim))

    right = size_of_errors()
    assert 0.87 < right < 1.15
    # Control: what was smoothed away is claimed.
    monkeypatch.setattr(pipeline, "answered", lambda source, survey, run: survey)
    assert size_of_errors() < right - 0.08


def test_tiles_take_out_the_same_offsets(truth: np.ndarray, tmp_path) -> None:
    offsets = STD * np.random.default_rng(4).standard_normal((1, *truth.shape[1:]))
    noisy = observed(truth) + offsets
    np.save(tmp_path / "in.npy", noisy)
    denoise_file(tmp_path / "in.npy", tmp_path / "out.nc", tile=(20, 24), workers=1)
    whole, tiled = sc.denoise(noisy, workers=1), sc.read_result(tmp_path / "out.nc")
    np.testing.assert_array_equal(tiled.estimate, whole.estimate.astype(tiled.estimate.dtype))
    np.testing.assert_array_equal(tiled.std, whole.std.astype(tiled.std.dtype))


def test_noise_that_bands_share_counts_as_noise(truth: np.ndarray) -> None:
    shift = 2 * STD * np.random.default_rng(5).standard_normal((*truth.shape[:2], 1))
    noisy = observed(truth) + shift
    result = sc.denoise(noisy)
    assert np.sqrt(np.diag(result.noise)) == pytest.approx(np.sqrt(5) * STD, rel=0.2)
    assert any("share noise" in sentence for sentence in result.caveats)
    assert covered(result, truth) > 0.9
    # Control: told of independent bands alone, it is kept as signal, and the check says so.
    wrong = sc.denoise(noisy, STD)
    assert covered(wrong, truth) < 0.6
    check = sc.holdout(noisy, result=wrong)
    assert not check.trusted
    assert "kept as signal" in check.verdict


def test_gaps_do_not_change_the_noise(truth: np.ndarray) -> None:
    noisy = observed(truth)
    noisy[np.random.default_rng(6).random(truth.shape) < 0.2] = np.nan
    assert np.median(estimate_noise(noisy)) == pytest.approx(STD, rel=0.05)


def test_what_sigma_does_not_hold_is_said_and_not_trusted(truth) -> None:
    noisy = np.round(observed(truth) / (3 * STD)) * 3 * STD
    result = sc.denoise(noisy)
    assert any("rounded" in sentence for sentence in result.caveats)
    assert not sc.holdout(noisy, result=result).trusted


def test_impulses_are_set_aside_and_said(truth, monkeypatch) -> None:
    hit = np.random.default_rng(7).random(truth.shape) < 0.01
    noisy = np.where(hit, 1.0, observed(truth))
    result = sc.denoise(noisy)
    assert any("set aside" in sentence for sentence in result.caveats)
    assert covered(result, truth) > 0.93
    assert sc.holdout(noisy, result=result).trusted
    # Control: where they stay in, they are said, and not trusted.
    monkeypatch.setattr("sigmacube.survey.WILD", np.inf)
    result = sc.denoise(noisy)
    assert any("robust" in sentence for sentence in result.caveats)
    assert not sc.holdout(noisy, result=result).trusted


def test_clipped_values_are_expected_beyond_their_bound(truth, monkeypatch) -> None:
    noisy = observed(truth)
    noisy = np.clip(noisy, *np.quantile(noisy, (0.1, 0.9)))
    inside = (truth > noisy.min()) & (truth < noisy.max())
    result = sc.denoise(noisy)
    assert any("clipped" in sentence for sentence in result.caveats)
    assert sc.holdout(noisy, result=result).trusted
    assert 0.92 < covered(result, truth) < 0.98
    near = inside & (np.abs(truth - noisy.min()) < STD)
    bias = np.mean((result.estimate - truth)[near]) / STD
    assert abs(bias) < 0.1
    monkeypatch.setattr("sigmacube.correction.find_clipping", lambda *args: None)
    control = sc.denoise(noisy)
    assert covered(control, truth) < 0.9
    assert np.mean((control.estimate - truth)[near]) / STD > 0.15


def test_bands_that_half_a_scene_lacks_follow_from_the_others(truth) -> None:
    noisy = observed(truth)
    gone = np.s_[: truth.shape[0] // 2, :, 10:18]
    noisy[gone] = np.nan
    result = sc.denoise(noisy, STD)
    error = np.sqrt(np.mean(np.square((result.estimate - truth)[gone])))
    spread = np.std(truth[gone], axis=(0, 1)).mean()
    assert error < 0.3 * spread  # a band's own mean would be off by its spread
    assert covered(result, truth) > 0.91


def test_caveats_are_kept_in_files_and_shown(truth: np.ndarray, tmp_path: Path) -> None:
    noisy = observed(truth)
    noisy[..., 3] = 0.0
    result = sc.denoise(noisy)
    assert result.caveats == ["1 band has one value only and counts as not measured."]
    assert result.caveats[0] in " ".join(repr(result).split())
    assert result.caveats[0] in result._repr_html_()
    for suffix in (".nc", ".hdr", ".tif"):
        kept = sc.read_result(result.save(tmp_path / f"out{suffix}"))
        assert kept.caveats == result.caveats


def test_a_check_of_another_scene_is_refused(truth: np.ndarray, tmp_path: Path) -> None:
    from sigmacube.show.report import write_report

    noisy = observed(truth)[:24, :24]
    result = sc.denoise(noisy, STD)
    result.save(tmp_path / "out.nc")
    for seed, same in ((1, True), (2, False)):
        other = observed(truth, seed)[:24, :24]
        path = tmp_path / "check.json"
        sc.holdout(other, noise=STD).to_json(path)
        assert (json.loads(path.read_text())["scene"] == result.settings["scene"]) is same
        if same:
            write_report(tmp_path / "out.nc", tmp_path / "page.html", calibration=path)
        else:
            with pytest.raises(ValueError, match="another scene"):
                write_report(tmp_path / "out.nc", tmp_path / "no.html", calibration=path)


def test_too_little_to_tell_is_never_trusted(truth: np.ndarray) -> None:
    few = sc.holdout(observed(truth)[..., ::10], share=0.2)
    assert not few.trusted
    assert "bands are too few" in few.verdict
    small = sc.holdout(observed(truth)[:10, :10, :20], noise=STD)
    assert not small.trusted
    assert "too few to tell" in small.verdict


def test_offsets_that_a_value_and_its_estimate_share_do_not_count(truth: np.ndarray) -> None:
    rng = np.random.default_rng(5)
    offsets = 2 * STD * rng.normal(size=(1, *truth.shape[1:]))
    noisy = truth + STD * rng.normal(size=truth.shape) + offsets
    check = sc.holdout(noisy)
    assert check.z_std == pytest.approx(1, abs=0.04)
    assert 0.935 <= check.coverage[0.95] <= 0.965


def test_single_far_elements_do_not_outvote_the_others() -> None:
    z = np.random.default_rng(0).normal(size=8000)
    band, light = np.arange(8000) % 40, np.arange(8000) % 5
    facts = {"noise_lag1": 0.0, "removed_lag1": 0.0, "chance_lag": 0.001, "sigma": 0.1}
    z[7] = 5000.0
    told = predicted(facts | {"levels": Levels.of(z, band, light)})
    assert told[0.95] == pytest.approx(0.95, abs=0.01)
    # Noise that is larger everywhere, or in some of the bands, is not passed over.
    told = predicted(facts | {"levels": Levels.of(1.2 * z, band, light)})
    assert told[0.95] == pytest.approx(0.898, abs=0.01)
    uneven = Levels.of(z * np.where(band < 10, 1.5, 1.0), band, light)
    assert uneven.bands > 0.15
    assert uneven.light < 0.05


def test_what_falls_little_with_frequency_is_doubted() -> None:
    """Brightness that varies from pixel to pixel, hardly smooth, may be common mode or texture."""
    rng = np.random.default_rng(3)
    fields = smooth_fields((64, 60, 40), rng=5)
    every, noise = np.ones((64, 60), dtype=bool), Noise.create(STD, 40)

    def seen(shift: np.ndarray) -> shared.SharedNoise:
        noisy = fields + STD * (rng.normal(size=fields.shape) + 2 * shift[..., None])
        return shared.shared_noise(NoiseSample.create(noisy, np.arange(40), every), noise)

    white = rng.normal(size=(64, 60))
    rough = ndimage.gaussian_filter(white, 0.48)
    smooth = ndimage.gaussian_filter(white, 1.5)
    assert seen(white).covariance is not None
    for shift, doubted in ((rough, True), (smooth, False), (np.zeros_like(white), False)):
        found = seen(shift / max(shift.std(), 1e-9))
        assert found.covariance is None
        assert found.doubtful == doubted


def test_faint_signal_is_told_by_neighbours() -> None:
    """Signal below the noise edge is found by what neighbours share, and white noise is not."""
    rng = np.random.default_rng(5)
    basis = np.linalg.qr(rng.standard_normal((80, 16)))[0]
    field = ndimage.gaussian_filter(rng.standard_normal((96, 96, 16)), (2.0, 2.0, 0))
    field /= field.std(axis=(0, 1))
    strength = np.r_[np.linspace(3, 0.5, 8), np.full(8, 0.25)]
    noise, known = rng.standard_normal((96, 96, 80)), basis[:, :8]
    nothing = faint_signal([noise + (field[..., :8] * strength[:8]) @ known.T], known)
    assert abs(nothing.signal) < 3 * nothing.error
    found = faint_signal([noise + (field * strength) @ basis.T], known)
    assert found.signal > 5 * found.error
    assert found.signal == pytest.approx(8 * 0.25**2, rel=0.3)  # neighbours share .47 ± .06 of it


def test_small_gains_are_in_sigma_or_not_trusted() -> None:
    truth = rare_materials((64, 60, 75), rng=5)
    gain = 1 + 0.01 * np.random.default_rng(21).standard_normal((*truth.shape[:2], 1))
    noisy = observed(truth * gain)
    result = sc.denoise(noisy, workers=1)
    assert 0.93 < covered(result, truth) < 0.98
    assert sc.holdout(noisy, result=result, workers=1).trusted
    # With the noise given gains are kept as signal.
    kept = sc.denoise(noisy, STD, workers=1)
    assert np.sum((kept.estimate - truth) ** 2) > 2 * np.sum((result.estimate - truth) ** 2)
    check = sc.holdout(noisy, result=kept, workers=1)
    assert not check.trusted
    # Controls: noise alone, and texture, which is as rough as a gain but not white.
    assert sc.holdout(observed(truth), workers=1).trusted
    rough = fractal_texture((64, 60, 75), rng=5)
    assert "gains" not in sc.holdout(observed(rough), workers=1).verdict


def test_noise_that_departs_from_one_factor_is_not_trusted() -> None:
    """Photon noise of bands that are bright in different places is no factor per pixel.

    Low-rank windows have one; the spatial estimator takes elements as they are.
    """
    truth = smooth_fields((64, 60, 75), rng=5)
    truth = (truth - truth.min(axis=(0, 1))) / np.ptp(truth, axis=(0, 1))
    reference = truth.mean(axis=(0, 1))

    def check(floor: float) -> sc.Holdout:
        noise = sc.SignalNoise((1 - floor) * STD**2 / reference, floor * STD**2)
        power = floor + (1 - floor) * truth / reference
        draw = np.random.default_rng(3).standard_normal(truth.shape)
        noisy = truth + STD * np.sqrt(power) * draw
        return sc.holdout(noisy, noise=noise, prior=None, workers=1)

    found = check(0.05)
    assert not found.trusted
    assert "departs from one factor" in found.verdict
    assert "departs" not in check(0.6).verdict  # the control


@pytest.mark.parametrize("shape", [(2, 40, 12), (40, 2, 12), (2, 2, 12)])
def test_scenes_of_two_lines_have_sigma(shape: tuple[int, int, int]) -> None:
    noisy = np.linspace(5, 50, 12) + np.random.default_rng(0).standard_normal(shape)
    assert np.isfinite(sc.denoise(noisy, 1.0, workers=1).std).all()

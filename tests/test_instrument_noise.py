"""Noise of instruments: the curve of a file, the line that is used, units, dark frames."""

from __future__ import annotations

import numpy as np
import pytest

import sigmacube as sc
from sigmacube import SignalNoise
from sigmacube.io import read
from sigmacube.io.sensors.samples import Setting, sunlight, write_sample
from sigmacube.noise.instrument import DarkNoise, InstrumentNoise, file_wavelengths, noise_of
from sigmacube.settings import Settings
from sigmacube.survey import settle_noise
from sigmacube.tiles import denoise_file

CENTRES = np.linspace(400.0, 2400.0, 40)
RADIANCE = {"name": "radiance", "units": "uW cm-2 nm-1 sr-1"}


def noise_file(folder, c=0.0, heading="# wvl a b c rmse"):
    """A file like EMIT's: a and b fall with the wavelength."""
    a, b = np.linspace(0.006, 0.002, 21), np.linspace(3.0, 0.3, 21)
    grid = np.linspace(380.0, 2500.0, 21)
    lines = [f"{w} {x} {y} {c} 0" for w, x, y in zip(grid, a, b, strict=True)]
    path = folder / "noise.txt"
    path.write_text("\n".join([heading, *lines]) + "\n")
    return path


def scene(bands=CENTRES, rows=30, cols=34, rng=1):
    return Setting(rows, cols, rng).reflectance(bands) * sunlight(bands) * 0.6


class TestFile:
    def test_line_is_the_curve_where_c_is_zero(self, tmp_path):
        noise = SignalNoise.from_file(noise_file(tmp_path), CENTRES)
        for level in (0.01, 0.5, 8.0):
            signal = np.full(40, level)
            line = noise.at(np.full(40, 2.0))
            used = np.sqrt(line.gain * signal + line.offset)
            np.testing.assert_allclose(used, noise.std(signal), rtol=1e-6)

    @pytest.mark.parametrize("c", [0.002, -0.0008])
    def test_stated_error_bounds_the_real_one(self, tmp_path, c):
        noise = SignalNoise.from_file(noise_file(tmp_path, c), CENTRES)
        reference = scene().mean(axis=(0, 1))
        low, high = 0.3 * reference, 2.0 * reference
        stated = noise.line_error(reference, low, high)
        line = noise.at(reference)
        np.testing.assert_allclose(line.value, noise.std(reference), rtol=1e-9)
        assert stated.max() > 1e-4
        for share in (0.0, 0.37, 1.0):
            signal = low + share * (high - low)
            used = np.sqrt(np.asarray(line.gain) * signal + line.offset)
            assert np.all(np.abs(used / noise.std(signal) - 1) <= stated * 1.2 + 1e-9)

    @pytest.mark.data
    def test_emit_noise_at_the_scenes_radiance(self, data_dir):
        """σ per band is a √(b + L) + c, read here by hand."""
        path = data_dir / "noise" / "emit_noise.txt"
        table = np.loadtxt(path)
        centres, a, b, c = table[:, :4].T
        truth = scene(centres)
        cube = sc.Cube(truth, centres, metadata=RADIANCE)
        settled = settle_noise(cube, str(path), Settings())
        mean = truth.mean(axis=(0, 1))
        expected = a * np.sqrt(b + mean) + c
        exact = np.abs(c) < 1e-6
        assert exact.sum() >= 268
        np.testing.assert_allclose(settled.model.value[exact], expected[exact], rtol=1e-3)
        np.testing.assert_allclose(settled.model.value, expected, rtol=1e-3)
        # Away from the mean: exact where c is 0, within what is stated elsewhere.
        low, high = np.percentile(truth, [5, 95], axis=(0, 1))
        for signal in (low, high):
            used = np.sqrt(settled.model.gain * signal + settled.model.offset)
            off = np.abs(used / (a * np.sqrt(b + signal) + c) - 1)
            assert off[exact].max() < 1e-3
            assert off.max() <= settled.description["line_error"] + 1e-4

    def test_snr_polynomials(self, tmp_path):
        """EnMAP states p0 + p1 L + p2 L² for the ratio of signal and noise."""
        path = tmp_path / "snr.txt"
        path.write_text("# wvl p0 p1 p2 (SNR)\n400 20 40 -0.5\n2500 10 30 -0.2\n")
        noise = SignalNoise.from_file(path, np.array([400.0, 2500.0]))
        level = np.array([3.0, 2.0])
        expected = level / np.array([20.0 + 120.0 - 4.5, 10.0 + 60.0 - 0.8])
        np.testing.assert_allclose(noise.std(level), expected)
        np.testing.assert_allclose(noise.at(level).value, expected)

    def test_micrometres_and_order(self, tmp_path):
        path = noise_file(tmp_path)
        lines = path.read_text().splitlines()
        other = tmp_path / "um.txt"
        rows = [line.split() for line in lines[1:]]
        turned = [" ".join([str(float(r[0]) / 1000), *r[1:]]) for r in reversed(rows)]
        other.write_text("\n".join(turned) + "\n")
        first, second = (InstrumentNoise.read(p, CENTRES) for p in (path, other))
        np.testing.assert_allclose(first.parameters, second.parameters)
        np.testing.assert_allclose(file_wavelengths(other), file_wavelengths(path))

    @pytest.mark.parametrize(
        ("units", "factor"),
        [
            ("W m-2 sr-1 um-1", 10.0),
            ("W/m^2/sr/nm", 0.01),
            ("uW/cm^2/sr/nm", 1.0),
            ("mW cm-2 sr-1 um-1", 1.0),
        ],
    )
    def test_units_of_the_cube(self, tmp_path, units, factor):
        path = noise_file(tmp_path, 0.001)
        about = {"name": "radiance", "units": units}
        noise = noise_of(str(path), 40, CENTRES, about)
        level = np.linspace(1.0, 4.0, 40)
        plain = InstrumentNoise.read(path, CENTRES)
        np.testing.assert_allclose(noise.std(level * factor), plain.std(level) * factor, rtol=1e-9)

    @pytest.mark.parametrize(
        ("about", "centres", "told"),
        [
            ({"name": "reflectance", "units": "1"}, CENTRES, "one of radiance, but the cube holds"),
            ({"name": "radiance", "units": "counts"}, CENTRES, "'counts' is not known"),
            (RADIANCE, None, "the cube has no wavelengths"),
            (RADIANCE, CENTRES + 3000, "Every band must lie within"),
        ],
    )
    def test_what_does_not_fit_is_one_line(self, tmp_path, about, centres, told):
        with pytest.raises(ValueError, match=told) as caught:
            noise_of(str(noise_file(tmp_path)), 40, centres, about)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("text", ["a b c\n", "1 2 3\n4 5\n", "1 2 3\n4 5 6\n"])
    def test_other_files_are_refused(self, tmp_path, text):
        (tmp_path / "x.txt").write_text(text)
        with pytest.raises(ValueError, match=r"x.txt"):
            noise_of(str(tmp_path / "x.txt"), 40, CENTRES, RADIANCE)

    def test_missing_file(self):
        with pytest.raises(ValueError, match="no such file exists"):
            noise_of("nothing.txt", 40, CENTRES, RADIANCE)

    def test_plain_numbers_stay_what_they_were(self, tmp_path):
        np.save(tmp_path / "std.npy", np.full(40, 0.1))
        (tmp_path / "std.txt").write_text("\n".join(["0.1"] * 40))
        for name in ("std.npy", "std.txt"):
            np.testing.assert_array_equal(
                noise_of(tmp_path / name, 40, CENTRES, {}), np.full(40, 0.1)
            )


@pytest.mark.statistical
@pytest.mark.parametrize("known", [True, False])
def test_coverage_with_a_noise_file(tmp_path, known):
    """A made radiance scene: with the file and without it, intervals hold the truth.

    The scene has one noise draw of 40,000 elements whose errors are correlated, so the share is
    known to about one per cent.
    """
    path = noise_file(tmp_path)
    smooth = sc.synthetic.scene((36, 40, 40), rng=4)
    truth = smooth.values * sunlight(smooth.wavelengths) * 0.6
    std = InstrumentNoise.read(path, smooth.wavelengths).std(truth)
    noisy = truth + std * np.random.default_rng(2).normal(size=truth.shape)
    cube = sc.Cube(noisy, smooth.wavelengths, metadata=RADIANCE)
    result = sc.denoise(cube, str(path) if known else None, prior=None)
    inside = np.abs(result.estimate - truth) <= 1.96 * result.std
    assert 0.93 < inside.mean() < 0.97
    if known:
        assert result.settings["noise_model"]["file"] == "noise.txt"
        wrong = sc.denoise(sc.Cube(noisy * 2, smooth.wavelengths, metadata=RADIANCE), str(path),
                           prior=None)  # fmt: skip
        off = np.abs(wrong.estimate - 2 * truth) <= 1.96 * wrong.std
        assert off.mean() < 0.93  # the check can fail: noise of another unit


class TestReferences:
    """A laboratory camera: counts with a dark signal per detector element."""

    @pytest.fixture
    def camera(self, tmp_path):
        rng = np.random.default_rng(3)
        smooth = sc.synthetic.scene((40, 36, 24), rng=5)
        dark = 100 + 20 * rng.random((36, 24))
        light = np.broadcast_to(2000 + 500 * rng.random(24), (36, 24))
        counts = smooth.values * light + dark
        counts = counts + rng.normal(size=counts.shape) * np.sqrt(36 + 0.4 * smooth.values * light)
        np.save(tmp_path / "raw.npy", counts)
        np.save(tmp_path / "dark.npy", dark + rng.normal(scale=6, size=(50, 36, 24)))
        np.save(tmp_path / "white.npy", light + dark + rng.normal(scale=20, size=(50, 36, 24)))
        return tmp_path, smooth, light

    def test_reflectance(self, camera):
        folder, smooth, light = camera
        cube = read(folder / "raw.npy", dark=folder / "dark.npy", white=folder / "white.npy")
        assert np.abs(cube.values - smooth.values).mean() < 0.02
        assert cube.metadata["name"] == "reflectance"
        spread = np.asarray(cube.metadata["dark_std"])
        np.testing.assert_allclose(spread, 6 / light.mean(axis=0), rtol=0.15)

    def test_dark_noise_is_the_offset(self, camera):
        folder, smooth, light = camera
        cube = read(folder / "raw.npy", dark=folder / "dark.npy")
        settled = settle_noise(cube, None, Settings())
        assert settled.source.startswith("dark frames and ")
        np.testing.assert_allclose(np.sqrt(settled.model.offset), 6, rtol=0.1)
        signal = (smooth.values * light).mean(axis=(0, 1))
        model = settled.model
        found = np.sqrt(model.gain * model.reference + model.offset)
        np.testing.assert_allclose(found, np.sqrt(36 + 0.4 * signal), rtol=0.15)

    def test_frames_of_another_width(self, camera):
        folder, *_ = camera
        np.save(folder / "narrow.npy", np.load(folder / "dark.npy")[:, :11])
        cube = read(folder / "raw.npy", dark=folder / "narrow.npy")
        assert "mean over columns is used" in cube.metadata["notes"][-1]
        np.save(folder / "bands.npy", np.load(folder / "dark.npy")[..., :7])
        with pytest.raises(ValueError, match="dark frame of 7 bands for a scene of 24"):
            read(folder / "raw.npy", dark=folder / "bands.npy")

    def test_bands_take_their_spread_along(self, camera):
        folder, *_ = camera
        cube = read(folder / "raw.npy", dark=folder / "dark.npy", bands=[3, 9])
        assert len(cube.metadata["dark_std"]) == 2

    def test_less_noise_than_the_dark_frames(self):
        class Found:
            std, value = np.array([1.0, 4.0]), np.array([1.0, 4.0])

        made = DarkNoise(np.array([2.0, 2.0])).completed(Found(), np.array([5.0, 5.0]))
        np.testing.assert_allclose(made.value, [2.0, 4.0])


class TestWavelengths:
    @pytest.mark.parametrize(
        "text",
        ["450\n550\n650\n", "450, 550, 650\n", "wl fwhm\n450 8\n550 8\n650 8\n",
         "0 0.45 0.008\n1 0.55 0.008\n2 0.65 0.008\n"],
    )  # fmt: skip
    def test_files(self, tmp_path, text):
        np.save(tmp_path / "x.npy", np.zeros((4, 5, 3)))
        (tmp_path / "w.txt").write_text(text)
        found = read(tmp_path / "x.npy", wavelengths=tmp_path / "w.txt")
        assert found.wavelengths.tolist() == [450.0, 550.0, 650.0]

    def test_headers_and_lists(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((4, 5, 3)))
        header = "ENVI\nwavelength units = Micrometers\nwavelength = {0.45, 0.55,\n 0.65}\n"
        (tmp_path / "w.hdr").write_text(header)
        for given in (tmp_path / "w.hdr", [450, 550, 650]):
            assert read(tmp_path / "x.npy", wavelengths=given).wavelengths.tolist() == [
                450,
                550,
                650,
            ]

    @pytest.mark.parametrize(("text", "told"), [("450\n550\n", "2 wavelengths for 3 bands"),
                                                ("1 2 3 4\n1 2 3 4\n1 2 3 4\n", "Every line must"),
                                                ("450\nx\n650\n", "holds words")])  # fmt: skip
    def test_what_does_not_fit(self, tmp_path, text, told):
        np.save(tmp_path / "x.npy", np.zeros((4, 5, 3)))
        (tmp_path / "w.txt").write_text(text)
        with pytest.raises(ValueError, match=told):
            read(tmp_path / "x.npy", wavelengths=tmp_path / "w.txt")


def test_narrow_scenes_shrink_the_window(caplog):
    values = np.random.default_rng(0).normal(size=(12, 40, 20)) + 5
    with caplog.at_level("WARNING", logger="sigmacube"):
        result = sc.denoise(values, 1.0, prior=None)
    assert result.settings["window"][:2] == [12, 12]
    assert "narrower than a window of 20: windows of 12 are used" in caplog.text


def test_tiles_use_noise_files_and_quality_as_memory_does(tmp_path):
    sample = write_sample("emit-l1b", tmp_path, Setting(28, 26))
    path = noise_file(tmp_path, 0.0005)
    made = denoise_file(
        sample.path, tmp_path / "clean.zarr", str(path), tile=14, workers=1, mode="threads",
        dtype="float64", prior=None, window=10,
    )  # fmt: skip
    whole = sc.denoise(read(sample.path), str(path), prior=None, window=10)
    again = sc.io.read_result(made.output)
    np.testing.assert_array_equal(again.estimate, whole.estimate)
    np.testing.assert_array_equal(again.std, whole.std)
    assert again.settings["noise_model"] == whole.settings["noise_model"]


class TestCommandLine:
    def run(self, *words):
        from click.testing import CliRunner

        from sigmacube.cli import main

        return CliRunner().invoke(main, [str(word) for word in words])

    def test_noise_file(self, tmp_path):
        sample = write_sample("emit-l1b", tmp_path, Setting(24, 26))
        path = noise_file(tmp_path)
        options = ("--noise", path, "--prior", "none", "--window", "12")
        found = self.run("denoise", sample.path, tmp_path / "a.nc", *options)
        assert found.exit_code == 0, found.output
        about = sc.io.read_result(tmp_path / "a.nc").settings["noise_model"]
        assert about["file"] == "noise.txt"
        assert about["line_error"] < 1e-6

    def test_reflectance_is_refused_in_one_line(self, tmp_path):
        sample = write_sample("emit-l2a", tmp_path, Setting(24, 26))
        path = noise_file(tmp_path)
        found = self.run("denoise", sample.path, tmp_path / "a.nc", "--noise", path)
        assert found.exit_code == 2
        errors = [line for line in found.stderr.splitlines() if line.startswith("Error: ")]
        assert len(errors) == 1
        assert "the cube holds reflectance" in errors[0]
        assert not (tmp_path / "a.nc").exists()

    def test_a_camera(self, tmp_path):
        rng = np.random.default_rng(0)
        smooth = sc.synthetic.scene((24, 26, 20), rng=5)
        np.save(tmp_path / "raw.npy", smooth.values * 2000 + 100 + rng.normal(0, 5, (24, 26, 20)))
        np.save(tmp_path / "dark.npy", 100 + rng.normal(0, 5, (40, 26, 20)))
        np.save(tmp_path / "white.npy", 2100 + rng.normal(0, 5, (40, 26, 20)))
        np.savetxt(tmp_path / "bands.txt", smooth.wavelengths)
        frames = ("--dark", tmp_path / "dark.npy", "--white", tmp_path / "white.npy")
        centres = ("--wavelengths", tmp_path / "bands.txt")
        found = self.run("denoise", tmp_path / "raw.npy", tmp_path / "a.nc", *frames, *centres)
        assert found.exit_code == 0, found.output
        result = sc.io.read_result(tmp_path / "a.nc")
        assert np.abs(result.estimate - smooth.values).mean() < 0.005
        np.testing.assert_allclose(result.wavelengths, smooth.wavelengths, rtol=1e-6)
        assert result.settings["noise_source"].startswith("dark frames and ")

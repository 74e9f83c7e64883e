from dataclasses import replace
from inspect import signature

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes

from sigmacube.cube import Cube
from sigmacube.result import DenoisedCube
from sigmacube.show import plots

SHAPE = (22, 31, 12)
WAVELENGTHS = np.linspace(400, 950, SHAPE[2])


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def truth():
    return np.random.default_rng(0).uniform(0.1, 0.6, SHAPE)


@pytest.fixture
def result(truth):
    """Errors drawn from the very sigma that is claimed."""
    rng = np.random.default_rng(1)
    std = rng.uniform(0.01, 0.03, SHAPE)
    return DenoisedCube(
        estimate=truth + std * rng.standard_normal(SHAPE),
        std=std,
        ranks=np.array([[2, 3, 3, 5], [1, 3, 4, 4]]),
        noise=0.05,
        residual_ratio=np.array([[1.0, 1.1, 0.97, 1.0], [1.02, 1.0, 1.0, 0.99]]),
        rejected=rng.random(SHAPE) < 0.05,
        wavelengths=WAVELENGTHS,
        metadata={"name": "radiance", "units": "W m-2 sr-1 nm-1"},
        settings={"window": [20, 20, 12], "step": [4, 4, 12]},
    )


def image(ax):
    return np.ma.filled(ax.images[0].get_array(), np.nan)


def bar_label(ax):
    bar = ax.images[0].colorbar.ax
    return bar.get_ylabel()


def everything(result, truth):
    z = plots.standard_errors(result, truth)
    return {
        "false_color": lambda ax: plots.false_color(result, ax=ax),
        "sigma_map": lambda ax: plots.sigma_map(result, ax=ax),
        "sigma_ratio_map": lambda ax: plots.sigma_ratio_map(result, ax=ax),
        "rank_map": lambda ax: plots.rank_map(result, ax=ax),
        "residual_map": lambda ax: plots.residual_map(result, ax=ax),
        "rejected_map": lambda ax: plots.rejected_map(result, ax=ax),
        "error_map": lambda ax: plots.error_map(result, truth, ax=ax),
        "spectrum": lambda ax: plots.spectrum(result, row=3, col=4, ax=ax),
        "noise_spectrum": lambda ax: plots.noise_spectrum(result, ax=ax),
        "calibration": lambda ax: plots.calibration(z, samples=500, ax=ax),
        "qq": lambda ax: plots.qq(z, ax=ax),
    }


NAMES = [
    name
    for name in plots.__all__
    if callable(getattr(plots, name))
    and "ax" in signature(getattr(plots, name)).parameters
    and not name.startswith("trials_")
]


class TestEveryPlot:
    def test_all_are_tested(self, result, truth):
        assert sorted(everything(result, truth)) == sorted(NAMES)

    @pytest.mark.parametrize("name", NAMES)
    def test_returns_the_axes_it_was_given(self, result, truth, name):
        ax = plt.figure().add_subplot()
        assert everything(result, truth)[name](ax) is ax
        assert ax.get_title()
        ax.figure.canvas.draw()

    @pytest.mark.parametrize("name", NAMES)
    def test_makes_a_figure_in_the_package_style(self, result, truth, name):
        before = dict(mpl.rcParams)
        ax = everything(result, truth)[name](None)
        assert isinstance(ax, Axes)
        assert ax.title.get_weight() == "bold"
        assert dict(mpl.rcParams) == before
        ax.figure.canvas.draw()

    @pytest.mark.parametrize("name", NAMES)
    def test_leaves_the_callers_style_on_their_axes(self, result, truth, name):
        with mpl.rc_context({"axes.titleweight": "normal"}):
            ax = everything(result, truth)[name](plt.figure().add_subplot())
        assert ax.title.get_weight() == "normal"

    @pytest.mark.parametrize("name", NAMES)
    def test_missing_values_and_read_only_input(self, result, truth, name):
        hole = np.s_[5:9, 3:8]
        arrays = {}
        for field in ("estimate", "std"):
            array = getattr(result, field).copy()
            array[hole] = np.nan
            array[:, :, 7] = np.nan
            array.flags.writeable = False
            arrays[field] = array
        ax = everything(replace(result, **arrays), truth)[name](None)
        ax.figure.canvas.draw()


class TestStretch:
    def test_ignores_nan_and_infinity(self):
        values = np.linspace(0, 100, 101)[:, None, None] * np.ones((1, 2, 1))
        holed = values.copy()
        holed[:, 1] = np.nan
        holed[3, 1] = np.inf
        np.testing.assert_allclose(plots.stretch(holed)[:, 0], plots.stretch(values)[:, 0])
        assert np.isnan(plots.stretch(holed)[:, 1]).all()

    def test_percentiles_become_black_and_white(self):
        values = np.arange(101.0)[:, None, None]
        scaled = plots.stretch(values, percentiles=(10, 90)).ravel()
        assert scaled[10] == 0
        assert scaled[90] == 1
        assert scaled[0] == 0
        assert scaled[100] == 1
        assert scaled[50] == pytest.approx(0.5)

    def test_channels_are_scaled_apart_and_limits_join_pictures(self):
        values = np.random.default_rng(0).random((9, 8, 3)) * [1, 10, 100]
        scaled = plots.stretch(values, percentiles=(0, 100))
        np.testing.assert_allclose(scaled.max(axis=(0, 1)), 1)
        limits = plots.stretch_limits(values, (0, 100))
        np.testing.assert_allclose(plots.stretch(values / 2, limits=limits).max(), 0.5, rtol=0.2)

    @pytest.mark.parametrize("value", [0.0, 3.0, np.nan])
    def test_constant_or_empty(self, value):
        scaled = plots.stretch(np.full((3, 4, 3), value))
        assert np.isnan(scaled).all() if np.isnan(value) else (scaled == 0).all()

    @pytest.mark.parametrize("percentiles", [(98, 2), (5, 5), (-1, 50), (50, 101)])
    def test_refuses_percentiles(self, percentiles):
        message = r"Invalid percentiles .*\. They must rise and lie between 0 and 100\."
        with pytest.raises(ValueError, match=message):
            plots.stretch(np.zeros((3, 4, 3)), percentiles=percentiles)


class TestFalseColor:
    def test_bands_by_wavelength(self, truth):
        cube = Cube(truth, wavelengths=WAVELENGTHS)
        ax = plots.false_color(cube, colors=(900, 700, 500))
        assert ax.get_title() == "R 900, G 700, B 500 nm"
        np.testing.assert_allclose(image(ax), plots.stretch(truth[:, :, [10, 6, 2]]))

    def test_array_with_and_without_wavelengths(self, truth):
        named = plots.false_color(truth, wavelengths=WAVELENGTHS, colors=(900, 700, 500))
        assert named.get_title() == "R 900, G 700, B 500 nm"
        assert plots.false_color(truth).get_title() == "R 8, G 6, B 3 (bands)"

    def test_missing_pixels_are_grey(self, truth):
        holed = truth.copy()
        holed[2, 3, 6] = np.nan
        np.testing.assert_allclose(image(plots.false_color(holed))[2, 3], 0.85, atol=0.002)


class TestMaps:
    def test_sigma_of_a_band(self, result):
        ax = plots.sigma_map(result, wavelength=710)
        np.testing.assert_array_equal(image(ax), result.std[:, :, 6])
        assert ax.get_title() == "σ, 700 nm"
        assert bar_label(ax) == "σ (W m-2 sr-1 nm-1)"
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("column", "row")

    def test_sigma_over_bands_leaves_out_bad_and_missing_ones(self, result):
        std = result.std.copy()
        std[:, :, 2] = 1e6
        std[4, 5, 3] = np.nan
        good = np.arange(SHAPE[2]) != 2
        marked = replace(result, std=std, metadata={"good_bands": list(good)})
        ax = plots.sigma_map(marked)
        assert ax.get_title() == "σ, rms over bands"
        assert bar_label(ax) == "σ"
        expected = np.sqrt(np.nanmean(std[:, :, good] ** 2, axis=2))
        np.testing.assert_allclose(image(ax), expected)

    def test_reflectance_has_a_name_and_no_unit(self, result):
        named = replace(result, metadata={"name": "reflectance", "units": "1"})
        assert bar_label(plots.sigma_map(named)) == "σ (reflectance)"
        assert plots.spectrum(named, row=1, col=2).get_ylabel() == "reflectance"
        bare = replace(result, metadata={})
        assert plots.spectrum(bare, row=1, col=2).get_ylabel() == "value"

    @pytest.mark.parametrize("kind", ["scalar", "bands", "covariance"])
    def test_sigma_relative_to_any_noise(self, result, kind):
        std = np.linspace(0.02, 0.08, SHAPE[2])
        noise = {"scalar": 0.05, "bands": std, "covariance": np.outer(std, std)}[kind]
        per_band = np.broadcast_to(0.05 if kind == "scalar" else std, SHAPE[2])
        ax = plots.sigma_ratio_map(replace(result, noise=noise), band=4)
        np.testing.assert_allclose(image(ax), result.std[:, :, 4] / per_band[4])
        assert bar_label(ax) == "σ / noise σ"

    def test_ranks_lie_where_their_windows_are(self, result):
        ax = plots.rank_map(result)
        shown = image(ax)
        assert shown.shape == SHAPE[:2]
        # Windows of 20 start at rows 0, 2 and columns 0, 4, 8, 11: centres 9.5, 11.5; 9.5 ... 20.5.
        assert shown[0, 0] == 2
        assert shown[21, 0] == 1
        assert shown[0, 30] == 5
        assert shown[12, 13] == 3
        np.testing.assert_array_equal(np.unique(shown), [1, 2, 3, 4, 5])
        assert list(ax.images[0].colorbar.get_ticks()) == [1, 2, 3, 4, 5]

    def test_ranks_as_an_array_and_of_windows_that_cut_bands(self, result):
        ranks = np.array([[2, 3], [4, 2], [2, 2]])
        np.testing.assert_array_equal(image(plots.rank_map(ranks)), ranks)
        deep = np.stack([ranks, ranks + 1], axis=2)
        np.testing.assert_array_equal(image(plots.rank_map(deep)), ranks + 1)
        np.testing.assert_array_equal(image(plots.rank_map(np.full((2, 3), 4))), 4)

    def test_residual_is_centred_on_one(self, result):
        ax = plots.residual_map(result)
        norm = ax.images[0].norm
        assert (norm.vmin + norm.vmax) / 2 == pytest.approx(1)
        assert norm.vmax >= 1.05
        assert image(ax).shape == SHAPE[:2]

    def test_rejected(self, result):
        ax = plots.rejected_map(result)
        np.testing.assert_allclose(image(ax), result.rejected.mean(axis=2))
        with pytest.raises(ValueError, match="Invalid result without rejected elements"):
            plots.rejected_map(replace(result, rejected=None))

    def test_error_in_units_of_sigma(self, result, truth):
        ax = plots.error_map(result, Cube(truth), band=5)
        expected = (result.estimate - truth)[:, :, 5] / result.std[:, :, 5]
        np.testing.assert_allclose(image(ax), expected)
        norm = ax.images[0].norm
        assert (norm.vmin, norm.vmax) == (-4, 4)
        assert bar_label(ax) == "(estimate − truth) / σ"
        assert ax.get_title() == "Error / σ, 650 nm"

    def test_no_error_where_sigma_is_zero(self, result, truth):
        std = result.std.copy()
        std[0, 0] = 0
        z = plots.standard_errors(replace(result, std=std), truth)
        assert np.isnan(z[0, 0]).all()
        assert np.isfinite(z[1:]).all()

    def test_colour_bars_are_as_high_as_their_image(self, result):
        figure, ax = plt.subplots(figsize=(9, 3), layout="constrained")
        plots.sigma_map(result, ax=ax)
        figure.canvas.draw()
        box = ax.get_window_extent()
        bar = ax.images[0].colorbar.ax.get_window_extent()
        assert bar.y0 >= box.y0 - 1
        assert bar.y1 <= box.y1 + 1

    @pytest.mark.parametrize("shape", [(90, 15), (15, 90)])
    def test_colour_bars_of_narrow_scenes_are_not_slivers(self, shape):
        ax = plots.sigma_map(np.random.default_rng(0).random(shape))
        ax.figure.canvas.draw()
        bar = ax.images[0].colorbar.ax.get_window_extent()
        box = ax.get_window_extent()
        assert bar.width > 0.03 * max(box.width, box.height)

    def test_constant_map(self):
        ax = plots.sigma_map(np.full((4, 5), 0.01))
        assert ax.images[0].norm.vmax > ax.images[0].norm.vmin
        ax.figure.canvas.draw()

    def test_refusals(self, result, truth):
        with pytest.raises(ValueError, match=r"Invalid band 12\. It must lie between 0 and 11\."):
            plots.sigma_map(result, band=12)
        with pytest.raises(ValueError, match=r"Invalid wavelength 700: the bands have none\."):
            plots.sigma_map(result.std, wavelength=700)
        with pytest.raises(ValueError, match=r"without std\. It was made with uncertainty=False"):
            plots.sigma_map(replace(result, std=None))
        with pytest.raises(ValueError, match="Invalid truth None"):
            plots.error_map(result)
        with pytest.raises(ValueError, match=r"Invalid truth of shape \(22, 31, 11\)"):
            plots.error_map(result, truth[:, :, 1:])


class TestSpectrum:
    def test_interval_and_labels(self, result, truth):
        ax = plots.spectrum(result, row=3, col=4, truth=Cube(truth), observed=truth, level=0.9)
        assert ax.get_xlabel() == "wavelength (nm)"
        assert ax.get_ylabel() == "radiance (W m-2 sr-1 nm-1)"
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["observed", "90 % interval", "estimate", "truth"]
        corners = ax.collections[0].get_paths()[0].vertices[:, 1]
        reach = 1.6449 * result.std[3, 4]
        assert corners.max() == pytest.approx((result.estimate[3, 4] + reach).max(), rel=1e-4)
        assert corners.min() == pytest.approx((result.estimate[3, 4] - reach).min(), rel=1e-4)

    def test_breaks_at_bad_bands(self, result):
        good = np.ones(SHAPE[2], dtype=bool)
        good[4:6] = False
        ax = plots.spectrum(replace(result, metadata={"good_bands": good}), row=3, col=4)
        np.testing.assert_array_equal(np.isnan(ax.lines[0].get_ydata()), ~good)
        assert len(ax.collections[0].get_paths()) == 2

    def test_breaks_where_wavelengths_jump(self):
        nm = np.array([400.0, 410, 420, 430, 900, 910, 920])
        ax = plots.spectrum(np.arange(7.0), np.ones(7), wavelengths=nm)
        line = ax.lines[0]
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(line.get_xdata())), [4])
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(line.get_ydata())), [4])
        assert len(ax.collections[0].get_paths()) == 2

    def test_breaks_where_detectors_overlap(self):
        nm = np.array([900.0, 910, 920, 930, 905, 915, 925])
        x, y = plots.with_gaps(nm, np.arange(7.0))
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(x)), [4])
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(y)), [4])

    @pytest.mark.parametrize("nm", [[500.0], [500.0, 510.0], [900.0, 800.0, 700.0], [5.0, 5.0]])
    def test_no_break_without_a_gap(self, nm):
        x, y = plots.with_gaps(np.array(nm), np.ones(len(nm)))
        np.testing.assert_array_equal(x, nm)
        np.testing.assert_array_equal(y, 1)

    def test_several_pixels_share_one_entry_for_the_interval(self, result):
        ax = plots.spectrum(result, row=1, col=2, label="a")
        plots.spectrum(result, row=3, col=4, label="b", color=plots.VERMILION, ax=ax)
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["95 % interval", "a", "b"]

    def test_without_sigma_or_wavelengths(self, truth):
        ax = plots.spectrum(truth, row=1, col=2)
        assert ax.get_xlabel() == "band"
        assert not ax.collections

    def test_refusals(self, result):
        with pytest.raises(ValueError, match=r"Invalid pixel: row and col must be given"):
            plots.spectrum(result)
        message = r"Invalid pixel \(22, 0\)\. The scene has 22 rows and 31 columns\."
        with pytest.raises(ValueError, match=message):
            plots.spectrum(result, row=22, col=0)
        with pytest.raises(ValueError, match=r"Invalid wavelengths: 3 given for 12 bands\."):
            plots.spectrum(result, row=0, col=0, wavelengths=np.arange(3))
        with pytest.raises(ValueError, match=r"Invalid level 1\.0\. It must lie between 0 and 1\."):
            plots.spectrum(result, row=0, col=0, level=1.0)


class TestCalibration:
    @pytest.mark.statistical
    def test_coverage_of_honest_and_of_dishonest_errors(self):
        z = np.random.default_rng(2).standard_normal(40_000)
        for scale, honest in ((1.0, True), (1.1, False)):
            found = plots.coverage(scale * z)
            off = [
                abs(share - level) / np.sqrt(level * (1 - level) / z.size)
                for level, share in found.items()
            ]
            assert (max(off) < 5) == honest

    def test_coverage_ignores_missing_values(self):
        z = np.array([0.1, np.nan, 3.0, 0.2, -0.1])
        assert plots.coverage(z, [0.9]) == {0.9: 0.75}

    def test_points_and_sampling_band(self):
        ax = plots.calibration({0.95: 0.94, 0.5: 0.51}, samples=10_000)
        np.testing.assert_allclose(ax.lines[1].get_xdata(), [50, 95])
        np.testing.assert_allclose(ax.lines[1].get_ydata(), [51, 94])
        assert [text.get_text() for text in ax.texts] == ["51.0", "94.0"]
        inset = ax.child_axes[0]
        np.testing.assert_allclose(inset.lines[1].get_ydata(), [1, -1])
        # Two standard errors at 50 %: 2 sqrt(.25 / 10000) = 1 point.
        assert inset.collections[0].get_paths()[0].vertices[:, 1].max() == pytest.approx(
            1, rel=1e-3
        )
        assert not plots.calibration({0.5: 0.5}).child_axes[0].collections
        # A check of so few values that all are covered knows no error of its shares.
        assert not plots.calibration({0.95: 1.0}, samples=0.0).child_axes[0].collections

    def test_refuses_nothing(self):
        with pytest.raises(ValueError, match="Invalid coverage: no level given"):
            plots.calibration({})


class TestQq:
    @pytest.mark.statistical
    def test_straight_for_normal_errors_and_bent_for_others(self):
        rng = np.random.default_rng(3)
        for draw, straight in ((rng.standard_normal(5000), True), (rng.laplace(size=5000), False)):
            line = plots.qq(draw).lines[1]
            x, y = line.get_xdata(), line.get_ydata()
            middle = np.abs(x) < 2.5
            # Five standard errors of the quantile at 2.5: sqrt(p (1 - p) / n) / density.
            limit = 5 * np.sqrt(0.0062 * 0.9938 / 5000) / 0.0175
            assert (np.abs(x - y)[middle].max() < limit) == straight

    def test_counts_wild_values_instead_of_shrinking_the_rest(self):
        z = np.random.default_rng(4).standard_normal(2000)
        assert not plots.qq(z).texts
        z[[3, 70, 500]] = [60, -70, 80]
        ax = plots.qq(z)
        assert ax.get_ylim()[1] < 10
        assert ax.texts[0].get_text().startswith("3 of 2000 values")

    def test_refuses_too_few(self):
        message = r"Invalid errors: 1 finite values\. There must be at least 2\."
        with pytest.raises(ValueError, match=message):
            plots.qq(np.array([0.3, np.nan]))


def test_noise_spectrum_breaks_and_tells_both(result):
    good = np.ones(SHAPE[2], dtype=bool)
    good[3] = False
    metadata = {"good_bands": good, "name": "reflectance", "units": "1"}
    ax = plots.noise_spectrum(replace(result, metadata=metadata))
    assert ax.get_ylabel() == "standard deviation (reflectance)"
    noise, sigma = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(np.isnan(noise), ~good)
    np.testing.assert_allclose(noise[good], 0.05)
    np.testing.assert_allclose(sigma[good], np.median(result.std, axis=(0, 1))[good])

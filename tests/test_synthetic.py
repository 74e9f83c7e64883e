import numpy as np
import pytest

from sigmacube.cube import Cube
from sigmacube.synthetic import add_noise, scene

SHAPE = (60, 80, 50)


def flat(cube):
    return cube.values.reshape(-1, cube.shape[2])


@pytest.fixture(scope="module")
def truth():
    return scene(SHAPE)


def ar1_cov(bands, low=0.02, high=0.08, corr=0.7):
    std = np.linspace(low, high, bands)
    lag = np.abs(np.subtract.outer(np.arange(bands), np.arange(bands)))
    return std[:, None] * corr**lag * std


class TestScene:
    def test_is_a_reflectance_cube(self, truth):
        assert truth.shape == SHAPE
        assert truth.values.dtype == np.float64
        assert 0 <= truth.values.min() < truth.values.max() <= 1
        assert truth.wavelengths[0] == 400
        assert truth.wavelengths[-1] == 2450
        assert (np.diff(truth.wavelengths) > 0).all()
        assert truth.metadata["units"] == "1"
        assert len(truth.metadata["fwhm"]) == SHAPE[2]

    @pytest.mark.parametrize("endmembers", [2, 3, 4, 6, 8, 11])
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_rank_is_at_most_the_number_of_endmembers(self, endmembers, seed):
        cube = scene((90, 110, 40), endmembers=endmembers, rng=seed)
        singular = np.linalg.svd(flat(cube), compute_uv=False)
        assert singular[endmembers] < 1e-12 * singular[0]
        # Brightness and mixing leave the materials distinguishable.
        assert (singular > 1e-6 * singular[0]).sum() >= min(endmembers, 6)
        assert len(cube.metadata["endmembers"]) == endmembers
        assert len(set(cube.metadata["endmembers"])) == endmembers

    @pytest.mark.parametrize("seed", range(6))
    def test_a_window_sees_few_materials(self, seed):
        cube = scene((96, 128, 50), rng=seed)
        ranks = [
            np.linalg.matrix_rank(cube.values[i : i + 20, j : j + 20].reshape(400, -1), tol=1e-8)
            for i in range(0, 77, 8)
            for j in range(0, 109, 8)
        ]
        assert 2 <= np.median(ranks) <= 4
        assert np.mean(np.array(ranks) <= 5) > 0.9

    def test_borders_are_mixed_and_fields_are_not(self, truth):
        # Straight mixing of two fields leaves values between theirs: a share of the neighbours
        # differs strongly (borders), most differ by the brightness only.
        band = truth.nearest_band(850)
        step = np.abs(np.diff(truth.values[:, :, band], axis=1))
        assert np.median(step) < 0.01
        assert (step > 0.1).any()
        assert np.mean(step > 0.05) < 0.2

    def test_vegetation_shows_its_red_edge_and_water_bands(self):
        cube = scene((96, 128, 411))  # 5 nm bands
        at = {nm: cube.values[:, :, cube.nearest_band(nm)] for nm in range(400, 2451, 5)}
        ndvi = (at[800] - at[670]) / (at[800] + at[670])
        plant = np.unravel_index(np.argmax(ndvi), ndvi.shape)
        assert ndvi[plant] > 0.8
        for centre, left, right in [(970, 900, 1070), (1200, 1090, 1280), (1450, 1300, 1640)]:
            assert at[centre][plant] < 0.95 * min(at[left][plant], at[right][plant])
        assert at[1940][plant] < 0.5 * min(at[1800][plant], at[2150][plant])
        darkest = np.unravel_index(np.argmin(at[850]), ndvi.shape)
        assert at[850][darkest] < 0.03  # water

    def test_minerals_show_clay_and_carbonate(self):
        cube = scene((96, 128, 411))
        at = {nm: cube.values[:, :, cube.nearest_band(nm)] for nm in (2150, 2205, 2260, 2335, 2420)}
        clay = 1 - at[2205] / ((at[2150] + at[2260]) / 2)
        carbonate = 1 - at[2335] / ((at[2260] + at[2420]) / 2)
        assert clay.max() > 0.08
        assert carbonate.max() > 0.2
        assert np.median(carbonate) < 0.1  # a quarry, not the whole land

    def test_spectra_are_smooth(self):
        cube = scene((30, 40, 411))
        curvature = np.abs(np.diff(cube.values, n=2, axis=2)).max()
        assert curvature < 0.02

    def test_same_seed_same_scene(self):
        first = scene((30, 40, 20), rng=3)
        again = scene((30, 40, 20), rng=np.random.default_rng(3))
        other = scene((30, 40, 20), rng=4)
        np.testing.assert_array_equal(first.values, again.values)
        assert np.abs(first.values - other.values).max() > 0.05

    @pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 2), (7, 1, 3), (5, 3, 4)])
    def test_any_size(self, shape):
        for endmembers in (2, 6, 9):
            values = scene(shape, endmembers=endmembers).values
            assert values.shape == shape
            assert np.isfinite(values).all()

    @pytest.mark.parametrize("shape", [(4, 5), (0, 5, 6), (4, 5, 6, 7), (4, 5, 2.5), (-1, 2, 3)])
    def test_refuses_shape(self, shape):
        message = r"Invalid shape \(.*\)\. It must be \(rows, cols, bands\), each at least 1\."
        with pytest.raises(ValueError, match=message):
            scene(shape)

    @pytest.mark.parametrize("endmembers", [1, 0, -2, 2.5, True])
    def test_refuses_endmembers(self, endmembers):
        message = rf"Invalid endmembers {endmembers}\. It must be an integer of at least 2\."
        with pytest.raises(ValueError, match=message):
            scene((4, 5, 6), endmembers=endmembers)


class TestGaussianNoise:
    @pytest.mark.statistical
    def test_scalar_std(self, truth):
        error = add_noise(truth, 0.05).values - truth.values
        # Relative error of a sample std is 1 / sqrt(2 n); five of those.
        assert abs(error.std() / 0.05 - 1) < 5 / np.sqrt(2 * error.size)
        assert abs(error.mean()) < 5 * 0.05 / np.sqrt(error.size)

    @pytest.mark.statistical
    def test_std_per_band(self, truth):
        std = np.linspace(0.01, 0.09, SHAPE[2])
        error = add_noise(truth, std).values - truth.values
        pixels = SHAPE[0] * SHAPE[1]
        found = error.reshape(pixels, -1).std(axis=0)
        assert np.abs(found / std - 1).max() < 5 / np.sqrt(2 * pixels)
        # Negative control: the same test tells a band from its neighbour.
        assert np.abs(found / std[::-1] - 1).max() > 5 / np.sqrt(2 * pixels)

    @pytest.mark.statistical
    def test_band_covariance(self, truth):
        cov = ar1_cov(SHAPE[2])
        error = add_noise(truth, cov).values - truth.values
        pixels = SHAPE[0] * SHAPE[1]
        found = np.cov(error.reshape(pixels, -1), rowvar=False)
        # Isserlis: var of a sample covariance is (c_ij^2 + c_ii c_jj) / n.
        limit = np.sqrt((cov**2 + np.outer(np.diag(cov), np.diag(cov))) / pixels)
        assert (np.abs(found - cov) / limit).max() < 5
        # Negative control: without the correlation it fails.
        assert (np.abs(found - np.diag(np.diag(cov))) / limit).max() > 20

    @pytest.mark.statistical
    def test_pixels_are_independent(self, truth):
        error = add_noise(truth, ar1_cov(SHAPE[2])).values - truth.values
        error /= error.std(axis=(0, 1))
        for a, b in [(error[1:], error[:-1]), (error[:, 1:], error[:, :-1])]:
            # Bands are correlated: no more than one independent value per pixel is assumed.
            assert abs((a * b).mean()) < 5 / np.sqrt(a.shape[0] * a.shape[1])

    def test_singular_covariance_moves_all_bands_together(self, truth):
        noisy = add_noise(truth, np.full((SHAPE[2], SHAPE[2]), 0.01))
        error = noisy.values - truth.values
        np.testing.assert_allclose(error, error[:, :, :1] * np.ones(SHAPE[2]), atol=1e-7)

    def test_no_noise_changes_nothing(self, truth):
        np.testing.assert_array_equal(add_noise(truth, 0.0).values, truth.values)


class TestAddNoise:
    def test_keeps_kind_dtype_and_input(self, truth):
        before = truth.values.copy()
        noisy = add_noise(truth, 0.05, impulses=0.1, stripes=0.2, dead_lines=3)
        assert isinstance(noisy, Cube)
        assert noisy.wavelengths is truth.wavelengths
        assert noisy.metadata == truth.metadata
        np.testing.assert_array_equal(truth.values, before)
        array = add_noise(truth.values, 0.05, impulses=0.1, stripes=0.2, dead_lines=3)
        np.testing.assert_array_equal(array, noisy.values)
        assert add_noise(truth.values.astype("f4"), 0.05).dtype == np.float32
        counts = np.arange(2 * 3 * 4, dtype=np.int16).reshape(2, 3, 4)
        assert add_noise(counts, 0.5).dtype == np.float64

    def test_read_only_input(self, truth):
        values = truth.values.copy()
        values.flags.writeable = False
        add_noise(values, 0.05, impulses=0.1, stripes=0.2, dead_lines=3)

    def test_same_seed_same_noise(self, truth):
        options = {"impulses": 0.1, "stripes": 0.1, "dead_lines": 2}
        first = add_noise(truth, 0.05, **options, rng=5).values
        again = add_noise(truth, 0.05, **options, rng=np.random.default_rng(5)).values
        np.testing.assert_array_equal(first, again)
        assert (first != add_noise(truth, 0.05, **options, rng=6).values).mean() > 0.5

    def test_gaussian_part_does_not_depend_on_the_rest(self, truth):
        plain = add_noise(truth, 0.05).values
        spiked = add_noise(truth, 0.05, impulses=0.1).values
        changed = plain != spiked
        assert set(np.unique(spiked[changed])) == {0.0, 1.0}

    @pytest.mark.statistical
    def test_share_of_impulses(self, truth):
        noisy = add_noise(truth, 0.05, impulses=0.2).values
        size = noisy.size
        for value in (0.0, 1.0):
            assert abs((noisy == value).mean() - 0.1) < 5 * np.sqrt(0.1 * 0.9 / size)

    def test_all_impulses(self, truth):
        assert np.isin(add_noise(truth, 0.05, impulses=1).values, (0.0, 1.0)).all()

    def test_impulses_span_the_range_of_other_data(self, truth):
        counts = np.round(truth.values * 9000 - 50)
        noisy = add_noise(counts, 1.0, impulses=1.0)
        assert set(np.unique(noisy)) == {counts.min(), counts.max()}

    def test_stripes(self, truth):
        error = add_noise(truth, 0.0, stripes=0.25).values - truth.values
        np.testing.assert_allclose(np.ptp(error, axis=0), 0, atol=1e-12)
        hit = np.abs(error[0]) > 1e-12
        np.testing.assert_array_equal(hit.sum(axis=0), round(0.25 * SHAPE[1]))
        assert np.abs(error).max() <= 0.25
        assert np.abs(error).max() > 0.2
        # Other columns in other bands: no column is striped throughout.
        assert hit.mean(axis=1).max() < 0.8

    def test_dead_lines(self, truth):
        noisy = add_noise(truth, 0.01, dead_lines=4).values
        dead = (noisy == 0).all(axis=0)
        lines = np.flatnonzero(dead.any(axis=1))
        assert len(lines) == 4
        for line in lines:
            run = np.flatnonzero(dead[line])
            assert SHAPE[2] // 10 <= len(run) <= SHAPE[2] // 2
            np.testing.assert_array_equal(np.diff(run), 1)

    def test_missing_values_stay_missing(self, truth):
        values = truth.values.copy()
        values[3, 4] = np.nan
        values[5, 6, 7] = np.inf
        noisy = add_noise(values, 0.05, impulses=1.0, dead_lines=SHAPE[1])
        np.testing.assert_array_equal(np.isfinite(noisy), np.isfinite(values))
        assert np.isnan(add_noise(np.full((2, 3, 4), np.nan), 0.1, impulses=0.5)).all()

    @pytest.mark.parametrize(
        ("noise", "message"),
        [
            (-0.1, r"Invalid noise -0\.1\. It must not be negative\."),
            (np.linspace(-1, 1, 50), r"Invalid noise -1\. It must not be negative\."),
            (np.nan, r"Invalid noise: NaN or infinite values\. All of it must be finite\."),
            (np.full(50, np.inf), r"Invalid noise: NaN or infinite values\."),
            (
                np.ones(7),
                r"Invalid noise of shape \(7,\)\. It must be a scalar, \(50,\) standard deviations "
                r"or a \(50, 50\) covariance\.",
            ),
            (np.ones((3, 50)), r"Invalid noise of shape \(3, 50\)\."),
            (np.triu(np.ones((50, 50))), r"not symmetric\. It must equal its transpose\."),
            (-np.eye(50), r"covariance with eigenvalue -1\. It must be positive semi-definite\."),
            (np.diag([-1.0] + [2.0] * 49), r"with eigenvalue -1\."),
        ],
    )
    def test_refuses_noise(self, truth, noise, message):
        with pytest.raises(ValueError, match=message):
            add_noise(truth, noise)

    @pytest.mark.parametrize("name", ["impulses", "stripes"])
    @pytest.mark.parametrize("share", [-0.01, 1.01, np.nan])
    def test_refuses_share(self, truth, name, share):
        message = rf"Invalid {name} {share}\. It must be a share between 0 and 1\."
        with pytest.raises(ValueError, match=message):
            add_noise(truth, 0.1, **{name: share})

    @pytest.mark.parametrize("count", [-1, 81, 1.5])
    def test_refuses_dead_lines(self, truth, count):
        message = (
            rf"Invalid dead_lines {count}\. It must be an integer from 0 to the number of "
            r"columns, 80\."
        )
        with pytest.raises(ValueError, match=message):
            add_noise(truth, 0.1, dead_lines=count)

    def test_refuses_other_than_three_axes(self):
        with pytest.raises(ValueError, match=r"Invalid shape \(4, 5\)\."):
            add_noise(np.zeros((4, 5)), 0.1)

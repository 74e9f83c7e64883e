"""Products: closed forms against the functional oracle, and sigma against Monte Carlo."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import sigmacube as sc
from conftest import low_rank_cube
from sigmacube import io, products
from sigmacube.cli import main
from sigmacube.core.errors import PixelSets

SHAPE = (26, 31, 40)
NOISE = 0.015


def scene() -> sc.Cube:
    """Bright, so that denominators are far from zero, with a dark corner."""
    rng = np.random.default_rng(0)
    values = 0.5 + 0.1 * low_rank_cube(SHAPE, 2, rng) / np.sqrt(2)
    values[:9, :9] *= 0.1
    return sc.Cube(values, np.linspace(450.0, 1000.0, SHAPE[2]))


def noisy(rng: int, noise: float | np.ndarray = NOISE) -> sc.Cube:
    cube = scene()
    field = np.random.default_rng(rng).normal(size=SHAPE) * noise
    return cube.with_values(cube.values + field)


def correlated() -> np.ndarray:
    lag = np.abs(np.subtract.outer(np.arange(SHAPE[2]), np.arange(SHAPE[2])))
    return NOISE**2 * 0.6**lag


CASES = {
    "scalar": {},
    "per band": {"noise": np.linspace(0.01, 0.02, SHAPE[2])},
    "covariance": {"noise": correlated()},
    "kept noise": {"rank": 6},
    "uniform": {"weights": "uniform", "window": 10, "step": 7},
    "cut bands": {"window": (12, 10, 16), "step": (5, 4, 8)},
    "masked": {"mask": np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE[:2]) % 17 > 0},
    "spatial": {"prior": "spatial"},
    "spatial, covariance": {"prior": "spatial", "noise": correlated()},
    "spatial, masked": {
        "prior": "spatial",
        "mask": np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE[:2]) % 17 > 0,
    },
}


@pytest.fixture(scope="module", params=CASES)
def result(request) -> sc.DenoisedCube:
    options = {"noise": NOISE, "window": 12, "prior": None, **CASES[request.param]}
    return sc.denoise(noisy(1), options.pop("noise"), **options)


@pytest.fixture(scope="module")
def plain() -> sc.DenoisedCube:
    return sc.denoise(noisy(1), NOISE, window=12, prior=None)


def valid_pixels(result: sc.DenoisedCube) -> np.ndarray:
    return np.isfinite(result.estimate).all(axis=2)


# Closed forms


def test_band_covariance_equals_the_pixel_covariance(result):
    rows = np.zeros((3, SHAPE[2]))
    rows[0, 1], rows[1, 6], rows[2, 3:6] = 1, 1, (0.2, 0.3, 0.5)
    i, j = np.triu_indices(3)
    maps = result.error_model.band_covariance(rows[i], rows[j])
    for row, col in [(0, 0), (7, 30), (13, 14), (25, 30), (12, 3)]:
        exact = rows @ result.spectral_cov(row, col) @ rows.T
        scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
        np.testing.assert_allclose(maps[row, col], exact[i, j], atol=1e-6 * scale.max())


def test_support_covariance_equals_the_functional_oracle(result):
    ok = valid_pixels(result)
    labels = (np.arange(SHAPE[0]) // 3)[:, None] * 11 + np.arange(SHAPE[1]) // 3
    labels = np.where(ok, labels, -1)
    weights = np.random.default_rng(2).uniform(0.5, 1.5, SHAPE[:2])
    rows = np.eye(SHAPE[2])[[0, 4, 11, 39]]
    found = result.error_model.support_covariance(PixelSets(labels, weights, 99), rows, rows)
    for number in (0, 10, 37, 98):
        own = np.where(labels == number, weights, 0)[..., None]
        oracle = np.diag(result.functional_cov([own * row for row in rows]))
        np.testing.assert_allclose(found[number], oracle, rtol=1e-5)


@pytest.mark.parametrize(
    ("box", "tolerance"),
    [
        # Up to two windows wide: windows at both ends share no pixel.
        (np.s_[2:24, 4:9], 1e-5),
        (np.s_[4:9, 3:26], 1e-5),
        (np.s_[1:23, 2:25], 1e-5),
        (np.s_[4:14, 4:14], 1e-5),
        # Wider ones of low-rank windows are worked off one by one, in double precision.
        (np.s_[:, :], 1e-9),
    ],
)
def test_larger_supports_equal_the_functional_oracle(result, box, tolerance):
    labels = np.full(SHAPE[:2], -1)
    labels[box] = 0
    labels[~valid_pixels(result)] = -1
    weights = np.random.default_rng(3).uniform(0.5, 1.5, SHAPE[:2])
    rows = np.eye(SHAPE[2])[[2, 38]]
    (found,) = result.error_model.support_covariance(PixelSets(labels, weights, 1), rows, rows)
    own = np.where(labels == 0, weights, 0)[..., None]
    oracle = np.diag(result.functional_cov([own * row for row in rows]))
    single = result.settings["prior"] == "spatial"
    np.testing.assert_allclose(found, oracle, rtol=1e-5 if single else tolerance)


def test_region_covariance_equals_that_of_functionals(result):
    rng = np.random.default_rng(4)
    weights = np.where(valid_pixels(result), rng.uniform(size=SHAPE[:2]), 0)
    weights[:5] = 0
    low_rank = result.spectral_factors(weights)
    rows = rng.normal(size=(3, SHAPE[2]))
    oracle = result.functional_cov([weights[..., None] * row for row in rows])
    single = 1e-6 * oracle.max()  # the spatial model is kept in single precision
    np.testing.assert_allclose(low_rank.of(rows), oracle, rtol=1e-8, atol=single)
    dense = result.spectral_cov(weights)
    np.testing.assert_allclose(rows @ dense @ rows.T, oracle, rtol=1e-8, atol=single)
    np.testing.assert_allclose(low_rank.std(), np.sqrt(np.diag(dense)))


def test_region_of_one_pixel_is_that_pixel(result):
    row, col = np.argwhere(valid_pixels(result))[200]
    dense = result.spectral_factors(row, col).dense()
    exact = result.spectral_cov(row, col)
    np.testing.assert_allclose(dense, exact, atol=1e-12 * exact.max() + 1e-18)
    np.testing.assert_allclose(np.sqrt(np.diag(exact)), result.std[row, col], rtol=1e-5)


def test_low_rank_form_is_of_low_rank(plain):
    factors = plain.spectral_factors(13, 14)
    # Nine windows over the pixel, each of rank three or less.
    assert factors.vectors.shape[1] <= 27
    assert factors.vectors.shape == (SHAPE[2], len(factors.values))


def test_functional_covariance_holds_variances_and_polarises(plain):
    rng = np.random.default_rng(5)
    one, two = np.zeros(SHAPE), np.zeros(SHAPE)
    one[2:9, 3:8, 5:20] = rng.normal(size=(7, 5, 15))
    two[6:20, 1:30, 10:12] = rng.normal(size=(14, 29, 2))
    far = {(25, 30, 0): 1.0}
    cov = plain.functional_cov([one, two, far])
    np.testing.assert_allclose(
        np.sqrt(np.diag(cov)), [plain.functional_std(w) for w in (one, two, far)]
    )
    mixed = plain.functional_std(one + two) ** 2 - plain.functional_std(one - two) ** 2
    np.testing.assert_allclose(cov[0, 1], mixed / 4, rtol=1e-8)
    assert cov[0, 2] == 0  # two windows apart, errors have nothing in common
    np.testing.assert_allclose(cov[2, 2] ** 0.5, plain.std[25, 30, 0], rtol=1e-5)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "case", ["scalar", "covariance", "kept noise", "spatial", "spatial, covariance"]
)
def test_draws_have_the_closed_form_covariance(case):
    options = {"noise": NOISE, "window": 12, "prior": None, **CASES[case]}
    result = sc.denoise(noisy(1), options.pop("noise"), **options)
    count, rng = 500, np.random.default_rng(6)
    rows, cols = slice(8, 16), slice(9, 20)
    weights = np.zeros((6, *SHAPE))
    weights[:, rows, cols] = rng.normal(size=(6, 8, 11, SHAPE[2]))
    weights[:3, rows, cols] += 1
    drawn = result.sample(count, rng=7, rows=rows, cols=cols)
    assert drawn.shape == (count, 8, 11, SHAPE[2])
    flat = drawn.reshape(count, -1) @ weights[:, rows, cols].reshape(6, -1).T

    def worst(covariance):
        scale = np.sqrt(
            (np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / count
        )
        return np.abs((flat.T @ flat / count - covariance) / scale).max()

    # The largest of 21 normal deviates exceeds 4.2 once in 2000 seeds.
    assert worst(result.functional_cov(list(weights))) < 4.2
    independent = np.einsum("irck,jrck,rck->ij", weights, weights, result.std**2)
    assert worst(independent) > 6


def test_draws_of_a_part_are_those_of_its_own_windows(plain):
    whole = plain.sample(1, rng=3)
    assert whole.shape == (1, *SHAPE)
    np.testing.assert_array_equal(whole, plain.sample(1, rng=3))
    with pytest.raises(ValueError, match="Invalid rows"):
        plain.sample(1, rows=slice(30, 40))
    with pytest.raises(ValueError, match="Invalid count 0"):
        plain.sample(0)


# Monte Carlo: seeded, 50 trials; a spread is then known to 10 %, its median over many places to 2 %

TRIALS = 50
LABELS = np.zeros(SHAPE[:2], dtype=int)
LABELS[12:21, 3:13], LABELS[11:24, 16:29] = 7, 3
MAKERS = {
    "ndvi": lambda r: products.index(r, "ndvi"),
    "expression": lambda r: products.index(r, "log(b850) + b500 ** 2 / sqrt(b650)"),
    "ndvi of blocks": lambda r: products.index(r, "ndvi", aggregate=3),
    "block means": lambda r: products.aggregate(r, (3, 4)),
    "field means": lambda r: products.region_means(r, LABELS),
    "resampled": lambda r: products.resample(r, [500.0, 650.0, 850.0], [60.0, 60.0, 100.0]),
    "ndvi of fields": lambda r: products.index(r, "ndvi", labels=LABELS),
    "fields of ndvi": lambda r: products.index(r, "ndvi", labels=LABELS, of="pixels"),
}


@pytest.fixture(scope="module")
def trials() -> dict[str, tuple[np.ndarray, products.Product]]:
    """Values of every product over all trials, and the product of the first."""
    results = [sc.denoise(noisy(100 + n), NOISE, window=12, prior=None) for n in range(TRIALS)]
    made = {}
    for name, make in MAKERS.items():
        cheap = [make(r).estimate for r in results]
        made[name] = (np.stack(cheap), make(results[0]))
    return made


@pytest.mark.statistical
@pytest.mark.parametrize("name", MAKERS)
def test_sigma_equals_the_spread_over_trials(trials, name):
    values, product = trials[name]
    good = np.isfinite(product.std)
    spread = values.std(axis=0, ddof=1)
    ratio = float(np.median(product.std[good] / spread[good]))
    # Fields are two places only, whose spreads are correlated over bands: 10 % / sqrt(2), 3 sigma.
    tolerance = 0.21 if name.startswith(("field", "ndvi of fields")) else 0.06
    assert abs(ratio - 1) < tolerance
    naive = float(np.median(product.independent_std[good] / spread[good]))
    if name != "ndvi":
        assert abs(naive - 1) > tolerance


@pytest.mark.statistical
def test_means_of_neighbours_scatter_more_than_independent_errors_would(trials):
    _, product = trials["field means"]
    ratio = product.std / product.independent_std
    assert np.all(ratio > 1.5)
    assert np.median(ratio) > 2


# Where the delta method fails


def test_sigma_is_refused_where_a_denominator_is_small(plain):
    estimate = plain.estimate.copy()
    ndvi = products.index(plain, "ndvi")
    (_, nir, _), (_, red, _) = ndvi.bands
    estimate[20, 20, [nir, red]] = 0.002, 0.001
    estimate[21, 20, [nir, red]] = 0.1, -0.1
    poor = products.index(replace(plain, estimate=estimate), "ndvi")
    assert poor.flags[20, 20] == 3
    assert np.isnan(poor.std[20, 20])
    assert np.isfinite(poor.estimate[20, 20])
    assert poor.flags[21, 20] in (2, 3)
    assert np.isnan(poor.std[21, 20])
    assert ndvi.flags[20, 20] == 0
    assert np.isfinite(ndvi.std[20, 20])


@pytest.mark.statistical
def test_refused_sigmas_would_have_been_wrong():
    """Dark pixels: the delta method's sigma scatters widely, the product does not give it."""
    dark = scene().with_values(scene().values * 0.006)
    rng = np.random.default_rng(8)
    cubes = [dark.with_values(dark.values + rng.normal(scale=NOISE, size=SHAPE)) for _ in range(30)]
    results = [sc.denoise(cube, NOISE, window=12, prior=None) for cube in cubes]
    shown = [products.index(r, "ndvi", max_curvature=np.inf) for r in results]
    spread = np.std([p.estimate for p in shown], axis=0)
    ratio = np.stack([p.std for p in shown]) / spread
    strict = np.stack([products.index(r, "ndvi").std for r in results])
    assert np.isnan(strict).mean() > 0.5
    assert np.nanstd(np.log(ratio[np.isnan(strict)])) > 0.3


def test_bend_of_abs_and_domains_are_flagged(plain):
    bent = products.index(plain, "abs(b650 - b655) + b850", tolerance=20)
    assert np.mean(bent.flags == 3) > 0.3
    assert np.mean(bent.flags == 0) > 0.3
    undefined = products.index(plain, "log(b650 - 10)")
    assert np.all(undefined.flags == 2)
    assert np.isnan(undefined.estimate).all()


def test_second_order_terms_vanish_for_linear_expressions(plain):
    linear = products.index(plain, "2 * b650 - b850 / 4 + 1", max_curvature=0.0)
    assert np.all(linear.flags == 0)
    (_, one, _), (_, two, _) = linear.bands
    exact = plain.functional_std({(4, 5, one): 2.0, (4, 5, two): -0.25})
    np.testing.assert_allclose(linear.std[4, 5], exact, rtol=1e-5)


# Bands


def test_nearest_bands_are_reported_and_far_ones_refused(plain):
    ndvi = products.index(plain, "ndvi")
    for asked, band, found in ndvi.bands:
        assert found == plain.wavelengths[band]
        assert abs(found - asked) == np.abs(plain.wavelengths - asked).min()
    with pytest.raises(
        ValueError, match=r"Invalid band b2190: the nearest band with data is at 1000"
    ):
        products.index(plain, "nbr")
    with pytest.raises(ValueError, match="no wavelengths"):
        products.index(replace(plain, wavelengths=None), "ndvi")
    with pytest.raises(ValueError, match="must be one of ndvi"):
        products.index(plain, "savi")


def test_bands_without_data_are_passed_over():
    cube = noisy(1)
    values = cube.values.copy()
    nearest = cube.nearest_band(665)
    values[..., nearest] = np.nan
    result = sc.denoise(cube.with_values(values), NOISE, window=12, prior=None)
    ndvi = products.index(result, "ndvi")
    assert ndvi.bands[1][1] != nearest
    assert np.isnan(products.aggregate(result, 3).std[..., nearest]).all()
    assert np.isfinite(products.resample(result, [665.0], [60.0]).std).all()


def test_scaled_values_are_refused_where_reflectance_matters(plain):
    scaled = replace(plain, estimate=plain.estimate * 10000)
    with pytest.raises(ValueError, match="needs reflectance"):
        products.index(scaled, "evi")


def test_resampling_to_own_bands_changes_nothing(plain):
    same = products.resample(plain, responses=np.eye(SHAPE[2]) * 5)
    np.testing.assert_allclose(same.estimate, plain.estimate)
    np.testing.assert_allclose(same.std, plain.std, rtol=1e-5)
    box = products.resample(plain, [600.0], [100.0], shape="box")
    inside = np.abs(plain.wavelengths - 600) <= 50
    np.testing.assert_allclose(box.estimate[..., 0], plain.estimate[..., inside].mean(axis=2))
    with pytest.raises(ValueError, match="no band with data"):
        products.resample(plain, [2000.0], [10.0])
    with pytest.raises(ValueError, match="finite, \\(new bands, 40\\)"):
        products.resample(plain, responses=np.ones((2, 3)))


# Supports


def test_blocks_at_edges_and_over_masks():
    mask = np.ones(SHAPE[:2], dtype=bool)
    mask[0:3, 0:3] = False
    mask[3:6, 0:2] = False
    cube = replace(noisy(1), metadata={"transform": [30.0, 0.0, 500.0, 0.0, -30.0, 900.0]})
    result = sc.denoise(cube, NOISE, window=12, mask=mask, prior=None)
    coarse = products.aggregate(result, 3)
    assert coarse.estimate.shape == (9, 11, SHAPE[2])
    assert np.isnan(coarse.std[0, 0]).all()  # no pixel
    assert np.isnan(coarse.std[1, 0]).all()  # three of nine
    assert np.isnan(coarse.std[:, 10]).all()  # one column of three: 31 = 10 * 3 + 1
    assert np.isfinite(coarse.std[8, 5]).all()  # two rows of three
    np.testing.assert_allclose(
        coarse.estimate[4, 4], result.estimate[12:15, 12:15].mean(axis=(0, 1))
    )
    assert coarse.metadata["transform"] == [90.0, 0.0, 500.0, 0.0, -90.0, 900.0]
    assert np.isfinite(products.aggregate(result, 3, min_valid=0.0).std[1, 0]).all()


def test_blocks_of_one_pixel_are_the_cube(plain):
    same = products.aggregate(plain, 1)
    np.testing.assert_allclose(same.std, plain.std, rtol=1e-5)
    np.testing.assert_allclose(same.independent_std, plain.std)


def test_regions_keep_their_labels_and_masks_are_one_region(plain):
    means = products.region_means(plain, LABELS)
    assert list(means.regions) == [3, 7]
    mask = products.region_means(plain, LABELS == 7)
    np.testing.assert_allclose(mask.std[0], means.std[1])
    np.testing.assert_allclose(
        means.std[1, 5], plain.functional_std(_mean_weights(LABELS == 7, 5)), rtol=1e-5
    )


def _mean_weights(mask: np.ndarray, band: int) -> np.ndarray:
    weights = np.zeros(SHAPE)
    weights[..., band] = mask / mask.sum()
    return weights


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: products.aggregate(r, 0), "Invalid aggregate 0"),
        (lambda r: products.aggregate(r, 40), "Invalid aggregate 40"),
        (lambda r: products.aggregate(r, 3, min_valid=2), "Invalid min_valid"),
        (lambda r: products.region_means(r, np.zeros(SHAPE[:2], int)), "no pixel has a label"),
        (lambda r: products.region_means(r, np.zeros((3, 3), int)), "Invalid labels of shape"),
        (lambda r: products.region_means(r, np.zeros(SHAPE[:2])), "integers or booleans"),
        (lambda r: products.index(r, "ndvi", aggregate=3, labels=LABELS), "both blocks and"),
        (lambda r: products.index(r, "ndvi", labels=LABELS, of="x"), "Invalid of 'x'"),
        (lambda r: products.fuse(r), "There must be at least two"),
        (lambda r: products.fuse(r, (np.ones((2, 2, 2)), 1.0)), "Invalid measurement 2"),
        (lambda r: products.fuse(r, (r.estimate, 0.0)), "must be above 0"),
        (lambda r: products.condition(r, 99, 0, np.ones(40), 1.0), "Invalid pixel"),
        (lambda r: products.condition(r, 1, 1, np.ones(3), 1.0), "must be 40 finite values"),
        (lambda r: products.condition(r, 1, 1, np.ones(40), -1.0), "Invalid noise"),
        (lambda r: products.index(replace(r, error_model=None), "ndvi"), "--keep-factors"),
        (lambda r: products.index(replace(r, std=None), "ndvi"), "uncertainty=False"),
        (lambda r: r.spectral_cov(np.ones((2, 2))), "Invalid region"),
        (lambda r: r.functional_std(np.zeros((2, 2, 2))), "Invalid weights of shape"),
        (lambda r: r.functional_std({(99, 0, 0): 1.0}), "outside of the cube"),
    ],
)  # fmt: skip
def test_errors_say_what_was_given_and_the_rule(plain, call, message):
    with pytest.raises(ValueError, match=message):
        call(plain)


def test_weights_on_masked_values_are_refused():
    mask = np.ones(SHAPE[:2], dtype=bool)
    mask[4, 5] = False
    result = sc.denoise(noisy(1), NOISE, window=12, mask=mask, prior=None)
    with pytest.raises(ValueError, match="masked values"):
        result.functional_std({(4, 5, 0): 1.0})
    with pytest.raises(ValueError, match="masked values"):
        result.functional_std(np.ones(SHAPE))
    assert np.isnan(result.sample(1, rng=0, rows=slice(3, 6))[0, 1, 5]).all()


def test_bands_of_different_windows_are_not_combined_pixel_by_pixel():
    result = sc.denoise(noisy(1), NOISE, window=(12, 12, 16), step=(4, 4, 8), prior=None)
    with pytest.raises(ValueError, match="different windows hold"):
        products.index(result, "b460 - b990")


# Fusion


@pytest.mark.statistical
def test_fused_looks_are_better_and_calibrated():
    truth, levels = scene().values, (NOISE, 1.5 * NOISE)
    inside, rmse = [], []
    for seed in range(6):
        looks = [
            sc.denoise(noisy(50 + 2 * seed + n, s), s, window=12, prior=None)
            for n, s in enumerate(levels)
        ]
        both = products.fuse(*looks)
        rmse.append([np.sqrt(np.mean((c.estimate - truth) ** 2)) for c in (*looks, both)])
        inside.append(np.mean(np.abs(both.estimate - truth) <= 1.96 * both.std))
    first, second, fused = np.mean(rmse, axis=0)
    assert fused < 0.9 * min(first, second)
    assert abs(np.mean(inside) - 0.95) < 0.015
    # Taking the same look twice breaks the assumption of independence, and must show.
    twice = products.fuse(looks[0], looks[0])
    assert np.mean(np.abs(twice.estimate - truth) <= 1.96 * twice.std) < 0.9


def test_fusion_is_the_precision_weighted_mean_and_fills_gaps(plain):
    other = np.full(SHAPE, 0.4)
    other[3, 4] = np.nan
    both = products.fuse(plain, (other, 0.01))
    share = plain.std**-2 / (plain.std**-2 + 1e4)
    expected = share * plain.estimate + (1 - share) * 0.4
    known = np.isfinite(other)
    np.testing.assert_allclose(both.estimate[known], expected[known])
    np.testing.assert_allclose(both.estimate[3, 4], plain.estimate[3, 4])
    np.testing.assert_allclose(both.std[3, 4], plain.std[3, 4])
    np.testing.assert_allclose(both.std[known], ((plain.std**-2 + 1e4) ** -0.5)[known])


def test_products_of_fused_cubes_keep_correlations(plain):
    look = sc.denoise(noisy(2), NOISE, window=12, prior=None)
    both = products.fuse(plain, look, (scene().values, 0.02))
    np.testing.assert_allclose(np.sqrt(np.diag(both.spectral_cov(5, 6))), both.std[5, 6], rtol=1e-4)
    ndvi = products.index(both, "ndvi")
    (_, i, _), (_, j, _) = ndvi.bands
    a, b = both.estimate[12, 13, [i, j]]
    gradient = np.array([2 * b, -2 * a]) / (a + b) ** 2
    exact = gradient @ both.spectral_cov(12, 13)[np.ix_([i, j], [i, j])] @ gradient
    np.testing.assert_allclose(ndvi.std[12, 13], np.sqrt(exact), rtol=1e-4)
    field = products.index(both, "ndvi", labels=LABELS)
    assert np.all(field.std > 1.3 * field.independent_std)
    mean = both.functional_std(_mean_weights(LABELS == 7, i))
    drawn = both.sample(60, rng=1, rows=slice(12, 21), cols=slice(3, 13))
    spread = drawn[..., i].mean(axis=(1, 2)).std()
    assert abs(spread / mean - 1) < 4 / np.sqrt(2 * 60)
    with pytest.raises(ValueError, match="Aggregate each cube first"):
        products.aggregate(both, 3)
    coarse = products.fuse(products.aggregate(plain, 3), products.aggregate(look, 3))
    assert coarse.estimate.shape == (9, 11, SHAPE[2])
    assert coarse.error_model is None


def test_cubes_of_other_bands_are_not_fused(plain):
    with pytest.raises(ValueError, match="Resample to common bands"):
        products.fuse(plain, replace(plain, wavelengths=plain.wavelengths + 9))


def test_conditioning_equals_the_joint_gaussian(plain):
    rng = np.random.default_rng(9)
    operator = rng.normal(size=(5, SHAPE[2]))
    noise = np.diag(rng.uniform(0.01, 0.02, 5) ** 2)
    y = operator @ scene().values[5, 6] + rng.normal(scale=0.01, size=5)
    post = products.condition(plain, 5, 6, y, noise, operator=operator)
    prior = plain.spectral_cov(5, 6)
    # The same by adding information instead of conditioning: another route to the posterior.
    info = np.linalg.inv(prior) + operator.T @ np.linalg.inv(noise) @ operator
    mean = np.linalg.solve(
        info, np.linalg.solve(prior, plain.estimate[5, 6]) + operator.T @ np.linalg.solve(noise, y)
    )
    np.testing.assert_allclose(post.estimate, mean, rtol=1e-6)
    np.testing.assert_allclose(post.covariance, np.linalg.inv(info), rtol=1e-5, atol=1e-12)


@pytest.mark.statistical
def test_a_few_measured_bands_improve_the_others(plain):
    truth, bands = scene().values, np.arange(0, SHAPE[2], 4)
    others = np.setdiff1d(np.arange(SHAPE[2]), bands)
    before, after, z, surprise = [], [], [], []
    for row, col in np.ndindex(SHAPE[0], 3):
        col = 5 + 10 * col
        rng = np.random.default_rng(row * 100 + col)
        y = truth[row, col, bands] + rng.normal(scale=0.002, size=len(bands))
        post = products.condition(plain, row, col, y, 0.002, bands=bands)
        before.append(plain.estimate[row, col, others] - truth[row, col, others])
        after.append(post.estimate[others] - truth[row, col, others])
        z.append(after[-1] / post.std[others])
        surprise.append(post.surprise)
    assert np.std(after) < 0.7 * np.std(before)
    assert 0.9 < np.mean(np.abs(z) < 1.96) < 0.99
    assert 0.7 < np.mean(surprise) < 1.4


# Files and the command line


@pytest.mark.parametrize(
    ("case", "suffix"),
    [
        ("scalar", ".nc"),
        ("covariance", ".nc"),
        ("kept noise", ".nc"),
        ("kept noise", ".zarr"),
        ("cut bands", ".nc"),
        ("uniform", ".nc"),
    ],
)
def test_factors_come_back_from_files(tmp_path, suffix, case):
    if suffix == ".zarr":
        pytest.importorskip("zarr")
    options = {"noise": NOISE, "window": 12, **CASES[case]}
    cube = noisy(1)
    values = cube.values.copy()
    values[..., 3] = np.nan
    result = sc.denoise(cube.with_values(values), options.pop("noise"), **options, prior=None)
    path = result.save(tmp_path / f"kept{suffix}", keep_factors=True, dtype="float64")
    again = io.read_result(path)
    weights = _mean_weights(LABELS == 7, 9)
    np.testing.assert_allclose(
        again.functional_std(weights), result.functional_std(weights), rtol=1e-5
    )
    np.testing.assert_allclose(
        again.spectral_cov(5, 6), result.spectral_cov(5, 6), rtol=1e-4, atol=1e-9
    )
    np.testing.assert_allclose(
        products.aggregate(again, 4).std, products.aggregate(result, 4).std, rtol=1e-5
    )


def test_factors_are_not_kept_unasked_and_not_everywhere(plain, tmp_path):
    assert io.read_result(plain.save(tmp_path / "lean.nc")).error_model is None
    with pytest.raises(ValueError, match=r"only \.nc and \.zarr"):
        plain.save(tmp_path / "x.tif", keep_factors=True)
    assert not (tmp_path / "x.tif").exists()


def test_size_of_factors_is_told_rightly(plain, tmp_path):
    from sigmacube.io.error_models import factor_bytes

    lean = plain.save(tmp_path / "lean.nc").stat().st_size
    kept = plain.save(tmp_path / "kept.nc", keep_factors=True).stat().st_size
    assert 0.5 * factor_bytes(plain) < kept - lean < 1.5 * factor_bytes(plain) + 20_000


def test_products_are_cf_datasets(plain, tmp_path):
    import xarray as xr

    ndvi = products.index(plain, "ndvi")
    path = ndvi.save(tmp_path / "ndvi.nc")
    with xr.open_dataset(path, engine="h5netcdf") as data:
        assert data.attrs["Conventions"] == "CF-1.11"
        assert data["ndvi"].dims == ("y", "x")
        assert data["ndvi"].attrs["ancillary_variables"] == "ndvi_uncertainty ndvi_flag"
        assert "b842: 844.9" in data["ndvi"].attrs["comment"]
        np.testing.assert_array_equal(data["ndvi_uncertainty"], ndvi.std)
        np.testing.assert_array_equal(data["ndvi_flag"], ndvi.flags)
        assert json.loads(data.attrs["sigmacube_product"])["cube"]["solver"] == "svd"
    coarse = products.aggregate(plain, 3).to_xarray()
    assert coarse["estimate"].dims == ("wavelength", "y", "x")
    table = products.region_means(plain, LABELS).save(tmp_path / "fields.csv").read_text()
    assert table.splitlines()[0] == "region,band,wavelength,estimate,std,flag"
    assert len(table.splitlines()) == 1 + 2 * SHAPE[2]
    with pytest.raises(ValueError, match="only values of regions"):
        ndvi.save(tmp_path / "ndvi.csv")
    with pytest.raises(FileExistsError):
        ndvi.save(path)


@pytest.fixture(scope="module")
def kept_file(tmp_path_factory, plain):
    return plain.save(tmp_path_factory.mktemp("kept") / "clean.nc", keep_factors=True)


def test_command_makes_the_same_products(kept_file, plain, tmp_path):
    import xarray as xr

    np.save(tmp_path / "fields.npy", LABELS)
    (tmp_path / "bands.txt").write_text("centre fwhm\n500 60\n850, 100\n")
    runs = {
        "a.nc": (["--index", "ndvi"], products.index(plain, "ndvi")),
        "b.nc": (["--expr", "b850 / b650"], products.index(plain, "b850/b650")),
        "c.nc": (["--aggregate", "3"], products.aggregate(plain, 3)),
        "d.nc": (["--index", "ndvi", "--labels", str(tmp_path / "fields.npy")],
                 products.index(plain, "ndvi", labels=LABELS)),
        "e.nc": (["--resample", str(tmp_path / "bands.txt")],
                 products.resample(plain, [500, 850], [60, 100])),
    }  # fmt: skip
    for name, (options, expected) in runs.items():
        target = tmp_path / name
        run = CliRunner().invoke(main, ["product", str(kept_file), *options, "-o", str(target)])
        assert run.exit_code == 0, run.output
        with xr.open_dataset(target, engine="h5netcdf") as data:
            sigma = data[f"{expected.name}_uncertainty"].values
        image = np.moveaxis(expected.std, 2, 0) if expected.std.ndim == 3 else expected.std
        np.testing.assert_allclose(sigma, image, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Give one of --index"),
        (["--index", "ndvi", "--expr", "b1"], "Give one of --index and --expr"),
        (["--index", "savi"], "must be one of ndvi"),
        (["--expr", "import os"], "Invalid expression"),
        (["--index", "ndvi", "-o", "x.png"], "suffix '.png'"),
        (["--aggregate", "3", "-o", "x.csv"], "only values of regions"),
        (["--labels", "missing.npy"], "missing.npy: no such file"),
        (["--index", "nbr"], "must be within 20 nm"),
    ],
)
def test_command_refuses_in_one_line(kept_file, options, message):
    run = CliRunner().invoke(main, ["product", str(kept_file), *options])
    assert run.exit_code == 2
    assert message in run.output
    assert len(run.output.strip().splitlines()) == 1


def test_command_needs_factors(plain, tmp_path):
    path = plain.save(tmp_path / "lean.nc")
    run = CliRunner().invoke(main, ["product", str(path), "--index", "ndvi"])
    assert run.exit_code == 2
    assert "--keep-factors" in run.output


def test_denoise_command_keeps_factors_and_tells_their_size(tmp_path):
    np.save(tmp_path / "in.npy", noisy(1).values)
    target = tmp_path / "out.nc"
    run = CliRunner().invoke(
        main,
        ["denoise", str(tmp_path / "in.npy"), str(target), "--noise", "0.015", "--keep-factors"],
    )
    assert run.exit_code == 0, run.output
    assert "window factors take" in run.output
    assert io.read_result(target).error_model is not None
    refused = CliRunner().invoke(
        main, ["denoise", str(tmp_path / "in.npy"), str(tmp_path / "o.tif"), "--keep-factors"]
    )
    assert refused.exit_code == 2


def test_inputs_are_not_written_to(plain):
    before = plain.estimate.copy(), plain.std.copy(), LABELS.copy()
    products.index(plain, "ndvi", labels=LABELS, of="pixels")
    products.aggregate(plain, 3)
    products.fuse(plain, plain)
    for old, new in zip(before, (plain.estimate, plain.std, LABELS), strict=True):
        np.testing.assert_array_equal(old, new)


def test_regions_without_weights_have_no_error(plain):
    nothing = plain.error_model.region_covariance(np.zeros(SHAPE[:2]))
    assert np.all(nothing.std() == 0)

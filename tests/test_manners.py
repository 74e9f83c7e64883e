"""What a user of xarray and scikit-image expects of any object and any call."""

import copy
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import sigmacube as sc
from sigmacube import products
from sigmacube.core.card import Card

SHAPE = (26, 31, 24)
NOISE = 0.03


@pytest.fixture(scope="module")
def noisy():
    return sc.synthetic.add_noise(sc.synthetic.scene(SHAPE, rng=1), NOISE, rng=2)


@pytest.fixture(scope="module")
def result(noisy):
    return sc.denoise(noisy, NOISE, prior=None, window=10)


def array_of(noisy, dims=("wavelength", "y", "x")):
    coords = {
        "y": 500.0 - 30 * np.arange(SHAPE[0]),
        "x": 100.0 + 30 * np.arange(SHAPE[1]),
        "wavelength": ("wavelength", noisy.wavelengths, {"units": "nm"}),
    }
    attrs = {"units": "1", "mission": "test"}
    made = xr.DataArray(noisy.values, coords, ("y", "x", "wavelength"), "rho", attrs)
    return made.transpose(*dims)


@pytest.fixture(scope="module")
def objects(noisy, result, tmp_path_factory):
    from sigmacube.io import open_source
    from sigmacube.io.result_file import open_result
    from sigmacube.noise.estimation import fit_noise

    labels = np.zeros(SHAPE[:2], dtype=int)
    labels[2:9, 3:9] = 1
    path = tmp_path_factory.mktemp("scene") / "x.npy"
    np.save(path, noisy.values)
    bands = np.full(SHAPE[2], NOISE)
    return [
        noisy,
        result,
        sc.denoise(array_of(noisy), NOISE, prior=None, window=10),
        sc.holdout(noisy, noise=NOISE, prior=None, window=10),
        sc.monte_carlo(noisy, NOISE, trials=2, prior=None, window=10),
        products.index(result, "ndvi"),
        products.region_means(result, labels),
        products.fuse(result, result),
        products.condition(result, 3, 4, noisy.values[3, 4], NOISE),
        sc.datasets.load("detectors"),
        sc.WindowGrid.create(SHAPE, window=10),
        sc.SignalNoise(bands, bands, bands),
        sc.PatchSolution(np.ones((9, 1)), np.ones(1), np.ones((5, 1))),
        open_source(path),
        open_result(result),
        fit_noise(noisy.values),
    ]


class TestShowing:
    def test_fits_a_terminal(self, objects):
        for one in objects:
            text = repr(one)
            assert text.startswith(f"<{type(one).__name__}>")
            assert len(text.splitlines()) <= 20, text
            assert max(len(line) for line in text.splitlines()) <= 80, text

    def test_notebooks_get_html(self, objects):
        for one in objects:
            page = one._repr_html_()
            assert page.startswith("<div")
            assert page.count("<div") == page.count("</div>")
            assert "array(" not in page

    def test_every_public_class_shows_itself(self):
        public = [getattr(sc, name) for name in sc.__all__]
        classes = [one for one in public if isinstance(one, type)]
        assert len(classes) >= 5
        for one in classes:
            assert issubclass(one, Card), one

    def test_copies_and_pickles(self, noisy):
        for one in (noisy, sc.datasets.load("detectors")):
            again = pickle.loads(pickle.dumps(one))
            assert repr(again) == repr(one) == repr(copy.deepcopy(one))


class TestLabels:
    @pytest.mark.parametrize("dims", [("wavelength", "y", "x"), ("x", "y", "wavelength")])
    def test_in_and_out(self, noisy, result, dims):
        given = array_of(noisy, dims)
        found = sc.denoise(given, NOISE, prior=None, window=10)
        for one, plain in ((found.estimate, result.estimate), (found.std, result.std)):
            assert isinstance(one, xr.DataArray)
            assert one.dims == dims
            np.testing.assert_array_equal(one.transpose("y", "x", "wavelength"), plain)
            xr.testing.assert_equal(one.coords.to_dataset(), given.coords.to_dataset())
        assert found.estimate.attrs == given.attrs
        assert found.estimate.name == "rho"
        assert float(abs(given - found.estimate).mean()) > 0  # arithmetic with the input

    def test_methods_are_those_of_the_arrays(self, noisy, result, tmp_path):
        found = sc.denoise(array_of(noisy), NOISE, prior=None, window=10)
        low, high = found.interval(0.9)
        assert low.dims == high.dims == ("wavelength", "y", "x")
        weights = xr.zeros_like(found.estimate)
        weights[3:6, 4:9, 5:9] = 1 / 60
        plain = weights.transpose("y", "x", "wavelength").values
        assert found.functional_std(weights) == result.functional_std(plain)
        assert found.functional_std(plain) == result.functional_std(plain)
        region = xr.DataArray(np.zeros(SHAPE[:2], bool), dims=("y", "x"))
        region[4:9, 3:5] = True
        expected = result.spectral_cov(region.values)
        np.testing.assert_array_equal(found.spectral_cov(region.T), expected)
        np.testing.assert_array_equal(found.sample(1), result.sample(1))
        np.testing.assert_array_equal(found.has_values(), result.has_values())
        saved = sc.read_result(found.save(tmp_path / "x.nc", dtype="float64"))
        np.testing.assert_array_equal(saved.estimate, result.estimate)
        factors = np.full(SHAPE[2], 2.0)
        xr.testing.assert_allclose(found.calibrated(factors).std, 2 * found.std)
        with pytest.raises(ValueError, match="must be of the cube's"):
            found.spectral_cov(xr.DataArray(np.ones(SHAPE[:2]), dims=("a", "b")))

    def test_products(self, noisy, result):
        found = sc.denoise(array_of(noisy), NOISE, prior=None, window=10)
        made, plain = products.index(found, "ndvi"), products.index(result, "ndvi")
        for name in ("estimate", "std"):
            one = getattr(made, name)
            assert one.dims == ("y", "x")
            np.testing.assert_array_equal(one["y"], found.estimate["y"])
            np.testing.assert_array_equal(one, getattr(plain, name))
        assert isinstance(products.aggregate(found, 5).estimate, xr.DataArray)
        fused = products.fuse(found, result)
        np.testing.assert_allclose(fused.estimate, result.estimate)
        assert sc.holdout(array_of(noisy), result=found).n_elements > 0

    def test_cubes_stay_plain(self, result):
        assert type(result) is sc.DenoisedCube
        assert result.unlabelled() is result


class TestProducts:
    def test_tables_hold_every_value(self, result):
        ndvi = products.index(result, "ndvi")
        table = ndvi.to_dataframe()
        assert list(table.columns) == ["ndvi", "std", "flag"]
        np.testing.assert_array_equal(table["ndvi"].to_numpy(), ndvi.estimate.ravel())
        np.testing.assert_array_equal(table["std"].to_numpy(), ndvi.std.ravel())

    def test_regions(self, result):
        labels = np.zeros(SHAPE[:2], dtype=int)
        labels[2:9, 3:9], labels[12:20, 5:22] = 4, 9
        means = products.region_means(result, labels)
        table = means.to_dataframe()
        assert table.loc[9].shape == (SHAPE[2], 3)
        assert len(means.plot()[0].lines) == 2
        (ax,) = products.index(result, "ndvi", labels=labels).plot()
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["4", "9"]

    def test_maps(self, result):
        axes = products.index(result, "ndvi").plot()
        np.testing.assert_array_equal(
            axes[1].images[0].get_array(), products.index(result, "ndvi").std
        )
        assert len(products.aggregate(result, 3).plot()) == 2


class TestHints:
    @pytest.mark.parametrize(
        ("name", "hint"),
        [("open_dataset", "sigmacube.read'"), ("denoize", "denoise"), ("dataset", "datasets")],
    )
    def test_of_the_package(self, name, hint):
        with pytest.raises(AttributeError, match=hint):
            getattr(sc, name)

    @pytest.mark.parametrize(
        ("name", "hint"),
        [("sigma", "'std'"), ("estimates", "'estimate'"), ("functional_cov_", "functional_cov")],
    )
    def test_of_a_result(self, result, name, hint):
        with pytest.raises(AttributeError, match=hint):
            getattr(result, name)

    def test_none_where_nothing_is_like_it(self, result):
        with pytest.raises(AttributeError) as caught:
            _ = result.qqqqq
        assert "mean" not in str(caught.value)


class TestProgress:
    def test_true_draws_a_bar(self, noisy, capsys, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
        sc.denoise(noisy, NOISE, prior=None, window=10, progress=True)
        sc.monte_carlo(noisy, NOISE, trials=2, prior=None, window=10, progress=True)
        sc.holdout(noisy, noise=NOISE, prior=None, window=10, progress=True)
        written = capsys.readouterr()
        assert written.out == ""
        assert "Combining" in written.err

    def test_silent_otherwise(self, noisy, capsys):
        sc.denoise(noisy, NOISE, prior=None, window=10, progress=False)
        assert capsys.readouterr() == ("", "")


class TestDatasets:
    def test_truth_and_noise_fit(self):
        for name in sc.datasets.names():
            made = sc.datasets.load(name)
            error = (made.noisy.values - made.truth.values) / made.noise
            assert abs(error.std() - 1) < 0.01

    def test_another_scene_is_refused(self, monkeypatch):
        entry = sc.datasets.REGISTRY["fields"]._replace(sha256="0" * 64)
        monkeypatch.setitem(sc.datasets.REGISTRY, "fields", entry)
        with pytest.raises(ValueError, match="its checksum is"):
            sc.datasets.load("fields")
        with pytest.raises(ValueError, match="one of detectors, fields, plume"):
            sc.datasets.load("cuprite")

    def test_saved_scenes_read_as_they_are(self, tmp_path):
        made = sc.datasets.load("detectors")
        cube = sc.read(made.save(tmp_path / "a.hdr"))
        np.testing.assert_array_equal(cube.values, made.noisy.values.astype(np.float32))
        np.testing.assert_array_equal(cube.wavelengths, made.noisy.wavelengths)
        assert cube.metadata["good_bands"] == made.noisy.metadata["good_bands"]
        with pytest.raises(ValueError, match="suffix must be"):
            made.save(tmp_path / "a.nc")


class TestPackage:
    def test_importing_costs_little(self):
        """At most 1.2 times `import numpy`, by the processor's time."""
        code = "import {}, resource; r = resource.getrusage(0); print(r.ru_utime + r.ru_stime)"

        def cost(name):
            command = [sys.executable, "-c", code.format(name)]
            return min(
                float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                for _ in range(3)
            )

        assert cost("sigmacube") <= 1.2 * cost("numpy")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y: sc.denoise(y, nois=0.02), "Invalid option 'nois'. Did you mean 'noise'?"),
        (lambda y: sc.denoise(y, 0.02, windows=9), "Did you mean 'window'?"),
        (lambda y: sc.holdout(y, stepp=3), "Did you mean 'step'?"),
        (lambda y: sc.denoise(y, 0.02, flavour=3), "There are prior, window"),
        (lambda y: sc.denoise("scene.npy"), "sigmacube.read reads files"),
        (lambda y: sc.denoise(y, 0.02).functional_std({(0, 0, 99): 1.0}), "outside of the cube"),
    ],
)
def test_slips_get_a_hint(call, message):
    noisy = sc.synthetic.add_noise(sc.synthetic.scene((16, 18, 12), rng=1), 0.02, rng=2).values
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call(noisy)

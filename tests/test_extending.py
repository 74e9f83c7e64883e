"""One of each is added from outside the package: a file (tests/outside) and a row of a table."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import sigmacube as sc
from sigmacube import commands, io, noise, products
from sigmacube.cli import main
from sigmacube.core import tables
from sigmacube.io import sensors

OUTSIDE = Path(__file__).parent / "outside"
NOISE = 0.05


@pytest.fixture(scope="module")
def truth() -> sc.Cube:
    return sc.synthetic.scene((20, 24, 30), rng=1)


@pytest.fixture(scope="module")
def noisy(truth: sc.Cube) -> sc.Cube:
    return sc.synthetic.add_noise(truth, NOISE, rng=2)


def test_a_solver(noisy: sc.Cube, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Invalid solver 'one'"):
        sc.denoise(noisy, NOISE, prior=None, solver="one", window=8)
    monkeypatch.setitem(tables.SOLVERS, "one", "outside.solver:RankOne")
    result = sc.denoise(noisy, NOISE, prior=None, solver="one", window=8)
    assert (result.ranks == 1).all()
    assert (result.std > 0).all()
    assert result.settings["solver"] == "one"


def test_a_weighting(noisy: sc.Cube, truth: sc.Cube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables.WEIGHTINGS, "tent", "outside.weighting:tent")
    tent, plain = (
        sc.denoise(noisy, NOISE, prior=None, weights=weights, window=8, step=4)
        for weights in ("tent", "uniform")
    )
    assert not np.allclose(tent.estimate, plain.estimate, atol=1e-6)
    # Its σ is that of its own mean: as good as the plain one's.
    z = (tent.estimate - truth.values) / tent.std
    assert 0.9 < np.mean(np.abs(z) < 1.96) < 0.99


def test_a_noise_estimator(noisy: sc.Cube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(noise.ESTIMATORS, "median", "outside.noise:by_median")
    result = sc.denoise(noisy, "median", prior=None, window=8)
    # Differences between neighbours hold some signal too.
    assert 0.95 * NOISE < np.median(result.noise) < 1.5 * NOISE
    assert result.settings["noise_source"] == "median"


def test_a_format(noisy: sc.Cube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from outside.format import open_text

    path = tmp_path / "cube.pixels"
    rows, cols, bands = noisy.shape
    flat = noisy.values.reshape(-1, bands)
    np.savetxt(path, flat, header=str(cols), comments="")
    with pytest.raises(ValueError, match="unknown suffix"):
        sc.read(path)
    monkeypatch.setitem(io.FORMATS, ".pixels", io.Format("text", open_text))
    np.testing.assert_allclose(sc.read(path).values, noisy.values, rtol=1e-12)
    assert io.open_source(path).shape == (rows, cols, bands)


def test_a_sensor(noisy: sc.Cube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "frames.h5"
    with h5py.File(path, "w") as file:
        file["camera/frames"] = noisy.values.transpose(2, 0, 1)
    row = sensors.Sensor("Garden camera", "outside.sensor", "hdf")
    monkeypatch.setattr(sensors, "SENSORS", [*sensors.SENSORS, row])
    cube = sc.read(path)
    assert cube.metadata["instrument"] == "Garden camera"
    np.testing.assert_array_equal(cube.values, noisy.values)


def test_a_product(noisy: sc.Cube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(products.INDICES, "step", "b842 - b665")
    result = sc.denoise(noisy, NOISE, prior=None, window=8)
    found = products.index(result, "step", tolerance=60)
    assert found.estimate.shape == noisy.shape[:2]
    assert np.isfinite(found.std).all()


def test_a_command(noisy: sc.Cube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cube.npy"
    np.save(path, noisy.values)
    assert CliRunner().invoke(main, ["count", str(path)]).exit_code == 2
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(OUTSIDE / "commands")])
    told = CliRunner().invoke(main, ["count", str(path)])
    assert told.output == f"{noisy.values.size} elements\n"
    assert "--quiet" in CliRunner().invoke(main, ["count", "--help"]).output

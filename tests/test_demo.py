import io

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

from sigmacube import demo

SHAPE = (40, 52, 60)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    out = tmp_path_factory.mktemp("parent") / "new" / "demo"
    text = io.StringIO()
    found = demo.run(out, shape=SHAPE, console=Console(file=text, width=100))
    return found, text.getvalue()


def test_error_falls(outcome):
    found, _ = outcome
    elements = np.prod(SHAPE)
    assert found.noisy_rmse == pytest.approx(0.03, rel=5 / np.sqrt(2 * elements))
    assert found.rmse < 0.3 * found.noisy_rmse


@pytest.mark.statistical
def test_sigma_is_honest(outcome):
    found, _ = outcome
    # Relative error of an rms over that many independent errors, five times.
    assert found.claimed_std / found.rmse == pytest.approx(1, abs=5 / np.sqrt(2 * found.samples))
    for level, share in found.coverage.items():
        # σ holds lost signal, too, which is not Gaussian: right at 95 %, a little wide at 50 %.
        assert abs(share - level) < 5 * np.sqrt(level * (1 - level) / found.samples) + 0.02
    # Negative controls: a sigma 20 % off would not pass.
    for wrong in (0.8, 1.2):
        assert abs(wrong * found.claimed_std / found.rmse - 1) > 5 / np.sqrt(2 * found.samples)


def test_independent_errors_are_fewer_than_elements(outcome):
    found, _ = outcome
    assert 100 < found.samples < 0.1 * np.prod(SHAPE)


def test_prints_the_table_and_what_to_run_next(outcome):
    found, text = outcome
    assert f"{found.noisy_rmse:.5f}" in text
    assert f"{found.rmse:.5f}" in text
    assert f"{found.claimed_std:.5f}" in text
    for level, share in found.coverage.items():
        assert f"{100 * level:.0f} %" in text
        assert f"{100 * share:.1f} %" in text
    for command in ("info", "denoise", "view", "report"):
        assert f"sigmacube {command}" in text


def test_picture(outcome):
    found, _ = outcome
    assert found.picture_path.name == "demo.png"
    picture = matplotlib.image.imread(found.picture_path)
    height, width = picture.shape[:2]
    assert width > 1500
    assert height > 700
    assert picture[..., :3].std() > 0.1
    assert sorted(path.name for path in found.picture_path.parent.iterdir()) == [
        "demo.nc",
        "demo.png",
    ]


def test_result_file_holds_the_estimate_and_its_sigma(outcome):
    import h5py

    found, _ = outcome
    with h5py.File(found.result_path) as file:
        names = [name for name in file if name.endswith("_uncertainty")]
        assert len(names) == 1
        std = file[names[0]][:]
        assert sorted(std.shape) == sorted(SHAPE)
        assert np.sqrt(np.mean(std**2)) == pytest.approx(found.claimed_std, rel=1e-5)


def test_same_seed_same_figures(outcome, tmp_path):
    found, _ = outcome
    again = demo.run(tmp_path, shape=SHAPE, console=Console(file=io.StringIO()))
    assert (again.rmse, again.claimed_std) == (found.rmse, found.claimed_std)
    assert again.coverage == found.coverage

"""Where nobody can say that σ is right the verdict says so, with what intervals may hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sigmacube import denoise, synthetic
from sigmacube.check.verdict import LIKELY, likely
from sigmacube.core.parallel import in_turn
from sigmacube.pipeline import as_cube, survey_scene
from sigmacube.settings import Settings


def _facts(scatter: float, faint: float, **known: Any) -> dict[str, Any]:
    return {
        "noise_lag1": 0.0,
        "known": {"prior": "spatial", "size_unsure": (scatter, faint), **known},
    }


def test_doubts_add_up_and_the_largest_is_named() -> None:
    sure, size, _ = likely(_facts(0.0, 0.0))
    assert sure > LIKELY
    for facts, name in (
        (_facts(0.3, 0.0), "scene"),
        (_facts(0.02, 0.3, correlated=True), "faint"),
        (_facts(0.02, 0.0, offsets=("columns", 1.0)), "lines"),
        (_facts(0.02, 0.0, grows_with_signal=True), "signal"),
    ):
        chance, wider, why = likely(facts)
        assert (chance < sure, wider > size, why) == (True, True, name)
    assert likely(_facts(0.02, 0.3, correlated=True))[0] < LIKELY
    assert likely(_facts(0.02, 0.3))[2] == "scene"  # where noise is white the spectrum tells


def test_without_an_error_model_there_is_nothing_to_doubt() -> None:
    assert likely({"noise_lag1": 0.0, "known": {"prior": None}}) == (1.0, 0.0, "")


@pytest.mark.statistical
def test_sigma_scatters_by_as_much_as_it_says() -> None:
    """The size of errors over σ, of eight draws of a small scene, beside what the verdict expects.

    The rms of eight scatters by a quarter. A scene of sixteen times the pixels must say less.
    """
    truth, std, found = synthetic.rare_materials((48, 44, 40), rng=5), 0.03, []
    for seed in range(8):
        y = truth + std * np.random.default_rng(seed).standard_normal(truth.shape)
        result = denoise(y, std, workers=1)
        actual = np.mean((result.estimate - truth) ** 2)
        found.append(0.5 * np.log(actual / np.mean(result.std**2)))
    said = []
    for times in (1, 4):
        y = np.tile(truth, (times, times, 1))
        y = y + std * np.random.default_rng(0).standard_normal(y.shape)
        survey = survey_scene(as_cube(y), std, Settings(), in_turn, whole=True)
        said.append(survey.known()["size_unsure"][0])
    assert said[1] < said[0] / 2
    size = likely(_facts(said[0], 0.0))[1]
    assert 0.4 * size < np.sqrt(np.mean(np.square(found))) < 1.6 * size

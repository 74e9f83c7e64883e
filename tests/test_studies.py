"""Studies: they catch their controls, their page agrees with their figures, errors are told."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sigmacube.api import denoise
from sigmacube.cli import main
from sigmacube.commands.study import find_studies

studies = find_studies()
Check, Report, load, NAMES = studies.Check, studies.Report, studies.load, studies.names()
page, ranks, scenes, settings = (
    import_module(f"sigmacube.studies.{name}") for name in ("_page", "ranks", "_scenes", "_setting")
)
Setting, load_scene = settings.Setting, scenes.load_scene

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
RESULTS = ROOT / "studies"
PAGE = ROOT / "docs" / "results.md"


@pytest.fixture
def data() -> Path:
    if not DATA.is_dir():
        pytest.skip("the scenes are not beside the repository")
    return DATA


def run(*arguments: str):
    return CliRunner().invoke(main, ["study", *arguments])


@pytest.mark.parametrize("name", NAMES)
def test_every_study_says_what_it_asks(name):
    study = load(name)
    assert study.name == name
    assert study.question.endswith("?")


def test_unknown_study_is_refused():
    with pytest.raises(ValueError, match=r"Invalid study 'magic'\. It must be one of calibration"):
        load("magic")
    result = run("magic")
    assert result.exit_code == 2
    assert "No study 'magic'" in result.output
    assert run().exit_code == 2


def test_list_names_all():
    result = run("--list")
    assert result.exit_code == 0
    assert all(name in result.output for name in NAMES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ranks", "--scene", "nonsense"), "must be NAME=FILE"),
        (("ranks", "--scene", "dc=/no/such.mat"), "no such file"),
        (("ranks", "--data", "/no/such/folder"), "no such folder"),
    ],
)
def test_bad_scenes_are_refused(arguments, message, tmp_path):
    result = run(*arguments, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("kind", "value", "passed", "words"),
    [
        ("ours", 0.95, True, "right"),
        ("ours", 0.90, False, "wrong"),
        ("paper", 0.90, True, "wrong"),
        ("control", 0.67, True, "wrong, as it must be"),
        ("control", 0.95, False, "NOT CAUGHT"),
    ],
)
def test_checks(kind, value, passed, words):
    check = Check("coverage", value, 0.94, 0.96, kind=kind)
    assert (check.passed, check.words) == (passed, words)


def test_a_control_that_is_not_caught_spoils_the_report():
    good = (Check("a", 1, 0, 2), Check("b", 3, 0, 2, kind="control"))
    report = Report("rank", "T", "Q?", True, {}, {}, good)
    assert report.verdict == "right"
    spoilt = replace(report, checks=(*good, Check("c", 1, 0, 2, kind="control")))
    assert spoilt.verdict == "wrong in 1 of 3: c"
    assert Report.from_json(spoilt.to_json()) == spoilt


def test_quick_study_end_to_end(tmp_path, monkeypatch):
    """One study through the command line, on the built-in scene, restarted in between."""
    monkeypatch.chdir(tmp_path)
    result = run("spread", "--quick", "--out", "out")
    assert result.exit_code == 0, result.output
    record = json.loads(Path("out/spread.json").read_text())
    kinds = {check["kind"]: check["verdict"] for check in record["checks"]}
    assert kinds == {"ours": "right", "control": "wrong, as it must be"}
    assert Path("out/spread.md").read_text().startswith("| Spread of coverage")
    assert Path("out/spread.png").read_bytes()[:4] == b"\x89PNG"
    assert not Path("out/.scratch").exists()
    assert run("--out", "out", "--page", "page.md").exit_code == 0
    assert "out/spread.png" in Path("page.md").read_text()


def test_a_study_of_the_spatial_estimator_end_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("spatial_borders", "--quick", "--out", "out")
    assert result.exit_code == 0, result.output
    record = json.loads(Path("out/spatial_borders.json").read_text())
    assert {check["verdict"] for check in record["checks"]} == {"right", "wrong, as it must be"}
    text = load("spatial_borders").table(Report.from_json(json.dumps(record)))
    assert text.count("control: ") == 2


def test_wrong_figures_end_with_exit_code_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranks, "LEAST_SHARE", 1.1)
    result = run("ranks", "--quick", "--out", "out")
    assert result.exit_code == 1
    assert "wrong in" in result.output


def test_figures_of_a_stopped_study_are_taken_up(tmp_path, monkeypatch):
    setting = Setting(scratch=tmp_path, quick=True)
    scene = replace(setting.main_scene())
    small = replace(scene, truth=scene.truth[:24, :28])
    first = setting.measure(small, 0.05, count=3)
    monkeypatch.setattr("sigmacube.check.montecarlo.trials.Trials.run", None)
    assert setting.measure(small, 0.05, count=3) == first


def test_independent_windows_are_smaller_than_exact(tmp_path):
    truth = Setting(scratch=tmp_path, quick=True).main_scene().truth[:28, :32]
    noisy = truth + np.random.default_rng(0).normal(scale=0.05, size=truth.shape)
    result = denoise(noisy, 0.05, prior=None)
    ratio = settings.independent_std(result) / result.std
    assert np.all(ratio < 1.001)
    # A pixel in the corner is covered by one window: nothing to be independent of.
    assert ratio[0, 0].mean() == pytest.approx(1, abs=0.1)


def test_rank_agreement_tells_right_from_wrong(tmp_path):
    truth = Setting(scratch=tmp_path, quick=True).main_scene().truth
    strengths = ranks._strengths(truth)
    noisy = truth + np.random.default_rng(0).normal(scale=0.01, size=truth.shape)
    found = denoise(noisy, 0.01, prior=None, uncertainty=False).ranks
    assert ranks._agreement(found, strengths, 0.01, truth.shape[2]) > 0.98
    assert ranks._agreement(found + 3, strengths, 0.01, truth.shape[2]) < 0.1


def test_bands_without_variation_are_dropped():
    cube = np.random.default_rng(0).normal(size=(4, 5, 6))
    cube[..., 2] = 7.0
    cube[..., 4] = np.nan
    scaled = scenes.scale_bands(cube)
    assert scaled.shape == (4, 5, 4)
    np.testing.assert_allclose(
        [scaled.min(axis=(0, 1)), scaled.max(axis=(0, 1))], [[0] * 4, [1] * 4]
    )


def test_scene_of_the_user(tmp_path):
    values = np.random.default_rng(0).random((40, 45, 30))
    np.save(tmp_path / "mine.npy", values)
    scene = load_scene("washington", f"{tmp_path / 'mine.npy'}@5:35,10:40", None)
    assert scene.title == "Washington D.C."
    assert scene.truth.shape == (30, 30, 30)
    assert scene.real
    with pytest.raises(ValueError, match="Invalid crop 'half'"):
        load_scene("x", f"{tmp_path / 'mine.npy'}@half", None)


@pytest.mark.data
@pytest.mark.parametrize("name", scenes.SCENES)
def test_scenes(name, data):
    scene = load_scene(name, None, data, quick=True)
    assert np.isfinite(scene.truth).all()
    assert scene.truth.shape[:2] == (48, 56)
    assert -0.2 < scene.truth.min() < scene.truth.max() < 1.2


def committed() -> list:
    return page.read_reports(RESULTS)


needs_results = pytest.mark.skipif(not committed(), reason="no full runs are committed yet")


@needs_results
def test_page_agrees_with_the_figures():
    reports = committed()
    assert PAGE.read_text(encoding="utf-8") == page.build(reports, "../studies")


@needs_results
def test_a_changed_figure_shows_on_the_page():
    reports = committed()
    at = [report.study for report in reports].index("coverage")
    report = reports[at]
    cells = [dict(cell) for cell in report.data["cells"]]
    cells[0]["ours"] = {**cells[0]["ours"], "truth": 0.1234}
    changed = replace(report, data={**report.data, "cells": cells})
    reports[at] = changed
    assert page.build(reports, "../studies") != PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("report", committed(), ids=lambda report: report.study)
def test_committed_results(report):
    """Full runs, drawn, with controls that were caught, and verdicts that follow from figures."""
    assert not report.quick
    stored = json.loads((RESULTS / f"{report.study}.json").read_text(encoding="utf-8"))
    assert stored["verdict"] == report.verdict
    assert (RESULTS / f"{report.study}.png").exists()
    row = (RESULTS / f"{report.study}.md").read_text(encoding="utf-8")
    assert row == report.markdown_row() + "\n"
    controls = [check for check in report.checks if check.kind == "control"]
    assert controls
    assert all(check.passed for check in controls)


@needs_results
def test_no_cell_of_the_coverage_table_is_missing():
    report = next(report for report in committed() if report.study == "coverage")
    cells = {(cell["scene"], cell["noise"]) for cell in report.data["cells"]}
    scenes = {scene for scene, _ in cells}
    assert "indian" in scenes
    assert len(scenes) >= 3
    assert cells == {(s, n) for s in scenes for n in (0.025, 0.05, 0.075, 0.1, 0.125)}
    shapes = {cell["scene"]: cell["shape"] for cell in report.data["cells"]}
    assert shapes["indian"] == [145, 145, 224]
    assert report.settings["trials"] == 100
    for cell in report.data["cells"]:
        if not cell["real"]:
            assert cell["ours"]["truth"] == pytest.approx(0.95, abs=0.006)
        assert 0.94 <= cell["ours"]["mean"] <= 0.96

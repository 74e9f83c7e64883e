"""The attacks, shortened; and that they notice what they are for."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", autouse=True)
def importable() -> Any:
    """Let the attacks, which are no part of the package, be imported."""
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


def test_what_is_bad_is_noticed(tmp_path):
    from attacks._worker import Runner
    from attacks.control import WAYS

    tally = Runner("control", len(WAYS), last=len(WAYS), seconds=0.4, found=tmp_path).run()
    assert (tally.tried, tally.clean, tally.next) == (len(WAYS), 2, len(WAYS))
    assert [WAYS[int(bad["case"])] for bad in tally.bad] == list(WAYS[1:-1])
    # What a case was made of is kept, even where it took its process with it.
    assert {path.name for path in tmp_path.iterdir()} == {f"control-{n}" for n in range(1, 6)}
    assert (tmp_path / "control-1" / "made-of.txt").read_text() == "crash"
    assert "--first 4 --count 1" in (tmp_path / "control-4" / "reason.txt").read_text()


def test_the_smallest_example_is_found(tmp_path):
    """The parts of a bad case that it takes; of which one ends the process."""
    from attacks._smallest import write_smallest

    write_smallest("control", 1, tmp_path, 5.0)
    assert (tmp_path / "smallest.txt").read_text() == "'crash'\n"


def test_runs_go_on_behind_kept_ones(tmp_path, monkeypatch):
    from attacks import kept
    from attacks._worker import Tally

    monkeypatch.setattr(kept, "RESULTS", tmp_path)
    first = Tally("control", {"clean": 3}, [{"case": 3, "reason": "x"}], next=4, seconds=2)
    kept.Keeper("control", [], "make", 0)(first)
    kept.Keeper("control", kept.runs("control"), "make", 4)(Tally("control", {"clean": 2}, next=6))
    both = kept.total(kept.runs("control"), "control")
    assert (both.tried, both.clean, both.next) == (6, 5, 6)
    assert [run.first for run in kept.runs("control")] == [0, 4]


def test_damaged_files():
    from attacks._worker import Runner

    tally = Runner("files", 84, first=20_000, budget=12.0).run()
    assert tally.tried > 0
    assert tally.bad == []


@pytest.mark.parametrize(("name", "numbers"), [("commands", range(20)), ("parsers", range(1))])
def test_cases_in_this_process(name, numbers, tmp_path):
    case = import_module(f"attacks.{name}").case
    for number in numbers:
        folder = tmp_path / str(number)
        folder.mkdir()
        case(number, folder)


def test_cubes(tmp_path, monkeypatch):
    from attacks import cubes

    monkeypatch.setattr(cubes, "BATCH", 12)
    assert sum(cubes.case(0, tmp_path).values()) == 12


def test_the_page_is_that_of_the_kept_counts():
    from attacks.page import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page()

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


def test_what_is_bad_is_noticed():
    from attacks._worker import run_cases
    from attacks.control import WAYS

    tally = run_cases("control", len(WAYS), seconds=0.4)
    assert tally.tried == len(WAYS)
    assert [WAYS[int(bad["case"])] for bad in tally.bad] == list(WAYS[1:-1])


def test_damaged_files():
    from attacks._worker import run_cases

    tally = run_cases("files", 84, first=20_000, budget=12.0)
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
    assert cubes.case(0, tmp_path).endswith(" 12")


def test_the_page_is_that_of_the_kept_counts():
    from attacks.page import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page()

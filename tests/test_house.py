"""The house stays readable: short functions, short files, and rooms that the plan names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src" / "sigmacube").rglob("*.py"))
LONGEST_FILE, LONGEST_BODY = 600, 40


def bodies(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name of every function and the lines of its body, without the docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_files_and_functions_are_short() -> None:
    long = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        found = [(path.name, text.count("\n"), LONGEST_FILE)]
        found += [(f"{path.name}: {name}", n, LONGEST_BODY) for name, n in bodies(ast.parse(text))]
        long += [(name, lines) for name, lines, most in found if lines > most]
    assert long == []


def test_every_room_is_on_the_plan() -> None:
    plan = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [
        path
        for path in (ROOT / "src" / "sigmacube").iterdir()
        if path.stem[0] not in "_." and path.suffix in (".py", "")
    ]
    missing = [room.stem for room in rooms if f"`{room.stem}" not in plan]
    assert missing == []


def test_short_bodies_are_told_from_long_ones() -> None:
    """The negative control: a body is counted without its docstring."""
    lines = "\n".join(f"    x = {n}" for n in range(41))
    assert dict(bodies(ast.parse(f'def f():\n    """Say."""\n{lines}\n')))["f"] == 41

"""The examples on the pages about sensors and maps run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def examples(name: str) -> str:
    """All code of a page that needs no file of the reader's own."""
    found = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.S)
    return "\n".join(
        code for code in found if "EMIT_L2A_RFL" not in code and "emit_noise" not in code
    )


@pytest.mark.filterwarnings("ignore")  # of the other tools
@pytest.mark.parametrize("name", ["sensors.md", "maps.md"])
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = examples(name)
    assert "import" in code
    exec(compile(code, name, "exec"), {})


def test_table_names_every_sensor():
    from sigmacube.io.sensors import SENSORS

    text = (DOCS / "sensors.md").read_text(encoding="utf-8")
    for sensor in SENSORS:
        assert re.search(rf"^\| {sensor.name.split()[0]}", text, re.M), sensor.name

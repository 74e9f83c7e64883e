"""No command writes over what it reads, by whatever name the output is given."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sigmacube as sc
from sigmacube.cli import main
from sigmacube.tiles import denoise_file


@pytest.fixture(scope="module")
def result() -> sc.DenoisedCube:
    noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 24, 10), rng=1), 0.02, rng=2)
    return sc.denoise(noisy, 0.02, window=8)


def digest(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha1(path.read_bytes()).hexdigest() for path in files}


def spellings(path: Path) -> list[str]:
    """Return names of one and the same file."""
    return [path.name, str(path), os.path.join("..", path.parent.name, path.name)]


def run(*arguments: object):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def assert_refused(folder: Path, *commands: list[object]) -> None:
    """Run commands that would write over an input, and find all files as they were."""
    before = digest(folder)
    for command in commands:
        made = run(*command, "--overwrite")
        assert made.exit_code == 2, made.output
        assert "is part of the input" in made.stderr
    assert digest(folder) == before


both_ways = pytest.mark.parametrize("tiles", [[], ["--tile", "16x16"]], ids=["memory", "tiles"])


@both_ways
@pytest.mark.parametrize("name", ["cube.nc", "cube.tif", "cube.hdr", "cube.zarr"])
def test_denoise(tmp_path, monkeypatch, result, name, tiles):
    monkeypatch.chdir(tmp_path)
    result.save(name)
    names = spellings(tmp_path / name)
    assert_refused(tmp_path, *(["denoise", source, output, *tiles]
                               for source in names for output in names))  # fmt: skip


@both_ways
def test_denoise_by_other_names(tmp_path, monkeypatch, result, tiles):
    monkeypatch.chdir(tmp_path)
    result.save("cube.hdr")
    Path("cube").rename("cube.img")
    result.save("cube.nc")
    Path("link.nc").symlink_to("cube.nc")
    result.save("mask.tif")
    assert_refused(
        tmp_path,
        ["denoise", "cube.img", "cube.hdr", *tiles],
        ["denoise", "cube.hdr", "cube.img", *tiles],
        ["denoise", "link.nc", "cube.nc", *tiles],
        ["denoise", "cube.nc", "mask.tif", "--mask", "mask.tif", *tiles],
    )


def test_denoise_file(tmp_path, result):
    result.save(tmp_path / "cube.zarr")
    before = digest(tmp_path)
    with pytest.raises(ValueError, match="is part of the input"):
        denoise_file(tmp_path / "cube.zarr", tmp_path / "cube.zarr", 0.02, overwrite=True)
    with pytest.raises(ValueError, match="is part of the input"):
        denoise_file(tmp_path / "cube.zarr", tmp_path / "cube.zarr" / "in.zarr", 0.02)
    assert digest(tmp_path) == before


@both_ways
@pytest.mark.parametrize("name", ["cube.nc", "cube.zarr"])
def test_product(tmp_path, monkeypatch, result, name, tiles):
    monkeypatch.chdir(tmp_path)
    result.save(name, keep_factors=True)
    names = spellings(tmp_path / name)
    assert_refused(
        tmp_path, *(["product", name, "--aggregate", "3", "-o", output, *tiles] for output in names)
    )
    assert np.isfinite(sc.read_result(name).estimate).all()


def test_another_name_in_the_same_folder_is_fine(tmp_path, monkeypatch, result):
    monkeypatch.chdir(tmp_path)
    result.save("cube.nc")
    before = digest(tmp_path)
    for tiles in ([], ["--tile", "16x16"]):
        made = run("denoise", "cube.nc", "cube2.nc", "--overwrite", "--noise", "0.02", "--window",
                   "8", *tiles)  # fmt: skip
        assert made.exit_code == 0, made.output
    assert before.items() <= digest(tmp_path).items()

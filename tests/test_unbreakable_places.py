"""Pipes, links, folders and addresses where files are expected: one line, nothing lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import sigmacube as sc
from sigmacube import io
from sigmacube.cli import main
from sigmacube.io.atomic import check_output, staged

CUBE = np.arange(5 * 6 * 4, dtype=np.float32).reshape(5, 6, 4)


def run(*words: object) -> tuple[int, str]:
    """Run a command; return its exit code and what it says of errors."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.stderr


def stored(path: Path, version: int) -> Any:
    """Make a store of one cube, in one chunk; return the array."""
    zarr = pytest.importorskip("zarr")
    root = zarr.open_group(path, mode="w", zarr_format=version)
    array = root.create_array("cube", shape=CUBE.shape, chunks=CUBE.shape, dtype="f4")
    array[:] = CUBE
    return array


class TestZarr:
    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize(
        "dims", [3, "y x b", {"a": 1}, ["y", 3, None], [["y"]], ["y", "x"], ["y", "y", "y"]]
    )
    def test_names_of_axes_of_another_kind(self, tmp_path, version, dims):
        stored(tmp_path / "x.zarr", version).attrs["_ARRAY_DIMENSIONS"] = dims
        assert io.read(tmp_path / "x.zarr").shape == CUBE.shape

    @pytest.mark.parametrize("part", ["zarr.json", "cube/zarr.json", "cube/c/0/0/0"])
    def test_pipes_in_a_store(self, tmp_path, part):
        path = tmp_path / "x.zarr"
        stored(path, 3)
        (path / part).unlink()
        os.mkfifo(path / part)
        with pytest.raises(ValueError, match=r"x\.zarr: .* is a pipe"):
            io.read(path)

    def test_pipes_in_a_result(self, tmp_path):
        pytest.importorskip("zarr")
        path = sc.denoise(CUBE, 0.1, prior=None, window=4).save(tmp_path / "r.zarr")
        chunk = min(path.glob("*/c/0/0/0"))
        chunk.unlink()
        os.mkfifo(chunk)
        with pytest.raises(ValueError, match="is a pipe"):
            io.read_result(path)


class TestPlaces:
    @pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
    @pytest.mark.parametrize("role", ["input", "mask", "output", "result", "labels"])
    def test_only_files_and_folders(self, tmp_path, kind, role):
        np.save(tmp_path / "in.npy", CUBE)
        special = tmp_path / ("s.nc" if role in ("output", "result") else "s.npy")
        link = None
        if kind == "pipe":
            os.mkfifo(special)
        elif kind == "socket":
            link = socket.socket(socket.AF_UNIX)
            link.bind(str(special))
        else:
            special.symlink_to("/dev/zero")
        places = {
            "input": ["denoise", special, tmp_path / "out.nc"],
            "mask": ["denoise", tmp_path / "in.npy", tmp_path / "out.nc", "--mask", special],
            "output": ["denoise", tmp_path / "in.npy", special, "--overwrite"],
            "result": ["report", special],
            "labels": ["product", tmp_path / "in.npy", "--labels", special],
        }
        code, text = run(*places[role])
        if link is not None:
            link.close()
        assert code == 2
        assert f"is a {kind}" in text

    @pytest.mark.parametrize("name", ["x.tif.ovr", "x.tif.aux.xml", "x.tfw", "METADATA.XML"])
    def test_pipes_beside_and_inside(self, tmp_path, name):
        """What libraries look for without being told."""
        from sigmacube.io.geotiff import write_raster

        write_raster(tmp_path / "x.tif", CUBE, dtype="float32", description="x", metadata={})
        os.mkfifo(tmp_path / name)
        path = tmp_path if name.endswith(".XML") else tmp_path / "x.tif"
        with pytest.raises(ValueError, match=f"{name} is a pipe"):
            io.read(path)

    def test_loops_of_links(self, tmp_path):
        (tmp_path / "a.nc").symlink_to(tmp_path / "b.nc")
        (tmp_path / "b.nc").symlink_to(tmp_path / "a.nc")
        for words in (["info", tmp_path / "a.nc"], ["report", tmp_path / "a.nc"]):
            code, text = run(*words)
            assert code == 2
            assert text.count("\n") == 1

    def test_only_stores_are_replaced(self, tmp_path):
        (tmp_path / "thesis.zarr").mkdir()
        (tmp_path / "thesis.zarr" / "chapter.txt").write_text("years of work")
        with pytest.raises(FileExistsError, match="no Zarr store"):
            check_output([tmp_path / "thesis.zarr"], overwrite=True)

    @pytest.mark.parametrize("moment", ["first", "between", "last"])
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_stores_are_replaced_whole(self, tmp_path, moment, number):
        """Removing the former store takes a while; what is left of it has another name by then."""
        code = f"""if True:
            import os, shutil, sys
            from sigmacube.io import atomic
            from sigmacube.cli import _ended
            remove, rename, names = shutil.rmtree, os.replace, []
            def stop():
                os.kill(os.getpid(), {int(number)})
            def slow(path, *rest, **options):
                os.unlink(os.path.join(path, "zarr.json"))  # what makes it a store
                {moment == "last"} and stop()
                remove(path, *rest, **options)
            def replace(source, final):
                names.append(source)
                {moment == "first"} and stop()
                {moment == "between"} and len(names) == 2 and stop()
                rename(source, final)
            shutil.rmtree, os.replace = slow, replace
            with _ended(), atomic.staged([atomic.Path(sys.argv[1])], overwrite=True) as (part,):
                part.mkdir()
                (part / "zarr.json").write_text("new")
            """
        store = tmp_path / "out.zarr"
        store.mkdir()
        (store / "zarr.json").write_text("old")
        for place in ("chunk", "other"):
            (store / place).mkdir()
        command = [sys.executable, "-c", code, str(store)]
        assert subprocess.run(command, capture_output=True).returncode != 0
        content = (store / "zarr.json").read_text() if store.exists() else None
        if number == signal.SIGKILL:
            assert content == {"first": "old", "between": None, "last": "new"}[moment]
        else:  # what began to be replaced is replaced, and nothing is left
            assert content == "new"
            assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]
        if content == "old":
            assert len(list(store.iterdir())) == 3
        with staged([store], overwrite=True) as (part,):  # finds nothing that stops it
            part.mkdir()
            (part / "zarr.json").write_text("next")
        assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]
        assert [path.name for path in store.iterdir()] == ["zarr.json"]

    def test_addresses_of_local_files(self, tmp_path):
        np.save(tmp_path / "in.npy", CUBE)
        assert io.read((tmp_path / "in.npy").as_uri()).shape == CUBE.shape
        with pytest.raises(ValueError, match="another machine"):
            io.read("file://elsewhere/in.npy")

    @pytest.mark.parametrize("address", ["http://127.0.0.1:1", "tcp://x", "tcp://a:b", "x"])
    def test_schedulers(self, tmp_path, address):
        np.save(tmp_path / "in.npy", CUBE)
        code, text = run("denoise", tmp_path / "in.npy", tmp_path / "o.nc", "--scheduler", address)
        assert code == 2
        assert "Invalid scheduler" in text

    def test_protocols_that_are_not_installed(self, tmp_path):
        np.save(tmp_path / "in.npy", CUBE)
        address = "ucx://127.0.0.1:1"
        code, text = run("denoise", tmp_path / "in.npy", tmp_path / "o.nc", "--scheduler", address)
        assert (code, text.splitlines()[-1]) == (
            1, f"Error: {address}: no Dask scheduler answers there."
        )  # fmt: skip

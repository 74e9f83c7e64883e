"""The command line: what it prints, what it refuses, and how it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
import scipy.io
from click.testing import CliRunner

import sigmacube as sc
from sigmacube._version import __version__
from sigmacube.cli import main
from sigmacube.io import read_result

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SHAPE = (24, 22, 12)
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    "OPENBLAS_NUM_THREADS": "1",
}


@pytest.fixture(scope="session")
def data():
    if not DATA.is_dir():
        pytest.skip("the scenes and files kept beside the repository are absent")
    return DATA


@pytest.fixture(scope="session")
def noisy():
    return sc.synthetic.add_noise(sc.synthetic.scene(SHAPE, rng=1), 0.03, rng=2)


@pytest.fixture
def here(tmp_path, monkeypatch, noisy):
    """A folder with a good cube in it, as .npy and as ENVI."""
    monkeypatch.chdir(tmp_path)
    np.save("cube.npy", noisy.values)
    envi(Path("good.hdr"))
    return tmp_path


def run(*arguments, **options):
    return CliRunner().invoke(main, [str(a) for a in arguments], **options)


def process(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "sigmacube.cli", *map(str, arguments)],
        capture_output=True,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
        **options,
    )


def envi(path, *, binary=None, drop=(), text=None, **fields):
    """Write an ENVI cube of 4 x 5 x 3 int16, with what is to be wrong with it."""
    header = {
        "samples": 5,
        "lines": 4,
        "bands": 3,
        "header offset": 0,
        "data type": 2,
        "interleave": "bsq",
        "byte order": 0,
        **{key.replace("_", " "): value for key, value in fields.items()},
    }
    lines = [f"{key} = {value}" for key, value in header.items() if key not in drop]
    path.write_text("\n".join(["ENVI", *lines]) + "\n" if text is None else text)
    path.with_suffix("").write_bytes(bytes(4 * 5 * 3 * 2) if binary is None else binary)
    return path


def tiff(path, dtype="int16", count=3):
    values = np.ones((count, 4, 5), dtype)
    with rasterio.open(
        path, "w", driver="GTiff", width=5, height=4, count=count, dtype=dtype,
        transform=rasterio.Affine(1, 0, 9, 0, -1, 9),
    ) as file:  # fmt: skip
        file.write(values)
    return path


def hdf(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values
    return path


def cut(path, share=0.5):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


def saved(path, values, **options):
    np.save(path, values, **options)
    return path


def zipped(path, **arrays):
    np.savez(path, **arrays)
    return path


def written(path, content):
    path.write_bytes(content)
    return path


def scaled(path, factor):
    with h5py.File(path, "w") as file:
        file["cube"] = np.ones((4, 5, 3))
        file["cube"].attrs["scale_factor"] = factor
    return path


#: What makes the input, and what the message must hold.
BAD_FILES = {
    "missing": (lambda f: f / "no.hdr", "no such file"),
    "missing tif": (lambda f: f / "no.tif", "no such file"),
    "folder": (lambda f: f, "is a folder"),
    "unknown suffix": (lambda f: written(f / "x.jpg", b"\xff\xd8"), "unknown suffix '.jpg'"),
    "no suffix": (lambda f: written(f / "x", b"abc"), "unknown suffix ''"),
    "empty hdr": (lambda f: written(f / "x.hdr", b""), "empty file"),
    "empty tif": (lambda f: written(f / "x.tif", b""), "empty file"),
    "empty nc": (lambda f: written(f / "x.nc", b""), "empty file"),
    "empty npy": (lambda f: written(f / "x.npy", b""), "empty file"),
    "empty mat": (lambda f: written(f / "x.mat", b""), "empty file"),
    "binary called hdr": (lambda f: envi(f / "x.hdr", text="\0\1\2"), "no ENVI header"),
    "text called hdr": (lambda f: envi(f / "x.hdr", text="hello\n"), "no ENVI header"),
    "envi truncated": (lambda f: envi(f / "x.hdr", binary=bytes(119)), "119 bytes"),
    "envi empty data": (lambda f: envi(f / "x.hdr", binary=b""), "0 bytes"),
    "envi too many lines": (lambda f: envi(f / "x.hdr", lines=400), "truncated or its header"),
    "envi huge lines": (lambda f: envi(f / "x.hdr", lines=10**30), "truncated or its header"),
    "envi offset too large": (lambda f: envi(f / "x.hdr", header_offset=1), "need 121"),
    "envi negative offset": (lambda f: envi(f / "x.hdr", header_offset=-1), "header offset -1"),
    "envi zero samples": (lambda f: envi(f / "x.hdr", samples=0), "at least 1"),
    "envi negative bands": (lambda f: envi(f / "x.hdr", bands=-3), "at least 1"),
    "envi samples no number": (lambda f: envi(f / "x.hdr", samples="five"), "'samples' 'five'"),
    "envi lines a fraction": (lambda f: envi(f / "x.hdr", lines="4.5"), "'lines' '4.5'"),
    "envi without samples": (lambda f: envi(f / "x.hdr", drop=["samples"]), "no 'samples'"),
    "envi without bands": (lambda f: envi(f / "x.hdr", drop=["bands"]), "no 'bands'"),
    "envi without type": (lambda f: envi(f / "x.hdr", drop=["data type"]), "no 'data type'"),
    "envi without interleave": (lambda f: envi(f / "x.hdr", drop=["interleave"]), "interleave ''"),
    "envi unknown type": (lambda f: envi(f / "x.hdr", data_type=7), "unknown data type 7"),
    "envi complex": (lambda f: envi(f / "x.hdr", data_type=6), "complex64"),
    "envi unknown interleave": (lambda f: envi(f / "x.hdr", interleave="bup"), "'bup'"),
    "envi byte order": (lambda f: envi(f / "x.hdr", byte_order=2), "byte order 2"),
    "envi wavelength count": (lambda f: envi(f / "x.hdr", wavelength="{1, 2}"), "lists 2 values"),
    "envi wavelength text": (lambda f: envi(f / "x.hdr", wavelength="{4, x, 6}"), "wavelength 'x'"),
    "envi wavelength nan": (lambda f: envi(f / "x.hdr", wavelength="{4, nan, 6}"), "finite"),
    "envi wavelength negative": (lambda f: envi(f / "x.hdr", wavelength="{4,-5,6}"), "negative"),
    "envi fwhm count": (lambda f: envi(f / "x.hdr", fwhm="{1, 2, 3, 4}"), "lists 4 values"),
    "envi bbl count": (lambda f: envi(f / "x.hdr", bbl="{1}"), "lists 1 values"),
    "envi bbl text": (lambda f: envi(f / "x.hdr", bbl="{1, yes, 0}"), "bbl value 'yes'"),
    "envi open list": (lambda f: envi(f / "x.hdr", wavelength="{1, 2,"), "not closed"),
    "envi ignore value": (lambda f: envi(f / "x.hdr", data_ignore_value="none"), "'none'"),
    "envi scale zero": (lambda f: envi(f / "x.hdr", reflectance_scale_factor=0), "not be zero"),
    "envi scale text": (lambda f: envi(f / "x.hdr", reflectance_scale_factor="a"), "factor 'a'"),
    "envi map info": (lambda f: envi(f / "x.hdr", map_info="{UTM, 1, a}"), "map info"),
    "envi library": (
        lambda f: envi(f / "x.hdr", file_type="ENVI Spectral Library"),
        "no image cube",
    ),
    "envi bad gzip": (lambda f: envi(f / "x.hdr", file_compression=1), "compressed data"),
    "envi frame offsets": (lambda f: envi(f / "x.hdr", major_frame_offsets="{4, 0}"), "offsets"),
    "esri bits": (
        lambda f: envi(f / "x.hdr", text="NROWS 4\nNCOLS 5\nNBANDS 3\nNBITS 12\n"),
        "NBITS '12'",
    ),
    "esri padding": (
        lambda f: envi(f / "x.hdr", text="NROWS 4\nNCOLS 5\nNBANDS 3\nNBITS 8\nBANDROWBYTES 8\n"),
        "Padded rows",
    ),
    "no data file": (
        lambda f: (envi(f / "x.hdr"), (f / "x").unlink())[0].with_name("x.hdr"),
        "no data file found",
    ),
    "tif of text": (lambda f: written(f / "x.tif", b"not a tiff"), "not readable as GeoTIFF"),
    "tif truncated": (lambda f: cut(tiff(f / "x.tif"), 0.4), "x.tif"),
    "tif complex": (lambda f: tiff(f / "x.tif", "complex64"), "complex64"),
    "nc of text": (lambda f: written(f / "x.nc", b"not netcdf"), "not readable as HDF5"),
    "nc truncated": (lambda f: cut(hdf(f / "x.nc", a=np.ones((9, 8, 7)))), "not readable as HDF5"),
    "old nc truncated": (lambda f: written(f / "x.nc", b"CDF\x01\0\0"), "not readable as netCDF"),
    "nc without cube": (lambda f: hdf(f / "x.nc", a=np.ones((3, 4))), "no cube found"),
    "nc complex": (lambda f: hdf(f / "x.nc", a=np.ones((3, 4, 5), complex)), "complex128"),
    "nc two cubes": (
        lambda f: hdf(f / "x.nc", a=np.ones((3, 4, 5)), b=np.ones((3, 4, 5))),
        "2 arrays could be the cube",
    ),
    "h5 scale text": (lambda f: scaled(f / "x.h5", "x"), "attribute scale_factor is 'x'"),
    "h5 of strings": (lambda f: hdf(f / "x.h5", a=np.full((2, 2, 2), b"x")), "They must be"),
    "he5 without attributes": (
        lambda f: hdf(f / "x.he5", VNIR_Cube=np.ones((4, 3, 5), "u2")),
        "Processing_Level",
    ),
    "mat of text": (lambda f: written(f / "x.mat", b"hello" * 50), "not readable as a MATLAB"),
    "mat without cube": (lambda f: mat(f / "x.mat", a=np.eye(3)), "no cube found"),
    "mat truncated": (lambda f: cut(mat(f / "x.mat", a=np.ones((4, 5, 6))), 0.6), "x.mat"),
    "mat complex": (lambda f: mat(f / "x.mat", a=np.ones((4, 5, 6)) * 1j), "complex128"),
    "npy 2-D": (lambda f: saved(f / "x.npy", np.eye(3)), "2 dimensions"),
    "npy 4-D": (lambda f: saved(f / "x.npy", np.ones((2, 2, 2, 2))), "4 dimensions"),
    "npy complex": (lambda f: saved(f / "x.npy", np.ones((2, 3, 4), complex)), "complex128"),
    "npy of text": (lambda f: saved(f / "x.npy", np.full((2, 3, 4), "a")), "<U1"),
    "npy boolean": (lambda f: saved(f / "x.npy", np.ones((2, 3, 4), bool)), "bool"),
    "npy empty axis": (lambda f: saved(f / "x.npy", np.ones((2, 0, 4))), "empty|shape"),
    "npy pickled": (
        lambda f: saved(f / "x.npy", np.array([[[{}]]], object), allow_pickle=True),
        "pickled",
    ),
    "npy truncated": (lambda f: cut(saved(f / "x.npy", np.ones((9, 8, 7)))), "as a NumPy file"),
    "npz of text": (lambda f: written(f / "x.npz", b"hello"), "not readable as a NumPy"),
    "npz without cube": (lambda f: zipped(f / "x.npz", a=np.eye(2)), "no cube found"),
    "npz called npy": (
        lambda f: zipped(f / "x.npz", a=np.ones((3, 4, 5))).rename(f / "x.npy"),
        "archive",
    ),
    "zarr of nothing": (lambda f: ((f / "x.zarr").mkdir(), f / "x.zarr")[1], "as a Zarr store"),
}  # fmt: skip


def mat(path, **arrays):
    scipy.io.savemat(path, arrays)
    return path


#: Options that make a good cube fail, and what the message must hold.
BAD_OPTIONS = {
    "no arguments": ([], "Missing argument 'IN'"),
    "no output": (["cube.npy"], "Missing argument 'OUT'"),
    "three files": (["cube.npy", "a.nc", "b.nc"], "unexpected extra argument"),
    "unknown option": (["cube.npy", "a.nc", "--nonsense"], "No such option"),
    "output suffix": (["cube.npy", "a.jpg"], "must be one of .hdr, .img, .tif"),
    "output npy": (["cube.npy", "a.npy"], "must be one of .hdr, .img, .tif"),
    "output without suffix": (["cube.npy", "a"], "suffix ''"),
    "output folder missing": (["cube.npy", "none/a.nc"], "does not exist"),
    "output in a file": (["cube.npy", "cube.npy/a.nc"], "is no folder"),
    "window zero": (["cube.npy", "a.nc", "--window", "0"], "'--window'"),
    "window one": (["cube.npy", "a.nc", "--window", "1"], "at least 2"),
    "window text": (["cube.npy", "a.nc", "--window", "big"], "'big'"),
    "window of four": (["cube.npy", "a.nc", "--window", "5x5x5x5"], "whole number"),
    "window too large": (["cube.npy", "a.nc", "--window", "99", "--prior", "none"], "window"),
    "step zero": (["cube.npy", "a.nc", "--step", "0"], "'--step'"),
    "step above window": (["cube.npy", "a.nc", "--window", "8", "--step", "9"], "Invalid step 9"),
    "rank zero": (["cube.npy", "a.nc", "--rank", "0"], "'--rank'"),
    "rank text": (["cube.npy", "a.nc", "--rank", "high"], "'high'"),
    "rank too high": (["cube.npy", "a.nc", "--rank", "13"], "Invalid rank 13"),
    "noise zero": (["cube.npy", "a.nc", "--noise", "0"], "positive"),
    "noise negative": (["cube.npy", "a.nc", "--noise", "-1"], "positive"),
    "noise nan": (["cube.npy", "a.nc", "--noise", "nan"], "positive and finite"),
    "noise unknown": (["cube.npy", "a.nc", "--noise", "loud"], "regression, differences"),
    "noise file shape": (["cube.npy", "a.nc", "--noise", "five.txt"], "noise of shape (5,)"),
    "noise file text": (["cube.npy", "a.nc", "--noise", "words.txt"], "not readable as numbers"),
    "solver unknown": (["cube.npy", "a.nc", "--solver", "magic"], "'magic'"),
    "overlap unknown": (["cube.npy", "a.nc", "--overlap", "some"], "'some'"),
    "weights unknown": (["cube.npy", "a.nc", "--weights", "heavy"], "'heavy'"),
    "workers zero": (["cube.npy", "a.nc", "--workers", "0"], "'--workers'"),
    "scale zero": (["cube.npy", "a.nc", "--scale", "0"], "'--scale'"),
    "scale text": (["cube.npy", "a.nc", "--scale", "x"], "not a number"),
    "dtype": (["cube.npy", "a.nc", "--dtype", "int8"], "'--dtype'"),
    "bands text": (["cube.npy", "a.nc", "--bands", "red"], "Invalid bands 'red'"),
    "bands beyond": (["cube.npy", "a.nc", "--bands", "0:99"], "between 0 and 11"),
    "bands in nm": (["cube.npy", "a.nc", "--bands", "400nm:"], "no wavelengths"),
    "axes": (["cube.npy", "a.nc", "--axes", "xyz"], "Invalid axes 'xyz'"),
    "axes twice": (["cube.npy", "a.nc", "--axes", "rrb"], "Invalid axes 'rrb'"),
    "axes of envi": (["good.hdr", "a.nc", "--axes", "brc"], "Invalid option axes"),
    "variable of envi": (["good.hdr", "a.nc", "--variable", "a"], "Invalid option variable"),
    "data missing": (["good.hdr", "a.nc", "--data", "none"], "none: no such file"),
    "mask missing": (["cube.npy", "a.nc", "--mask", "none.npy"], "none.npy: no such file"),
    "mask shape": (["cube.npy", "a.nc", "--mask", "small.npy"], "mask of shape (3, 3, 1)"),
    "stdin of text": (["-", "a.nc"], "standard input holds no"),
    "input is output": (["good.hdr", "good.hdr", "--overwrite"], "is part of the input"),
    "input's data is output": (["good", "good.img", "--overwrite"], "is part of the input"),
}  # fmt: skip


def assert_refused(result, message, *, code=2):
    """One line of error, the code, no traceback."""
    assert result.exit_code == code, result.output
    lines = result.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("Error: ")]
    assert len(errors) == 1, result.stderr
    assert all(line.startswith(("Error: ", "Note: ")) for line in lines), result.stderr
    assert any(part in errors[0] for part in message.split("|")), errors[0]
    assert "Traceback" not in result.output


class TestBadInput:
    def test_there_are_enough_cases(self):
        assert len(BAD_FILES) + len(BAD_OPTIONS) >= 60

    @pytest.mark.parametrize("case", BAD_FILES)
    def test_files(self, tmp_path, case):
        make, message = BAD_FILES[case]
        path = make(tmp_path)
        before = sorted(tmp_path.rglob("*"))
        assert_refused(run("denoise", path, tmp_path / "out.nc", "--noise", "1"), message)
        assert sorted(tmp_path.rglob("*")) == before
        assert_refused(run("info", path), message)

    @pytest.mark.parametrize("case", BAD_OPTIONS)
    def test_options(self, here, case):
        arguments, message = BAD_OPTIONS[case]
        np.save("small.npy", np.ones((3, 3)))
        Path("five.txt").write_text("1 2 3 4 5\n")
        Path("words.txt").write_text("loud and clear\n")
        before = sorted(here.rglob("*"))
        if arguments and "--noise" not in arguments:
            arguments = [*arguments, "--noise", "0.03"]
        assert_refused(run("denoise", *arguments, input=b"hello"), message)
        assert sorted(here.rglob("*")) == before

    @pytest.mark.parametrize("name", ["out.nc", "out.zarr", "out.hdr", "out.tif"])
    def test_existing_output_before_the_work(self, here, name, monkeypatch):
        assert run("denoise", "cube.npy", name, "--noise", "0.03").exit_code == 0
        monkeypatch.setattr(sc.api, "denoise", None)
        assert_refused(run("denoise", "cube.npy", name, "--noise", "0.03"), "--overwrite")

    def test_truncated_envi_is_not_read_as_zeros(self, tmp_path):
        path = envi(tmp_path / "x.hdr", binary=b"\1" * 60, map_info="{Arbitrary, 1, 1, 9, 9, 1, 1}")
        with rasterio.open(tmp_path / "x") as theirs:
            assert (theirs.read(3) == 0).all()
        assert_refused(run("info", path), "60 bytes")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_unwritable_folder(self, here):
        folder = here / "locked"
        folder.mkdir(mode=0o500)
        result = run("denoise", "cube.npy", folder / "a.nc", "--noise", "0.03")
        assert_refused(result, "not writable")

    def test_unknown_command(self):
        assert_refused(run("nonsense"), "No such command 'nonsense'")

    def test_failure_while_running(self, here, monkeypatch):
        def fail(*_, **__):
            raise RuntimeError("the sky\nfell")

        monkeypatch.setattr(sc.api, "denoise", fail)
        result = run("denoise", "cube.npy", "a.nc")
        assert_refused(result, "RuntimeError: the sky fell", code=1)
        assert not Path("a.nc").exists()

    def test_disk_full(self, here, monkeypatch):
        from sigmacube.io import atomic

        def fail(*_):
            raise OSError(28, "No space left on device", "a.nc")

        monkeypatch.setattr(atomic, "commit", fail)
        result = run("denoise", "cube.npy", "a.nc", "--noise", "0.03")
        assert_refused(result, "No space left on device", code=1)
        assert not list(here.glob("*a.nc*"))

    def test_debug_shows_the_traceback(self, tmp_path):
        for arguments in (("--debug", "info"), ("info", "--debug")):
            found = process(*arguments, tmp_path / "none.hdr")
            assert found.returncode == 2
            assert b"Traceback" in found.stderr
            assert found.stderr.strip().splitlines()[-1].startswith(b"Error: ")


class TestFrame:
    def test_version(self):
        assert run("--version").output == f"sigmacube {__version__}\n"

    @pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
    def test_help_lists_the_commands(self, arguments):
        result = run(*arguments)
        assert result.exit_code == 0
        for name in ("demo", "info", "denoise"):
            assert f"\n  {name} " in result.stdout

    def test_every_command_explains_itself(self):
        for name in main.list_commands(None):
            result = run(name, "--help")
            assert result.exit_code == 0
            assert result.stdout.startswith(f"Usage: sigmacube {name} ")
            for option in ("--quiet", "--debug"):
                assert option in result.stdout

    def test_help_imports_nothing_heavy(self):
        script = "import sys; from sigmacube.cli import main\ntry: main(['--help'])\n"
        script += "except SystemExit: pass\nprint([m for m in ('numpy', 'xarray', 'h5py', 'rich',"
        script += " 'rasterio', 'scipy', 'matplotlib') if m in sys.modules])"
        found = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True, text=True, env=ENVIRONMENT, check=True,
        )  # fmt: skip
        assert found.stdout.splitlines()[-1] == "[]"

    def test_help_is_quick(self):
        def least(*command):
            times = []
            for _ in range(5):
                start = time.perf_counter()
                subprocess.run([sys.executable, *command], capture_output=True, env=ENVIRONMENT)
                times.append(time.perf_counter() - start)
            return min(times)

        assert least("-m", "sigmacube.cli", "--help") < 3 * least("-c", "import numpy")

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_completion(self, shell):
        bash = shutil.which("bash")
        if shell == "bash" and bash is None:
            pytest.skip("bash is not installed")
        environment = {**ENVIRONMENT, "_SIGMACUBE_COMPLETE": f"{shell}_source"}
        found = subprocess.run(
            [sys.executable, "-c", "from sigmacube.cli import main; main(prog_name='sigmacube')"],
            capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
        assert "_SIGMACUBE_COMPLETE" in found.stdout

    def test_interrupt(self, here):
        """Ctrl-C during the work: exit code 130, one line, nothing under the final name."""
        script = (
            "import sys, time\nimport sigmacube.api as p\n"
            "def wait(*a, **k):\n    print('ready', flush=True)\n    time.sleep(600)\n"
            "p.denoise = wait\nfrom sigmacube.cli import main\n"
            "main(['denoise', 'cube.npy', 'a.nc', '--noise', '0.03'])"
        )
        running = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )  # fmt: skip
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
        assert running.returncode == 130
        assert errors.strip().splitlines()[-1].startswith("Error: interrupted")
        assert "Traceback" not in errors
        assert not Path("a.nc").exists()

    def test_reader_that_goes_away(self, here):
        running = subprocess.Popen(
            [sys.executable, "-m", "sigmacube.cli", "info", "cube.npy", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
        )  # fmt: skip
        running.stdout.close()
        errors = running.stderr.read()
        running.wait(timeout=60)
        running.stderr.close()
        assert b"Traceback" not in errors
        assert b"Exception" not in errors


class TestInfo:
    def test_says_what_is_there(self, here):
        result = run("info", "cube.npy")
        assert result.exit_code == 0
        assert "24 rows × 22 cols × 12 bands" in result.stdout
        assert "float64" in result.stdout
        assert "noise" in result.stdout
        assert "taken as (row, col, band)" in result.stdout

    def test_json(self, here):
        extra = {"wavelength": "{0.4, 0.5, 0.6}", "wavelength units": "um", "bbl": "{1, 0, 1}"}
        envi(Path("b.hdr"), **extra)
        found = json.loads(run("info", "b.hdr", "--json", "--no-noise").stdout)
        assert found["shape"] == [4, 5, 3]
        assert found["wavelengths_nm"] == [400.0, 500.0, 600.0]
        assert found["bad_bands"] == [1]
        assert found["masked"] == pytest.approx(1 / 3)

    def test_noise_is_right(self, here):
        found = json.loads(run("info", "cube.npy", "--json").stdout)
        # What the other bands do not explain of the signal counts as noise: somewhat too high.
        assert 0.025 < np.median(found["noise"]) < 0.045

    def test_large_cubes_are_sampled(self, here, monkeypatch):
        from sigmacube.commands import info

        monkeypatch.setattr(info, "_SAMPLE", 500)
        np.save("big.npy", np.ones((50, 60, 4)))
        found = json.loads(run("info", "big.npy", "--json", "--no-noise").stdout)
        assert found["shape"] == [50, 60, 4]
        assert found["sampled"] == [32, 32, 4]

    def test_standard_input(self, here):
        content = Path("cube.npy").read_bytes()
        found = json.loads(run("info", "-", "--json", input=content).stdout)
        assert found["shape"] == list(SHAPE)

    def test_result_is_called_one(self, here):
        run("denoise", "cube.npy", "a.nc", "--noise", "0.03")
        output = run("info", "a.nc").stdout
        assert f"sigmacube {__version__}, denoise" in output
        assert "SNR" not in output

    @pytest.mark.data
    def test_enmap(self, data):
        output = run("info", data / "formats/enmap/enmap_potsdam_tile_96_96.tif").stdout
        for text in ("32 rows × 32 cols × 224 bands", "418.2 to 2445.5 nm", "129-134", "-32768",
                     "2.68 %", "UTM zone 33N", "2022-07-24T10:45:26"):  # fmt: skip
            assert text in output


class TestDenoise:
    @pytest.mark.parametrize("name", ["a.nc", "a.zarr", "a.hdr", "a.img", "a.tif"])
    def test_is_the_library_s_result(self, here, noisy, name):
        result = run(
            "denoise", "cube.npy", name, "--noise", "0.03", "--window", "10", "--step", "5"
        )
        assert result.exit_code == 0, result.output
        expected = sc.denoise(noisy.values, 0.03, window=10, step=5)
        found = read_result(name)
        np.testing.assert_array_equal(found.estimate, expected.estimate.astype(np.float32))
        np.testing.assert_array_equal(found.std, expected.std.astype(np.float32))
        np.testing.assert_array_equal(found.ranks, expected.ranks)
        assert found.settings["version"] == __version__

    def test_summary(self, here):
        output = run("denoise", "cube.npy", "a.nc", "--noise", "0.03").stdout
        for label in ("written", "time", "noise", "σ", "rank", "masked", "model fits"):
            assert f"\n{label}" in f"\n{output}"
        assert "windows/s" in output
        assert "0.03 (given)" in output

    def test_misfit_is_said(self, here):
        low = run("denoise", "cube.npy", "a.nc", "--noise", "0.001", "--prior", "none",
                  "--rank", "1").stderr  # fmt: skip
        assert "their σ is too small" in low
        high = run("denoise", "cube.npy", "b.nc", "--noise", "1").stderr
        assert "their σ is too large" in high

    @pytest.mark.parametrize("flag", ["-q", "--quiet"])
    def test_quiet(self, here, flag):
        for number, arguments in enumerate(((flag, "denoise"), ("denoise", flag))):
            result = run(*arguments, "cube.npy", f"{number}.nc", "--noise", "0.03")
            assert result.exit_code == 0
            assert result.output == ""

    def test_overwrite(self, here):
        for noise in ("0.03", "0.04"):
            result = run("denoise", "cube.npy", "a.tif", "--noise", noise, "--overwrite")
            assert result.exit_code == 0
        assert read_result("a.tif").noise == 0.04

    def test_noise_from_files(self, here):
        levels = np.linspace(0.02, 0.04, SHAPE[2])
        np.save("levels.npy", levels)
        np.savetxt("levels.txt", levels)
        np.savetxt("covariance.csv", np.diag(levels**2), delimiter=",")
        for name in ("levels.npy", "levels.txt", "covariance.csv"):
            result = run("denoise", "cube.npy", "a.nc", "--noise", name, "--overwrite")
            assert result.exit_code == 0, result.output
            found = read_result("a.nc").noise
            found = np.sqrt(np.diag(found)) if found.ndim == 2 else found
            np.testing.assert_allclose(found, levels)

    def test_mask(self, here):
        mask = np.ones(SHAPE[:2])
        mask[3, 4] = 0
        np.save("mask.npy", mask)
        assert (
            run("denoise", "cube.npy", "a.nc", "--noise", "0.03", "--mask", "mask.npy").exit_code
            == 0
        )
        empty = np.isnan(read_result("a.nc").estimate).all(axis=2)
        np.testing.assert_array_equal(empty, mask == 0)

    def test_no_uncertainty(self, here):
        run("denoise", "cube.npy", "a.hdr", "--noise", "0.03", "--no-uncertainty")
        assert read_result("a.hdr").std is None
        assert not Path("a_uncert").exists()

    def test_reading_options(self, here, noisy):
        np.save("turned.npy", noisy.values.transpose(2, 0, 1))
        arguments = ("--noise", "3", "--axes", "brc", "--bands", "2:10", "--scale", "100")
        result = run("denoise", "turned.npy", "a.nc", *arguments, "--window", "8")
        assert result.exit_code == 0, result.output
        expected = sc.denoise(noisy.values[:, :, 2:10] * 100, 3, window=8)
        np.testing.assert_allclose(read_result("a.nc").estimate, expected.estimate, rtol=1e-5)

    def test_what_was_assumed_is_noted(self, here):
        errors = run("denoise", "cube.npy", "a.nc", "--noise", "0.03").stderr
        assert errors.startswith("Note: cube.npy: axes 24 x 22 x 12 taken as")
        assert "--axes" in errors
        assert run("denoise", "cube.npy", "b.nc", "--noise", "0.03", "--axes", "rcb").stderr == ""

    def test_pipes(self, here):
        content = Path("cube.npy").read_bytes()
        found = process("denoise", "-", "-", "--noise", "0.03", input=content)
        assert found.returncode == 0, found.stderr
        Path("piped.nc").write_bytes(found.stdout)
        run("denoise", "cube.npy", "a.nc", "--noise", "0.03")
        np.testing.assert_array_equal(read_result("piped.nc").std, read_result("a.nc").std)
        assert b"model fits" in found.stderr

    def test_input_is_untouched(self, here):
        before = {path: path.read_bytes() for path in here.iterdir()}
        run("denoise", "cube.npy", "a.nc", "--noise", "0.03")
        assert all(path.read_bytes() == content for path, content in before.items())

    @pytest.mark.data
    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("formats/enmap/enmap_potsdam_tile_96_96.tif", []),
            ("formats/envi_plantcv/corn-kernel-hyperspectral.hdr", ["--noise", "9"]),
            ("formats/envi_gamsberg/cubus_gamsberg_subset", ["--noise", "0.01", "--window", "8"]),
            ("scenes/aviris_90x90x224.mat", ["--noise", "10", "--bands", "10:90"]),
        ],
    )
    def test_real_files(self, data, tmp_path, name, options):
        result = run("denoise", data / name, tmp_path / "a.nc", *options)
        assert result.exit_code == 0, result.output
        found = read_result(tmp_path / "a.nc")
        assert np.isfinite(found.estimate).mean() > 0.9
        # The mean of a scene is what denoising must not change.
        source = sc.read(data / name, bands="10:90" if "--bands" in options else None)
        seen = np.isfinite(found.estimate)
        before, after = source.values[seen].mean(), found.estimate[seen].mean()
        assert after == pytest.approx(before, rel=0.01)


class TestProgress:
    def test_bar_shows_rate_and_time_left(self, monkeypatch):
        import io

        from rich.console import Console

        from sigmacube import console

        screen = io.StringIO()
        made = Console(file=screen, force_terminal=True, width=100)
        monkeypatch.setattr("rich.console.Console", lambda **_: made)
        with console.progress("Denoising") as move:
            move(30, 120)
            time.sleep(0.3)
            move(60, 120)
            time.sleep(0.3)
        output = screen.getvalue()
        assert "60/120" in output
        assert "windows/s" in output
        assert "left" in output

    def test_no_bar_without_a_terminal(self, here):
        assert run("denoise", "cube.npy", "a.nc", "--noise", "0.03", "--axes", "rcb").stderr == ""


class TestHelpfulness:
    """What a hurried user meets: mistyped names, missing extras, counts of one, completion."""

    @pytest.mark.parametrize(
        ("name", "meant"), [("denoize", "denoise"), ("check", "validate"), ("vew", "view")]
    )
    def test_mistyped_commands(self, name, meant):
        done = CliRunner().invoke(main, [name, "x"])
        assert done.exit_code == 2
        assert f"Did you mean '{meant}'?" in done.output

    def test_nothing_like_it(self):
        done = CliRunner().invoke(main, ["qqq"])
        assert done.exit_code == 2
        assert "There are demo, info, denoise" in done.output

    @pytest.mark.parametrize(
        ("package", "extra"), [("dask.array", "scale"), ("bokeh", "view"), ("zarr", "scale")]
    )
    def test_missing_extras(self, package, extra):
        from sigmacube.cli import _explain

        text, code = _explain(ModuleNotFoundError(f"No module named {package!r}", name=package))
        assert code == 1
        assert f"pip install 'sigmacube[{extra}]'" in text
        other, _ = _explain(ModuleNotFoundError("No module named 'json'", name="json"))
        assert "pip" not in other

    def test_counts_of_one(self, tmp_path):
        np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(24, 1, 1)))
        done = CliRunner().invoke(main, ["info", str(tmp_path / "x.npy"), "--axes", "row,col,band"])
        assert "24 rows × 1 col × 1 band\n" in done.output.replace(" \n", "\n").replace("  ", "")

    def test_a_note_is_said_once(self, capsys):
        from sigmacube.console import note

        with main.make_context("sigmacube", ["info"], resilient_parsing=True):
            for _ in range(3):
                note("the same thing.")
        assert capsys.readouterr().err.count("the same thing") == 1

    @pytest.mark.parametrize(
        ("words", "found"),
        [("sigmacube den", "denoise"), ("sigmacube info sce", "file,sce"),
         ("sigmacube denoise a b --solver ro", "robust")],
    )  # fmt: skip
    def test_completion(self, words, found):
        variables = {
            "_SIGMACUBE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        done = CliRunner().invoke(main, [], prog_name="sigmacube", env=variables)
        assert found in done.output

    def test_calibrate(self, tmp_path):
        truth = sc.synthetic.scene((30, 34, 24), endmembers=3, rng=1)
        noisy = sc.synthetic.add_noise(truth, 0.03, rng=2).values
        np.save(tmp_path / "x.npy", noisy)
        words = ["denoise", str(tmp_path / "x.npy"), str(tmp_path / "y.nc"), "--noise", "0.02"]
        options = ["--prior", "none", "--rank", "3", "--window", "12"]
        done = CliRunner().invoke(main, [*words, *options, "--calibrate"])
        assert done.exit_code == 0, done.output
        factors = sc.read_result(tmp_path / "y.nc").settings["calibration"]
        how = {"prior": None, "rank": 3, "window": 12}
        expected = sc.denoise(noisy, 0.02, calibrate=True, **how).settings["calibration"]
        assert factors == expected
        plain = CliRunner().invoke(main, [*words, *options, "--overwrite"])
        assert plain.exit_code == 0
        assert "calibration" not in sc.read_result(tmp_path / "y.nc").settings
        bad = CliRunner().invoke(main, [*words, "--calibrate", "--no-uncertainty", "--overwrite"])
        assert bad.exit_code == 2
        assert "--calibrate scales sigma" in bad.output

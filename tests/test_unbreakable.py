"""Hostile files, full disks, signals and crowds: one line, nothing left, no wait."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import sigmacube as sc
from sigmacube import io
from sigmacube.cli import main
from sigmacube.io.atomic import staged
from sigmacube.io.places import reading

CUBE = np.arange(5 * 6 * 4, dtype=np.float32).reshape(5, 6, 4)


def run(*words: object) -> tuple[int, str]:
    """Run a command; return its exit code and what it says of errors."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.stderr


def envi(folder: Path, **fields: Any) -> Path:
    """Write an ENVI cube whose header has some fields replaced."""
    known = {
        "samples": 6, "lines": 5, "bands": 4, "data type": 4, "interleave": "bip", "byte order": 0,
    } | fields  # fmt: skip
    header = folder / "x.hdr"
    header.write_text("ENVI\n" + "".join(f"{k} = {v}\n" for k, v in known.items()))
    (folder / "x").write_bytes(CUBE.tobytes())
    return header


@pytest.fixture(scope="module")
def result() -> sc.DenoisedCube:
    noisy = sc.synthetic.add_noise(sc.synthetic.scene((12, 14, 9), rng=1), 0.05, rng=2)
    return sc.denoise(noisy, 0.05, prior=None, window=6, step=3)


class TestHdf:
    def test_dimension_lists_of_another_kind(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("cube", data=CUBE).attrs["DIMENSION_LIST"] = "y x band"
        assert io.read(tmp_path / "x.h5").shape == CUBE.shape

    def test_dimension_scales_that_were_removed(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            cube = file.create_dataset("cube", data=CUBE)
            for axis, name in enumerate(("y", "x", "band")):
                file.create_dataset(name, data=np.arange(CUBE.shape[axis]))
                file[name].make_scale(name)
                cube.dims[axis].attach_scale(file[name])
            del file["band"]
            file.create_dataset("band", data=np.arange(4)).make_scale("band")
        assert io.read(tmp_path / "x.h5").shape == CUBE.shape

    def test_values_in_other_files_are_asked_for(self, tmp_path):
        (tmp_path / "secret").write_bytes(CUBE.tobytes())
        with h5py.File(tmp_path / "x.h5", "w") as file:
            place = [(str(tmp_path / "secret"), 0, h5py.h5f.UNLIMITED)]
            file.create_dataset("cube", CUBE.shape, "f4", external=place)
        with pytest.raises(ValueError, match=r"only read with external=True"):
            io.read(tmp_path / "x.h5")
        np.testing.assert_array_equal(io.read(tmp_path / "x.h5", external=True).values, CUBE)

    @pytest.mark.parametrize("own", [True, False])
    def test_virtual_arrays(self, tmp_path, own):
        layout = h5py.VirtualLayout(CUBE.shape, "f4")
        with h5py.File(tmp_path / "other.h5", "w") as file:
            file["cube"] = CUBE
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["part"] = CUBE
            name, key = (".", "part") if own else (str(tmp_path / "other.h5"), "cube")
            layout[:] = h5py.VirtualSource(name, key, CUBE.shape)
            file.create_virtual_dataset("cube", layout)
        if own:
            np.testing.assert_array_equal(io.read(tmp_path / "x.h5", variable="cube").values, CUBE)
        else:
            with pytest.raises(ValueError, match=r"other\.h5"):
                io.read(tmp_path / "x.h5", variable="cube")

    def test_very_many_arrays(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
            for number in range(6000):
                file.create_group(str(number))
        start = time.process_time()
        with pytest.raises(ValueError, match="more than 5000 objects"):
            io.read(tmp_path / "x.h5")
        assert time.process_time() - start < 5

    @pytest.mark.parametrize(("depth", "is_read"), [(90, True), (1500, False)])
    def test_groups_in_groups(self, tmp_path, depth, is_read):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            group = file
            for _ in range(depth):
                group = group.create_group("g")
            group["cube"] = CUBE
        start = time.process_time()
        if is_read:
            assert io.read(tmp_path / "x.h5").shape == CUBE.shape
        else:
            with pytest.raises(ValueError, match="nested deeper than 100"):
                io.read(tmp_path / "x.h5")
        assert time.process_time() - start < 5

    def test_groups_that_hold_themselves(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["g/cube"] = CUBE
            file["g/again"] = file["g"]
        assert io.read(tmp_path / "x.h5").shape == CUBE.shape

    def test_names_in_no_encoding(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file[b"cube\xff"] = CUBE
            file[b"cube\xff"].attrs["units"] = np.bytes_(b"\xff")
        cube = io.read(tmp_path / "x.h5")
        np.testing.assert_array_equal(cube.values, CUBE)
        str(cube.metadata).encode()

    @pytest.mark.parametrize("user_block", [0, 512])
    def test_texts_longer_than_their_file(self, tmp_path, user_block):
        """The library would take the memory before it looks for the text."""
        path = tmp_path / "x.h5"
        with h5py.File(path, "w", userblock_size=user_block) as file:
            file.create_dataset("cube", data=CUBE).attrs["units"] = "reflectance"
        assert io.read(path).shape == CUBE.shape
        content = bytearray(path.read_bytes())
        length = content.index((11).to_bytes(4, "little"), content.index(b"units"))
        content[length : length + 4] = (2**31).to_bytes(4, "little")
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.h5: damaged: .* claims 2147483648 values"):
            io.read(path)

    def test_a_heap_that_the_library_never_leaves(self, tmp_path):
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("cube", data=CUBE).attrs["units"] = "reflectance"
        content = bytearray(path.read_bytes())
        free = content.index(b"reflectance", content.index(b"GCOL")) + 16
        assert content[free : free + 8] == bytes(8)  # the head of what is free
        content[free + 8 : free + 16] = bytes(8)
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.h5: damaged: .* part of no size"):
            io.read(path)

    @pytest.mark.parametrize("libver", ["earliest", "latest"])
    def test_lengths_are_found_in_headers_of_both_versions(self, tmp_path, monkeypatch, libver):
        """Those of the second have a checksum, which damaged ones fail; a forger can compute it."""
        path = tmp_path / "x.h5"
        with h5py.File(path, "w", libver=libver) as file:
            file.create_dataset("group/cube", data=CUBE).attrs["units"] = "reflectance"
        monkeypatch.setattr("os.path.getsize", lambda path: 10)
        with pytest.raises(ValueError, match="claims 11 values in a file of 10 bytes"):
            io.read(path)


class TestEnvi:
    def test_unpacks_no_more_than_it_needs(self, tmp_path):
        header = envi(tmp_path, **{"file compression": 1})
        (tmp_path / "x").write_bytes(gzip.compress(CUBE.tobytes() + bytes(200_000_000), 1))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        np.testing.assert_array_equal(io.read(header).values, CUBE)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB

    def test_damaged_packing(self, tmp_path):
        header = envi(tmp_path, **{"file compression": 1})
        packed = bytearray(gzip.compress(CUBE.tobytes()))
        packed[12:20] = b"\xff" * 8
        (tmp_path / "x").write_bytes(packed)
        with pytest.raises(ValueError, match="cannot be read"):
            io.read(header)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("wavelength", "{1, 2, 3, 9e999999}"),
            ("wavelength", "{1, 2, 3, inf}"),
            ("fwhm", "{1, 2, 3, 1e400}"),
            ("reflectance scale factor", "1e-200"),
            ("reflectance scale factor", "nan"),
            ("data gain values", "{1, 1, 1, 0}"),
            ("data offset values", "{1, 1, 1, 1e99}"),
            ("map info", "{UTM, 1, 1, nan, 1, 30, 30, 33, North, WGS-84}"),
        ],
    )
    def test_numbers_that_are_none(self, tmp_path, key, value):
        extra = {"wavelength": "{1, 2, 3, 4}"} if key == "fwhm" else {}
        header = envi(tmp_path, **extra, **{key: value})
        with pytest.raises(ValueError, match=r"x\.hdr: .*[Ii]nvalid"):
            io.read(header)

    @pytest.mark.parametrize(
        "text",
        [
            "[" * 100_000,
            "[]",
            '{"settings": 3, "metadata": {}}',
            '{"settings": {}, "metadata": {"fwhm": 3}}',
            '{"settings": {}, "metadata": {"transform": ["a", 1, 2, 3, 4, 5]}}',
            '{"settings": {}, "metadata": {"envi": []}}',
        ],
    )
    def test_side_cars(self, tmp_path, text):
        header = envi(tmp_path)
        (tmp_path / "x.hdr.sigmacube.json").write_text(text)
        with pytest.raises(ValueError, match="damaged"):
            io.read(header)


class TestResults:
    @pytest.mark.parametrize("name", ["r.hdr", "r.tif"])
    @pytest.mark.parametrize("key", ["noise", "uncertainty", "cuts_bands"])
    def test_raster_without_a_part(self, result, tmp_path, name, key):
        path = result.save(tmp_path / name)
        beside = tmp_path / f"{name}.sigmacube.json"
        document = json.loads(beside.read_text())
        del document[key]
        beside.write_text(json.dumps(document))
        with pytest.raises(ValueError, match=r"^\S*r\.\w+: "):
            io.read_result(path)

    @pytest.mark.parametrize(
        ("variable", "replaced"),
        [("noise", np.zeros(3)), ("rank", np.zeros(0)), ("residual_ratio", None)],
    )
    def test_netcdf_of_parts_that_do_not_fit(self, result, tmp_path, variable, replaced):
        path = result.save(tmp_path / "r.nc")
        with h5py.File(path, "a") as file:
            del file[variable]
            if replaced is not None:
                file[variable] = replaced
        with pytest.raises(ValueError, match=r"r\.nc: "):
            io.read_result(path)

    def test_attributes_of_another_kind(self, result, tmp_path):
        path = result.save(tmp_path / "r.nc", keep_factors=True)
        for text in ("[1]", "{", '{"layout": 3, "kind": 7}', '{"layout": 3}'):
            with h5py.File(path, "a") as file:
                file.attrs["sigmacube_factors"] = text
            with pytest.raises(ValueError, match=r"r\.nc: "):
                io.read_result(path)

    def test_what_the_system_says_stays(self, tmp_path):
        with pytest.raises(FileNotFoundError), reading(tmp_path):
            (tmp_path / "none").read_bytes()


class TestRunFolder:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("run.json", b"{"),
            ("run.json", b"{}"),
            ("run.json", b"[1]"),
            ("survey.npz", b"PK damaged"),
            ("survey.npz", b""),
        ],
    )
    def test_damage_is_told(self, tmp_path, name, content, resume):
        source, output = tmp_path / "in.npy", tmp_path / "out.zarr"
        rng = np.random.default_rng(0)
        np.save(source, rng.normal(size=(24, 20, 5)))
        words = ["denoise", source, output, "--prior", "none", "--noise", "1", "--window", "5",
                 "--tile", "12x10", "--threads", "--workers", "1"]  # fmt: skip
        with resume.Killer() as killer:
            assert killer.run(
                source,
                output,
                fault="tile-before:2",
                tile="12x10",
                noise=1.0,
                window=5,
                step=4,
                prior=None,
                mode="threads",
                dtype="float32",
            )
        folder = tmp_path / ".out.zarr.run"
        (folder / name).write_bytes(content)
        code, text = run(*words, "--resume")
        assert code == 2
        assert text.count("--overwrite") == 1
        assert text.count("Error: ") == 1
        assert run(*words, "--overwrite")[0] == 0


class TestFullDisk:
    @pytest.mark.parametrize("limit", [2_000, 30_000])
    def test_netcdf(self, result, tmp_path, limit):
        """A limit on the size of files fails like a disk without room, in a child of its own."""
        code = f"""if True:
            import resource, signal, sys
            import numpy as np, sigmacube as sc
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            noisy = sc.synthetic.add_noise(sc.synthetic.scene((30, 34, 9), rng=1), 0.05, rng=2)
            made = sc.denoise(noisy, 0.05, prior=None, window=10, step=5)
            resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
            try:
                made.save({str(tmp_path / "out.nc")!r}, keep_factors=True)
            except OSError as error:
                print(error.strerror)
            """
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "File too large\n", "")
        assert list(tmp_path.iterdir()) == []


class TestStreamsAndSignals:
    def test_closed_streams(self, tmp_path):
        np.save(tmp_path / "in.npy", CUBE)
        command = f"{sys.executable} -c 'from sigmacube.cli import main; main()'"
        for words, code in (
            (f"info {tmp_path}/in.npy >&-", 0),
            (f"info {tmp_path}/none.npy 2>&-", 2),
            (f"info {tmp_path}/in.npy <&- >&- 2>&-", 0),
            ("info - <&-", 2),
        ):
            done = subprocess.run(
                ["sh", "-c", f"{command} {words}"], capture_output=True, text=True
            )
            assert done.returncode == code, done.stderr
            assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_ended_while_writing(self, tmp_path, number):
        """The writing itself waits for the signal, so that it always comes in its middle."""
        np.save(tmp_path / "in.npy", np.random.default_rng(0).normal(size=(12, 10, 5)))
        code = """if True:
            import sys, time
            from sigmacube.io import atomic
            write = atomic._Patient._store
            def wait(*given):
                atomic._Patient._store = write
                print("writing", flush=True)
                time.sleep(0.5)
                write(*given)
            atomic._Patient._store = wait
            from sigmacube.cli import main
            main()
            """
        words = ["denoise", tmp_path / "in.npy", tmp_path / "out.nc", "--noise", "1", "--window",
                 "6", "--prior", "none"]  # fmt: skip
        command = [sys.executable, "-c", code, *map(str, words)]
        how: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **how) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(number)
            _, text = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        assert text.count("Error: ") == 1
        assert "Traceback" not in text
        assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]

    @pytest.mark.parametrize("later", [0.0, 0.4])
    def test_interrupted_while_workers_start(self, tmp_path, later):
        """A terminal sends Ctrl-C to all of them; only the one that was asked says so."""
        np.save(tmp_path / "in.npy", np.random.default_rng(0).normal(size=(24, 20, 5)))
        words = ["denoise", tmp_path / "in.npy", tmp_path / "out.zarr", "--noise", "1", "--window",
                 "6", "--prior", "none", "--tile", "12x10", "--workers", "2"]  # fmt: skip
        code = "from sigmacube.cli import main; main()"
        command = [sys.executable, "-c", code, *map(str, words)]
        how: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, start_new_session=True, **how) as process:
            tree = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            while process.poll() is None and len(tree.read_text().split()) < 2:
                time.sleep(0.002)
            time.sleep(later)
            os.killpg(process.pid, signal.SIGINT)
            _, text = process.communicate(timeout=60)
        assert process.returncode == 130
        assert text.count("Error: interrupted") == 1
        assert "Traceback" not in text
        assert not (tmp_path / "out.zarr").exists()

    def test_what_threads_still_write_after_an_interrupt_goes_too(self, tmp_path):
        writing, until = threading.Event(), time.monotonic() + 0.5

        def write(folder: Path) -> None:
            number = 0
            while time.monotonic() < until:
                (folder / str(number)).mkdir(parents=True, exist_ok=True)
                writing.set()
                number += 1

        def interrupted() -> None:
            with staged([tmp_path / "out.zarr"], overwrite=False) as (part,):
                threading.Thread(target=write, args=(part,)).start()
                assert writing.wait(20)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        time.sleep(max(until - time.monotonic(), 0) + 0.1)
        assert list(tmp_path.iterdir()) == []


class TestCrowd:
    def test_pages_are_made_or_refused_at_once(self, monkeypatch):
        from sigmacube.show.viewer.guard import Pages

        now, sleep = [0.0], asyncio.sleep

        async def nap(seconds: float) -> None:
            now[0] += seconds
            await sleep(0)

        monkeypatch.setattr(asyncio, "sleep", nap)

        async def crowd(pages: Pages, *, first: float, usual: float) -> list[float]:
            """Return when those of 200 users were served who were not refused."""

            async def user(number: int) -> float | None:
                if pages.refusal(0, connections=200) is not None:
                    return None
                async with pages.turn() as refusal:
                    if refusal is not None:
                        return None
                    now[0] += first if number == 0 else usual
                    return now[0]

            moments = await asyncio.gather(*map(user, range(200)))
            return [moment for moment in moments if moment is not None]

        def near(moments: list[float]) -> Any:
            return pytest.approx(moments, abs=0.3)

        async def three_crowds() -> None:
            pages = Pages(clock=lambda: now[0])
            assert await crowd(pages, first=0.3, usual=0.3) == near([0.3])
            now[0] = 10.0  # now it is known how long a page takes
            served = await crowd(pages, first=0.3, usual=0.3)
            assert 2 <= len(served) <= 4
            assert max(served) < 11.2
            now[0] = 20.0  # pages take longer than was thought: others are refused after all
            assert await crowd(pages, first=1.5, usual=1.5) == near([21.5])

        asyncio.run(three_crowds())

    def test_pages_one_after_another_are_all_made(self):
        from sigmacube.show.viewer.guard import MAX_PAGES, Pages

        now = [0.0]
        alone = Pages(clock=lambda: now[0])

        async def page() -> None:
            async with alone.turn() as refusal:
                assert refusal is None
                now[0] += 2.0

        for number in range(MAX_PAGES):
            assert alone.refusal(number, connections=number + 1) is None
            asyncio.run(page())
        assert alone.refusal(MAX_PAGES) == (503, "too many pages are open")

    def test_slow_connections_end(self, result, tmp_path, monkeypatch):
        from sigmacube.show.viewer import server as module

        monkeypatch.setattr(module, "_PATIENCE", 0.3)
        ready, box = threading.Event(), {}

        def serve() -> None:
            asyncio.set_event_loop(asyncio.new_event_loop())
            with module.start(result) as viewer:
                box["viewer"] = viewer
                viewer.loop.add_callback(ready.set)
                viewer.loop.start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert ready.wait(30)
        viewer = box["viewer"]
        with socket.create_connection(("127.0.0.1", viewer.port), timeout=20) as link:
            link.sendall(b"GET / HT")
            assert link.recv(1) == b""
        viewer.loop.add_callback(viewer.loop.stop)
        thread.join(20)


class TestTexts:
    def test_units_that_are_no_formula(self, result, tmp_path):
        """Pictures take what stands between dollars for TeX; HDF5 holds no null character."""
        units = "$\\bad{$ <b> \x00"
        path = replace(result, metadata={"units": units}).save(tmp_path / "r.nc")
        assert io.read_result(path).metadata["units"] == units
        assert run("report", path, "-o", tmp_path / "r.html") == (0, "")
        assert "<b> " not in (tmp_path / "r.html").read_text()

    def test_systems_of_coordinates_that_are_none(self, tmp_path):
        """No quoted name; a null character, which HDF5 cannot hold; an order to the terminal."""
        (tmp_path / "x.hdr").touch()
        for text in ("EPSG:4326", "a\0b", 'X["\x1b[2J"]'):
            header = envi(tmp_path, **{"coordinate system string": f"{{{text}}}"})
            done = CliRunner().invoke(main, ["info", str(header)])
            assert (done.exit_code, "\x1b" in done.output) == (0, False)
            words = ["--noise", "1", "--prior", "none", "--window", "4", "--overwrite"]
            assert run("denoise", header, tmp_path / "out.nc", *words)[0] == 0
            assert io.read_result(tmp_path / "out.nc").metadata["crs_wkt"] == text

    @pytest.mark.parametrize("text", ["8" * 40, f"-{'3' * 60}", f"0:{'9' * 50}"])
    def test_bands_of_many_digits(self, text):
        from sigmacube.io.source import parse_bands

        with pytest.raises(ValueError, match="must lie between 0 and 2"):
            parse_bands(text, 3)


class TestDask:
    def test_a_local_cluster_listens_on_the_loopback_interface_alone(self):
        from sigmacube.tiles.execute import _client

        def sockets(process: int) -> set[str]:
            found = set()
            for name in os.listdir(f"/proc/{process}/fd"):
                with suppress(FileNotFoundError):  # that of the listing itself
                    found.add(os.readlink(f"/proc/{process}/fd/{name}"))
            return {link[8:-1] for link in found if link.startswith("socket:[")}

        def addresses() -> set[str]:
            tree = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
            family = [os.getpid(), *map(int, Path(tree).read_text().split())]
            ours = set().union(*map(sockets, family))
            tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
            lines = [line.split() for table in tables for line in table.splitlines()[1:]]
            return {line[1][:8] for line in lines if line[3] == "0A" and line[9] in ours}

        before = addresses()
        with _client("local", 1) as client:
            assert client.submit(sum, [1, 2]).result() == 3
            assert addresses() - before == {"0100007F"}

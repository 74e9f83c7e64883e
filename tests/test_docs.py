"""What README and documentation say: code runs, commands exist, links lead somewhere."""

import importlib
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sigmacube as sc
from sigmacube import products
from sigmacube.cli import main
from sigmacube.io.sensors.samples import write_sample

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
SHAPE = (30, 32, 90)
NOISE = 0.02


def blocks(text, *languages):
    """Return the fenced blocks of some languages."""
    found, inside = [], None
    for line in text.splitlines():
        if inside is None and line.startswith("```"):
            inside = (line[3:].strip(), [])
        elif inside is not None and line.startswith("```"):
            if inside[0] in languages:
                found.append("\n".join(inside[1]) + "\n")
            inside = None
        elif inside is not None:
            inside[1].append(line)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the pages speak of."""
    import h5py
    import rasterio
    import xarray as xr

    folder = tmp_path_factory.mktemp("docs")
    truth = sc.synthetic.scene(SHAPE, rng=1)
    noisy = sc.synthetic.add_noise(truth, NOISE, rng=2)
    made = sc.datasets.Dataset("scene", "A scene.", noisy, truth, NOISE)
    for name in ("scene", "line"):
        made.save(folder / f"{name}.hdr")
    np.save(folder / "cube.npy", noisy.values.transpose(2, 0, 1))
    with h5py.File(folder / "cubes.h5", "w") as file:
        file["group/radiance"] = noisy.values
        file["group/other"] = noisy.values
    stored = np.round(noisy.values * 10_000).astype(np.int16).transpose(2, 0, 1)
    options = {"height": SHAPE[0], "width": SHAPE[1], "count": SHAPE[2], "dtype": "int16"}
    options |= {"driver": "GTiff", "crs": "EPSG:32633"}
    options |= {"transform": rasterio.Affine(30, 0, 6e5, 0, -30, 58e5)}
    with rasterio.open(folder / "scene.tif", "w", **options) as file:
        file.write(stored)
        for band, nm in enumerate(noisy.wavelengths, start=1):
            file.update_tags(band, wavelength=f"{nm:.3f}", wavelength_units="nm")
    labels = np.zeros(SHAPE[:2], dtype=np.int16)
    labels[3:12, 4:14], labels[15:27, 8:30] = 1, 2
    with rasterio.open(folder / "fields.tif", "w", **{**options, "count": 1}) as file:
        file.write(labels, 1)
    write_sample("emit-l2a", folder)
    prisma = write_sample("prisma-l1", folder).path
    prisma.rename(folder / "PRS_L1_STD_20240618102030.he5")
    (folder / "enmap").mkdir()
    enmap = write_sample("enmap-l2a", folder / "enmap").path
    product = enmap if enmap.is_dir() else enmap.parent
    shutil.make_archive(str(folder / "ENMAP01-____L2A-DT0000001867"), "zip", product)
    centres = np.linspace(300, 2600, 40)
    table = np.stack([centres, 0 * centres + 0.01, 0 * centres + 0.02, 0 * centres], axis=1)
    np.savetxt(folder / "emit_noise.txt", table)
    write_sample("emit-l1b", folder).path.rename(
        folder / "EMIT_L1B_RAD_001_20240601T101010_2415307_010.nc"
    )
    shutil.copy(folder / "scene.tif", folder / "enmap.tif")
    for name, values in {
        "raw": noisy.values + 0.1, "dark": np.full((5, *SHAPE[1:]), 0.1), "white": np.ones(SHAPE)
    }.items():  # fmt: skip
        sc.datasets.Dataset(name, "", sc.Cube(values + 0.001 * np.random.default_rng(1).normal(
            size=values.shape)), truth, NOISE).save(folder / f"{name}.hdr")  # fmt: skip
    np.savetxt(folder / "bands.txt", noisy.wavelengths)
    (folder / "sentinel2.txt").write_text("490 65\n560 35\n665 30\n842 115\n")
    xr.Dataset({"radiance": (("y", "x", "band"), noisy.values)}).chunk(y=15).to_zarr(
        folder / "line.zarr", consolidated=False
    )
    return folder


@pytest.fixture(scope="module")
def names():
    """The names that blocks of code take for granted."""
    truth = sc.synthetic.scene(SHAPE, rng=1)
    cube = sc.synthetic.add_noise(truth, NOISE, rng=2)
    result = sc.denoise(cube, NOISE, prior=None, window=10)
    about = {"name": "radiance", "units": "uW/cm^2/sr/nm"}
    radiance = sc.Cube(cube.values, cube.wavelengths, metadata=about)
    labels = np.zeros(SHAPE[:2], dtype=int)
    labels[3:12, 4:14] = 1
    return {
        "sc": sc, "np": np, "products": products, "cube": cube, "truth": truth, "noise": NOISE,
        "radiance": radiance, "result": result,
        "labels": labels, "fields": labels, "first_look": result,
        "second_look": result, "values": cube.values, "std": np.full(SHAPE, NOISE), "row": 3,
        "col": 4, "spectrum": truth.values[3, 4, [3, 17, 40]],
    }  # fmt: skip


# A page's figures in small.
SMALLER = {"range(40)": "range(1)", "trials=100": "trials=3", ":100, :100": ":9, :9"}
SMALLER |= {"(40, 88": "(4, 8", 'cube = sc.read("https:': 'later = ("https:'}


@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if blocks(text, "python")])
@pytest.mark.filterwarnings("ignore")  # files without wavelengths, few pixels
def test_code_runs(page, folder, names, tmp_path, monkeypatch):
    """The blocks of a page, one after the other, in a folder with the files it speaks of."""
    shutil.copytree(folder, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    known = {"__name__": page, **names}
    for number, code in enumerate(blocks(TEXTS[page], "python")):
        for many, few in SMALLER.items():
            code = code.replace(many, few)
        exec(compile(code, f"{page}, block {number}", "exec"), known)


def commands():
    """Yield every command of the package that the pages show."""
    for page, text in TEXTS.items():
        for block in blocks(text, "", "text", "console", "sh", "bash"):
            for line in block.splitlines():
                line = line.removeprefix("$ ").split("  #")[0].strip()
                if line.startswith("sigmacube ") and "…" not in line and "[" not in line:
                    yield page, line


@pytest.mark.parametrize(("page", "line"), list(dict.fromkeys(commands())))
def test_commands_are_known(page, line):
    """Every command and every option of it exists."""
    words = shlex.split(line.split(" > ")[0])[1:]
    name = words[0]
    command = main.get_command(
        main.make_context("sigmacube", [name, "x"], resilient_parsing=True), name
    )
    assert command is not None or name.startswith("-"), line
    known = {
        opt
        for p in (command.params if command else main.params)
        for opt in (*p.opts, *p.secondary_opts)
    }
    for word in words:
        option = word.split("=")[0]
        if re.match(r"--?[a-zA-Z]", option):
            assert option in known | {"--help", "--version"}, f"{page}: {line}"


# Pages show what comes before the commands elsewhere.
BEFORE = {
    "docs/cli.md": [
        "sigmacube denoise scene.hdr clean.zarr --keep-factors",
        "sigmacube denoise EMIT_L2A_RFL_001_20240618T102030_2417007_001.nc clean.nc",
    ],
    "docs/viewer.md": ["sigmacube denoise scene.hdr scene_clean.nc"],
}
# What needs a cluster, a server's folders, or somebody who looks: tests of scale and of the viewer.
NOT_HERE = ("tcp://head", "/srv/", "sigmacube view")


@pytest.mark.parametrize("page", sorted({page for page, _ in commands()}))
@pytest.mark.filterwarnings("ignore")
def test_commands_work_one_after_the_other(page, folder, tmp_path, monkeypatch):
    """The commands of a page, in a folder with the files it speaks of."""
    shutil.copytree(folder, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    for line in [*BEFORE.get(page, ()), *(line for where, line in commands() if where == page)]:
        if any(part in line for part in NOT_HERE):
            continue
        words = [word.replace("FILE", "scene.hdr") for word in shlex.split(line)[1:]]
        if "--resume" in words:
            shutil.rmtree(words[2], ignore_errors=True)  # a run that ended is not gone on with
        elif words[0] in ("denoise", "product", "map"):
            words.append("--overwrite")  # pages use a name more than once
        done = CliRunner().invoke(main, words)
        assert done.exit_code in (0, 1 if words[0] == "validate" else 0), f"{line}\n{done.output}"


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore")
def test_tutorials_run(page, monkeypatch):
    """Every cell, as it is; in at most three minutes of processor time."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "extensions")
    run_page = importlib.import_module("run").run_page
    before = sum(os.times()[:4])
    run_page(page)
    assert sum(os.times()[:4]) - before <= 180


def test_links_lead_somewhere():
    for page, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if not target.startswith(("http:", "https:", "mailto:")):
                assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_the_first_two_commands():
    """A newcomer finds `make demo` and `make test` before any other command."""
    first = blocks(TEXTS["README.md"], "")[0].splitlines()
    assert [line.split("#")[0].strip() for line in first] == ["make demo", "make test"]
    targets = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make (\w+)", TEXTS["README.md"]):
        assert re.search(rf"^{target}:", targets, re.M), target


def test_the_wheel_of_the_readme_is_this_version():
    assert f"sigmacube-{sc.__version__}-py3-none-any.whl" in TEXTS["README.md"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {sc.__version__}" in citation


def test_badges_are_true(monkeypatch):
    """Drawn from the project's own statements, and shown by README in words, too."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "figures")
    for name, drawn in importlib.import_module("badges").badges().items():
        assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == drawn
        assert f"docs/images/{name}" in TEXTS["README.md"]

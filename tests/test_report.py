"""The report, and what notebooks show."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from sigmacube.io.result_file import open_result
from sigmacube.show import plots, report, telling
from sigmacube.show.key_figures import key_figures, repr_html
from sigmacube.show.report import write_report
from viewing import SHAPE, make_result


@pytest.fixture(scope="module")
def made():
    return make_result()


@pytest.fixture(scope="module")
def result(made):
    return made[0]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made but not drawn: that takes seconds, and one page has it drawn anyway."""
    monkeypatch.setattr(report, "data_uri", lambda figure, kind, **_: f"data:image/{kind},")


class Reader(HTMLParser):
    """Collects headings, addresses and unclosed tags."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self, text):
        super().__init__()
        self.headings, self.addresses, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href", "action", "srcset")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


@pytest.fixture(scope="module")
def page(made, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "x.html"
    coverage = {0.5: 0.503, 0.95: 0.948}
    assert write_report(made[0], out, observed=made[1], calibration=coverage) == out
    return out.read_text(encoding="utf-8")


class TestReport:
    def test_sections(self, page):
        assert Reader(page).headings == [
            "scene.npy", "The scene", "Spectra", "Where σ is large, and why", "Noise per band",
            "Calibration", "Settings", "How to cite",
        ]  # fmt: skip

    def test_is_self_contained(self, page):
        reader = Reader(page)
        assert reader.open == []
        assert len(reader.addresses) >= 5
        assert all(re.match(r"data:image/(png|svg\+xml);base64,", a) for a in reader.addresses)
        style = re.search(r"<style>(.*?)</style>", page, re.S).group(1)
        assert "url(" not in style
        assert "@import" not in style
        assert "<script" not in page

    def test_figures_are_those_of_the_result(self, page, result):
        noise_left = np.nanmedian(result.std / result.noise)
        assert f"{100 * noise_left:.0f} % (median)" in page
        assert f"{SHAPE[0]} × {SHAPE[1]} pixels, {SHAPE[2]} bands" in page
        assert "94.8 %" in page

    @pytest.mark.usefixtures("undrawn")
    def test_saved_result_gives_the_same(self, result, tmp_path):
        result.save(tmp_path / "a.nc")
        write_report(tmp_path / "a.nc", tmp_path / "a.html")
        text = (tmp_path / "a.html").read_text(encoding="utf-8")
        for value in key_figures(result).values():
            assert value in text

    @pytest.mark.usefixtures("undrawn")
    def test_text_from_files_is_escaped(self, result, tmp_path):
        evil = "<img src=x onerror=alert(1)>"
        other = replace(result, metadata={"source": evil, "name": evil, "note": evil})
        write_report(other, tmp_path / "a.html")
        assert evil not in (tmp_path / "a.html").read_text(encoding="utf-8")
        assert evil not in repr_html(other)

    def test_large_scenes_are_thinned_and_say_so(self, result, tmp_path, monkeypatch):
        monkeypatch.setattr(report, "_LIMIT", result.estimate.size // 5)
        write_report(result, tmp_path / "a.html")
        text = (tmp_path / "a.html").read_text(encoding="utf-8")
        assert "every third pixel" in text
        assert f"{SHAPE[0]} × {SHAPE[1]} pixels" in text

    @pytest.mark.parametrize(
        "change",
        [
            {"std": None, "error_model": None},
            {"wavelengths": None},
            {"noise": 0.04},
            {"noise": 0.0016 * np.eye(SHAPE[2])},
            {"settings": {}},
            {"metadata": {}},
            {"rejected": np.zeros(SHAPE, dtype=bool)},
        ],
        ids=["no std", "no wavelengths", "scalar", "covariance", "no settings", "bare", "rejected"],
    )
    @pytest.mark.usefixtures("undrawn")
    def test_any_result(self, result, tmp_path, change):
        other = replace(result, **change)
        write_report(other, tmp_path / "a.html")
        assert Reader((tmp_path / "a.html").read_text(encoding="utf-8")).open == []

    @pytest.mark.usefixtures("undrawn")
    def test_result_without_any_value(self, result, tmp_path):
        empty = np.full(SHAPE, np.nan)
        write_report(replace(result, estimate=empty, std=empty), tmp_path / "a.html")

    @pytest.mark.usefixtures("undrawn")
    def test_recorded_calibration(self, result, tmp_path):
        other = replace(result, settings={**result.settings, "holdout": {"coverage": {"0.9": 0.8}}})
        write_report(other, tmp_path / "a.html")
        assert "80.0 %" in (tmp_path / "a.html").read_text(encoding="utf-8")

    @pytest.mark.usefixtures("undrawn")
    def test_calibration_file(self, result, tmp_path):
        (tmp_path / "c.json").write_text(json.dumps({"coverage": {"0.95": 0.91}}))
        write_report(result, tmp_path / "a.html", calibration=tmp_path / "c.json")
        assert "91.0 %" in (tmp_path / "a.html").read_text(encoding="utf-8")

    @pytest.mark.parametrize("given", [{}, {"a": 1}, {0.95: 2.0}, {1.5: 0.9}, 3, [0.9]])
    def test_invalid_calibration(self, result, tmp_path, given):
        with pytest.raises(ValueError, match="Invalid calibration"):
            write_report(result, tmp_path / "a.html", calibration=given)
        assert not (tmp_path / "a.html").exists()

    def test_suffix(self, result, tmp_path):
        with pytest.raises(ValueError, match=r"cannot have the suffix '.pdf'"):
            write_report(result, tmp_path / "a.pdf")

    def test_existing_page_is_kept(self, result, tmp_path):
        (tmp_path / "a.html").write_text("mine")
        with pytest.raises(FileExistsError):
            write_report(result, tmp_path / "a.html", overwrite=False)
        assert (tmp_path / "a.html").read_text() == "mine"

    def test_same_result_same_bytes(self, page, made, tmp_path):
        options = {"observed": made[1], "calibration": {0.5: 0.503, 0.95: 0.948}}
        again = write_report(made[0], tmp_path / "b.html", **options)
        assert again.read_text(encoding="utf-8") == page


class TestTellingPixels:
    def test_lowest_and_highest(self, result):
        pixels = list(telling.telling_pixels(result, 1))
        good = np.arange(SHAPE[2])
        good = good[(good < 20) | (good > 21)]
        level = np.sqrt(np.mean(np.square(result.std[:, :, good]), axis=2))
        inner = level[10:-10, 10:-10]
        low, high = pixels[0], pixels[1]
        assert (low.why, high.why) == ("lowest σ", "highest σ")
        assert level[low.row, low.col] == pytest.approx(inner.min())
        assert level[high.row, high.col] == pytest.approx(inner.max())

    def test_classes_are_different_places_with_values(self, result):
        pixels = list(telling.telling_pixels(result, 1))
        assert 4 <= len(pixels) <= 6
        assert len({(p.row, p.col) for p in pixels}) == len(pixels)
        for pixel in pixels:
            assert np.isfinite(result.estimate[pixel.row, pixel.col, 30])

    def test_arguments_are_not_written_to(self, result):
        before = result.estimate.copy()
        list(telling.telling_pixels(result, 1))
        np.testing.assert_array_equal(before, result.estimate)


class TestCommand:
    def run(self, *arguments):
        from click.testing import CliRunner

        from sigmacube.cli import main

        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    @pytest.mark.usefixtures("undrawn")
    def test_writes_beside_the_result(self, result, tmp_path):
        result.save(tmp_path / "a.nc")
        done = self.run("report", tmp_path / "a.nc")
        assert done.exit_code == 0, done.output
        assert "a_report.html" in done.output
        again = self.run("report", tmp_path / "a.nc")
        assert again.exit_code == 2
        assert self.run("report", tmp_path / "a.nc", "--overwrite").exit_code == 0

    def test_absent(self, tmp_path):
        done = self.run("report", tmp_path / "none.nc")
        assert done.exit_code == 2
        assert f"{tmp_path / 'none.nc'}: no such file." in done.output


class TestNotebook:
    def test_repr(self, result):
        text = result._repr_html_()
        reader = Reader(text)
        assert reader.open == []
        assert all(address.startswith("data:image/png;base64,") for address in reader.addresses)
        assert len(text) < 150_000
        for value in key_figures(result).values():
            assert value in text

    @pytest.mark.parametrize("change", [{"std": None, "error_model": None}, {"wavelengths": None}])
    def test_repr_of_any_result(self, result, change):
        assert "DenoisedCube" in replace(result, **change)._repr_html_()

    def test_plot(self, result, made):
        axes = result.plot(observed=made[1])
        assert [ax.get_title() for ax in axes[:2]] == ["Observed", "Denoised"]
        assert len(result.plot()) == 3
        assert len(replace(result, std=None).plot()) == 2

    def test_plot_spectrum(self, result):
        ax = result.plot_spectrum(7, 9)
        assert ax.get_title() == "Pixel (7, 9)"
        y = ax.lines[-1].get_ydata()
        expected = result.estimate[7, 9]
        np.testing.assert_allclose(y[np.isfinite(y)], expected[np.isfinite(expected)])


class TestColorBands:
    def test_bad_bands_are_avoided(self, result):
        nm = result.wavelengths
        ax = plots.false_color(result, colors=(float(nm[20]), float(nm[21]), 600.0))
        shown = [int(text) for text in re.findall(r"\d+", ax.get_title())]
        assert round(nm[20]) not in shown
        assert round(nm[21]) not in shown

    def test_empty_bands_are_avoided(self, result):
        values = result.estimate.copy()
        values[..., 30] = np.nan
        usable = plots.usable_bands(values, None)
        assert not usable[30]
        nearest = plots.color_bands(usable, result.wavelengths, (result.wavelengths[30],) * 3)
        assert nearest[0] in (29, 31)


def test_source_of_a_result_in_memory(result):
    assert open_result(result).name == "scene.npy"

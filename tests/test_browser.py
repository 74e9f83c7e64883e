"""Report and viewer in a real browser: what a user sees and does."""

import csv
import re
import shutil
from io import StringIO

import numpy as np
import pytest

pytest.importorskip("bokeh")
pytest.importorskip("playwright")

from playwright import sync_api

from sigmacube.io import read_result
from sigmacube.show.report import write_report
from viewing import NOISE, ODD, SHAPE, Running, make_result

pytestmark = pytest.mark.browser

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
# Page coordinates of the centre of a pixel of the scene.
PLACE = """([col, row]) => {
  const [view] = [...Bokeh.index.query((view) => view.model.name == "image")]
  const box = view.canvas_view.el.getBoundingClientRect()
  return [box.left + view.frame.x_scale.compute(col), box.top + view.frame.y_scale.compute(row)]
}"""

# Several frames later: what was asked of the page has been drawn.
FRAMES = """() => new Promise((done) => {
  let left = 5
  const next = () => left-- > 0 ? requestAnimationFrame(next) : done()
  next()
})"""
# Long enough for a machine that is busy with other tests.
sync_api.expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The noisy input, the result made from it, and its report."""
    folder = tmp_path_factory.mktemp("browser")
    result, noisy = make_result()
    np.save(folder / "scene.npy", noisy.values)
    result.save(folder / "out.zarr")
    write_report(folder / "out.zarr", folder / "out.html")
    return folder


@pytest.fixture(scope="module")
def stored(folder):
    return read_result(folder / "out.zarr")


@pytest.fixture(scope="module")
def server(folder):
    with Running(folder / "out.zarr") as running:
        yield running


class Visit:
    """An open page, and what went wrong on it."""

    def __init__(self, browser, url, **options):
        self.page = browser.new_page(accept_downloads=True, **options)
        self.requests, self.problems = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on(
            "console",
            lambda line: (
                self.problems.append(line.text) if line.type in ("error", "warning") else None
            ),
        )
        self.page.goto(url)

    def settle(self):
        """Wait until the picture is there and the page has been laid out for it."""
        self.page.wait_for_selector(".value")
        self.page.wait_for_function(
            "[...Bokeh.index.query((v) => v.model.name == 'image')][0]"
            ".model.title.text != 'Reading…'"
        )
        self.page.evaluate(FRAMES)

    def at(self, row, col):
        return self.page.evaluate(PLACE, [col, row])

    def click(self, row, col):
        self.page.mouse.click(*self.at(row, col))
        self.wait(f"pixel ({row}, {col})")

    def wait(self, text):
        sync_api.expect(self.page.locator(".value").filter(has_text=text)).to_have_count(1)

    def values(self):
        """Return {label: (estimate, sigma)} as the page shows them."""
        found = {}
        for line in self.page.locator(".value").all_inner_texts():
            label, value, sigma = re.match(r"● (.+): (\S+) ± (\S+) \(", line).groups()
            found[label] = float(value), float(sigma)
        return found

    def save(self, button):
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name=button, exact=True).click()
        return waiting.value


@pytest.fixture
def visit(browser, server):
    visit = Visit(browser, server.url, viewport={"width": 1280, "height": 800})
    visit.settle()
    yield visit
    visit.page.close()


def expect_near(shown, value, std):
    """Compare with what the file holds, to the digits that are shown."""
    assert shown[0] == pytest.approx(value, rel=1e-4)
    assert shown[1] == pytest.approx(std, rel=1e-2)


VIEWS = {
    "Denoised, one band": lambda r, noisy: r.estimate[..., 33],
    "Observed, one band": lambda r, noisy: noisy[..., 33],
    "Removed: observed − denoised": lambda r, noisy: noisy[..., 33] - r.estimate[..., 33],
    "z: removed / noise σ": lambda r, noisy: (noisy[..., 33] - r.estimate[..., 33]) / NOISE,
    "σ": lambda r, noisy: r.std[..., 33],
    "σ relative to the noise": lambda r, noisy: r.std[..., 33] / NOISE,
}
# Whether the second picture starts at a column between two.
SECOND = """([low, high]) => {
  const [view] = [...Bokeh.index.query((v) => v.model.name == "image")]
  const source = view.model.renderers.map((r) => r.data_source).find((s) => "full" in s.data)
  if (source.data.rgba.length == 0) return false
  const image = source.data.rgba[0], [, cols] = image.shape
  const row = Array.from(image.subarray(0, cols))
  const first = row.findIndex((v) => v != 0)
  const found = first < 0 ? cols : first
  return low <= found && found <= high
}"""


@pytest.fixture(scope="module")
def noisy(folder):
    return np.load(folder / "scene.npy")


def wait_for_title(visit, start):
    visit.page.wait_for_function(
        "(name) => [...Bokeh.index.query((v) => v.model.name == 'image')][0]"
        ".model.title.text.startsWith(name)",
        arg=start,
    )
    visit.page.evaluate(FRAMES)


class TestViewer:
    def test_opens_without_a_complaint(self, visit, server):
        assert visit.problems == []
        assert all(url.startswith(server.url) for url in visit.requests)
        assert visit.page.title() == "out.zarr · sigmacube"
        assert visit.page.get_by_text("observed: scene.npy").count() == 1

    def test_click_shows_the_file_s_numbers(self, visit, stored):
        set_wavelength(visit, stored, 33)
        for row, col in ((5, 50), (40, 8), (45, 60)):
            visit.click(row, col)
            expect_near(
                visit.values()[f"pixel ({row}, {col})"],
                stored.estimate[row, col, 33],
                stored.std[row, col, 33],
            )

    def test_band_changes_picture_and_numbers(self, visit, stored):
        visit.click(20, 30)
        for band in (3, 60):
            set_wavelength(visit, stored, band)
            shown = visit.values()["pixel (20, 30)"]
            expect_near(shown, stored.estimate[20, 30, band], stored.std[20, 30, band])
            picture = shown_picture(visit)
            np.testing.assert_allclose(
                np.nan_to_num(picture), np.nan_to_num(stored.estimate[..., band]), rtol=1e-5
            )

    def test_slider(self, visit, stored):
        slider = visit.page.locator(".noUi-handle").first
        slider.focus()
        before = visit.page.get_by_text(re.compile(r"^At ")).inner_text()
        slider.press("ArrowRight")
        sync_api.expect(visit.page.get_by_text(before)).to_have_count(0)
        assert visit.problems == []

    def test_row_and_column_are_where_they_should_be(self, visit, stored):
        """The top left corner of the screen is row 0, column 0; hovering tells the same."""
        x, y = visit.at(4, 7)
        below = visit.at(10, 7)
        right = visit.at(4, 20)
        assert below[1] > y
        assert right[0] > x
        set_wavelength(visit, stored, 33)
        x, y = visit.at(4, 7)
        visit.page.mouse.move(x, y)
        tip = visit.page.locator(".bk-Tooltip").filter(visible=True)
        sync_api.expect(tip).to_contain_text("4, 7")
        value = f"{stored.estimate[4, 7, 33]:.4g}"
        sync_api.expect(tip).to_contain_text(value)

    def test_drag_gives_the_mean(self, visit, stored):
        set_wavelength(visit, stored, 33)
        start, end = visit.at(9.6, 19.6), visit.at(14.4, 23.4)
        visit.page.mouse.move(*start)
        visit.page.mouse.down()
        visit.page.mouse.move(*(0.5 * (a + b) for a, b in zip(start, end, strict=True)))
        visit.page.mouse.move(*end)
        visit.page.mouse.up()
        label = "mean of rows 10-14, cols 20-23"
        visit.wait(label)
        mean = stored.estimate[10:15, 20:24, 33].mean()
        assert visit.values()[label][0] == pytest.approx(mean, rel=1e-4)

    def test_pin_and_export(self, visit, stored, folder, tmp_path):
        visit.click(5, 50)
        visit.page.get_by_role("button", name="Pin", exact=True).click()
        visit.click(40, 8)
        sync_api.expect(visit.page.locator(".value")).to_have_count(2)
        saved = visit.save("Spectra as CSV")
        assert saved.suggested_filename == "out_spectra.csv"
        saved.save_as(tmp_path / "x.csv")
        table = list(csv.DictReader(StringIO((tmp_path / "x.csv").read_text())))
        assert len(table) == SHAPE[2]
        for row, col in ((5, 50), (40, 8)):
            for name, cube in (("estimate", stored.estimate), ("sigma", stored.std)):
                read = [line[f"pixel ({row}, {col}) {name}"] for line in table]
                np.testing.assert_allclose(
                    [float(text or "nan") for text in read], cube[row, col], rtol=1e-6
                )
        noisy = [float(line["pixel (40, 8) observed"]) for line in table]
        np.testing.assert_allclose(noisy, np.load(folder / "scene.npy")[40, 8], rtol=1e-6)
        visit.page.get_by_role("button", name="Clear pins").click()
        sync_api.expect(visit.page.locator(".value")).to_have_count(1)

    def test_views_show_the_file_s_numbers(self, visit, stored, noisy):
        set_wavelength(visit, stored, 33)
        for label, values in VIEWS.items():
            visit.page.locator("select").first.select_option(label=label)
            wait_for_title(visit, label.removesuffix(", one band"))
            picture, expected = shown_picture(visit), values(stored, noisy)
            np.testing.assert_allclose(
                np.nan_to_num(picture), np.nan_to_num(expected), rtol=1e-5, atol=1e-6
            )
        visit.page.locator("select").first.select_option(label="Rank")
        wait_for_title(visit, "Rank")
        assert set(np.unique(shown_picture(visit))) <= set(np.unique(stored.ranks))
        assert visit.problems == []

    def test_swipe_and_flicker(self, visit, stored):
        set_wavelength(visit, stored, 33)
        visit.page.locator("select").nth(1).select_option(label="Observed, one band")
        wait_for_title(visit, "Denoised, ")
        visit.page.wait_for_function(SECOND, arg=[30, 31])
        swipe = "Bokeh.documents[0].get_model_by_name('swipe').value = "
        for share, first in ((0, 0), (100, SHAPE[1]), (25, 15)):
            visit.page.evaluate(f"{swipe}{share}")
            visit.page.wait_for_function(SECOND, arg=[first, first])
        button = visit.page.get_by_role("button", name="Flicker")
        button.click()
        for first in (0, SHAPE[1], 0):
            visit.page.wait_for_function(SECOND, arg=[first, first])
        visit.page.get_by_role("button", name="Stop").click()
        visit.page.wait_for_function(SECOND, arg=[30, 31])
        visit.page.locator("select").nth(1).select_option(label="nothing")
        sync_api.expect(button).to_have_count(0)
        assert visit.problems == []

    def test_keyboard(self, visit, stored):
        for key, title in (("o", "Observed, R"), ("d", "Denoised, R"), ("s", "σ, "),
                           ("z", "z: "), ("r", "Removed: "), ("o", "Observed, ")):  # fmt: skip
            visit.page.keyboard.press(key)
            wait_for_title(visit, title)
        set_wavelength(visit, stored, 33)
        visit.page.mouse.click(3, 3)  # away from the field, which keeps its keys
        visit.page.keyboard.press("ArrowRight")
        text = f"At {stored.wavelengths[34]:.1f} nm"
        sync_api.expect(visit.page.get_by_text(text)).to_have_count(1)
        visit.page.keyboard.press("p")
        visit.click(20, 30)
        sync_api.expect(visit.page.locator(".value")).to_have_count(2)
        visit.page.keyboard.press("c")
        sync_api.expect(visit.page.locator(".value")).to_have_count(1)
        assert visit.problems == []

    def test_place_and_unexplained_pixels(self, visit):
        row, col = ODD[0]
        visit.click(row, col)
        said = visit.page.locator(".where")
        sync_api.expect(said).to_contain_text(f"E {600_000 + 30 * (col + 0.5):.0f}, N")
        assert visit.page.get_by_text("no window explains this spectrum").count() == 1
        assert visit.page.get_by_text("2 unexplained pixels").count() == 1
        marks = visit.page.evaluate(
            """() => {
              const [view] = [...Bokeh.index.query((v) => v.model.name == "image")]
              const marks = view.model.renderers.find((r) => r.name == "unexplained")
              return [[...marks.data_source.data.y], [...marks.data_source.data.x]]
            }"""
        )
        np.testing.assert_array_equal(np.transpose(marks), ODD)

    def test_sigma_has_a_panel_of_its_own(self, visit, stored):
        visit.click(20, 30)
        shown = visit.page.evaluate(
            """() => {
              const [view] = [...Bokeh.index.query((v) => v.model.name == "sigma")]
              const lines = view.model.renderers.map((r) => r.data_source.data)
              return lines.find((d) => "ys" in d).ys[0].map((v) => isNaN(v) ? null : v)
            }"""
        )
        expected = np.where(np.isfinite(stored.std[20, 30]), stored.std[20, 30], np.nan)
        np.testing.assert_allclose(np.array(shown, dtype=float), expected, rtol=1e-6)

    def test_png(self, visit, tmp_path):
        from matplotlib.image import imread

        saved = visit.save("View as PNG")
        assert saved.suggested_filename == "out_view.png"
        saved.save_as(tmp_path / "x.png")
        picture = imread(tmp_path / "x.png")
        assert picture.shape[1] > 1000
        # Both panes are on it, not only paper.
        left, right = np.array_split(picture[..., :3], 2, axis=1)
        assert min(left.std(), right.std()) > 0.05

    @pytest.mark.parametrize(("width", "columns"), [(1280, 3), (400, 1)])
    def test_legend_has_as_many_columns_as_fit(self, browser, server, width, columns):
        visit = Visit(browser, server.url, viewport={"width": width, "height": 900})
        visit.settle()
        visit.page.wait_for_function(
            "(columns) => [...Bokeh.index.query((v) => v.model.name == 'spectrum')][0]"
            ".model.above.some((one) => one.ncols == columns)",
            arg=columns,
        )
        assert visit.problems == []
        visit.page.close()

    def test_narrow_window(self, browser, server):
        visit = Visit(browser, server.url, viewport={"width": 520, "height": 900})
        visit.page.wait_for_selector(".value")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 520
        boxes = [figure.bounding_box() for figure in visit.page.locator(".bk-Figure").all()]
        assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]
        visit.page.close()

    def test_no_observed_in_the_legend_without_input(self, browser, folder, tmp_path):
        shutil.copytree(folder / "out.zarr", tmp_path / "out.zarr")
        with Running(tmp_path / "out.zarr") as running:
            visit = Visit(browser, running.url)
            visit.page.wait_for_selector(".value")
            assert visit.page.get_by_text("observed:").count() == 0
            assert visit.problems == []
            visit.page.close()


def set_wavelength(visit, stored, band):
    """Type the wavelength of a band."""
    field = visit.page.get_by_label("Wavelength (nm)")
    field.fill(f"{stored.wavelengths[band]:.3f}")
    field.press("Enter")
    text = f"At {stored.wavelengths[band]:.1f} nm"
    sync_api.expect(visit.page.get_by_text(text)).to_have_count(1)
    visit.page.wait_for_function(
        "(name) => [...Bokeh.index.query((v) => v.model.name == 'image')][0]"
        ".model.title.text.endsWith(name)",
        arg=text.removeprefix("At "),
    )
    visit.page.evaluate(FRAMES)


def shown_picture(visit):
    """Return the values behind the picture on the page."""
    data, shape = visit.page.evaluate(
        """() => {
          const [view] = [...Bokeh.index.query((v) => v.model.name == "image")]
          const shown = view.model.renderers.filter((r) => r.visible)
          const source = shown.map((r) => r.data_source).find((s) => "value" in s.data)
          const [image] = [...source.data.value]
          return [Array.from(image, (v) => Number.isNaN(v) ? null : v), image.shape]
        }"""
    )
    return np.array(data, dtype=float).reshape(shape)


class TestReport:
    @pytest.fixture(params=[1100, 420])
    def visit(self, request, browser, folder):
        visit = Visit(
            browser,
            (folder / "out.html").as_uri(),
            viewport={"width": request.param, "height": 800},
        )
        visit.width = request.param
        yield visit
        visit.page.close()

    def test_no_complaint_and_no_network(self, visit, folder):
        assert visit.problems == []
        others = [url for url in visit.requests if not url.startswith("data:")]
        assert others == [(folder / "out.html").as_uri()]

    def test_pictures_are_drawn(self, visit):
        images = visit.page.locator("img")
        assert images.count() >= 4
        for image in images.all():
            assert image.evaluate("image => image.complete && image.naturalWidth") > 300
            assert image.get_attribute("alt")

    def test_fits_the_window(self, visit):
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= visit.width

    def test_prints(self, visit, tmp_path):
        visit.page.pdf(path=tmp_path / "x.pdf", format="A4")
        pages = (tmp_path / "x.pdf").read_bytes().count(b"/Type /Page\n")
        assert 2 <= pages <= 8

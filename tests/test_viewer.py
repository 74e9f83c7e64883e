"""The viewer without a browser: what it shows, what it refuses, how it ends."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("bokeh")

from bokeh.document import Document as BokehDocument

from sigmacube.io.observed import open_observed
from sigmacube.io.result_file import open_result
from sigmacube.show.viewer import guard, picture, spectra
from sigmacube.show.viewer.app import MAX_PINS, Document
from sigmacube.show.viewer.picture import Part
from sigmacube.show.viewer.spectra import Region
from viewing import NOISE, SHAPE, Running, make_result


@pytest.fixture(scope="module")
def made():
    return make_result()


@pytest.fixture(scope="module")
def result(made):
    return made[0]


@pytest.fixture(scope="module")
def stored(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("viewer") / "out.zarr"
    result.save(path)
    return path


@pytest.fixture
def page(made):
    """A page on the result in memory, where everything happens at once."""
    source = open_result(made[0])
    document = Document(BokehDocument(), source, open_observed(made[1], source))
    document.build()
    return document


class TestSpectra:
    def test_pixel_equals_the_file(self, stored, result):
        with open_result(stored) as source:
            spectrum = spectra.read(source, Region(7, 9))
        np.testing.assert_allclose(spectrum.estimate, result.estimate[7, 9], rtol=1e-6)
        np.testing.assert_allclose(spectrum.std, result.std[7, 9], rtol=1e-6)
        low, high = result.interval(0.95)
        np.testing.assert_allclose(spectrum.low, low[7, 9], rtol=1e-5)
        np.testing.assert_allclose(spectrum.high, high[7, 9], rtol=1e-5)

    def test_exact_region_std(self, result):
        source = open_result(result)
        region = Region(10, 20, 5, 4)
        found = spectra.exact_region_std(source, region)
        weights = np.zeros(SHAPE)
        for band in (0, 33):
            weights[:] = 0
            weights[region.rows, region.cols, band] = 1 / 20
            assert found[band] == pytest.approx(result.functional_std(weights), rel=1e-9)
        assert np.isnan(found[20:22]).all()

    def test_region_leaves_out_what_is_masked(self, result):
        source = open_result(result)
        found = spectra.exact_region_std(source, Region(0, 0, 5, 6))
        weights = np.isfinite(result.estimate[:, :, 5])[..., None] * np.zeros(SHAPE)
        inside = np.isfinite(result.estimate[:5, :6, 5])
        weights[:5, :6, 5] = inside / inside.sum()
        assert found[5] == pytest.approx(result.functional_std(weights), rel=1e-9)

    def test_stored_correlation_is_near_the_exact_value(self, stored, result):
        """Within a factor of 1.4; independent errors would be wrong by more than that."""
        region = Region(16, 24, 9, 9)
        with open_result(stored) as source:
            spectrum = spectra.read(source, region)
        exact = spectra.exact_region_std(open_result(result), region)
        good = np.isfinite(exact)
        ratio = np.median(spectrum.std[good] / exact[good])
        assert spectrum.std_kind == "approximate"
        assert 1 / 1.4 < ratio < 1.4
        block = result.std[region.rows, region.cols]
        naive = np.sqrt(np.sum(block**2, axis=(0, 1))) / 81
        assert np.median(naive[good] / exact[good]) < 1 / 1.4

    def test_bound_without_any_correlation(self, result):
        source = open_result(result)
        spectrum = spectra.read(source, Region(16, 24, 9, 9))
        exact = spectra.exact_region_std(source, Region(16, 24, 9, 9))
        good = np.isfinite(exact)
        assert spectrum.std_kind == "bound"
        assert np.all(spectrum.std[good] >= exact[good])

    def test_factors_kept_in_the_file_give_the_exact_value(self, result, tmp_path):
        result.save(tmp_path / "kept.zarr", keep_factors=True)
        region = Region(10, 20, 5, 4)
        exact = spectra.exact_region_std(open_result(result), region)
        with open_result(tmp_path / "kept.zarr") as source:
            assert "error_model" not in vars(source)
            page = Document(BokehDocument(), source)
            page.build()
            page.choose(region)
        assert page.current.std_kind == "exact"
        np.testing.assert_allclose(page.current.std, exact, rtol=1e-4)

    def test_too_large_a_region(self, result):
        huge = Region(0, 0, 300, 300)
        with pytest.raises(ValueError, match=r"Invalid region of 300 × 300 pixels"):
            spectra.read(open_result(result), huge)

    def test_csv(self, result, page):
        page.tap(9, 7)
        page.add_pin()
        page.tap(30, 40)
        page.export()
        lines = page.download.data["text"][0].splitlines()
        head = lines[0].split('","')
        assert len(lines) == SHAPE[2] + 1
        assert [h.split(") ")[1].strip('"') for h in head[1:3]] == ["sigma", "observed"]
        first = lines[1 + 33].split(",")
        assert float(first[2]) == pytest.approx(result.estimate[40, 30, 33], rel=1e-7)
        assert float(first[5]) == pytest.approx(result.estimate[7, 9, 33], rel=1e-7)
        assert float(first[6]) == pytest.approx(result.std[7, 9, 33], rel=1e-7)
        assert lines[1 + 20].split(",")[2] == ""


class TestPictures:
    def test_kinds_follow_the_result(self, result):
        found = picture.kinds(open_result(result))
        keys = {key for group in found.values() for key, _ in group}
        assert not keys & {"rejected", "observed", "removed", "z"}
        found = picture.kinds(open_result(result), observed=True)
        assert [key for key, _ in found["Taken away"]] == ["removed", "z"]

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("band", lambda r: r.estimate[..., 8]),
            ("sigma", lambda r: r.std[..., 8]),
            ("ratio", lambda r: r.std[..., 8] / NOISE),
        ],
    )
    def test_values(self, result, kind, expected):
        part = Part.of(SHAPE, (0, SHAPE[0] - 1, 0, SHAPE[1] - 1))
        found = picture.make(open_result(result), kind, part, band=8, colors=[1, 2, 3])
        np.testing.assert_allclose(found.values, expected(result), rtol=1e-6)
        finite = found.values[np.isfinite(found.values)]
        np.testing.assert_allclose(
            (found.low[0], found.high[0]), np.percentile(finite, (2, 98)), rtol=1e-5
        )

    def test_color_presets_avoid_bad_bands(self, result):
        for bands in picture.presets(open_result(result)).values():
            assert not {20, 21} & set(bands)

    def test_no_value_is_grey(self, result):
        part = Part.of(SHAPE, (0, SHAPE[0] - 1, 0, SHAPE[1] - 1))
        found = picture.make(open_result(result), "rgb", part, band=0, colors=[30, 20 - 5, 5])
        rgba = found.rgba().view(np.uint8).reshape(*SHAPE[:2], 4)
        assert (rgba[0, 0] == (217, 217, 217, 255)).all()
        assert (rgba[..., 3] == 255).all()

    def test_large_parts_are_thinned(self):
        part = Part.of((5000, 900, 3), (0, 4999, 0, 899))
        assert part.step == 10
        assert part.extent == (-0.5, -0.5, 900.0, 5000.0)


class TestPage:
    def test_click(self, page, result):
        page.band.value = 33
        page.tap(11.3, 24.7)
        assert page.current.region == Region(25, 11)
        text = re.sub(r"<[^>]+>", "", page.readout.text)
        assert f"pixel (25, 11): {result.estimate[25, 11, 33]:.5g} ± " in text
        assert f"± {result.std[25, 11, 33]:.3g} " in text

    def test_wavelength_sets_the_band(self, page, result):
        page.nm.value = 1000.0
        nearest = int(np.abs(result.wavelengths - 1000).argmin())
        assert page._band() == nearest
        assert page.kind.value == "band"

    def test_drag_gives_the_mean_with_exact_sigma(self, page, result):
        box = {"type": "rect", "x0": 19.6, "x1": 23.4, "y0": 9.6, "y1": 14.4}
        page.select(type("E", (), {"geometry": box, "final": True}))
        assert page.current.region == Region(10, 20, 5, 4)
        assert page.current.std_kind == "exact"
        mean = result.estimate[10:15, 20:24, 5].mean()
        assert page.current.estimate[5] == pytest.approx(mean, rel=1e-6)

    def test_gaps_at_bad_bands(self, page):
        assert 20 not in page.spectrum.points.data["band"]
        xs = page.spectrum._areas.data["xs"]
        assert len(xs) == 2

    def test_pins(self, page):
        for number in range(MAX_PINS + 3):
            page.tap(10 + number, 20)
            page.add_pin()
            page.add_pin()
        assert len(page.pins) == MAX_PINS
        colors = [color for _, color in page.pins]
        assert len(set(colors)) == MAX_PINS
        page.clear_pins()
        assert page.pins == []
        assert len(page.spectrum._lines.data["xs"]) == 1

    def test_zoom_reads_finer_pixels(self, page):
        page.source.shape = (5000, 4000, SHAPE[2])
        page.part = Part.of(page.source.shape, (0, 4999, 0, 3999))
        drawn = []
        page.refresh = lambda: drawn.append(page.part)
        page.move(type("E", (), {"x0": 10.0, "x1": 300.0, "y0": 500.0, "y1": 900.0}))
        assert drawn[-1] == Part(slice(500, 901), slice(10, 301), 1)
        page.move(None)
        assert drawn[-1].step == 10

    def test_every_kind_is_drawn(self, page):
        for kind in page.kinds:
            page.kind.value = kind
            assert (page.image.color.visible) == (kind in ("rgb", "observed_rgb"))

    def test_damaged_file_is_told_on_the_page(self, made):
        from concurrent.futures import ThreadPoolExecutor

        source = open_result(made[0])
        with ThreadPoolExecutor(1) as executor:
            page = Document(BokehDocument(), source, None, executor)
            page.build()
            said = []
            page.doc.add_next_tick_callback = lambda call: (call(), said.append(page.status.text))

            def broken():
                raise ValueError("chunk 3 is damaged")

            page._later(broken, lambda found: None)
        assert "chunk 3 is damaged" in said[-1]


BAD_NUMBERS = (None, "1", "x" * 10_000, float("nan"), float("inf"), -float("inf"), 1e308, -1e308,
               10**400, -(10**9), True, [], {}, b"1", 1j, object())  # fmt: skip


class TestMalformedValues:
    """A page can send anything; the server stays within the scene."""

    @pytest.mark.parametrize("value", BAD_NUMBERS, ids=lambda v: type(v).__name__ + str(v)[:8])
    def test_places(self, page, value):
        before = page.current.region
        page.tap(value, 3)
        page.tap(3, value)
        for key in ("x0", "x1", "y0", "y1"):
            box = {"type": "rect", "x0": 1, "x1": 2, "y0": 1, "y1": 2, key: value}
            page.select(type("E", (), {"geometry": box, "final": True}))
        page.select(type("E", (), {"geometry": value, "final": True}))
        page.move(type("E", (), {"x0": value, "x1": value, "y0": value, "y1": value}))
        page.set_wavelength(value)
        page.pick_band(value)
        assert page.current.region == before
        assert 0 <= page._band() < SHAPE[2]

    @pytest.mark.parametrize("value", [-5, 10**9, 1e300, -1e300, 33.4])
    def test_band(self, page, value):
        page.band.value = value
        assert 0 <= page._band() < SHAPE[2]
        assert page.image.figure.title.text

    @pytest.mark.parametrize("value", ["", "evil", "../../etc/passwd", "rejected", "x" * 100_000])
    def test_choices(self, page, value):
        from bokeh.core.property.validation import validate

        with validate(False):
            page.kind.value = value
            page.preset.value = value
        assert page._kind() in page.kinds
        assert page._colors() in page.presets.values()

    @pytest.mark.parametrize("value", [(50, 50), (98, 2), (-1e9, 1e9), (100, 100), (0, 0)])
    def test_stretch(self, page, value):
        page.stretch.value = value
        low, high = page._percentiles()
        assert 0 <= low < high <= 100
        page.refresh()

    def test_region_beyond_the_limit_is_told(self, page, monkeypatch):
        monkeypatch.setattr(spectra, "MAX_REGION", 10)
        before = page.current.region
        box = {"type": "rect", "x0": 0, "x1": 30, "y0": 0, "y1": 30}
        page.select(type("E", (), {"geometry": box, "final": True}))
        assert page.current.region == before
        assert "at most" in page.status.text


@pytest.fixture(scope="module")
def server(stored):
    with Running(stored) as running:
        yield running


@pytest.fixture(scope="module")
def token(server):
    return token_of(ask(server.port)[1])


def ask(port, method="GET", uri="/", host=None, headers=(), body=None, tail=b""):
    """Send one request as it is, with none of a client's corrections; return status and text."""
    lines = [f"{method} {uri} HTTP/1.1"]
    if host is not False:
        lines.append(f"Host: {host or f'127.0.0.1:{port}'}")
    lines += [f"{name}: {value}" for name, value in headers]
    lines += [f"Content-Length: {len(body)}"] if body is not None else []
    raw = ("\r\n".join(lines) + "\r\nConnection: close\r\n\r\n").encode("latin-1") + (body or tail)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        answer = b""
        try:
            link.sendall(raw)
            while not whole(answer) and (chunk := link.recv(65_536)):
                answer += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass  # the server hung up on a request that it would not even read
    status = re.match(rb"HTTP/1\.1 (\d+)", answer)
    return (int(status.group(1)) if status else 0), answer


def whole(answer):
    """Return whether an answer has all that its header announces."""
    head, found, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(found and length and len(body) >= int(length.group(1)))


def token_of(page):
    """Return the websocket token that a page carries."""
    return re.search(rb'"token":"([^"]+)"', page).group(1).decode()


def socket_headers(port, token, origin):
    headers = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Protocol", f"bokeh, {token}"),
    ]
    return headers + ([("Origin", origin)] if origin is not None else [])


PATHS = [
    "/etc/passwd", "//etc/passwd", "/../../etc/passwd", "/..%2f..%2fetc/passwd", "/static/",
    "/static", "/static/js/", "/static/../../__init__.py", "/static/js/../../../__init__.py",
    "/static/js/..%2f..%2f__init__.py", "/static/js/%2e%2e/%2e%2e/x", "/static//etc/passwd",
    "/static/js/bokeh.js", "/static/js/bokeh.min.js.map", "/static/js/bokeh.min.js/", "/metadata",
    "/static/js/bokeh.min.js%00", "/static/js/bokeh-api.min.js", "/static/extensions/x/y.js",
    "/static/css/x.css", "/autoload.js", "/autoload.js?bokeh-autoload-element=x", "/out.zarr",
    "/out.zarr/zarr.json", "/scene.npy", "/file", "/files/", "/ws/", "/ws/x", "/WS", "/index.html",
    "/favicon.ico/..", "/robots.txt", "/.git/config", "/.env", "/app", "/app/ws", "/%", "/%2e",
    "/%00", "/~root", "/C:/Windows/win.ini", "/..\\..\\x", "/;x", "/a" * 60, "/&", "/\"", "/'",
    "http://evil.example/", "http://127.0.0.1:1/", "*", "/static/js/bokeh.min.js;v=1", "x",
    "/static/js/" + "a" * 200, "/metadata?x=1", "/admin", "/login", "/sockjs", "/export.csv",
]  # fmt: skip
PARAMETERS = [
    "/?", "/?a=1", "/?bokeh-session-id=" + "a" * 44, "/?bokeh-session-id=../x", "/?row=1&col=2",
    "/?bokeh-token=abc", "/?" + "a=1&" * 40, "/?path=/etc/passwd", "/?%00", "/?row=1e308",
    "/static/js/bokeh.min.js?v=../..", "/static/js/bokeh.min.js?v=", "/favicon.ico?x",
    "/static/js/bokeh.min.js?v=" + "0" * 129, "/static/js/bokeh.min.js?x=1", "/?\u00e9",
    "/static/js/bokeh.min.js?v=00&x=1", "/ws?bokeh-session-id=x", "/?" + "a" * 2_000,
    "/" + "a" * 10_000, "/?" + "a" * 100_000,
]  # fmt: skip
HOSTS = [
    "evil.example", "evil.example:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", "localhost:1",
    "127.0.0.1.evil.example:{port}", "evil.example@127.0.0.1:{port}", "0.0.0.0:{port}",
    "[::1]:{port}", "127.0.0.2:{port}", "127.1:{port}", "2130706433:{port}", "0x7f.1:{port}",
    "localhost.:{port}", "127.0.0.1:{port}:80", "127.0.0.1:{port} ", "*", "null", "a" * 300,
    "127.0.0.1:0{port}",
]  # fmt: skip
ORIGINS = [
    "null", "http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1",
    "http://127.0.0.1:1", "http://localhost:1", "http://localhost", "http://evil.example:{port}",
    "http://127.0.0.1.evil.example:{port}", "http://127.0.0.1:{port}.evil.example", "file://",
    "http://127.0.0.1:{port}/", "http://user@127.0.0.1:{port}", "chrome-extension://abc",
    "http://127.0.0.1:{port},http://evil.example", "x" * 500,
]  # fmt: skip
TOKENS = [
    "", "x", "a.b", "a.b.c", "e30", "e30.e30", "eyJzZXNzaW9uX2lkIjoiYSJ9", "%00", "..", "=", "é",
    "bokeh", "x" * 3_000, "x" * 10_000, "{}", "null",
]  # fmt: skip
METHODS = ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X"]


class TestGuard:
    def test_the_page_itself(self, server):
        for host in (f"127.0.0.1:{server.port}", f"localhost:{server.port}"):
            status, answer = ask(server.port, host=host)
            assert status == 200
            assert b"out.zarr" in answer

    def test_its_scripts(self, server):
        _, page = ask(server.port)
        scripts = re.findall(rb'src="/?(static/js/[^"]+)"', page)
        assert len(scripts) >= 2
        for script in scripts:
            status, answer = ask(server.port, uri="/" + script.decode())
            assert status == 200
            assert b"no-store" in answer[:2000]
        assert not re.findall(rb'(src|href)="(https?:)?//', page)

    def test_security_headers(self, server):
        _, answer = ask(server.port)
        head = answer.split(b"\r\n\r\n")[0].decode()
        assert "frame-ancestors 'none'" in head
        assert "default-src 'none'" in head
        assert "X-Content-Type-Options: nosniff" in head

    @pytest.mark.parametrize("uri", PATHS, ids=range(len(PATHS)))
    def test_other_paths(self, server, uri):
        status, answer = ask(server.port, uri=uri)
        assert status in (0, 400, 404, 414)
        assert b"root:" not in answer
        assert b"out.zarr" not in answer

    @pytest.mark.parametrize("uri", PARAMETERS, ids=range(len(PARAMETERS)))
    def test_parameters(self, server, uri):
        assert ask(server.port, uri=uri)[0] in (0, 400, 404, 414, 431)

    @pytest.mark.parametrize("host", HOSTS, ids=range(len(HOSTS)))
    def test_other_hosts(self, server, host):
        status, answer = ask(server.port, host=host.format(port=server.port))
        # Spaces around a header's value are no part of it.
        expected = 200 if host.endswith(" ") else 403
        assert status == expected or (status == 400 and expected == 403)
        assert (b"out.zarr" in answer) == (expected == 200)

    def test_no_host_and_two_hosts(self, server):
        assert ask(server.port, host=False)[0] in (400, 403)
        good = f"127.0.0.1:{server.port}"
        assert ask(server.port, headers=[("Host", good)])[0] in (400, 403)
        assert ask(server.port, headers=[("Host", "evil.example")])[0] in (400, 403)

    @pytest.mark.parametrize("origin", ORIGINS, ids=range(len(ORIGINS)))
    def test_other_origins(self, server, token, origin):
        origin = origin.format(port=server.port)
        assert ask(server.port, headers=[("Origin", origin)])[0] == 403
        headers = socket_headers(server.port, token, origin)
        assert ask(server.port, uri="/ws", headers=headers)[0] == 403

    @pytest.mark.parametrize("site", ["cross-site", "same-site", "x"])
    def test_asked_by_another_site(self, server, site):
        assert ask(server.port, headers=[("Sec-Fetch-Site", site)])[0] == 403

    @pytest.mark.parametrize("token", TOKENS, ids=range(len(TOKENS)))
    def test_tokens(self, server, token):
        headers = socket_headers(server.port, token, f"http://127.0.0.1:{server.port}")
        assert ask(server.port, uri="/ws", headers=headers)[0] in (400, 403)

    def test_socket_needs_an_origin(self, server, token):
        headers = socket_headers(server.port, token, None)
        assert ask(server.port, uri="/ws", headers=headers)[0] == 403

    def test_token_of_another_server(self, server, stored):
        with Running(stored) as other:
            token = token_of(ask(other.port)[1])
        headers = socket_headers(server.port, token, f"http://127.0.0.1:{server.port}")
        assert ask(server.port, uri="/ws", headers=headers)[0] == 403

    @pytest.mark.parametrize("method", METHODS)
    def test_methods(self, server, method):
        assert ask(server.port, method=method)[0] in (400, 405)

    @pytest.mark.parametrize("size", [1, 2_000, 2_000_000])
    def test_bodies(self, server, size):
        assert ask(server.port, body=b"x" * size)[0] in (0, 400, 413)

    def test_chunked_body(self, server):
        chunked = [("Transfer-Encoding", "chunked")]
        assert ask(server.port, headers=chunked, tail=b"1\r\nx\r\n0\r\n\r\n")[0] == 400

    def test_large_headers(self, server):
        assert ask(server.port, headers=[("X-Large", "x" * 100_000)])[0] in (0, 400, 431)

    def test_nonsense(self, server):
        for raw in (b"\x00" * 100, b"GET\r\n\r\n", b"\xff\xfe\r\n\r\n", b"GET / HTTP/9\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
                link.sendall(raw)
                link.shutdown(socket.SHUT_WR)
                answer = link.recv(65_536)
            assert b" 200 " not in answer

    def test_enough_was_tried_and_it_still_answers(self, server):
        tried = PATHS + PARAMETERS + HOSTS + ORIGINS + TOKENS + METHODS
        assert len(tried) >= 100
        assert ask(server.port)[0] == 200

    def test_refusal_repeats_nothing(self, server):
        _, answer = ask(server.port, uri="/<script>alert(1)</script>")
        assert b"script>" not in answer.split(b"\r\n\r\n", 1)[1]

    def test_a_wrong_check_would_be_noticed(self, server, monkeypatch):
        """Negative control: without the guard, the same requests are answered."""
        monkeypatch.setattr(guard, "refusal", lambda *_: None)
        assert ask(server.port, host="evil.example")[0] == 200
        assert ask(server.port, uri="/metadata")[0] == 200


class TestSocket:
    def test_conversation(self, server):
        """A page's own socket is opened, and told to go when it sends too much."""
        from tornado.ioloop import IOLoop
        from tornado.websocket import websocket_connect

        token = token_of(ask(server.port)[1])
        origin = f"http://127.0.0.1:{server.port}"

        async def talk():
            from tornado.httpclient import HTTPRequest

            request = HTTPRequest(
                f"ws://127.0.0.1:{server.port}/ws",
                headers={"Origin": origin, "Sec-WebSocket-Protocol": f"bokeh, {token}"},
            )
            link = await websocket_connect(request)
            first = await link.read_message()
            assert json.loads(first)["msgtype"] == "ACK"
            await link.write_message("x" * 1_100_000)
            while await link.read_message() is not None:
                pass
            code = link.close_code
            link.close()
            return code

        loop = IOLoop(make_current=False)
        try:
            assert loop.run_sync(talk, timeout=20) in (1006, 1009, None)
        finally:
            loop.close()


class TestPorts:
    def test_loopback_only(self, server):
        listening = server.viewer._server._http._sockets.values()
        assert {link.getsockname()[0] for link in listening} == {"127.0.0.1"}

    def test_second_viewer_picks_another_port(self, server, stored):
        with Running(stored, port=server.port) as second:
            assert second.port != server.port
            assert ask(second.port)[0] == 200

    def test_wanted_port(self, stored):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free = probe.getsockname()[1]
        with Running(stored, port=free) as running:
            assert running.port == free

    @pytest.mark.parametrize("port", [-1, 65_536])
    def test_invalid_port(self, stored, port):
        with pytest.raises(ValueError, match=f"Invalid port {port}"):
            Running(stored, port=port)

    def test_too_many_pages(self, stored, monkeypatch):
        from sigmacube.show.viewer import guard

        monkeypatch.setattr(guard, "MAX_PAGES", 3)
        with Running(stored) as running:
            found = [ask(running.port)[0] for _ in range(5)]
        assert found == [200, 200, 200, 503, 503]


def start_command(*arguments):
    code = "from sigmacube.cli import main; main()"
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


class TestCommand:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ends_cleanly(self, stored, number):
        process = start_command("view", stored, "--no-browser")
        line = process.stdout.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", line).group(1))
        assert ask(port)[0] == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0
        assert err == ""
        assert out.strip() == "Closed."
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)

    def test_absent_file(self, tmp_path):
        process = start_command("view", tmp_path / "none.nc", "--no-browser")
        _, err = process.communicate(timeout=30)
        assert process.returncode == 2
        assert err == f"Error: {tmp_path / 'none.nc'}: no such file.\n"


def test_click_is_fast(stored):
    """Far below what a person notices, though the file is read anew for every pixel."""
    with open_result(stored) as source:
        page = Document(BokehDocument(), source)
        page.build()
        times = []
        for number in range(20):
            start = time.perf_counter()
            page.tap(number, 2 * number)
            times.append(time.perf_counter() - start)
    assert np.median(times) < 0.2


def test_http_client_gets_the_page(server):
    """An ordinary client, not our raw one."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    link.request("GET", "/")
    answer = link.getresponse()
    assert answer.status == 200
    assert answer.getheader("Content-Type").startswith("text/html")
    answer.read()
    link.close()

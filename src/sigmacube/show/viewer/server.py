"""The viewer's server: bokeh on the loopback interface, guarded, ended by Ctrl-C."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import signal
import socket
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from sigmacube.io.observed import name_of, observed_for
from sigmacube.io.result_file import open_result
from sigmacube.show.viewer import guard

try:
    from bokeh.application import Application
    from bokeh.application.handlers import FunctionHandler
    from bokeh.document import Document as BokehDocument
    from bokeh.server.server import BaseServer
    from bokeh.server.tornado import BokehTornado
    from bokeh.server.views.doc_handler import DocHandler
    from bokeh.util.token import check_token_signature, get_session_id
except ImportError:
    raise ValueError(
        "The viewer needs the bokeh package. It is installed with: pip install 'sigmacube[view]'"
    ) from None
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.web import OutputTransform, RequestHandler

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube

LOOPBACK = "127.0.0.1"
_MAX_HEADER = 16_384
_MAX_MESSAGE = 1_000_000
#: Seconds that a connection may take to send a request.
_PATIENCE = 10.0


class _Refused(RequestHandler):
    """Answers what the guard refused, in one line that repeats nothing of the request."""

    def initialize(self, status: int, reason: str) -> None:
        self.refusal = status, reason

    def prepare(self) -> None:
        _refuse(self, *self.refusal)


def _refuse(handler: RequestHandler, status: int, reason: str) -> None:
    handler.set_status(status)
    handler.set_header("Content-Type", "text/plain; charset=utf-8")
    if status == 503:  # the browser asks again by itself
        handler.set_header("Refresh", str(guard.RETRY))
        handler.set_header("Retry-After", str(guard.RETRY))
    handler.finish(f"Refused: {reason}.\n")


class _Page(DocHandler):
    """Makes the page when its turn has come."""

    application: _Guarded

    async def get(self, *args: Any, **kwargs: Any) -> None:
        async with self.application.pages.turn() as refusal:
            if refusal is None:
                await super().get(*args, **kwargs)
            else:
                _refuse(self, *refusal)


class _Guarded(BokehTornado):
    """Bokeh's web application behind `guard.refusal`."""

    port: int
    pages: guard.Pages
    connections: Callable[[], int]

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """Hand a request on, or refuse it before anything of it is looked at."""
        found = guard.refusal(
            str(request.method), str(request.uri), request.headers, self.port, self._made_here
        )
        if found is None and request.uri == "/" and request.method == "GET":
            found = self.pages.refusal(len(self.get_sessions("/")), self.connections())
        if found is not None:
            arguments = {"status": found[0], "reason": found[1]}
            return self.get_handler_delegate(request, _Refused, arguments)
        handler: Any = super().find_handler(request, **kwargs)
        if handler.handler_class is DocHandler:
            handler.handler_class = _Page
        return handler

    def _made_here(self, token: str) -> bool:
        """Return whether this server signed a websocket's token, for a session it still has."""
        try:
            if not check_token_signature(token, secret_key=self.secret_key, signed=True):
                return False
            session = get_session_id(token)
        except Exception:  # what cannot be decoded raises many kinds
            return False
        return any(session == known.id for known in self.get_sessions("/"))


def _headers(port: int) -> type[OutputTransform]:
    """Return a transform that puts the security headers on every answer."""
    added = guard.security_headers(port)

    class Headers(OutputTransform):
        def transform_first_chunk(
            self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
        ) -> tuple[int, HTTPHeaders, bytes]:
            for name, value in added.items():
                headers[name] = value
            headers.pop("Server", None)
            return status_code, headers, chunk

    return Headers


def _patient(tornado: _Guarded) -> HTTPServer:
    """Return the server of pages; a connection that sends its request drop by drop is closed."""
    http = HTTPServer(
        tornado,
        max_header_size=_MAX_HEADER,
        max_body_size=1024,
        idle_connection_timeout=_PATIENCE,
        body_timeout=_PATIENCE,
    )
    tornado.connections = lambda: len(http._connections)
    return http


class Viewer:
    """A running viewer.

    Parameters
    ----------
    result
        A result, or the path of one.
    port
        Wanted port; 0, or one that is taken, becomes a free one.
    observed
        The noisy input: a path, `Cube` or array. None looks for it beside a saved result.
    """

    def __init__(
        self, result: DenoisedCube | str | Path, *, port: int = 0, observed: Any = None
    ) -> None:
        from sigmacube.show.viewer.app import Document

        if not 0 <= port <= 65_535:
            raise ValueError(f"Invalid port {port}. It must be from 0 to 65535.")
        self.source = open_result(result)
        self.observed = observed_for(observed, result, self.source)
        self.loop = IOLoop.current()
        link = _bind(port)
        self.port = int(link.getsockname()[1])

        pages = guard.Pages()

        def page(doc: BokehDocument) -> None:
            executor = ThreadPoolExecutor(1, thread_name_prefix="sigmacube-view")
            Document(doc, self.source, self.observed, executor).build()

        tornado = _Guarded(
            Application(FunctionHandler(page)),
            extra_websocket_origins=list(guard.allowed_hosts(self.port)),
            sign_sessions=True,
            secret_key=secrets.token_bytes(32),
            websocket_max_message_size_bytes=_MAX_MESSAGE,
            use_index=False,
        )
        tornado.port, tornado.pages = self.port, pages
        tornado.transforms.append(_headers(self.port))
        http = _patient(tornado)
        http.add_sockets([link])
        self._server = BaseServer(self.loop, tornado, http)
        self._server.start()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{LOOPBACK}:{self.port}/"

    def run(self) -> None:
        """Serve until `stop` is called or the process is interrupted."""

        def stop(number: int, frame: FrameType | None) -> None:
            self.loop.add_callback_from_signal(self.loop.stop)

        previous = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, stop)
        try:
            self.loop.start()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self.stop()

    def stop(self) -> None:
        """Close connections, port and file."""
        self._server.stop()
        self.source.close()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _bind(port: int) -> socket.socket:
    """Return a socket on the loopback interface; on a free port where the wanted one is taken."""
    link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            # Elsewhere this would let a second viewer take the port of the first.
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            link.bind((LOOPBACK, port))
        except OSError as error:
            if port == 0 or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            link.bind((LOOPBACK, 0))
        link.listen(256)
        link.setblocking(False)
    except BaseException:
        link.close()
        raise
    return link


def start(result: DenoisedCube | str | Path, *, port: int = 0, observed: Any = None) -> Viewer:
    """Open a result and its port; `Viewer.run` then serves it."""
    # Their notes are for those who run a public server; errors still show.
    for name in ("bokeh", "tornado"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return Viewer(result, port=port, observed=observed)


def serve(
    result: DenoisedCube | str | Path,
    port: int = 0,
    open_browser: bool = True,
    *,
    observed: Any = None,
    say: Any = print,
) -> None:
    """Show a result in the browser until Ctrl-C.

    Parameters
    ----------
    result
        A result, or the path of one. A result in memory has its window factors, so that means over
        regions get their exact standard deviation.
    port
        Wanted port on 127.0.0.1; 0, or one that is taken, becomes a free one.
    open_browser
        Whether to open the page.
    observed
        The noisy input (a path, `Cube` or array), shown beside the estimate. None looks for it
        beside a saved result.
    say
        Called with lines for the user.
    """
    viewer = start(result, port=port, observed=observed)
    if port not in (0, viewer.port):
        say(f"Port {port} is taken.")
    if viewer.observed is not None:
        say(f"Observed values from {name_of(viewer.observed)}.")
    say(f"Showing {viewer.source.name} at {viewer.url} (Ctrl-C ends)")
    if open_browser:
        viewer.loop.call_later(0.1, lambda: webbrowser.open(viewer.url))
    viewer.run()
    say("Closed.")

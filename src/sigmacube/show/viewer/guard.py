"""What the viewer's server answers: a handful of addresses, asked from this machine's browser.

The server listens on the loopback interface alone. A page of some other site can still make the
user's browser send requests there, under the site's own name (DNS rebinding) or across origins:
the checks of ``Host``, ``Origin`` and ``Sec-Fetch-Site`` are against those.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

__all__ = [
    "MAX_PAGES", "MAX_PATH", "RETRY", "Headers", "Pages", "allowed_hosts", "refusal",
    "security_headers",
]  # fmt: skip

MAX_PATH = 256
MAX_PAGES = 32
#: Seconds after which a browser that was refused asks again.
RETRY = 2
#: Seconds of these that go into making pages where more connections wait than one browser opens.
_BUSY, _WAITING = 1.0, 8
#: Seconds after which a request that led to no page is forgotten.
_FORGOTTEN = 10.0
_MAX_PROTOCOL = 4096
#: The scripts that the page asks for; nothing else of the library's folder is served.
_STATIC = re.compile(r"/static/js/bokeh(-gl|-widgets|-tables|-mathjax)?\.min\.js")
_VERSION = re.compile(r"v=[0-9a-f]{1,128}")

Refusal = tuple[int, str]


class Headers(Protocol):
    """Request headers: a mapping that can hold several values of one name."""

    def get_list(self, name: str) -> list[str]:
        """Return all values of one name."""


class Pages:
    """How many pages are open and how long they took to make: whether one more is made now.

    Pages are made one after another. Under a burst of requests some are made at once, all others
    are told at once to come again, so that nobody waits for an answer.

    Examples
    --------
    >>> pages = Pages(clock=lambda: 0.0)
    >>> pages.refusal(open_pages=0) is None
    True
    >>> pages.refusal(open_pages=MAX_PAGES)
    (503, 'too many pages are open')
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: deque[float] = deque()
        self._made: deque[tuple[float, float]] = deque(maxlen=MAX_PAGES)

    def refusal(self, open_pages: int, connections: int = 1) -> Refusal | None:
        """Return why no page is made now; None where one may be, which is then counted.

        Parameters
        ----------
        open_pages
            Pages that have been made, of which each keeps a connection.
        connections
            All connections there are.
        """
        now = self._clock()
        while self._asked and now - self._asked[0] > _FORGOTTEN:  # who asked has gone away
            self._asked.popleft()
        if open_pages + len(self._asked) >= MAX_PAGES:
            return 503, "too many pages are open"
        lately = sum(length for end, length in self._made if now - end < RETRY)
        usual = self._made[-1][1] if self._made else _BUSY
        is_burst = connections - open_pages > _WAITING
        taken = lately + usual * len(self._asked)
        if is_burst and taken > 0 and taken + usual > _BUSY:
            return 503, "other pages are being made; this one asks again by itself"
        self._asked.append(now)
        return None

    @contextmanager
    def making(self) -> Iterator[None]:
        """Count the time in which a page is made."""
        start = self._clock()
        try:
            yield
        finally:
            if self._asked:
                self._asked.popleft()
            end = self._clock()
            self._made.append((end, end - start))


def allowed_hosts(port: int) -> tuple[str, str]:
    """Return the names under which the server may be called.

    Examples
    --------
    >>> allowed_hosts(5006)
    ('127.0.0.1:5006', 'localhost:5006')
    """
    return f"127.0.0.1:{port}", f"localhost:{port}"


def refusal(
    method: str,
    uri: str,
    headers: Headers,
    port: int,
    valid_token: Callable[[str], bool],
) -> Refusal | None:
    """Return why a request is refused, as HTTP status and reason; None where it is answered.

    Parameters
    ----------
    method, uri, headers
        Of the request, as they came.
    port
        Port of the server.
    valid_token
        Tells whether a websocket token was made by this server.
    """
    if method not in ("GET", "HEAD"):
        return 405, "only GET is answered"
    for check in (_check_host, _check_origin):
        found = check(headers, port)
        if found is not None:
            return found
    if any(headers.get_list("Transfer-Encoding")) or any(
        length.strip() != "0" for length in headers.get_list("Content-Length")
    ):
        return 400, "no body is taken"
    path, _, query = uri.partition("?")
    if len(uri) > MAX_PATH:
        return 414, "the address is too long"
    if path == "/ws":
        return _check_socket(method, query, headers, port, valid_token)
    if _STATIC.fullmatch(path):
        return None if not query or _VERSION.fullmatch(query) else (400, "unknown parameter")
    if path not in ("/", "/favicon.ico"):
        return 404, "nothing here"
    return (400, "unknown parameter") if "?" in uri else None


def _check_host(headers: Headers, port: int) -> Refusal | None:
    hosts = headers.get_list("Host")
    if len(hosts) != 1 or hosts[0].lower() not in allowed_hosts(port):
        return 403, "wrong host"
    return None


def _check_origin(headers: Headers, port: int) -> Refusal | None:
    origins = headers.get_list("Origin")
    if any(origin.lower() not in _origins(port) for origin in origins):
        return 403, "wrong origin"
    sites = headers.get_list("Sec-Fetch-Site")
    if any(site.lower() not in ("same-origin", "none") for site in sites):
        return 403, "asked by another site"
    return None


def _origins(port: int) -> tuple[str, ...]:
    return tuple(f"http://{host}" for host in allowed_hosts(port))


def _check_socket(
    method: str, query: str, headers: Headers, port: int, valid_token: Callable[[str], bool]
) -> Refusal | None:
    """Check a request for the websocket: from our page, with a token that we made."""
    if method != "GET" or query:
        return 400, "unknown parameter"
    if [item.lower() for item in headers.get_list("Upgrade")] != ["websocket"]:
        return 400, "no websocket"
    if len(headers.get_list("Origin")) != 1:
        return 403, "no origin"
    protocols = ",".join(headers.get_list("Sec-WebSocket-Protocol"))
    if len(protocols) > _MAX_PROTOCOL:
        return 400, "the protocol is too long"
    parts = [part.strip() for part in protocols.split(",")]
    if len(parts) != 2 or parts[0] != "bokeh" or not valid_token(parts[1]):
        return 403, "no valid token"
    return None


def security_headers(port: int) -> Mapping[str, str]:
    """Return headers that keep the page to itself: no frames, no other origins, no network."""
    sockets = " ".join(f"ws://{host}" for host in allowed_hosts(port))
    # BokehJS compiles callbacks and sets styles in place, hence the two "unsafe" words.
    policy = (
        "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src data:; "
        f"connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }

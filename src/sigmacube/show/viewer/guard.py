"""What the viewer's server answers: a handful of addresses, asked from this machine's browser.

The server listens on the loopback interface alone. A page of some other site can still make the
user's browser send requests there, under the site's own name (DNS rebinding) or across origins:
the checks of ``Host``, ``Origin`` and ``Sec-Fetch-Site`` are against those.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

MAX_PATH = 256
MAX_PAGES = 32
#: Seconds after which a browser that was refused asks again.
RETRY = 2
#: Seconds of these that go into making pages; connections that are no crowd, but one browser's.
_BUSY, _WAITING = 1.0, 8
#: Seconds without a request after which a crowd has been answered, and that a page waits for it.
_CALM, _LONGEST_WAIT = 0.05, 0.5
#: Seconds after which a request that led to no page is forgotten.
_FORGOTTEN = 10.0
_MAX_PROTOCOL = 4096
#: The scripts that the page asks for; nothing else of the library's folder is served.
_STATIC = re.compile(r"/static/js/bokeh(-gl|-widgets|-tables|-mathjax)?\.min\.js")
_VERSION = re.compile(r"v=[0-9a-f]{1,128}")

Refusal = tuple[int, str]
_OTHERS = 503, "other pages are being made; this one asks again by itself"


class Headers(Protocol):
    """Request headers: a mapping that can hold several values of one name."""

    def get_list(self, name: str) -> list[str]:
        """Return all values of one name."""


class Pages:
    """How many pages are open and how long they took to make: whether one more is made now.

    Pages are made one after another, and nobody is answered meanwhile. Of a crowd that asks at once
    all but a few are told first to come again; then pages are made for those few.

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
        self._one = asyncio.Lock()
        self._crowd = -float("inf")

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
        # Pages may take half of what a browser waits before it asks again; one is always made.
        lately = sum(length for end, length in self._made if now - end < RETRY)
        usual = max((length for _, length in list(self._made)[-3:]), default=_BUSY)
        waiting = usual * len(self._asked)
        is_crowd = connections - open_pages > _WAITING
        self._crowd = now if is_crowd else self._crowd
        taken = waiting + lately * is_crowd
        if taken > 0 and taken + usual > _BUSY:
            return _OTHERS
        self._asked.append(now)
        return None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Refusal | None]:
        """Make one page at a time, when the crowd that it was asked for with has been answered.

        Yields why it is not made after all: the pages before it took longer than was thought.
        """
        asked = self._clock()
        async with self._one:
            wait = self._clock() - self._crowd < RETRY
            while wait:  # lets all others be heard and answered
                await asyncio.sleep(_CALM)
                wait = self._clock() < min(self._crowd + _CALM, asked + _LONGEST_WAIT)
            start = self._clock()
            end, usual = self._made[-1] if self._made else (asked, 0.0)
            is_late = end > asked and start - asked + usual > _BUSY
            try:
                yield _OTHERS if is_late else None
            finally:
                if self._asked:
                    self._asked.popleft()
                if not is_late:
                    self._made.append((self._clock(), self._clock() - start))


def allowed_hosts(port: int) -> tuple[str, str]:
    """Return the names under which the server may be called.

    Examples
    --------
    >>> allowed_hosts(5006)
    ('127.0.0.1:5006', 'localhost:5006')
    """
    return f"127.0.0.1:{port}", f"localhost:{port}"


def refusal(
    method: str, uri: str, headers: Headers, port: int, valid_token: Callable[[str], bool]
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
    allowed = [f"http://{host}" for host in allowed_hosts(port)]
    if any(origin.lower() not in allowed for origin in origins):
        return 403, "wrong origin"
    sites = headers.get_list("Sec-Fetch-Site")
    if any(site.lower() not in ("same-origin", "none") for site in sites):
        return 403, "asked by another site"
    return None


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

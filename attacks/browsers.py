"""Rude browsers: the viewer answers, refuses or hangs up, and goes on serving.

One viewer serves all cases of a worker, on the loopback interface. A case is one request of an
attacker (wrong names, origins, methods, paths, sizes, halves of requests, websockets without a
token) or a crowd of users at once, of whom each must be served or refused within two seconds.
"""

from __future__ import annotations

import atexit
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

import numpy as np

from attacks._worker import Bad

USERS = 200
#: Seconds within which everybody is answered.
PATIENCE = 2.0
_HOSTS = (
    "127.0.0.1",
    "localhost",
    "evil.example",
    "127.0.0.1.evil.example",
    "",
    "[::1]",
    "a" * 300,
)
_PATHS = (
    "/", "/ws", "/static/js/bokeh.min.js", "/favicon.ico", "/../../etc/passwd", "/static/../ws",
    "/static/js/%2e%2e/x", "//evil.example/", "/?bokeh-session-id=x", "/" + "a" * 2000, "/\x00",
    "http://evil.example/", "/metadata", "/autoload.js", "*", "", "/static/extensions/x.js", "/%",
)  # fmt: skip
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "G" * 500, "")
_HEADERS = (
    "Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site",
    "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: bokeh, x.y.z",
    "Content-Length: 99999999", "Content-Length: -1", "Transfer-Encoding: chunked",
    "Host: evil.example", "X: " + "y" * 20000, "Cookie: " + "c" * 3000, "Expect: 100-continue",
    "Range: bytes=0-", "Bad header", ": empty", "X-Forwarded-For: 8.8.8.8",
)  # fmt: skip


@cache
def _port() -> int:
    """Start a viewer; return its port."""
    import sigmacube as sc

    folder = tempfile.TemporaryDirectory()
    noisy = sc.synthetic.add_noise(sc.synthetic.scene((20, 22, 9), rng=1), 0.05, rng=2)
    path = sc.denoise(noisy, 0.05, prior=None, window=8).save(Path(folder.name, "r.nc"))
    code = "from sigmacube.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "view", str(path), "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    atexit.register(lambda: (process.terminate(), process.wait(), folder.cleanup()))
    assert process.stdout is not None
    found = re.search(r":(\d+)/", process.stdout.readline())
    if found is None:
        raise Bad("the viewer does not start")
    return int(found[1])


def case(number: int, folder: Path) -> str | dict[str, int]:
    """Attack once; every hundredth time a crowd comes."""
    if number % 100 == 50:
        return _crowd()
    rng = np.random.default_rng([23, number])
    answer = _send(_request(rng), slow=number % 37 == 0)
    _check(answer)
    if number % 20 == 0:
        _is_alive()
    return "refused" if answer else "closed"


def _request(rng: np.random.Generator) -> bytes:
    """Return a request that no honest browser sends."""
    if rng.random() < 0.1:
        return rng.bytes(int(rng.integers(1, 5000)))

    def pick(items: tuple[str, ...]) -> str:
        return items[rng.integers(len(items))]

    method = "GET" if rng.random() < 0.6 else pick(_METHODS)
    path, host = pick(_PATHS), pick(_HOSTS)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{_port()}"]
    lines += [pick(_HEADERS) for _ in range(int(rng.integers(0, 6)))]
    honest = method == "GET" and path == "/" and host in ("127.0.0.1", "localhost")
    if honest:
        lines.append("Origin: http://evil.example")
    request = "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n"
    if rng.random() < 0.1:
        request = request[: int(rng.integers(1, len(request)))]
    return request + (rng.bytes(2000) if rng.random() < 0.1 else b"")


def _send(request: bytes, *, slow: bool = False) -> bytes:
    """Send a request; return what comes back, empty where the server hangs up or waits."""
    with socket.create_connection(("127.0.0.1", _port()), timeout=10) as link:
        try:
            if slow:
                link.sendall(request[:5])
                time.sleep(0.05)
                request = request[5:]
            link.sendall(request)
            link.settimeout(0.5)
            return link.recv(65536)
        except (TimeoutError, ConnectionError):
            return b""


def _check(answer: bytes) -> None:
    status = re.match(rb"HTTP/1\.\d (\d+)", answer)
    if status is None:
        return
    code = int(status[1])
    if code >= 500 and code != 503:
        raise Bad(f"status {code}: {answer[:200]!r}")
    if code == 101 or (code == 200 and b"<html" in answer):
        raise Bad(f"an attacker was served: {answer[:200]!r}")
    for secret in (b"root:", b"Traceback", b"evil.example"):
        if secret in answer:
            raise Bad(f"{secret!r} in the answer: {answer[:300]!r}")


def _is_alive() -> None:
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", _port()), timeout=30) as link:
        link.sendall(f"GET /favicon.ico HTTP/1.1\r\nHost: 127.0.0.1:{_port()}\r\n\r\n".encode())
        if not link.recv(100).startswith(b"HTTP/1.1"):
            raise Bad("the viewer does not answer any more")
    if time.monotonic() - start > 10:
        raise Bad("the viewer took more than 10 s to answer")


def _crowd() -> dict[str, int]:
    """Let many users ask for the page at once."""
    port, found, lock = _port(), [], threading.Lock()
    ready = threading.Barrier(USERS)

    def user() -> None:
        with socket.socket() as link:
            link.settimeout(60)
            ready.wait()
            start = time.monotonic()
            link.connect(("127.0.0.1", port))
            link.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            head = link.recv(64)
            with lock:
                found.append((head[9:12].decode(), time.monotonic() - start))

    threads = [threading.Thread(target=user) for _ in range(USERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = {status: [seconds for one, seconds in found if one == status] for status, _ in found}
    if set(answers) - {"200", "503"} or max(seconds for _, seconds in found) > PATIENCE:
        told = (f"{len(times)} answers {one} within {max(times):.1f} s" for one, times in
                sorted(answers.items()))  # fmt: skip
        raise Bad(", ".join(told))
    return {"users": USERS}

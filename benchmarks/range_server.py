"""A server on loopback that answers range requests and counts what it sends; for measurements."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Served:
    """Where a folder is served, and what was sent of it."""

    address: str
    ranges: list[tuple[str, int, int]] = field(default_factory=list)
    """(name, first byte, bytes) of every answer."""

    @property
    def bytes_sent(self) -> int:
        """All bytes of bodies."""
        return sum(count for _, _, count in self.ranges)


class Handler(BaseHTTPRequestHandler):
    """Answers for the files of one folder."""

    protocol_version = "HTTP/1.1"
    folder: Path
    served: Served
    lock = threading.Lock()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """Answer with the bytes that are asked for."""
        self._answer(body=True)

    def _refuse(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, body: bool) -> None:
        name = self.path.split("?")[0].lstrip("/")
        path = self.folder / name
        if not path.is_file():
            self._refuse(404)
            return
        content = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = 0, len(content) - 1
        if asked:
            first = int(asked[1])
            last = min(int(asked[2]) if asked[2] else last, last)
        if first > last:
            self._refuse(416)
            return
        part = content[first : last + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(part)))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        if body:
            with self.lock:
                self.served.ranges.append((name, first, len(part)))
            self.wfile.write(part)


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Serve the files of a folder while the body runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Served(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Own", (Handler,), {"folder": folder, "served": served})
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

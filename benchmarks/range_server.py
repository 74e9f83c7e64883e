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


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Serve the files of a folder while the body runs."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            name = self.path.split("?")[0].lstrip("/")
            path = folder / name
            if not path.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = path.read_bytes()
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            first, last = 0, len(content) - 1
            if asked:
                first = int(asked[1])
                last = min(int(asked[2]) if asked[2] else last, last)
            if first > last:
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            part = content[first : last + 1]
            self.send_response(206 if asked else 200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(part)))
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            self.end_headers()
            if body:
                with lock:
                    served.ranges.append((name, first, len(part)))
                self.wfile.write(part)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Served(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

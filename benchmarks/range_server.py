"""A server on loopback that answers range requests and counts what it sends; for measurements.

`serving` is a plain web server. With ``keys=True`` it speaks as much of S3 and of Google's XML
interface as reading and writing of objects takes (buckets are folders; GET and HEAD with ranges,
lists, PUT, DELETE), and refuses requests that nobody signed; it does not check signatures.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


@dataclass
class Served:
    """Where a folder is served, and what was sent of it."""

    address: str
    ranges: list[tuple[str, int, int]] = field(default_factory=list)
    """(name, first byte, bytes) of every answer."""

    unsigned: int = 0
    """Requests that were refused because nobody had signed them."""

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
        self._text("", code)

    def _text(self, text: str, code: int = 200) -> None:
        content = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _answer(self, body: bool) -> None:
        name = unquote(self.path.split("?")[0]).lstrip("/")
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
        self.send_header("ETag", f'"{path.stat().st_mtime_ns:x}"')
        self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
        self.send_header("Content-Length", str(len(part)))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        if body:
            with self.lock:
                self.served.ranges.append((name, first, len(part)))
            self.wfile.write(part)


class KeyHandler(Handler):
    """Answers as a store of objects does, for those who have signed."""

    def parse_request(self) -> bool:
        """Refuse what is not signed."""
        if not super().parse_request():
            return False
        signed = self.headers.get("Authorization", "").startswith(("AWS4-HMAC-SHA256 ", "GOOG1 "))
        if not signed:
            self.served.unsigned += 1
            self.close_connection = True
            self._text("<Error><Code>AccessDenied</Code><Message>unsigned</Message></Error>", 403)
        return signed

    def do_HEAD(self) -> None:
        """Tell of an object, or that there is a bucket."""
        name = self.path.split("?")[0].strip("/")
        if "/" not in name and (self.folder / name).is_dir():
            self._text("")
        else:
            self._answer(body=False)

    def do_GET(self) -> None:
        """Answer with an object, or with the list of a bucket."""
        asked = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "list-type" not in asked:
            self._answer(body=True)
            return
        bucket = self.path.split("?")[0].strip("/")
        prefix, mark = (asked.get(key, [""])[0] for key in ("prefix", "delimiter"))
        root = self.folder / bucket
        keys = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
        keys = [key for key in keys if key.startswith(prefix)]
        rests = {key: key[len(prefix) :] for key in keys}
        shared = {prefix + r.split("/")[0] + "/" for r in rests.values() if mark and "/" in r}
        found = [key for key, rest in rests.items() if not (mark and "/" in rest)]
        date = "2026-01-01T00:00:00.000Z"
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{(root / key).stat().st_size}</Size>"
            f"<LastModified>{date}</LastModified><ETag>x</ETag></Contents>"
            for key in found
        ) + "".join(
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
            for one in sorted(shared)
        )
        self._text(
            f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>"
            f"<KeyCount>{len(found) + len(shared)}</KeyCount>{entries}</ListBucketResult>"
        )

    def do_PUT(self) -> None:
        """Keep an object."""
        path = self.folder / unquote(self.path.split("?")[0]).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self._text("")

    def do_DELETE(self) -> None:
        """Remove an object."""
        self._remove(self.folder / unquote(self.path.split("?")[0]).lstrip("/"))
        self._refuse(204)

    def _remove(self, path: Path) -> None:
        if path.is_file():  # a store has no folders: to remove one is no error
            path.unlink()

    def do_POST(self) -> None:
        """Remove many objects."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        bucket = self.folder / self.path.split("?")[0].strip("/")
        keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", text)]
        for key in keys:
            self._remove(bucket / key)
        gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._text(f"<DeleteResult>{gone}</DeleteResult>")


@contextmanager
def serving(folder: Path, keys: bool = False) -> Iterator[Served]:
    """Serve the files of a folder while the body runs; as a store of objects with ``keys``."""
    kind = KeyHandler if keys else Handler
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    served = Served(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Own", (kind,), {"folder": folder, "served": served})
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""Pages whose code runs when they are built: ``run`` for Python, ``shell`` for commands.

The cells of a page share their names and a folder of their own. What a cell prints, its last value
and its pictures stand below it; a cell that fails fails the build. ``gallery`` shows the pictures
of all pages, each linked to its code.
"""

from __future__ import annotations

import ast
import contextlib
import io
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import matplotlib as mpl
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

mpl.use("Agg")
logging.getLogger("sigmacube").setLevel(logging.WARNING)
PICTURES = "generated"


class _Page:
    """What the cells of a page share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix="sigmacube-docs-"))
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.count = 0


_PAGES: dict[str, _Page] = {}


def page_of(env: Any) -> _Page:
    """Return the page that is being read."""
    return _PAGES.setdefault(env.docname, _Page(env.docname))


@contextlib.contextmanager
def inside(folder: Path) -> Any:
    """Work in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def execute(code: str, names: dict[str, Any], folder: Path) -> tuple[str, Any]:
    """Run code; return what it printed and the value of its last line."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with inside(folder), contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    return printed.getvalue(), value


class Run(SphinxDirective):
    """Show Python code, run it, and show what it gives."""

    has_content = True
    option_spec: ClassVar[Any] = {"gallery": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Return the code and its outcome."""
        page, code = page_of(self.env), "\n".join(self.content)
        _cells_of(self.env).add(page.name)
        page.count += 1
        anchor = f"cell-{page.count}"
        block = nodes.literal_block(code, code, language="python", ids=[anchor])
        try:
            printed, value = execute(code, page.names, page.folder)
        except Exception as error:
            raise ExtensionError(f"{page.name}, cell {page.count}: {error!r}\n{code}") from error
        found: list[nodes.Node] = [block]
        if printed:
            found.append(_text(printed))
        return found + self._value(value) + self._pictures(page, anchor)

    def _value(self, value: Any) -> list[nodes.Node]:
        if value is None or type(value).__module__.startswith("matplotlib"):
            return []
        if hasattr(value, "_repr_html_"):
            return [
                nodes.raw("", f"<div class='output'>{value._repr_html_()}</div>", format="html")
            ]
        return [_text(repr(value))]

    def _pictures(self, page: _Page, anchor: str) -> list[nodes.Node]:
        import matplotlib.pyplot as plt

        found: list[nodes.Node] = []
        for number in plt.get_fignums():
            name = f"{page.name.replace('/', '-')}-{anchor}-{number}.png"
            path = Path(self.env.srcdir) / PICTURES / name
            path.parent.mkdir(exist_ok=True)
            plt.figure(number).savefig(path, dpi=110)
            title = self.options.get("gallery", f"Picture of cell {page.count}")
            found.append(nodes.image(uri=f"/{PICTURES}/{name}", alt=title))
            if "gallery" in self.options:
                pictures = _pictures_of(self.env).setdefault(page.name, [])
                pictures.append((title, f"{PICTURES}/{name}", anchor))
        plt.close("all")
        return found


def _pictures_of(env: Any) -> dict[str, list[tuple[str, str, str]]]:
    if not hasattr(env, "run_pictures"):
        env.run_pictures = {}
    pictures: dict[str, list[tuple[str, str, str]]] = env.run_pictures
    return pictures


class Shell(SphinxDirective):
    """Show commands, run them, and show what they print."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the commands with their output."""
        page, lines = page_of(self.env), []
        for command in self.content:
            lines.append(f"$ {command}")
            lines += run_command(command, page.folder).splitlines()
        return [_text("\n".join(lines))]


def run_command(command: str, folder: Path) -> str:
    """Run a command as a terminal of 80 columns would, and return what it prints."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
    line = command.replace("sigmacube", f"{sys.executable} -m sigmacube.cli", 1)
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ExtensionError(f"{command}: exit code {done.returncode}\n{done.stderr}")
    return done.stderr + done.stdout


def run_page(path: Path) -> float:
    """Run the cells of a page without building it; return the seconds they took.

    A cell that fails raises; what is printed is lost.
    """
    import matplotlib.pyplot as plt

    cells = re.findall(r"^```{(run|shell)}\n(.*?)^```", path.read_text("utf-8"), re.S | re.M)
    names: dict[str, Any] = {"__name__": "__main__"}
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for kind, body in cells:
            lines = [line for line in body.splitlines() if not line.startswith(":")]
            if kind == "run":
                execute("\n".join(lines), names, Path(folder))
            for command in lines if kind == "shell" else ():
                run_command(command, Path(folder))
        plt.close("all")
    return time.perf_counter() - begin


def _text(text: str) -> nodes.literal_block:
    text = text.rstrip("\n")
    return nodes.literal_block(text, text, language="text", classes=["output"])


class gallery(nodes.General, nodes.Element):  # noqa: N801
    """Stands for the gallery until all pages are read."""


class Gallery(SphinxDirective):
    """Show the pictures of all pages."""

    def run(self) -> list[nodes.Node]:
        """Leave a place."""
        _galleries_of(self.env).add(self.env.docname)
        return [gallery()]


def fill_gallery(app: Any, doctree: nodes.document, docname: str) -> None:
    """Put the pictures in their place."""
    for place in list(doctree.findall(gallery)):
        cards = []
        for page, pictures in sorted(_pictures_of(app.env).items()):
            address = app.builder.get_relative_uri(docname, page)
            for title, uri, anchor in pictures:
                name = Path(uri).name
                target = Path(app.outdir) / "_images" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(app.srcdir) / uri, target)
                cards.append(
                    f"<a href='{address}#{anchor}'><img src='_images/{name}' alt='{title}' "
                    f"loading='lazy'><span>{title}</span></a>"
                )
        html = f"<div class='gallery'>{''.join(cards)}</div>"
        place.replace_self(nodes.raw("", html, format="html"))


def outdated(
    app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Return the pages whose code was run with another state of the package, to be run again."""
    package = Path(app.srcdir).parent / "src"
    stamp = max(path.stat().st_mtime for path in package.rglob("*.py"))
    known, env.run_stamp = getattr(env, "run_stamp", stamp), stamp
    return [] if known == stamp else sorted(_cells_of(env) & env.found_docs)


def galleries(app: Any, env: Any) -> list[str]:
    """Return the pages that show the pictures of others: written again with every build."""
    return sorted(_galleries_of(env))


def _cells_of(env: Any) -> set[str]:
    pages: set[str] = env.__dict__.setdefault("run_pages", set())
    return pages


def _galleries_of(env: Any) -> set[str]:
    pages: set[str] = env.__dict__.setdefault("run_galleries", set())
    return pages


def forget(app: Any, env: Any, docname: str) -> None:
    """Start a page anew."""
    page = _PAGES.pop(docname, None)
    if page is not None:
        shutil.rmtree(page.folder, ignore_errors=True)
    _pictures_of(env).pop(docname, None)
    for pages in (_cells_of(env), _galleries_of(env)):
        pages.discard(docname)


def clean(app: Any, error: Exception | None) -> None:
    """Remove the folders of all pages."""
    for page in _PAGES.values():
        shutil.rmtree(page.folder, ignore_errors=True)


def setup(app: Any) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("run", Run)
    app.add_directive("shell", Shell)
    app.add_directive("gallery", Gallery)
    app.add_node(gallery)
    app.connect("doctree-resolved", fill_gallery)
    app.connect("env-purge-doc", forget)
    app.connect("env-get-outdated", outdated)
    app.connect("env-updated", galleries)
    app.connect("build-finished", clean)
    return {"parallel_read_safe": False, "parallel_write_safe": True}

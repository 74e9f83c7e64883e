"""Follow one call through the package: every function it passes, in the order of the first visit.

``python benchmarks/walk.py`` traces ``denoise(array, noise)`` and ``sigmacube denoise IN OUT`` and
prints each as an indented list: module, function, first line of its docstring. Three counts close
it: functions passed, modules they live in, and how often the module changes along the list.
Comprehensions and lambdas count with the function that holds them. ``--prior none`` follows the
low-rank windows; without it, the default is followed.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import sigmacube as sc

PACKAGE = str(Path(sc.__file__).parent)
NOISE = 0.05


class Walk:
    """The functions of the package that a call passes."""

    def __init__(self) -> None:
        self.visited: dict[tuple[str, str], int] = {}
        self.docs: dict[tuple[str, str], str] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; the interpreter calls this for every one."""
        if event != "call" or not _is_own(frame.f_code):
            return
        place = _place(frame.f_code)
        if place in self.visited:
            return
        depth, caller = 0, frame.f_back
        while caller is not None:
            depth += _is_own(caller.f_code)
            caller = caller.f_back
        self.visited[place] = depth
        self.docs[place] = _first_line(frame)

    def follow(self, call: Callable[[], Any]) -> None:
        """Trace a call, in this thread and those it starts."""
        sys.setprofile(self)
        threading.setprofile(self)
        try:
            call()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Functions, modules, and changes of the module along the list."""
        modules = [module for module, _ in self.visited]
        changes = sum(a != b for a, b in pairwise(modules))
        return len(modules), len(set(modules)), changes

    def show(self, title: str) -> None:
        """Print the path."""
        print(f"{title}\n")
        for (module, name), depth in self.visited.items():
            indent = "  " * min(depth, 12)
            print(f"{indent}{module}.{name}  {self.docs[module, name]}".rstrip())
        functions, modules, changes = self.counts
        print(f"\n{title}: {functions} functions in {modules} modules, {changes} changes\n")


def _is_own(code: CodeType) -> bool:
    """Tell whether code is a named function of the package."""
    return code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")


def _place(code: CodeType) -> tuple[str, str]:
    path = Path(code.co_filename).relative_to(Path(PACKAGE).parent).with_suffix("")
    return ".".join(path.parts).removesuffix(".__init__"), code.co_qualname


def _first_line(frame: FrameType) -> str:
    first = frame.f_code.co_consts[0] if frame.f_code.co_consts else None
    return inspect.cleandoc(first).split("\n")[0] if isinstance(first, str) else ""


def walk_denoise(**options: Any) -> Walk:
    """Follow `sigmacube.denoise` of an array with a known noise."""
    noisy = _noisy()
    sc.denoise(noisy, NOISE, **options)  # modules load on first use; that is not part of the path
    walk = Walk()
    walk.follow(lambda: sc.denoise(noisy, NOISE, **options))
    return walk


def walk_command(*more: str) -> Walk:
    """Follow ``sigmacube denoise in.npy out.nc --noise 0.05``."""
    from sigmacube.cli import main

    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "in.npy"), Path(folder, "out.nc")
        np.save(source, _noisy())
        words = ["-q", "denoise", str(source), str(output), "--noise", str(NOISE), "--overwrite"]
        words += more

        def run() -> None:
            try:
                main(words)
            except SystemExit as end:
                if end.code:
                    raise

        run()
        walk = Walk()
        walk.follow(run)
    return walk


def _noisy() -> np.ndarray:
    truth = sc.synthetic.scene((60, 50, 40), rng=1)
    return sc.synthetic.add_noise(truth, NOISE, rng=2).values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", action="store_true", help="print the counts alone")
    parser.add_argument("--prior", choices=("spatial", "none"), help="instead of the default")
    options = parser.parse_args()
    prior = {"spatial": "spatial", "none": None}
    python = {"prior": prior[options.prior]} if options.prior else {}
    words = ("--prior", options.prior) if options.prior else ()
    for title, walk in (
        ("denoise(array, noise)", walk_denoise(**python)),
        ("sigmacube denoise IN OUT", walk_command(*words)),
    ):
        if options.counts:
            functions, modules, changes = walk.counts
            print(f"{title}: {functions} functions in {modules} modules, {changes} changes")
        else:
            walk.show(title)


if __name__ == "__main__":
    main()

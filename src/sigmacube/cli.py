"""The command line's frame: finds commands, gives them common options, turns errors into one line.

A command is a module ``sigmacube/commands/<name>.py`` with a click command called ``command``. It
is loaded only when it is used or listed, so it must import what is heavy inside its functions.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import click

from sigmacube import commands
from sigmacube._version import __version__

#: Faults of what the user gave; anything else is a failure while running.
_BAD_INPUT = (
    ValueError,
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
_ORDER = ("demo", "info", "denoise", "validate", "product", "map", "report", "view", "study")


#: What people call commands elsewhere.
_OTHER_NAMES = {"check": "validate", "show": "view", "open": "view", "describe": "info"}
_OTHER_NAMES |= {"index": "product", "ndvi": "product", "run": "denoise", "plot": "report"}
#: The extra that brings a package.
_EXTRAS = {"bokeh": "view", "dask": "scale", "distributed": "scale", "zarr": "scale"}
_EXTRAS |= {"numcodecs": "scale", "fsspec": "remote", "s3fs": "s3", "aiohttp": "remote"}


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        root = context.find_root()
        root.obj = {**(root.obj or {}), str(parameter.name): True}


#: They may stand before or after a command's name.
_COMMON = [
    click.Option(
        names, is_flag=True, is_eager=True, expose_value=False, callback=_remember, help=about
    )
    for names, about in (
        (["-q", "--quiet"], "Print errors only."),
        (["--debug"], "Show the traceback of an error."),
    )
]


class Frame(click.Group):
    """A group whose commands are modules, loaded by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands there are, the usual way of work first."""
        found = (module.name for module in pkgutil.iter_modules(commands.__path__))
        names = {name for name in found if not name.startswith("_")}
        return sorted(names, key=lambda n: (_ORDER.index(n) if n in _ORDER else len(_ORDER), n))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command and give it the common options."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"sigmacube.commands.{cmd_name}").command
        known = {name for parameter in command.params for name in parameter.opts}
        command.params += [o for o in _COMMON if not known.intersection(o.opts)]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may have been meant."""
        name = args[0]
        names = self.list_commands(ctx)
        if name not in names and not name.startswith("-"):
            from difflib import get_close_matches

            wanted = _OTHER_NAMES.get(name) or next(iter(get_close_matches(name, names, 1)), None)
            hint = f" Did you mean '{wanted}'?" if wanted else f" There are {', '.join(names)}."
            raise click.UsageError(f"No such command '{name}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; errors become one line and an exit code."""
        given = list(sys.argv[1:] if args is None else args)
        name = prog_name or "sigmacube"
        if not standalone_mode:
            return super().main(given, name, complete_var, False, **extra)
        debug = "--debug" in given
        with _open_streams(), _notes(debug), _ended():
            try:
                code = super().main(given or ["--help"], name, complete_var, False, **extra)
            except BaseException as error:
                code = _report(error, debug)
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _open_streams() -> Iterator[None]:
    """Give closed standard streams somewhere to go: a service may start with none.

    Their numbers must be taken, too, or the next file that is opened becomes standard output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        try:
            sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
            yield
        finally:
            sys.stdout, sys.stderr = before


class _Terminated(BaseException):
    """SIGTERM: unwinds like Ctrl-C, so that temporary files are removed."""


@contextmanager
def _ended() -> Iterator[None]:
    """Let SIGTERM unwind what runs instead of ending it at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _notes(debug: bool) -> Iterator[None]:
    """Print what we warn of and log as notes; what libraries say is for developers."""
    from sigmacube.console import Notes, note

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning):
            note(str(message))

    logger, handler, before = logging.getLogger("sigmacube"), Notes("WARNING"), sys.unraisablehook
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = show
                # What libraries fail to say about damaged files, in callbacks.
                sys.unraisablehook = lambda _: None
            yield
    finally:
        sys.unraisablehook = before
        logger.removeHandler(handler)


def _line(text: str) -> str:
    """Return a text on one line, of characters that any terminal can be sent."""
    from sigmacube.console import shown

    return shown(" ".join(text.split()).encode("utf-8", "replace").decode("utf-8"))


def _report(error: BaseException, debug: bool) -> int:
    """Print an error as one line; return the exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 0
    if isinstance(error, BrokenPipeError):
        # The reader went away. Python would complain once more when it flushes standard output.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if debug and not isinstance(error, (click.ClickException, click.Abort)):
        traceback.print_exception(error)
    message, code = _explain(error)
    from sigmacube.console import say

    with suppress(OSError):  # nobody may be listening any more
        say(f"Error: {message}")
    return code


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return "interrupted. No half-written file is left under its final name.", 130
    if isinstance(error, _Terminated):
        return "ended by SIGTERM. No half-written file is left under its final name.", 143
    if isinstance(error, click.UsageError):
        context = error.ctx
        hint = f" See '{context.command_path} --help'." if context else ""
        return _line(error.format_message()) + hint, 2
    if isinstance(error, click.ClickException):
        return _line(error.format_message()), error.exit_code
    if isinstance(error, _BAD_INPUT):
        return _line(_os_text(error)) or type(error).__name__, 2
    if isinstance(error, MemoryError):
        return f"not enough memory. {_line(str(error))}".strip(), 1
    if isinstance(error, OSError):
        return _line(_os_text(error)), 1
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in _EXTRAS:
        package = str(error.name).split(".")[0]
        extra = f"pip install 'sigmacube[{_EXTRAS[package]}]'"
        return f"this needs the {package} package. It is installed with: {extra}", 1
    text = _line(str(error))
    return f"{type(error).__name__}: {text} (--debug shows where)", 1


def _os_text(error: BaseException) -> str:
    """Return an error's text; the system's own ones as ``file: reason``."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


@click.group(
    "sigmacube",
    cls=Frame,
    params=[*_COMMON],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="'sigmacube COMMAND --help' explains a command.",
)
@click.version_option(__version__, prog_name="sigmacube", message="%(prog)s %(version)s")
def main() -> None:
    """Denoise hyperspectral images, with an honest error bar on every value."""


if __name__ == "__main__":
    main()

"""Files as strangers made them: what is not opened at all, and one kind of error for the rest.

Damaged bytes make every library raise its own kinds of errors, from any depth. What opens or reads
a file does so inside `reading`, so that a user sees one `ValueError` that names the file.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

_Result = TypeVar("_Result")
#: Characters of an error: a damaged file can make a library repeat all of it.
_LONGEST = 600
_KINDS = (
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


def check_plain(path: Path) -> None:
    """Refuse what is neither a file nor a folder: reading a pipe or a device may never end.

    Examples
    --------
    >>> check_plain(Path("/dev/null"))
    Traceback (most recent call last):
    ...
    ValueError: /dev/null is a device. It must be a file or a folder.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:  # a loop of links, a name that is too long
        raise ValueError(f"{path}: {error.strerror}.") from None
    except ValueError:
        raise ValueError(f"Invalid name {str(path)!r}. It must hold no null character.") from None
    for matches, kind in _KINDS:
        if matches(mode):
            raise ValueError(f"{path} is a {kind}. It must be a file or a folder.")


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn whatever a file's content leads to into one `ValueError` that names the file.

    What the system says of a file (missing, not permitted) stays as it is.
    """
    name = Path(path).name
    try:
        yield
    except Warning:
        raise
    except ValueError as error:
        if name in str(error) and not isinstance(error, UnicodeError):
            if len(str(error)) <= _LONGEST:
                raise
            raise ValueError(_reason(error)) from error
        raise ValueError(f"{path}: {_reason(error)}") from error
    except MemoryError as error:
        raise MemoryError(f"{path}: {_reason(error)}") from error
    except OSError as error:
        if error.errno is not None and not type(error).__module__.startswith("h5"):
            raise
        raise ValueError(f"{path}: cannot be read ({_reason(error)}).") from error
    except Exception as error:  # libraries raise whatever damaged bytes lead to
        raise ValueError(f"{path}: damaged ({type(error).__name__}: {_reason(error)}).") from error


def guarded(path: Path | str, function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Return a function that reads a file inside `reading`."""

    def safely(*args: Any, **kwargs: Any) -> _Result:
        with reading(path):
            return function(*args, **kwargs)

    return safely


def _reason(error: BaseException) -> str:
    text = printable(" ".join(str(error).split()))
    return f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text


def printable(text: str) -> str:
    r"""Return a text that any encoding of Unicode can hold: half characters become marks.

    Examples
    --------
    >>> printable("reflectance \udcff")
    'reflectance ?'
    """
    return text.encode("utf-8", "replace").decode("utf-8")

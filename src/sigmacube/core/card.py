"""How objects show themselves: a few facts, in a terminal and in a notebook."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

_WIDTH = 78
_LABEL = 20


class Card:
    """Base of objects that show themselves as a few facts, whatever the arrays that they hold."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Where it finds none of the class itself, a dataclass writes one that prints all arrays.
        if "__repr__" not in vars(cls):
            cls.__repr__ = Card.__repr__  # type: ignore[method-assign]

    def _facts(self) -> Mapping[str, str]:
        """Return labels and short texts, the most telling first."""
        raise NotImplementedError

    def _notes(self) -> Sequence[str]:
        """Return sentences that belong to the facts."""
        return ()

    _other_names: ClassVar[Mapping[str, str]] = {}
    """What people look for under other names, and where it is."""

    if not TYPE_CHECKING:  # with it, type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            public = [one for one in dir(self) if not one.startswith("_")]
            known = self._other_names.get(name)
            known = known or next(map(repr, get_close_matches(name, public, n=1)), None)
            hint = f" Did you mean {known}?" if known and not name.startswith("_") else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.{hint}")

    def __repr__(self) -> str:
        return card_text(type(self).__name__, self._facts(), self._notes())

    def _repr_html_(self) -> str:
        return card_html(type(self).__name__, self._facts(), self._notes())


def card_text(kind: str, facts: Mapping[str, str], notes: Sequence[str] = ()) -> str:
    """Return facts as lines that fit a terminal of 80 columns.

    Examples
    --------
    >>> print(card_text("Cube", {"size": "4 × 5 pixels, 3 bands"}, ["No wavelengths."]))
    <Cube>
      size                4 × 5 pixels, 3 bands
      ! No wavelengths.
    """
    lines = [f"<{kind}>"]
    for label, text in facts.items():
        short = textwrap.shorten(text, _WIDTH - _LABEL - 2, placeholder=" …")
        lines.append(f"  {label:<{_LABEL}}{short}")
    for note in notes:
        lines += textwrap.wrap(note, _WIDTH, initial_indent="  ! ", subsequent_indent="    ")
    return "\n".join(lines)


def card_html(
    kind: str, facts: Mapping[str, str], notes: Sequence[str] = (), *, picture: str = ""
) -> str:
    """Return facts as HTML for a notebook, light or dark: its colours are the page's own.

    Parameters
    ----------
    kind
        Name of the class.
    facts
        Labels and texts.
    notes
        Sentences below them.
    picture
        HTML of a picture to stand beside them.
    """
    rows = "".join(
        "<tr style='background:none'><th style='text-align:left;vertical-align:top;"
        f"padding:1px 14px 1px 0;font-weight:600;white-space:nowrap'>{escape(label)}</th>"
        f"<td style='text-align:left;padding:1px 0'>{escape(text)}</td></tr>"
        for label, text in facts.items()
    )
    told = "".join(
        "<p style='margin:6px 0 0;padding-left:8px;border-left:3px solid #D55E00;max-width:60ch'>"
        f"{escape(note)}</p>"
        for note in notes
    )
    return (
        "<div class='sigmacube' style='display:flex;flex-wrap:wrap;gap:18px;align-items:center'>"
        f"{picture}<div><div style='font-weight:700;margin-bottom:4px'>{escape(kind)}</div>"
        f"<table style='border-collapse:collapse;font-size:90%'>{rows}</table>{told}</div></div>"
    )


def size_of(shape: Sequence[int]) -> str:
    """Return the size of a cube (rows, cols, bands).

    Examples
    --------
    >>> size_of((4, 5, 1))
    '4 × 5 pixels, 1 band'
    """
    return f"{shape[0]:,} × {shape[1]:,} pixels, {count_of(shape[2], 'band')}"


def span_of(wavelengths: np.ndarray | None) -> dict[str, str]:
    """Return the fact about wavelengths, where they are known.

    Examples
    --------
    >>> span_of(np.array([450.0, 550.0]))
    {'wavelengths': '450 to 550 nm'}
    """
    nm = np.asarray([] if wavelengths is None else wavelengths, dtype=np.float64)
    nm = nm[np.isfinite(nm)]
    return {"wavelengths": f"{nm.min():.0f} to {nm.max():.0f} nm"} if nm.size else {}


def spread_of(values: object) -> str:
    """Return numbers as one, or as their median and range.

    Examples
    --------
    >>> spread_of(0.05), spread_of([0.01, 0.02, 0.04])
    ('0.05', 'median 0.02, 0.01 to 0.04')
    """
    numbers = np.asarray(values, dtype=np.float64)
    finite = numbers[np.isfinite(numbers)]
    if finite.size == 0:
        return "no values"
    low, high = f"{finite.min():.3g}", f"{finite.max():.3g}"
    return low if low == high else f"median {np.median(finite):.3g}, {low} to {high}"


def count_of(number: int, name: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> count_of(1, "band"), count_of(1200, "band")
    ('1 band', '1,200 bands')
    """
    return f"{number:,} {name}" + ("" if number == 1 else "s")

"""Expressions in bands, with exact first and second derivatives.

An expression is parsed by Python's own parser and then walked by hand: bands, numbers, the four
operations, powers and a few functions are known, everything else is refused, nothing is executed.
Derivatives go along with the values (forward mode), so they are exact.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

LONGEST = 500
"""Characters of the longest expression that is accepted."""
_BAND = re.compile(r"(?<![A-Za-z0-9_.])b(\d+(?:\.\d+)?)(?![A-Za-z0-9_.])")
_ALLOWED = "It may hold bands such as b842 (by wavelength in nm), numbers, + - * / **, parentheses "
_ALLOWED += "and sqrt, log, exp, abs."


@dataclass(frozen=True, eq=False)
class Jet:
    """A value with its gradient and Hessian with respect to the bands of an expression."""

    value: np.ndarray
    gradient: np.ndarray
    """(..., m)"""
    hessian: np.ndarray
    """(..., m, m)"""
    kinks: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
    """Values and gradients of what stands inside abs(), which has no derivative at zero."""

    @classmethod
    def variables(cls, values: Sequence[np.ndarray]) -> list[Jet]:
        """Return each of the values as a variable of its own."""
        count = len(values)
        jets = []
        for n, value in enumerate(values):
            value = np.asarray(value, dtype=np.float64)
            gradient = np.zeros((*value.shape, count))
            gradient[..., n] = 1
            jets.append(cls(value, gradient, np.zeros((*value.shape, count, count))))
        return jets

    def constant(self, value: float) -> Jet:
        """Return a constant of the same shape."""
        return Jet(
            np.full_like(self.value, value),
            np.zeros_like(self.gradient),
            np.zeros_like(self.hessian),
        )

    def apply(self, f: np.ndarray, df: np.ndarray, ddf: np.ndarray) -> Jet:
        """Return f of this, given f and its derivatives at the value."""
        outer = self.gradient[..., :, None] * self.gradient[..., None, :]
        hessian = df[..., None, None] * self.hessian + ddf[..., None, None] * outer
        return Jet(f, df[..., None] * self.gradient, hessian, self.kinks)

    def __add__(self, other: Jet) -> Jet:
        return Jet(
            self.value + other.value,
            self.gradient + other.gradient,
            self.hessian + other.hessian,
            self.kinks + other.kinks,
        )

    def __mul__(self, other: Jet) -> Jet:
        a, b = self.value[..., None], other.value[..., None]
        cross = self.gradient[..., :, None] * other.gradient[..., None, :]
        return Jet(
            self.value * other.value,
            a * other.gradient + b * self.gradient,
            a[..., None] * other.hessian
            + b[..., None] * self.hessian
            + cross
            + np.swapaxes(cross, -1, -2),
            self.kinks + other.kinks,
        )

    def __neg__(self) -> Jet:
        return Jet(-self.value, -self.gradient, -self.hessian, self.kinks)

    def __sub__(self, other: Jet) -> Jet:
        return self + (-other)

    def __truediv__(self, other: Jet) -> Jet:
        return self * other.power(-1.0)

    def power(self, n: float) -> Jet:
        """Return this to a constant power."""
        x = self.value
        first = n * x ** (n - 1) if n != 0 else np.zeros_like(x)
        second = n * (n - 1) * x ** (n - 2) if n not in (0, 1) else np.zeros_like(x)
        return self.apply(x**n, first, second)

    def __pow__(self, other: Jet) -> Jet:
        if not np.any(other.gradient) and other.value.size:
            exponent = float(other.value.flat[0])
            if np.all(other.value == exponent):
                return self.power(exponent)
        return exp(other * log(self))


def sqrt(x: Jet) -> Jet:
    """Return the square root."""
    return x.power(0.5)


def log(x: Jet) -> Jet:
    """Return the natural logarithm."""
    return x.apply(np.log(x.value), 1 / x.value, -1 / x.value**2)


def exp(x: Jet) -> Jet:
    """Return the exponential."""
    f = np.exp(x.value)
    return x.apply(f, f, f)


def absolute(x: Jet) -> Jet:
    """Return the absolute value, and remember where it bends."""
    sign = np.sign(x.value)
    bent = x.apply(np.abs(x.value), sign, np.zeros_like(sign))
    return Jet(bent.value, bent.gradient, bent.hessian, (*x.kinks, (x.value, x.gradient)))


_FUNCTIONS: dict[str, Callable[[Jet], Jet]] = {
    "sqrt": sqrt, "log": log, "exp": exp, "abs": absolute
}  # fmt: skip
_OPERATIONS: dict[type, Callable[[Jet, Jet], Jet]] = {
    ast.Add: Jet.__add__,
    ast.Sub: Jet.__sub__,
    ast.Mult: Jet.__mul__,
    ast.Div: Jet.__truediv__,
    ast.Pow: Jet.__pow__,
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression; `evaluate` gives its value and derivatives.

    Examples
    --------
    >>> import numpy as np
    >>> ratio = parse("(b842 - b665) / (b842 + b665)")
    >>> ratio.wavelengths
    (842.0, 665.0)
    >>> jet = ratio.evaluate([np.array(0.4), np.array(0.1)])
    >>> float(round(jet.value, 6)), jet.gradient
    (0.6, array([ 0.8, -3.2]))
    """

    text: str
    wavelengths: tuple[float, ...]
    """Wavelengths (nm) of the bands, in the order of their first appearance."""
    tree: ast.expr

    def evaluate(self, values: Sequence[np.ndarray]) -> Jet:
        """Return the value with derivatives, for the values of each band."""
        variables = Jet.variables(values)
        # Values outside of a function's domain become NaN or infinity, which the caller flags.
        with np.errstate(all="ignore"):
            return self._walk(self.tree, variables)

    def _walk(self, node: ast.expr, variables: list[Jet]) -> Jet:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                one, two = self._walk(left, variables), self._walk(right, variables)
                return _OPERATIONS[type(op)](one, two)
            case ast.UnaryOp(op=op, operand=operand):
                inner = self._walk(operand, variables)
                return -inner if isinstance(op, ast.USub) else inner
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return _FUNCTIONS[name](self._walk(argument, variables))
            case ast.Name(id=name):
                return variables[int(name.removeprefix("_band"))]
            case ast.Constant(value=value):
                return variables[0].constant(float(value))  # type: ignore[arg-type]
        raise AssertionError(f"unchecked node {node!r}")


def parse(text: str) -> Expression:
    """Parse an expression in bands, refusing everything that is not one.

    Parameters
    ----------
    text
        Such as ``"(b842 - b665) / (b842 + b665)"``: bands by wavelength in nm, numbers, ``+ - *
        / **``, parentheses, ``sqrt``, ``log``, ``exp``, ``abs``.

    Examples
    --------
    >>> parse("sqrt(b560.5 ** 2 + 1)").wavelengths
    (560.5,)
    >>> parse("__import__('os')")
    Traceback (most recent call last):
    ...
    ValueError: Invalid expression "__import__('os')": "_" is not allowed. It may hold ...
    """
    if len(text) > LONGEST:
        raise ValueError(
            f"Invalid expression of {len(text)} characters. It may have at most {LONGEST}."
        )
    strange = re.search(r"[^A-Za-z0-9+\-*/(). \t]", text)
    if strange:
        raise _refusal(text, f'"{strange.group()}" is not allowed')
    wavelengths: list[float] = []

    def replace(match: re.Match[str]) -> str:
        wavelength = float(match.group(1))
        if wavelength not in wavelengths:
            wavelengths.append(wavelength)
        return f"_band{wavelengths.index(wavelength)}"

    replaced = _BAND.sub(replace, text.strip())
    try:
        tree = ast.parse(replaced, mode="eval").body
        _check(tree, text)
    except (SyntaxError, RecursionError, MemoryError):
        raise _refusal(text, "it cannot be read") from None
    if not wavelengths:
        raise _refusal(text, "it names no band")
    return Expression(text, tuple(wavelengths), tree)


def _check(node: ast.AST, text: str) -> None:
    """Refuse any node that `Expression` does not know."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) not in _OPERATIONS:
                raise _refusal(text, f"the operation {type(op).__name__} is not known")
            _check(left, text)
            _check(right, text)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, text)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            _check(argument, text)
        case ast.Name(id=name):
            if not re.fullmatch(r"_band\d+", name):
                raise _refusal(text, f'the name "{name}" is not known')
        case ast.Constant(value=value):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _refusal(text, f"{value!r} is no real number")
            if not np.isfinite(_as_float(value)):
                raise _refusal(text, "a number is too large")
        case _:
            raise _refusal(text, f"{type(node).__name__} is not allowed")


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _refusal(text: str, reason: str) -> ValueError:
    return ValueError(f'Invalid expression "{text}": {reason}. {_ALLOWED}')

"""The options of a run: what each means, its default and what it allows, in one place.

`sigmacube.denoise`, the command line, runs over tiles, Dask, Monte Carlo and the record in a
result file all take their options from `Settings`: a field here is an option everywhere.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sigmacube.core.tables import SOLVERS, WEIGHTINGS

if TYPE_CHECKING:
    from sigmacube.core.windows import WindowSpec

log = logging.getLogger("sigmacube")

PRIORS = ("spatial", None)
# What functions that take settings have beside them.
_BESIDE = ("noise", "mask", "calibrate", "workers", "progress")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _option(
    default: Any,
    about: str,
    *,
    kind: str = "choice",
    choices: Collection[Any] = (),
    flag: str | None = None,
    prior: str | None = "any",
) -> Any:
    """Return a field: its default, what the command line says of it, and which prior has it."""
    told = {"about": about, "kind": kind, "choices": choices, "flag": flag, "prior": prior}
    return field(default=default, metadata=told)


@dataclass(frozen=True)
class Settings:
    """How to solve a scene: options of `sigmacube.denoise`, the command line and runs over tiles.

    Parameters
    ----------
    prior
        ``"spatial"``: windows of the scene's spectral subspace, smoothed as far as the scene
        itself allows. None: every window a matrix of low rank; ``rank``, ``overlap``, ``weights``
        and ``finite_noise`` belong to it.
    window, step
        Size of the windows and their distance: an int (square, all bands) or per axis
        ``(rows, cols, bands)`` with None for all bands. The spatial prior has windows of half and
        a quarter of the size, too; the three sizes are 1.5, 1 and ½ steps apart.
    rank
        ``"auto"`` keeps what rises above the noise edge; an int keeps so many components.
    solver
        ``"svd"``; ``"robust"`` where there are impulses, dead lines or stripes; ``"godec"``,
        ``"ssgodec"``, ``"rpca"`` for comparison; or a callable that takes one patch (pixels,
        bands) of unit noise and returns a `PatchSolution`.
    overlap
        ``"exact"`` covariance of overlapping windows, or ``"ratio"`` for the form of Song et al.
        (2021), which takes it as proportional to the share of common elements.
    weights
        ``"precision"`` leans on the windows with the smallest variance; ``"uniform"`` is the plain
        mean.
    finite_noise
        Correct the variance of components near and below the noise edge. False gives the pure
        first-order form; so does ``overlap="ratio"``.
    uncertainty
        False computes the estimate alone; ``std`` is then None.

    Examples
    --------
    >>> settings = Settings(window=12, prior=None, rank=3)
    >>> settings.to_dict()["window"]
    12
    >>> Settings.from_dict(settings.to_dict()) == settings
    True
    """

    prior: str | None = _option(
        "spatial", "What windows are taken for; none: low-rank windows.", choices=PRIORS
    )
    window: WindowSpec = _option(20, "Side of the windows, in pixels.", kind="sides")
    step: WindowSpec = _option(4, "Distance of the windows, in pixels.", kind="sides")
    rank: int | str = _option(
        "auto", "Components of a window: auto, or a whole number.", kind="rank", prior=None
    )
    solver: Any = _option(
        "svd",
        "'robust' for impulses, dead lines and outliers.",
        choices=SOLVERS,
    )
    overlap: str = _option(
        "exact", "Covariance of overlapping windows.", choices=("exact", "ratio"), prior=None
    )
    weights: str = _option("precision", "Of overlapping windows.", choices=WEIGHTINGS, prior=None)
    finite_noise: bool = _option(
        True,
        "Correct components near the noise edge.",
        kind="flag",
        flag="--finite-noise/--first-order",
        prior=None,
    )
    uncertainty: bool = _option(
        True, "Compute σ beside the estimate.", kind="flag", flag="--uncertainty/--no-uncertainty"
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            choices = one.metadata["choices"]
            if choices and not callable(value) and value not in choices:
                allowed = ", ".join(repr(choice) for choice in choices)
                raise ValueError(f"Invalid {one.name} {value!r}. It must be one of {allowed}.")
            if self.prior is not None and one.metadata["prior"] is None and value != one.default:
                raise ValueError(
                    f"Invalid {one.name} {value!r} with prior={self.prior!r}. It belongs to "
                    "prior=None, the low-rank windows (--prior none)."
                )
        sides, steps = ((s, s) if isinstance(s, int) else s for s in (self.window, self.step))
        for side, step in zip(sides, steps, strict=False):
            if side is not None and step is not None and step > side:
                raise ValueError(
                    f"Invalid step {step}. It must not exceed the window, {side}, or pixels "
                    "would be left out."
                )
        if self.prior is None:
            return
        if self.solver not in ("svd", "robust"):  # what only low-rank windows can do
            raise ValueError(
                f"Invalid solver {self.to_dict()['solver']!r} with prior='spatial'. It must be "
                "'svd' or 'robust'; other solvers belong to prior=None, the low-rank windows "
                "(--prior none)."
            )
        for name, given in (("window", self.window), ("step", self.step)):
            if not isinstance(given, int):
                raise ValueError(
                    f"Invalid {name} {given} with prior='spatial'. It must be a whole number; "
                    "windows that differ by axis belong to prior=None (--prior none)."
                )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Settings:
        """Return the settings that a user's options say; a mistyped one gets a hint.

        Examples
        --------
        >>> Settings.of({"windows": 12})
        Traceback (most recent call last):
        TypeError: Invalid option 'windows'. Did you mean 'window'?
        """
        known = [one.name for one in fields(cls)]
        for name in options:
            if name not in known:
                from difflib import get_close_matches

                like = get_close_matches(name, [*known, *_BESIDE], n=1)
                hint = f"Did you mean {like[0]!r}?" if like else f"There are {', '.join(known)}."
                raise TypeError(f"Invalid option {name!r}. {hint}")
        return cls(**options)

    def fitted(self, shape: tuple[int, ...]) -> Settings:
        """Return settings whose windows fit a scene that is narrower than the default window.

        What was asked for otherwise is left as it is, to be refused where it does not fit.

        Examples
        --------
        >>> Settings(prior=None).fitted((12, 80, 30)).window
        12
        """
        if self.prior == "spatial":  # its windows are as long as the scene along each side
            return self
        default = next(one.default for one in fields(self) if one.name == "window")
        rows, cols = shape[:2]
        if self.window != default or min(rows, cols) >= default or min(rows, cols) < 2:
            return self
        window = min(rows, cols)
        step = min(self.step, window) if isinstance(self.step, int) else self.step
        log.warning(
            "the scene of %d x %d pixels is narrower than a window of %d: windows of %d are used",
            rows, cols, default, window,
        )  # fmt: skip
        return replace(self, window=window, step=step)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON knows them."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        found = {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}
        if callable(self.solver):
            found["solver"] = str(getattr(self.solver, "__name__", "custom"))
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Return the settings that `to_dict` gave."""
        return cls.of({k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def takes_settings(function: _Function) -> _Function:
    """Show the fields of `Settings` in signature and docstring of a function with ``**options``."""
    signature = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    kept += [
        inspect.Parameter(one.name, kept[0].KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(Settings)
    ]
    function.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    if function.__doc__ and Settings.__doc__:  # there are none with python -OO
        about = inspect.cleandoc(Settings.__doc__).split("----------\n")[1].split("\n\n")[0]
        told = inspect.cleandoc(function.__doc__)
        function.__doc__ = re.sub(r"\*\*options\n(    .*\n)+", lambda _: f"{about}\n", told)
    return function

"""What every solver takes and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sigmacube.core.card import Card, spread_of
from sigmacube.core.tables import SOLVERS, load


@dataclass(frozen=True, eq=False)
class PatchSolution(Card):
    """Low-rank estimate of one patch, as its truncated singular value decomposition.

    Examples
    --------
    A solver of one's own only needs to return its low-rank estimate in this form:

    >>> import numpy as np
    >>> solution = PatchSolution.from_estimate(np.outer([1.0, 2.0, 2.0], [0.6, 0.8]))
    >>> solution.rank, solution.singular_values.round(6)
    (1, array([3.]))
    """

    left: np.ndarray
    """U (pixels, rank), orthonormal columns; zero rows for pixels that are masked."""
    singular_values: np.ndarray
    """d (rank,), descending."""
    right: np.ndarray
    """V (bands, rank), orthonormal columns."""
    residual: float = np.nan
    """Sum of squares of patch minus estimate over its valid elements."""
    kept: np.ndarray | None = None
    """(pixels, bands) True for the elements the estimate rests on; None means all of them."""
    sandwich: float = 1.0
    """Variance of the estimate over that of least squares on the kept elements, κ in theory."""
    level: float = 1.0
    """Noise std of the matrix that was decomposed; above one where elements are left out."""
    loss: np.ndarray | None = None
    """(pixels,) bounded sum of squares left of every spectrum; None takes it from the factors."""

    def _facts(self) -> dict[str, str]:
        facts = {"patch": f"{len(self.left)} pixels, {len(self.right)} bands"}
        facts |= {"rank": str(self.rank), "singular values": spread_of(self.singular_values)}
        if self.kept is not None:
            facts["kept"] = f"{100 * float(np.mean(self.kept)):.3g} % of elements"
        return facts

    @property
    def rank(self) -> int:
        """Number of components."""
        return len(self.singular_values)

    @property
    def estimate(self) -> np.ndarray:
        """(pixels, bands) low-rank estimate U diag(d) Vᵀ."""
        return (self.left * self.singular_values) @ self.right.T

    @classmethod
    def from_estimate(
        cls, estimate: np.ndarray, *, patch: np.ndarray | None = None, tolerance: float = 1e-10
    ) -> PatchSolution:
        """Return the solution for a low-rank matrix from any solver.

        Parameters
        ----------
        estimate
            (pixels, bands) matrix of low rank.
        patch
            What it estimates; gives the residual.
        tolerance
            Singular values below this share of the largest count as zero.
        """
        left, values, right = np.linalg.svd(estimate, full_matrices=False)
        rank = int(np.count_nonzero(values > tolerance * max(values[0], 1e-300)))
        residual = np.nan if patch is None else float(np.sum((patch - estimate) ** 2))
        return cls(left[:, :rank], values[:rank], right[:rank].T, residual)


class Solver(Protocol):
    """A callable that turns one patch of unit noise into its low-rank estimate.

    What else it can do it says by attributes of the names and meanings of `Traits`; a plain
    function has the defaults.
    """

    def __call__(self, patch: np.ndarray) -> PatchSolution:
        """Solve one patch (pixels, bands), whitened so that its noise has unit variance."""
        ...


@dataclass(frozen=True)
class Traits:
    """What a solver can do, beyond solving a patch."""

    takes_missing: bool = False
    """It is called with ``missing=`` as well, a (pixels, bands) array, True where a value is
    missing, where there are such values. Otherwise these are filled in around it."""
    sets_aside: bool = False
    """It leaves elements out that are there: impulses, dead lines."""
    keeps_noise: bool = True
    """It may keep components of pure noise in a complete patch, whose variance must be counted."""
    scaled: bool = False
    """It takes patches whose bands are scaled to unit noise, and whitens them itself."""


def traits_of(solver: Solver) -> Traits:
    """Return what a solver says of itself.

    Examples
    --------
    >>> traits_of(PatchSolution.from_estimate)
    Traits(takes_missing=False, sets_aside=False, keeps_noise=True, scaled=False)
    """
    return Traits(
        **{name: bool(getattr(solver, name)) for name in Traits.__dataclass_fields__
           if hasattr(solver, name)}
    )  # fmt: skip


def make_solver(solver: str | Solver, rank: int | str = "auto") -> Solver:
    """Return the solver of a name with a rank; one that is given already as it is.

    Parameters
    ----------
    solver
        A row of `SOLVERS`, or a callable that takes one patch and returns a `PatchSolution`.
    rank
        ``"auto"`` or a number of components.

    Examples
    --------
    >>> make_solver("svd", 3)
    SvdSolver(rank=3)
    """
    if callable(solver):
        return solver
    if solver not in SOLVERS:
        choices = ", ".join(repr(name) for name in SOLVERS)
        raise ValueError(f"Invalid solver {solver!r}. It must be one of {choices}.")
    made: Solver = load(SOLVERS[solver])(rank)
    return made

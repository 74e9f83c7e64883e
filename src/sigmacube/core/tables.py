"""Tables of what can be added by one row: a name, and where it lives.

A row is ``"module:object"``, loaded when it is used, or the object itself. The tables of formats
(`sigmacube.io.FORMATS`), sensors (`sigmacube.io.sensors.SENSORS`), noise estimators
(`sigmacube.noise.ESTIMATORS`), indices (`sigmacube.products.INDICES`) and priors
(`sigmacube.estimators.ESTIMATORS`) lie with what they list.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

SOLVERS: dict[str, Any] = {
    "svd": "sigmacube.core.lowrank.solvers.svd:SvdSolver",
    "robust": "sigmacube.core.lowrank.solvers.robust:RobustSolver",
    "godec": "sigmacube.core.lowrank.solvers.godec:GoDecSolver",
    "ssgodec": "sigmacube.core.lowrank.solvers.ssgodec:SemiSoftGoDecSolver",
    "rpca": "sigmacube.core.lowrank.solvers.rpca:RpcaSolver",
}
"""Called with the rank; gives a `sigmacube.core.lowrank.solvers.Solver`."""

WEIGHTINGS: dict[str, Any] = {
    "precision": "sigmacube.core.lowrank.factors:precision",
    "uniform": "sigmacube.core.lowrank.factors:uniform",
}
"""Called with the `Factors` of windows; gives their weights (I, K, J, rows, cols)."""


def load(row: Any, package: str | None = None) -> Any:
    """Return what a row of a table names; a module that begins with a dot lies in ``package``.

    Examples
    --------
    >>> load("math:sqrt")(9.0), load(abs)(-1), load(".path:basename", "os")("a/b")
    (3.0, 1, 'b')
    """
    if not isinstance(row, str):
        return row
    module, name = row.split(":")
    return getattr(import_module(module, package), name)

"""Denoise hyperspectral images, with an honest error bar on every value."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sigmacube._version import __version__

if TYPE_CHECKING:
    from sigmacube import datasets, io, products, synthetic
    from sigmacube.api import denoise
    from sigmacube.check.holdout import holdout
    from sigmacube.check.montecarlo import monte_carlo
    from sigmacube.core.lowrank.solvers import PatchSolution
    from sigmacube.core.windows import WindowGrid
    from sigmacube.cube import Cube
    from sigmacube.io import read, read_result
    from sigmacube.noise.signal_noise import SignalNoise
    from sigmacube.products import fuse
    from sigmacube.result import DenoisedCube, LabelledCube
    from sigmacube.show import plots

# Public name -> module that defines it; loaded on first use, so that importing costs nothing.
_EXPORTS = {
    "Cube": "sigmacube.cube",
    "DenoisedCube": "sigmacube.result",
    "PatchSolution": "sigmacube.core.lowrank.solvers",
    "SignalNoise": "sigmacube.noise.signal_noise",
    "WindowGrid": "sigmacube.core.windows",
    "LabelledCube": "sigmacube.result",
    "datasets": "sigmacube.datasets",
    "denoise": "sigmacube.api",
    "fuse": "sigmacube.products",
    "holdout": "sigmacube.check.holdout",
    "monte_carlo": "sigmacube.check.montecarlo",
    "read": "sigmacube.io",
    "read_result": "sigmacube.io",
    "products": "sigmacube.products",
    "synthetic": "sigmacube.synthetic",
    "plots": "sigmacube.show.plots",
    "io": "sigmacube.io",
}

# What people call it who come from elsewhere -> how it is called here.
_ELSEWHERE = {"open": "read", "load": "read", "open_dataset": "read", "open_result": "read_result"}
_ELSEWHERE |= {"validate": "holdout", "plot": "plots", "data": "datasets"}

__all__ = [
    "Cube",
    "DenoisedCube",
    "LabelledCube",
    "PatchSolution",
    "SignalNoise",
    "WindowGrid",
    "datasets",
    "denoise",
    "fuse",
    "holdout",
    "monte_carlo",
    "read",
    "read_result",
    "products",
    "synthetic",
    "plots",
    "io",
    "__version__",
]


if not TYPE_CHECKING:  # with it, type checkers would take every name for one of the package

    def __getattr__(name: str) -> Any:
        if name not in _EXPORTS:
            from difflib import get_close_matches

            like = get_close_matches(name, [*__all__, *_ELSEWHERE], n=1)
            known = f" Did you mean 'sigmacube.{_ELSEWHERE.get(like[0], like[0])}'?" if like else ""
            hint = "" if name.startswith("_") else known
            raise AttributeError(f"module 'sigmacube' has no attribute {name!r}.{hint}")
        module = import_module(_EXPORTS[name])
        value = getattr(module, name, module)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__

"""Denoise hyperspectral images, with an honest error bar on every value."""

from importlib import import_module
from typing import Any

from sigmacube._version import __version__

# Public name -> module that defines it; loaded on first use, so that importing costs nothing.
_EXPORTS = {
    "Cube": "sigmacube.cube",
    "DenoisedCube": "sigmacube.result",
    "PatchSolution": "sigmacube.core.lowrank.solvers",
    "SignalNoise": "sigmacube.noise.signal_noise",
    "WindowGrid": "sigmacube.core.windows",
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

__all__ = [
    "Cube",
    "DenoisedCube",
    "PatchSolution",
    "SignalNoise",
    "WindowGrid",
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


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'sigmacube' has no attribute {name!r}")
    module = import_module(_EXPORTS[name])
    value = getattr(module, name, module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

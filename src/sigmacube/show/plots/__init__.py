"""Pictures of a scene, its sigma, and how far that sigma can be trusted.

Every function takes a result, a `Cube` or plain arrays, draws on ``ax`` (a new figure when None)
and returns the Axes. Importing this package imports matplotlib: callers do so when they draw.
"""

from sigmacube.core.levels import LEVELS
from sigmacube.show.look import BLUE, GREEN, GREY, INK, SKY, VERMILION
from sigmacube.show.plots.checks import (
    calibration,
    coverage,
    holdout_figure,
    qq,
    trials_figure,
    trials_qq,
    trials_ratio_map,
)
from sigmacube.show.plots.color import (
    COLOR_INFRARED,
    color_bands,
    false_color,
    stretch,
    stretch_limits,
    usable_bands,
)
from sigmacube.show.plots.maps import (
    error_map,
    overview,
    rank_map,
    rejected_map,
    residual_map,
    sigma_map,
    sigma_ratio_map,
    standard_errors,
)
from sigmacube.show.plots.products import product
from sigmacube.show.plots.sources import Result, band_axis, quantity
from sigmacube.show.plots.spectra import noise_spectrum, spectrum, with_gaps
from sigmacube.show.plots.theme import style

__all__ = [
    "style",
    "stretch",
    "coverage",
    "overview",
    "false_color",
    "sigma_map",
    "sigma_ratio_map",
    "rank_map",
    "residual_map",
    "rejected_map",
    "error_map",
    "spectrum",
    "noise_spectrum",
    "product",
    "calibration",
    "qq",
    # Checks of sigma, as their results draw them.
    "holdout_figure",
    "trials_figure",
    "trials_qq",
    "trials_ratio_map",
    # What pages and studies build on.
    "Result",
    "LEVELS",
    "COLOR_INFRARED",
    "BLUE",
    "VERMILION",
    "GREEN",
    "SKY",
    "GREY",
    "INK",
    "band_axis",
    "color_bands",
    "quantity",
    "standard_errors",
    "stretch_limits",
    "usable_bands",
    "with_gaps",
]

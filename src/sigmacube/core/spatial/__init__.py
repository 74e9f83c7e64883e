"""The spatial estimator: scene subspace, local windows, shrunk spatial frequencies.

`survey` looks at the whole scene once, `smooth_region` estimates a region with its error model.
"""

from sigmacube.core.spatial.errors import SpatialErrors
from sigmacube.core.spatial.geometry import Block, Box
from sigmacube.core.spatial.region import SpatialPart, smooth_region
from sigmacube.core.spatial.survey import SpatialModel, Whole, survey
from sigmacube.core.spatial.views import RiskTable

__all__ = ["survey", "smooth_region", "SpatialModel", "SpatialPart", "SpatialErrors", "RiskTable",
           "Block", "Box", "Whole"]  # fmt: skip

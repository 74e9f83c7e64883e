"""What users make of a cube with its sigma: indices, means, other bands, fused cubes.

Errors of neighbouring values are correlated. Every standard deviation here comes from the exact
first-order covariance of the errors, never from adding variances.
"""

from sigmacube.products._bands import resample
from sigmacube.products._conditioning import ConditionedSpectrum, condition
from sigmacube.products._fusion import FusedCube, fuse
from sigmacube.products._indices import INDICES, index
from sigmacube.products._supports import aggregate, region_means
from sigmacube.products._types import FLAGS, Product

__all__ = [
    "FLAGS",
    "INDICES",
    "ConditionedSpectrum",
    "FusedCube",
    "Product",
    "aggregate",
    "condition",
    "fuse",
    "index",
    "region_means",
    "resample",
]

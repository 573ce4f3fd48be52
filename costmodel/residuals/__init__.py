"""What measured points leave of a fitted curve, and how much they count against the catalog.

ALONE: shares of a machine that was measured and has no catalog entry: all 1.
covariance: correlation of points by their distance in octaves.
IN_PLACE: log spread by which a kernel is slower in a step than alone, one side.
MAD_OF_NORMAL: standard deviation of a normal variable over its median absolute deviation.
noise_of: log error of what a number of measured ratios have in common.
NUGGET: variance of one point's own error over that of the residuals.
Residuals: kriging of ln(measured / fitted seconds) over log2 sizes.
residuals: the kriging of points: sizes, and their measured over fitted seconds.
Share: weight of a measured part against the catalog: 0 none, 1 whole.
share: the weight of points that are slower than the catalog by a log ratio.
Shares: the weight of each part of a machine.
stated_spread: log spread of times that another tool printed; 0 of those of `plan profile`.
TAIL: degrees of freedom of the Student prior of the catalog's log error.
"""

from trainplan.costmodel.residuals.kriging import NUGGET, Residuals, covariance, residuals
from trainplan.costmodel.residuals.shares import (
    ALONE,
    IN_PLACE,
    MAD_OF_NORMAL,
    TAIL,
    Share,
    Shares,
    noise_of,
    share,
    stated_spread,
)

"""How much what was measured counts beside what the catalog says of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, inf, sqrt
from statistics import median

import numpy as np

from trainplan.costmodel.profiles import Timing

IN_PLACE = 0.1
"""Spread of how much slower a kernel is in a training step than alone, in log units, one side.

Source: `sustained` of costmodel/catalog/fitted.toml, speed in training over that of products
measured alone: 0.01 to 0.08 off for products in long loops (B200, A10G), 0.19 in the mean square of
all GPUs, most of them bursts.
"""
STATED = 0.2
"""Spread of what another tool says of one collective or kernel, in log units.

Source: all-gather, reduce-scatter and all-reduce among 2 to 8 A100, the same chip and link, by
Dazz993/Mist@d69e530a and ai-dynamo/aiconfigurator@095f58a5: bandwidths 0.54 to 1.07 of each other,
0.32 in the mean square, which are two such errors.
"""
TAIL = 12.0
"""Degrees of freedom of what the catalog, or a scalar of a machine, is off by.

Source: tried on published runs; after two to five of a machine, 12 and 40 predict the others
better than 4, by 0.3 of 4.4 %, and with 12 layouts that agree far off are still believed.
"""
INVERSE = np.exp(np.linspace(-25.0, 3.0, 1000))
"""Inverse variances, of which the weights are a peak 15 steps wide or more, wherever it is."""
MAD_OF_NORMAL = 1.4826
"""Standard deviation of a normal variable over its median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Share:
    """Of a measured part beside the catalog's: 0 not at all, 1 alone."""

    level: float = 1.0
    """Of the ratio that its points have in common."""
    shape: float = 1.0
    """Of what they differ by beyond that."""
    ratio: float = 1.0
    """Measured over known seconds that its points have in common."""

    def mean(self, known: float, measured: float) -> float:
        """Seconds of what both say.

        Source: derived; with both shares 1 it is `measured`, with both 0 `known`: shapes at one
        level are averaged in seconds, in which curves are linear, levels in their logarithms.
        """
        shape = (1 - self.shape) * known + self.shape * measured / self.ratio
        return float(shape * self.ratio**self.level)

    def rate(self, known: float, measured: float) -> float:
        """As `mean`, of speeds.

        Source: derived; seconds = work / speed, so the mean is that of the inverse speeds.
        """
        return 1 / self.mean(1 / known, 1 / measured)


WHOLE = Share()


def share(log_ratio: float, spread: float, noise: float, in_place: float = IN_PLACE) -> Share:
    """How much points count that are exp(`log_ratio`) times as slow as the catalog says.

    The catalog is off by `spread`, infinite where it knows nothing; the ratio is known to `noise`.
    Source: derived; the expected value under a prior with the tails of TAIL, where what a step
    adds to a kernel alone is half-normal: none is faster in a step, so what is slower alone than
    the catalog says is so but for its noise. Of one shape against others either may be.
    """
    if spread == inf:
        return WHOLE
    if not spread:
        return Share(0.0, 0.0)
    alone = hypot(noise, in_place)
    level = _expected(log_ratio, spread, noise if log_ratio > 0 else alone)
    wider = (TAIL * spread**2 + (level * log_ratio) ** 2) / (TAIL + 1)
    return Share(level, wider / (wider + alone**2), exp(log_ratio))


def _expected(seen: float, spread: float, noise: float) -> float:
    """Share of `seen` in the expected value.

    Source: derived; a Student variable is a normal one whose inverse variance is a gamma variable,
    and of each normal one its variance over that of what is seen counts. The expected value is a
    smooth function of what is seen that grows with it; the most probable one jumps where far modes
    are equal.
    """
    variance = spread**2 / INVERSE
    both = variance + noise**2
    log_weight = TAIL / 2 * (np.log(INVERSE) - INVERSE) - (np.log(both) + seen**2 / both) / 2
    weight = np.exp(log_weight - log_weight.max())
    return float((weight * variance / both).sum() / weight.sum())


def noise_of(times: Sequence[Timing], count: int, scatter_fraction: float = 0.0) -> float:
    """Error of what `count` ratios of these times have in common, in log units.

    `scatter_fraction` is the median error of a point left out of their curve, where it is known.
    Source: the error of a mean of n values is theirs over the root of n.
    """
    own = median(time.spread_fraction for time in times)
    validated = MAD_OF_NORMAL * scatter_fraction
    return hypot(own, validated, stated_spread(times)) / sqrt(count)


def stated_spread(times: Sequence[Timing]) -> float:
    """Of what another tool says; none of what `plan profile` measured."""
    return STATED if any("stated" in time.flags for time in times) else 0.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Of each part of a machine."""

    products: Share = WHOLE
    attention: Share = WHOLE
    streams: Share = WHOLE
    """Kernels without reuse: norms, permutation, loss, optimizer."""
    collectives: Share = WHOLE
    """Inside one domain; of all curves the one that counts least."""
    messages: Share = WHOLE
    network: Share = WHOLE
    layers_spread: float = inf
    """How far the catalog may be off in layers and ends; 0: it has these very measurements."""


ALONE = Shares()

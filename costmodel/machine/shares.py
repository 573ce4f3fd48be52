"""How much what was measured counts beside what the catalog says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, inf, sqrt
from statistics import median
from typing import TypeVar

from trainplan.costmodel.layouts import FloatColumn
from trainplan.costmodel.spec.evidence.profile import Timing

IN_PLACE = 0.1
"""Spread of how much slower a kernel is in a training step than alone, in log units, one side.

Source: `sustained` of costmodel/catalog/fitted.toml, speed in training over that of products
measured alone: 0.01 to 0.08 off for products in long loops (B200, A10G), 0.19 in the mean square of
all GPUs, most of them bursts; single layers are up to twice as slow (AMD-AGI/Primus).
"""
STATED = 0.2
"""Spread of what another tool says of one collective or kernel, in log units.

Source: all-gather, reduce-scatter and all-reduce among 2 to 8 A100, the same chip and link, by
Dazz993/Mist@d69e530a and ai-dynamo/aiconfigurator@095f58a5: bandwidths 0.54 to 1.07 of each other,
0.32 in the mean square, which are two such errors.
"""
MAD_OF_NORMAL = 1.4826
"""Standard deviation of a normal variable over its median absolute deviation."""
T = TypeVar("T", float, FloatColumn)


@dataclass(frozen=True, slots=True)
class Share:
    """Of a measured part beside the catalog's: 0 not at all, 1 alone."""

    level: float = 1.0
    """Of the ratio that its points have in common."""
    shape: float = 1.0
    """Of what they differ by beyond that."""
    ratio: float = 1.0
    """Measured over known seconds that its points have in common."""

    def mean(self, known: T, measured: T) -> T:
        """Seconds of what both say. Source: derived; the shape in seconds, the level in logs."""
        shape = (1 - self.shape) * known + self.shape * measured / self.ratio
        return shape * self.ratio**self.level

    def rate(self, known: T, measured: T) -> T:
        """As `mean`, of speeds. Source: seconds are inverse to them."""
        return 1 / self.mean(1 / known, 1 / measured)


WHOLE = Share()


def share(log_ratio: float, spread: float, noise: float, in_place: float = IN_PLACE) -> Share:
    """How much points count that are exp(`log_ratio`) times as slow as the catalog says.

    The catalog is off by `spread`, infinite where it knows nothing; the ratio is known to `noise`.
    Source: derived; the most probable value under a normal prior, where what a step adds to a
    kernel alone is half-normal: none is faster in a step, so what is slower alone than the catalog
    says is so but for its noise. Of one shape against others either may be.
    """
    if spread == inf:
        return WHOLE
    if not spread:
        return Share(0.0, 0.0)
    alone = spread**2 / (spread**2 + noise**2 + in_place**2)
    level = spread**2 / (spread**2 + noise**2) if log_ratio > 0 else alone
    return Share(level, alone, exp(log_ratio))


def noise_of(log_ratios: Sequence[float], times: Sequence[Timing]) -> float:
    """Error of the median of ratios, each with an error of its own; more where a tool states them.

    Source: the error of a median of n values is about their scatter over the root of n.
    """
    middle = median(log_ratios)
    scatter = MAD_OF_NORMAL * median(abs(one - middle) for one in log_ratios)
    return hypot(scatter, stated_spread(times)) / sqrt(len(log_ratios))


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
    """Messages inside a domain, too."""
    network: Share = WHOLE
    layers_spread: float = inf
    """How far the catalog may be off in layers and ends; 0: it has these very measurements."""


ALONE = Shares()

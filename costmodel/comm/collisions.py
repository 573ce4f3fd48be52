"""Flows that hashing sends up the same links of a switch: balls in bins.

Equal-cost paths are chosen by a hash of each flow, so links of a switch carry unlike numbers of
them, and a collective waits for the fullest link of all switches. Where paths are planned none
collide.
Source: C4, Dong et al., arXiv:2406.04594, which plans paths for this reason.
"""

from functools import lru_cache
from math import ceil, exp, lgamma, log

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.hardware import FabricTier

NEGLIGIBLE = 1e-12
"""A probability that changes no digit shown."""


@lru_cache(maxsize=4096)
def fullest_link(flows: int, links: int) -> FloatColumn:
    """Probability that no link has more than k of so many flows, by k from 0, until it is 1.

    Source: derived; counts of flows are Poisson variables given their sum, so it is the
    coefficient of x^flows in (sum of p_j x^j for j <= k)^links over the Poisson probability of the
    sum, read off on roots of unity, of which three times the sum leave nothing folded over.
    """
    mean, points = flows / links, 3 * flows + 64
    whole = exp(flows * log(flows) - flows - lgamma(flows + 1))
    turns = np.exp(2j * np.pi * np.arange(points) * flows / points)
    below, weights = [0.0], [exp(-mean)]
    while below[-1] < 1 - NEGLIGIBLE and len(weights) <= flows:
        weights.append(exp(-mean + len(weights) * log(mean) - lgamma(len(weights) + 1)))
        if len(weights) - 1 < mean:
            below.append(0.0)
            continue
        values = np.fft.fft(weights, points) ** links
        below.append(min(1.0, max(0.0, float((values * turns).real.mean()) / whole)))
    return np.array(below)


def expected_slowdown(flows: int, links: int, switches: float, share: float) -> float:
    """Expected time of flows over that of flows alone, at the fullest link of all switches.

    A link that carries n flows slows each by n times `share`, its rate over that of the link, and
    by no less than 1. Switches hash alike and independently.
    Source: derived; E[g(M)] = sum over k of (g(k + 1) - g(k)) P(M > k).
    """
    below = fullest_link(flows, links) ** switches
    slowed = np.maximum(1.0, share * np.arange(len(below) + 1))
    return float(slowed[0] + (np.diff(slowed) * (1 - below)).sum())


def tier_slowdowns(
    tier: FabricTier, size: IntColumn, stride: IntColumn, inside: IntColumn, num_gpus: int
) -> tuple[FloatColumn, FloatColumn]:
    """What leaves a tier takes so many times as long: of rings and messages, and of all-to-alls.

    All ranks below a switch send at once. Of a ring one domain of each group below the tier sends
    up, by all its members; in an all-to-all every rank does. No slower tier than where paths are
    planned: that has 1 / oversubscription of the adapters.
    Source: derived; links up are as fast as adapters, so GPUs below a tier have as many switches.
    """
    planned = np.full(len(size), tier.oversubscription)
    if tier.ecmp_uplinks is None:
        return planned, planned
    links, flows = tier.ecmp_uplinks, tier.flows_per_gpu
    below = tier.gpus_per_switch
    members = np.clip(tier.reach_gpus // stride, 1, size)
    rising = np.minimum(inside, members) / members
    share = links * tier.oversubscription / (below * flows)

    def slowdowns(parts: FloatColumn) -> FloatColumn:
        sent, rows = np.unique(np.maximum(1, parts * below * flows // 1), return_inverse=True)
        times = [
            expected_slowdown(ceil(n), links, max(1.0, num_gpus / below), share)
            for n in sent.tolist()
        ]
        return np.asarray(np.maximum(planned, np.array(times)[rows]))

    return slowdowns(rising), slowdowns(np.ones(len(size)))

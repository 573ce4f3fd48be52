"""How many distinct ranks or domains the experts of one token are on."""

from __future__ import annotations

from math import comb

import numpy as np

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.columns import FloatColumn, IntColumn


def distinct_destinations(
    places: FloatColumn | IntColumn, top_k: float, load: FloatColumn
) -> FloatColumn:
    """Distinct places among `top_k` drawn at random from `places`, on average.

    Of the fullest place, whose share is `load` times that of the mean, what it gets over the mean.
    Source: derived; a place is missed with probability (1 - load / places) ** top_k.
    """
    share = np.minimum(load / places, 1.0)
    return np.asarray(places * (1 - (1 - share) ** top_k))


def destinations_in_groups(
    moe: MoeSpec, places: FloatColumn | IntColumn, load: FloatColumn
) -> FloatColumn:
    """As `distinct_destinations`, where a token keeps to some groups of experts.

    `topk_group` of `n_group`. A group that spans places leaves them in proportion. A place that
    holds some groups has j of the g chosen ones with hypergeometric probability, and is missed by
    all k experts with (1 - j / g) ^ k.
    Source: derived; DeepSeek-V3, arXiv:2412.19437, section 2.1.2 (node-limited routing).
    """
    groups, chosen, top_k = moe.n_group or 1, moe.topk_group or 1, moe.rows_per_token
    if groups == chosen:
        return distinct_destinations(places, top_k, load)
    spread = distinct_destinations(np.maximum(places * chosen / groups, 1.0), top_k, load)
    found = np.array(spread + 0.0 * places)
    for number in np.unique(places[places < groups]):
        held = max(1, round(groups / number))
        reached = sum(
            _holds(groups, held, chosen, j)
            * (1 - (1 - np.minimum(load * j / chosen, 1.0)) ** top_k)
            for j in range(1, chosen + 1)
        )
        found = np.where(places == number, number * reached, found)
    return found


def _holds(groups: int, held: int, chosen: int, number: int) -> float:
    """Probability that of `chosen` groups a place with `held` of all has so many.

    Source: derived; the hypergeometric distribution: of comb(groups, chosen) choices as many take
    `number` of the `held` groups and the rest of the others.
    """
    return comb(held, number) * comb(groups - held, chosen - number) / comb(groups, chosen)

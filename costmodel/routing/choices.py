"""How often a token chooses each expert, and how many rows one rank's tokens make of it."""

import math
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.job import RoutingSpec

TAIL = 12.0
"""Standard deviations of a count that are summed.

Source: derived; Chernoff's bound exp(-t^2 / 2 / (1 + t / 3 s)) of a binomial count with deviation s
leaves less than 1e-10 beyond so many and as many counts more.
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows that the tokens of one rank send to each expert: mean, variance, third moment."""

    means: FloatColumn
    variances: FloatColumn
    thirds: FloatColumn


def choice_probabilities(routing: RoutingSpec, moe: MoeSpec) -> tuple[FloatColumn, ...]:
    """Probability that a token chooses each expert, by layer where layers differ.

    They sum to the experts a token visits. `zipf`: proportional to i ** -alpha of the expert's
    number i, none above 1. `measured`: as counted.

    Source: derived; an expert's mean rows over the tokens are the probability that one of them
    chooses it, whatever else that one chooses.

    Raises:
        SpecError: Counts that no such router makes.
    """
    visits = moe.rows_per_token
    if routing.kind == "measured":
        return tuple(_counted(counts, moe) for counts in routing.tokens_per_expert)
    popularity = np.arange(1, moe.num_experts + 1, dtype=np.float64) ** -routing.alpha
    return (_limited(popularity, visits),)


def _limited(popularity: FloatColumn, total: float) -> FloatColumn:
    """Numbers in proportion to a popularity that sum to a total, none above 1.

    Source: derived; those that would be above 1 are 1, and the others share what is left.
    """
    result = np.zeros_like(popularity)
    free = np.ones(len(popularity), dtype=bool)
    while free.any():
        left = total - (~free).sum()
        result[free] = popularity[free] * (left / popularity[free].sum())
        over = free & (result > 1.0)
        if not over.any():
            break
        result[over], free[over] = 1.0, False
    return result


def step_probabilities(routing: RoutingSpec, moe: MoeSpec) -> FloatColumn:
    """Probability that a token chooses each expert: [step, layer, expert].

    Counts of each step where a file has them, else one step as `choice_probabilities` has it.

    Source: as `choice_probabilities`.

    Raises:
        SpecError: Counts that no such router makes.
    """
    steps = routing.steps or (routing.tokens_per_expert,)
    if routing.kind != "measured":
        return np.stack(choice_probabilities(routing, moe))[None]
    return np.array([[_counted(counts, moe) for counts in layers] for layers in steps])


def _counted(counts: tuple[float, ...], moe: MoeSpec) -> FloatColumn:
    """Shares of counts; those of several replicas follow one another and are added up.

    Source: Megatron-LM @d98e8a64 `parallel_state.py`, order "tp-cp-ep-dp-pp": the ranks of an
    expert group follow one another, then those of the next replica.
    """
    if len(counts) % moe.num_experts:
        raise SpecError(
            f"routing: a layer has {len(counts)} counts, the model {moe.num_experts} experts: give "
            "one count for each expert, or the folder with the files of all ranks"
        )
    rows = np.asarray(counts, dtype=np.float64).reshape(-1, moe.num_experts).sum(axis=0)
    shares = rows * (moe.rows_per_token / rows.sum())
    if shares.max() > 1.0 + 1e-9:
        most = int(shares.argmax())
        raise SpecError(
            f"routing: expert {most} has {shares[most] / moe.rows_per_token:.0%} of the rows, but "
            f"a token goes to {moe.rows_per_token:g} different experts, so at most "
            f"{1 / moe.rows_per_token:.0%} are one expert's: correct the counts"
        )
    return np.asarray(np.minimum(shares, 1.0), dtype=np.float64)


def counts_of(
    probabilities: FloatColumn, tokens: float, limit: float | None, multiple: int
) -> Counts:
    """Rows for each expert of so many tokens, at most `limit`, rounded up to a multiple.

    Source: derived; the count of an expert is binomial: p tokens, p (1 - p) tokens and
    p (1 - p) (1 - 2 p) tokens; limited or rounded, the sum over its distribution.
    """
    p = probabilities
    if limit is None and multiple == 1:
        return Counts(tokens * p, tokens * p * (1 - p), tokens * p * (1 - p) * (1 - 2 * p))
    each = [_changed(one, max(1, round(tokens)), limit, multiple) for one in p.tolist()]
    scale = tokens / max(1, round(tokens))
    return Counts(*(scale * column for column in np.array(each).T))


@lru_cache(maxsize=4096)
def _changed(
    probability: float, tokens: int, limit: float | None, multiple: int
) -> tuple[float, float, float]:
    """Moments of one limited and rounded count. Source: as `counts_of`."""
    mean, deviation = tokens * probability, math.sqrt(tokens * probability * (1 - probability))
    low = max(0, math.floor(mean - TAIL * deviation - TAIL))
    high = min(tokens, math.ceil(mean + TAIL * deviation + TAIL))
    counts = np.arange(low, high + 1, dtype=np.float64)
    weights = _binomial(counts, tokens, probability)
    rows = changed_rows(counts, limit, multiple)
    expected = float(weights @ rows)
    off = rows - expected
    return expected, float(weights @ off**2), float(weights @ off**3)


def changed_rows(counts: FloatColumn, limit: float | None, multiple: int) -> FloatColumn:
    """Rows that are computed of so many chosen: at most the limit, in whole multiples.

    Source: Megatron-LM @d98e8a64 `moe/moe_utils.py`, apply_router_token_dropping and
    pad_routing_map.
    """
    kept = counts if limit is None else np.minimum(counts, limit)
    return np.asarray(np.ceil(kept / multiple - 1e-9) * multiple if multiple > 1 else kept)


def _binomial(counts: FloatColumn, tokens: int, probability: float) -> FloatColumn:
    """Weights of counts of a binomial variable, which sum to 1.

    Source: derived; the weight of n + 1 over that of n is (tokens - n) / (n + 1) p / (1 - p), whose
    logarithms add up.
    """
    if probability <= 0.0 or probability >= 1.0:
        return np.asarray((counts == tokens * round(probability)).astype(np.float64))
    steps = counts[:-1]
    ratios = np.log((tokens - steps) / (steps + 1)) + math.log(probability / (1 - probability))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


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
    result = np.array(spread + 0.0 * places)
    for number in np.unique(places[places < groups]):
        held = max(1, round(groups / number))
        reached = sum(
            _holds(groups, held, chosen, j)
            * (1 - (1 - np.minimum(load * j / chosen, 1.0)) ** top_k)
            for j in range(1, chosen + 1)
        )
        result = np.where(places == number, number * reached, result)
    return result


def _holds(groups: int, held: int, chosen: int, number: int) -> float:
    """Probability that of `chosen` groups a place with `held` of all has so many.

    Source: derived; the hypergeometric distribution: of comb(groups, chosen) choices as many take
    `number` of the `held` groups and the rest of the others.
    """
    return comb(held, number) * comb(groups - held, chosen - number) / comb(groups, chosen)

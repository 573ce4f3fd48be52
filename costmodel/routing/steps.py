"""Rows of ranks by step, and what the fullest of many is below with a stated probability."""

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.routing.choices import Counts, step_probabilities
from trainplan.costmodel.routing.expected_maximum import (
    MOST_SKEW,
    REACH,
    normal_below,
    normal_score,
    quantile,
)
from trainplan.costmodel.routing.loads import row_multiple
from trainplan.costmodel.routing.placement import Placement

HALVINGS = 30
"""Of the interval that a quantile lies in, to a billionth of which it is found."""


def step_rows(job: Job, *, etp: int, tokens: float, placement: Placement) -> Counts:
    """Rows of each rank in a micro batch over those of a balanced one: [step, layer, rank].

    `tokens` of each rank that sends. An expert with a capacity gets no more than that on average;
    rows that are padded to a multiple are half of one more.

    Source: derived; a token that chooses k of n experts with probabilities p has a covariance of
    - t p q between two of them, t such that the count of all does not vary: t = (k - sum p p) /
    (k k - sum p p). So a rank of P = sum p has the variance P - sum p p - t (P P - sum p p), and
    the third moment that times (1 - 2 P / k) (n - 2 k) / (n - 2). Exact for one expert a token (a
    multinomial), and where all are alike (a hypergeometric distribution). A row goes to one of the
    copies of its expert by chance: p is that it comes to the rank.
    """
    moe, options = job.model.moe, job.options
    assert moe is not None
    assert options.routing is not None
    experts, k, visits = moe.num_experts, moe.num_experts_per_tok, moe.rows_per_token
    chosen = step_probabilities(options.routing, moe)
    choices = experts * k / visits
    squares = (chosen**2).sum(axis=-1, keepdims=True) + (choices - experts) * (k / choices) ** 2
    together = (k - squares) / (k * k - squares) if k > 1 else 1.0
    if options.moe_capacity_factor is not None:
        chosen = np.minimum(chosen, options.moe_capacity_factor * k / experts)
    ep, shares = placement.ranks, placement.shares
    by_layer = chosen.swapaxes(0, 1)
    share, square = ((by_layer**n @ shares**n).swapaxes(0, 1) for n in (1, 2))
    variance = np.maximum(share - square - together * (share**2 - square), 0.0)
    third = (
        variance * (1 - 2 * share / k) * ((choices - 2 * k) / max(choices - 2, 1) if k > 1 else 1.0)
    )
    sent, balanced = tokens * ep * etp, tokens * etp * visits
    padding = experts * etp * (row_multiple(options, job.training.precision) - 1) / 2
    return Counts(
        (sent * share + padding) / balanced,
        sent * variance / balanced**2,
        sent * third / balanced**3,
    )


def largest_below(
    counts: Counts, times: FloatColumn, level: float, *, every: bool = False
) -> float:
    """What the largest of independent variables is below in `level` of a hundred steps.

    counts: moments [step, ...]; times: how often each variable is drawn in a step, [...]; `every`:
    what that of the fullest of these steps is below as often as not, whatever the level.

    Source: derived; the distribution of the largest of independent variables is the product of
    theirs, each a shifted gamma variable as in `expected_maximum`; of a random step it is the mean
    over the steps.
    """
    mean, third = counts.means, counts.thirds
    deviation = np.sqrt(np.maximum(counts.variances, 0.0))
    cubed = deviation**3
    skew = np.divide(third, cubed, out=np.zeros_like(third), where=cubed > 0)
    skew = np.clip(skew, -MOST_SKEW, MOST_SKEW)

    def probability(value: float) -> float:
        with np.errstate(divide="ignore"):
            logs = np.log(normal_below(normal_score(value - mean, deviation, skew)))
        steps = (logs * times).reshape(len(mean), -1).sum(axis=1)
        return float(np.exp(steps.sum()) if every else np.exp(steps).mean())

    wanted = 0.5 if every else level / 100
    least = (mean - deviation).reshape(len(mean), -1).max(axis=1)
    low, high = float(least.min()), float((mean + deviation * quantile(REACH, skew)).max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if probability(middle) < wanted:
            low = middle
        else:
            high = middle
    return high

"""Which rank of an expert group computes the rows of each expert, and how full that makes ranks."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.routing.choices import Counts

ROUNDING = 1e-9
"""By which shares of an expert may miss 1: those of three copies do."""


@dataclass(frozen=True, eq=False)
class Copies:
    """One layer: each copy of an expert that computes rows."""

    experts: IntColumn
    ranks: IntColumn
    shares: FloatColumn
    """Of the rows of its expert that come to the copy."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Shares of an expert's rows that ranks compute: [layer, expert, rank], or one for all layers.

    A share of 1 is an expert on one rank alone; an expert with copies has some of less, to each of
    which a row goes by chance.
    """

    shares: FloatColumn
    copies: tuple[Copies, ...]

    @classmethod
    def of(cls, shares: FloatColumn) -> Self:
        """A placement by its shares [layer or 1, expert, rank].

        Raises:
            SpecError: Shares of an expert that are negative or do not sum to 1.
        """
        if (shares < 0).any() or not np.allclose(shares.sum(axis=-1), 1.0, rtol=0, atol=ROUNDING):
            raise SpecError("placement of experts: shares of every expert must sum to 1")
        held = [np.nonzero(one) for one in shares]
        copies = [
            Copies(experts, ranks, one[experts, ranks])
            for one, (experts, ranks) in zip(shares, held, strict=True)
        ]
        return cls(shares, tuple(copies))

    @property
    def ranks(self) -> int:
        """Of the expert group."""
        return int(self.shares.shape[-1])

    def layer(self, number: int) -> Copies:
        """The copies of a layer, from 0."""
        return self.copies[number if len(self.copies) > 1 else 0]

    def on_nodes(self, nodes: int) -> Self:
        """The same by nodes, each of which has equally many ranks that follow one another."""
        node = np.eye(nodes)[np.arange(self.ranks) * nodes // self.ranks]
        return type(self).of(self.shares @ node)


@lru_cache(maxsize=256)
def in_order(experts: int, ranks: int) -> Placement:
    """Experts on ranks in the order of their numbers.

    Source: Megatron-LM @d98e8a64 `moe/moe_layer.py`, BaseMoELayer.local_expert_indices.
    """
    return Placement.of(np.eye(ranks)[None, np.arange(experts) * ranks // experts])


def rank_counts(
    moe: MoeSpec, counts: Counts, placement: Placement, layer: int, sources: int
) -> Counts:
    """Rows of each rank in a layer, of so many ranks that send `counts` each.

    A rank's rows are a sum over its experts and the ranks that send. What one token chooses is
    anticorrelated, for it chooses n experts once each: with all alike the variance of a rank less
    the covariance of two is q (1 - k / n) k n / (n - 1) a token, n / (n - 1) times the sum over its
    experts of p (1 - p). Equal variables of covariance c and variance v have the maximum of
    independent ones of variance v - c, since c is shared by all; where ranks differ, the fullest
    decides, and what others share with it matters little. Of the rows of an expert with copies each
    goes to one by chance: cumulants of such a sum are those of a rank's count N and of one row's
    s, s (1 - s), s (1 - s) (1 - 2 s), put into each other.

    Source: derived; counts of ranks are multivariate hypergeometric: of k choices among n the
    variance of a rank's is k q (1 - q) (n - k) / (n - 1), the covariance of two's minus k q q
    (n - k) / (n - 1), whose difference is k q (n - k) / (n - 1).
    """
    choices = moe.num_experts * moe.num_experts_per_tok / moe.rows_per_token
    together = choices / (choices - 1) if choices > 1 else 1.0
    copies = placement.layer(layer)
    s, mean, variance, third = (
        copies.shares,
        *(x[copies.experts] for x in (counts.means, counts.variances, counts.thirds)),
    )

    def summed(values: FloatColumn) -> FloatColumn:
        sums = np.bincount(copies.ranks, weights=values, minlength=placement.ranks)
        return np.asarray(sources * sums, dtype=np.float64)

    thinned = s * (1 - s)
    thirds = s**3 * third + 3 * s * thinned * variance + thinned * (1 - 2 * s) * mean
    variances = s**2 * variance + thinned * mean
    return Counts(summed(s * mean), together * summed(variances), summed(thirds))

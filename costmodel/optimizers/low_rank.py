"""GaLore and APOLLO: moments of the gradient's projection to a space of few dimensions.

Both keep weights, gradients and moments in one type. The projection is to `rank` dimensions along
the longer side, `m` the shorter and `n` the longer one below; tables at the ends and vectors are
left to Adam.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import OptimizerSpec
from trainplan.costmodel.optimizers.adamw8bit import quantized_bytes
from trainplan.costmodel.optimizers.base import Matrix, Multiplied, Optimizer, adam_bytes

PROJECTION_PERIOD = 200
"""Steps between two projections. Source: Zhao et al., GaLore, arXiv:2403.03507, section 5, T = 200;
galore_torch 1.0 `galore_projector.py`, update_proj_gap."""


@dataclass(frozen=True, slots=True)
class Galore(Optimizer):
    """Moments of the projected gradient, and the projection, found by singular vectors."""

    eight_bit: bool = False

    def state_bytes(self, one: Matrix, request: OptimizerSpec, width: float) -> FloatColumn:
        """Bytes of the state of one tensor: r m of the projection, 2 r n of the moments.

        Source: Zhao et al., arXiv:2403.03507, table 1 (m r + 2 n r); galore_torch 1.0 `adamw.py`,
        whose moments have the type of the gradient, and `adamw8bit.py`.
        """
        if one.role != "hidden":
            return quantized_bytes(one.elements) if self.eight_bit else adam_bytes(one, width)
        rank = np.minimum(request.rank or 0, one.shorter)
        moved = rank * one.longer
        moments = quantized_bytes(moved) if self.eight_bit else 2 * width * moved
        return np.asarray(width * rank * one.shorter + moments)

    def products(self, one: Matrix, request: OptimizerSpec) -> Sequence[Multiplied]:
        """The gradient projected, and the update brought back."""
        if one.role != "hidden":
            return ()
        m, n = one.shorter, one.longer
        rank = np.minimum(request.rank or 0, m)
        return Multiplied(n, rank, m), Multiplied(n, m, rank)

    def decomposition_flop(self, one: Matrix, request: OptimizerSpec) -> FloatColumn:
        """Singular values and both sides' vectors, mean over steps: 14 n m m + 8 m m m FLOPs.

        Source: Golub and Van Loan, Matrix Computations, 2013, section 8.6, table of the SVD;
        PROJECTION_PERIOD.
        """
        m, n = one.shorter, one.longer
        return np.asarray((14 * n + 8 * m) * m**2 / PROJECTION_PERIOD * (one.role == "hidden"))


@dataclass(frozen=True, slots=True)
class Apollo(Optimizer):
    """Moments of a random projection, which scale the gradient by channels or as a whole."""

    rank: int | None = None
    """Of the space; null: as the user says."""

    def state_bytes(self, one: Matrix, request: OptimizerSpec, width: float) -> FloatColumn:
        """Bytes of the state of one tensor: as GaLore's, and the norm of the last update.

        Source: Zhu et al., arXiv:2412.05270, table 1 (2 n r + 2; the projection can be drawn again
        from its seed); apollo_torch 1.0.3 `random_projector.py` keeps it, and `apollo.py` the norm.
        """
        if one.role != "hidden":
            return adam_bytes(one, width)
        rank = self.rank or request.rank or 0
        numbers = rank * (one.shorter + 2 * one.longer) + 1
        return np.asarray(width * numbers * (one.elements > 0))

    def products(self, one: Matrix, request: OptimizerSpec) -> Sequence[Multiplied]:
        """The gradient projected; nothing is brought back."""
        if one.role != "hidden":
            return ()
        rank = np.asarray(float(self.rank or request.rank or 0))
        return (Multiplied(one.longer, rank, one.shorter),)


GALORE = Galore(
    name="galore",
    says="projection and 2 moments of rank r: r m + 2 r n, m <= n",
    source="Zhao et al., arXiv:2403.03507, table 1",
    takes=("rank", "update"),
    needs=("rank",),
    moments=None,
    whole_matrices=True,
    bare=True,
    by_layer=True,
    changes="low-rank gradients",
    work="4 r m n FLOPs; every 200 steps 14 m m n + 8 m m m for singular vectors",
)
GALORE8BIT = replace(
    GALORE,
    name="galore8bit",
    says="as galore, the moments in 8 bits: 2 r m + 2 r n (1 + 4/256) bytes",
    source="Zhao et al., arXiv:2403.03507, table 1 and section 4.3",
    eight_bit=True,
)
APOLLO = Apollo(
    name="apollo",
    says="random projection, 2 moments of rank r and a norm: r m + 2 r n + 1, m <= n",
    source="Zhu et al., arXiv:2412.05270, table 1",
    takes=("rank", "update"),
    needs=("rank",),
    moments=None,
    whole_matrices=True,
    bare=True,
    by_layer=True,
    changes="low-rank scaling",
    work="2 r m n FLOPs",
)
APOLLO_MINI = replace(
    APOLLO,
    name="apollo-mini",
    says="as apollo of rank 1: m + 2 n + 1",
    takes=("update",),
    needs=(),
    rank=1,
    work="2 m n FLOPs",
)

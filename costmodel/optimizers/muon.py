"""Muon: momentum of matrices, made orthogonal by Newton and Schulz; all else is left to AdamW."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import OptimizerSpec
from trainplan.costmodel.optimizers.base import Matrix, Multiplied, Optimizer, adam_bytes

NEWTON_SCHULZ_STEPS = 5
"""Source: Jordan et al., "Muon: An optimizer for hidden layers", 2024; Megatron-LM
`training/arguments.py`, --muon-num-ns-steps."""


@dataclass(frozen=True, slots=True)
class Muon(Optimizer):
    """One moment of matrices inside layers, both of Adam for tables at the ends and vectors."""

    def state_bytes(self, one: Matrix, request: OptimizerSpec, width: float) -> FloatColumn:
        """Bytes of the state of one tensor.

        Source: Liu et al., Muon is scalable, arXiv:2502.16982, section 2.3 (a buffer); Megatron-LM
        `core/optimizer/emerging_optimizers.py`, _is_nonlinear_or_embedding (the rest is Adam's).
        """
        return width * one.elements if one.role == "hidden" else adam_bytes(one, width)

    def products(self, one: Matrix, request: OptimizerSpec) -> Sequence[Multiplied]:
        """Three products of each step: X X', its square, and their sum times X.

        With m rows, no more than the n columns, 2 m m n + 2 m m m + 2 m m n FLOPs.
        """
        if one.role != "hidden":
            return ()
        whole = one.whole()
        m, n = whole.shorter, whole.longer
        return (
            Multiplied(m, m, n, NEWTON_SCHULZ_STEPS),
            Multiplied(m, m, m, NEWTON_SCHULZ_STEPS),
            Multiplied(m, n, m, NEWTON_SCHULZ_STEPS),
        )


MUON = Muon(
    name="muon",
    says="momentum: m n; embedding, head and vectors 2 moments",
    source="Liu et al., arXiv:2502.16982, sections 2.1 and 2.3",
    moments=None,
    whole_matrices=True,
    gathers_tensor_ranks=True,
    work="5 x (4 m m n + 2 m m m) FLOPs, m <= n",
    collectives="all-gather of every matrix over tensor ranks",
)
DIST_MUON = replace(
    MUON,
    name="dist-muon",
    source="Liu et al., arXiv:2502.16982, section 2.3; Megatron-LM core/optimizer/"
    "layer_wise_optimizer.py, LayerWiseDistributedOptimizer",
    always_sharded=True,
    collectives="all-gather of every matrix over tensor ranks, and of weights over replicas",
)
"""Muon whose matrices are given to the replicas one by one: always sharded."""

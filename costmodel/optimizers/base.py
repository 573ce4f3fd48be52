"""What an optimizer is: the state it keeps of a tensor, and the work of updating it.

Sizes are those of one rank. Weights, their fp32 copy and gradients are the runtime's; here is what
an optimizer keeps beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.job import OptimizerSpec

Ranks = FloatColumn | IntColumn | float
"""Numbers of ranks, or of tensors."""
Role = Literal["hidden", "end", "vector"]
"""A matrix inside a layer, a table at an end (embedding, output projection), or a vector."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Tensors of one shape on one rank; vectors have one column."""

    rows: FloatColumn
    columns: FloatColumn
    count: Ranks = 1.0
    role: Role = "hidden"
    cut_rows: Ranks = 1.0
    """Ranks of tensor parallelism that hold its other rows."""
    cut_columns: Ranks = 1.0

    @property
    def elements(self) -> FloatColumn:
        """Of one of them. Source: rows times columns, since every entry of a matrix is a weight."""
        return np.asarray(self.rows * self.columns)

    @property
    def shorter(self) -> FloatColumn:
        """The smaller of both sizes. Source: `Matrix.rows` and `Matrix.columns`."""
        return np.minimum(self.rows, self.columns)

    @property
    def longer(self) -> FloatColumn:
        """The larger of both sizes. Source: `Matrix.rows` and `Matrix.columns`."""
        return np.maximum(self.rows, self.columns)

    @property
    def gathered_from(self) -> FloatColumn:
        """Ranks that hold a part of the whole matrix. Source: `Matrix.cut_rows`."""
        return np.asarray(self.cut_rows * self.cut_columns * np.ones(()))

    def whole(self) -> Matrix:
        """The same as no tensor parallelism would hold it."""
        return Matrix(
            self.rows * self.cut_rows, self.columns * self.cut_columns, self.count, self.role
        )


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A matrix product of an update, `m x k` times `k x n`, so many times a step."""

    m: FloatColumn
    n: FloatColumn
    k: FloatColumn
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class Optimizer:
    """AdamW, and the base of all others: two moments of every parameter."""

    name: str
    says: str
    """State of an m x n matrix inside a layer, as a formula to read."""
    source: str
    takes: tuple[str, ...] = ()
    """Settings that may stand behind its name."""
    needs: tuple[str, ...] = ()
    """Those that must."""
    moments: int | None = 2
    """Numbers kept of every parameter, in the type of the runtime's moments; null: its state
    depends on the shape of a matrix, and `state_bytes` says how."""
    whole_matrices: bool = False
    """Its update reads a matrix as a whole, so sharding gives whole matrices to ranks."""
    always_sharded: bool = False
    """It exists only where replicas share the states."""
    on_host: bool = False
    """Its offloaded part is updated by the CPU."""
    gathers_tensor_ranks: bool = False
    """It works on the matrix that tensor parallelism cuts, gathered on every rank."""
    bare: bool = False
    """There is no copy of the weights in fp32: weights, gradients and moments have one type."""
    by_layer: bool = False
    """A layer can be updated, and its gradients freed, before the next one runs backward."""
    changes: str | None = None
    """Its line in `costmodel.semantics`; null: an optimizer like any other."""
    work: str = ""
    """What an update does beside reading and writing states, as a formula to read."""
    collectives: str = ""
    """What it exchanges beside gradients and weights."""

    def state_bytes(self, one: Matrix, request: OptimizerSpec, width: float) -> FloatColumn:
        """Bytes of the state of one tensor whose moments take `width` bytes each.

        Source: Kingma and Ba, arXiv:1412.6980, algorithm 1: as many numbers as `moments`.
        """
        return np.asarray((self.moments or 0) * width * one.elements)

    def products(self, one: Matrix, request: OptimizerSpec) -> Sequence[Multiplied]:
        """Matrix products of the update of one tensor in one step."""
        return ()

    def decomposition_flop(self, one: Matrix, request: OptimizerSpec) -> FloatColumn:
        """FLOPs of factorizations of one tensor, mean over steps.

        None where every number is updated by itself. Source: Kingma and Ba, arXiv:1412.6980,
        algorithm 1.
        """
        return np.zeros(())


def adam_bytes(one: Matrix, width: float) -> FloatColumn:
    """Both moments of a tensor that an optimizer leaves to Adam. Source: as `Optimizer`."""
    return np.asarray(2 * width * one.elements)

"""Adafactor without momentum: means of the squared gradient over rows and over columns."""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import OptimizerSpec
from trainplan.costmodel.optimizers.base import Matrix, Optimizer


@dataclass(frozen=True, slots=True)
class Adafactor(Optimizer):
    """Of a matrix one number a row and one a column, of a vector one an element."""

    def state_bytes(self, one: Matrix, request: OptimizerSpec, width: float) -> FloatColumn:
        """Bytes of the factored second moment of one tensor.

        Source: Shazeer and Stern, arXiv:1804.04235, algorithm 4; torch.optim.Adafactor, row_var,
        col_var and variance.
        """
        kept = one.elements if one.role == "vector" else one.rows + one.columns
        return np.asarray(width * kept * (one.elements > 0))


ADAFACTOR = Adafactor(
    name="adafactor",
    says="a mean for every row and column: m + n",
    source="Shazeer and Stern, arXiv:1804.04235, algorithm 4",
    moments=None,
    whole_matrices=True,
)

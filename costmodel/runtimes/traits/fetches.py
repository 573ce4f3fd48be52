"""In what pieces a runtime gathers and reduces fully sharded weights, and when it does so again."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from trainplan.costmodel.layouts import FloatColumn


@dataclass(frozen=True, slots=True)
class Fetches:
    """Calls under ZeRO-3; those of a runtime that gathers and reduces whole layers."""

    weights: int = 1
    """Matrices of a dense layer that are gathered and reduced one by one."""
    gathered_params: float = inf
    """Parameters that wait until one call gathers them, where a matrix has fewer."""
    reduced_params: float = inf
    """As above, of gradients."""
    reuse_params: float = inf
    """Parameters of the modules between two uses of a weight from which on it is freed between
    them."""

    def calls(self, params: FloatColumn, waiting: float, weights: int) -> FloatColumn:
        """Calls for `params` parameters in `weights` matrices, `waiting` of them in one call.

        Source: derived; each call has a whole matrix at least, and the last one what is left.
        """
        return np.clip(np.ceil(params / waiting), 1, weights)

    def freed(self, params: FloatColumn) -> FloatColumn:
        """Parameters of a layer that are freed between its recomputation and its backward pass.

        Source: derived; the first pass goes from the first weight to the last and the second one
        back, so between both uses of a weight lie twice the parameters behind it.
        """
        return np.maximum(0.0, params - self.reuse_params / 2)


WHOLE_LAYERS = Fetches()

"""AdamW with both moments in 8 bits, a scale for every block of them."""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import BYTES_FP8, BYTES_FP32
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import OptimizerSpec
from trainplan.costmodel.optimizers.base import Matrix, Optimizer

BLOCK = 256
"""Elements with one scale in fp32. Source: bitsandbytes 0.50.2 `optim/optimizer.py`, init_state."""
SMALLEST = 4096
"""Elements from which on a tensor is kept in 8 bits. Source: bitsandbytes 0.50.2
`optim/optimizer.py`, min_8bit_size."""


def quantized_bytes(elements: FloatColumn) -> FloatColumn:
    """Bytes of both moments of a tensor of so many elements.

    Source: Dettmers et al., arXiv:2110.02861, section 2 (blocks); BLOCK and SMALLEST; smaller
    tensors keep both in fp32.
    """
    scales = BYTES_FP32 * np.ceil(elements / BLOCK)
    kept = np.where(elements < SMALLEST, BYTES_FP32 * elements, BYTES_FP8 * elements + scales)
    return np.asarray(2 * kept)


@dataclass(frozen=True, slots=True)
class EightBit(Optimizer):
    """Moments in 8 bits."""

    def state_bytes(self, one: Matrix, request: OptimizerSpec, width: float) -> FloatColumn:
        """Bytes of both moments of one tensor. Source: `quantized_bytes`."""
        return quantized_bytes(one.elements)


ADAMW8BIT = EightBit(
    name="adamw8bit",
    says="2 moments of 1 byte, with a scale of 4 bytes for 256: 2 m n (1 + 4/256) bytes",
    source="Dettmers et al., arXiv:2110.02861, section 2; bitsandbytes 0.50.2 optim/optimizer.py",
    moments=None,
)

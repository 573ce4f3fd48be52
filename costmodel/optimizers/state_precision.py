"""Number formats of weights, gradients and moments: all in bf16, or as FP8-LM stores them.

Source of its levels: Peng et al., FP8-LM, arXiv:2310.18313, sections 2.1 to 2.3; the table of
formats is that of MS-AMP's documentation, "Optimization level", repeated in that of Hugging Face
accelerate, "Low precision training methods". One scale of a whole tensor, 4 bytes, is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainplan.costmodel.base import BYTES_BF16, BYTES_FP8, BYTES_FP32
from trainplan.costmodel.job import StatePrecision


@dataclass(frozen=True, slots=True)
class StoredStates:
    """Bytes of one parameter's states."""

    weight_bytes: int
    """Of the weight that products read."""
    master_bytes: int
    """Of the weight that is updated, where it is another one."""
    gradient_bytes: int
    """Of the gradient, kept and on the wire."""
    moment_bytes: tuple[int, int]
    """Of the first and the second moment."""

    @property
    def total_bytes(self) -> int:
        """All of them: 16 of mixed precision with fp32 weights, 6 at `o2`."""
        kept = self.weight_bytes + self.master_bytes + self.gradient_bytes
        return kept + sum(self.moment_bytes)


FP16 = BYTES_BF16
STORED: Mapping[StatePrecision, StoredStates] = MappingProxyType(
    {
        "bf16": StoredStates(BYTES_BF16, 0, BYTES_BF16, (BYTES_BF16, BYTES_BF16)),
        "o1": StoredStates(FP16, 0, BYTES_FP8, (BYTES_FP32, BYTES_FP32)),
        "o2": StoredStates(FP16, 0, BYTES_FP8, (BYTES_FP8, FP16)),
        "o3": StoredStates(BYTES_FP8, FP16, BYTES_FP8, (BYTES_FP8, FP16)),
    }
)
"""All but `o0`, which is what the runtime does by itself."""
FP8_LM: frozenset[StatePrecision] = frozenset({"o1", "o2", "o3"})
"""Levels that store something in 8 bits."""

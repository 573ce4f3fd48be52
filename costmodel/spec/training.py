"""How it is trained: the job, apart from how it is laid out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from trainplan.costmodel.spec.base import Spec

LARGEST_SIZE = 1 << 30
"""Of a batch and of a sequence."""
Precision = Literal["bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "nvfp4"]
"""Number format of the matrix products; the attention core, the router and the head stay bf16
where it is lower. `fp32` and `tf32` keep weights, activations and gradients in fp32; matrix units
multiply `tf32`, a CPU `fp32`."""
FULL_WIDTH: tuple[Precision, ...] = ("fp32", "tf32")
"""Formats whose weights and activations are stored in 4 bytes."""


LOW_PRECISION: tuple[Precision, ...] = ("fp8", "mxfp8", "nvfp4")
"""Formats whose products need their operands cast; all else of the model stays in 16 bits."""


def storage_bytes(precision: Precision) -> int:
    """Bytes of one activation or working weight."""
    return 4 if precision in FULL_WIDTH else 2


class TrainingSpec(Spec):
    """One training job."""

    seq_length: PositiveInt = Field(le=LARGEST_SIZE)
    """Tokens per sequence."""
    global_batch_size: PositiveInt = Field(le=LARGEST_SIZE)
    """Sequences per optimizer step, over all replicas."""
    precision: Precision = "bf16"
    tokens: PositiveInt | None = None
    """Length of the whole run; only used to report days, GPU-hours and money."""

    @property
    def storage_bytes(self) -> int:
        """Bytes of one activation or working weight."""
        return storage_bytes(self.precision)

    @property
    def casts(self) -> bool:
        """Do matrix products need their operands cast to a lower precision?"""
        return self.precision in LOW_PRECISION

    @property
    def tokens_per_step(self) -> int:
        """Tokens consumed by one optimizer step."""
        return self.seq_length * self.global_batch_size

"""How it is trained: the job, apart from how it is laid out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from costmodel.spec.base import Spec

Precision = Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
"""Number format of the matrix products; the attention core, the router and the head stay bf16."""


class TrainingSpec(Spec):
    """One training job."""

    seq_length: PositiveInt = Field(le=1 << 30)
    """Tokens per sequence."""
    global_batch_size: PositiveInt = Field(le=1 << 30)
    """Sequences per optimizer step, over all replicas."""
    precision: Precision = "bf16"
    tokens: PositiveInt | None = None
    """Length of the whole run; only used to report days, GPU-hours and money."""

    @property
    def tokens_per_step(self) -> int:
        """Tokens consumed by one optimizer step."""
        return self.seq_length * self.global_batch_size

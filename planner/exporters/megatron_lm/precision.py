"""Options for number formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.spec import TrainingSpec
from trainplan.costmodel.spec.training import Precision
from trainplan.planner.exporters.config import Argument, option, switch

BF16 = switch("precision", "--bf16")

FORMATS: Mapping[Precision, tuple[Argument, ...]] = {
    "bf16": (BF16,),
    "fp16": (
        switch("precision", "--fp16"),
        switch("precision", "--accumulate-allreduce-grads-in-fp32"),
    ),
    "fp8": (
        BF16,
        option("precision", "--fp8-format", "hybrid"),
        option("precision", "--fp8-recipe", "tensorwise"),
    ),
    "mxfp8": (
        BF16,
        option("precision", "--fp8-format", "e4m3"),
        option("precision", "--fp8-recipe", "mxfp8"),
    ),
    "nvfp4": (
        BF16,
        option("precision", "--fp4-format", "e2m1"),
        option("precision", "--fp4-recipe", "nvfp4"),
    ),
}
"""fp8 scales per tensor by current values; weights, gradients and states keep 16 or 32 bits.

bf16 accumulates and reduces gradients in fp32 by itself, fp16 only when told (arguments.py:1213);
the cost model counts four bytes for each.
"""


def precision_arguments(training: TrainingSpec) -> Iterator[Argument]:
    """Format of the matrix products.

    Raises:
        UnsupportedError: The options we write run fused attention, which needs 16 bits.
    """
    if training.precision not in FORMATS:
        raise UnsupportedError(
            f"no launch files are written for {training.precision}: fused attention of Megatron-LM "
            f"needs 16 bits, plan for --precision {' or '.join(FORMATS)}"
        )
    yield from FORMATS[training.precision]

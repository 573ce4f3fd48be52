"""How fast the fused kernels of attention are, over the best one for the GPU."""

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.runtimes import AttentionKernel

TRITON_HALF_LENGTH = 230.0
"""Tokens at which FlashAttention in Triton reaches half its speed: its tiles are smaller.

Source: between 319 at 128 wide and 167 at 64, forward and backward, causal, 512 to 16k tokens,
assets/flash2_a100_fwd_bwd_benchmark.png of Dao-AILab/flash-attention@0251105a.
"""


OUTGROWN = frozenset({"hopper", "cdna3", "cdna4"})
"""Architectures whose best kernels are far faster than FlashAttention-2, which was written before.

Source: `flash2_on_hopper`; MI300X: FlashAttention-2 of Composable Kernel, 353 TFLOP/s forward, 223
to 231 of both passes (ROCm/flash-attention issue 142), half of the kernels of AITER behind the
catalog's fit.
"""


def kernel_speed(
    machine: Machine, kernel: AttentionKernel, length: float | FloatColumn
) -> float | FloatColumn:
    """Speed of a fused kernel on sequences of `length` over that of the best one for the GPU.

    Source: `Constants`; efficiencies s / (s + s_half) of both kernels, TRITON_HALF_LENGTH.
    """
    constants, native = machine.constants, kernel == "flash" or machine.architecture not in OUTGROWN
    speed = 1.0 if native else constants.flash2_on_hopper
    if kernel != "triton":
        return speed
    shorter = (length + machine.attention_half_length) / (length + TRITON_HALF_LENGTH)
    return speed * constants.triton_attention * shorter

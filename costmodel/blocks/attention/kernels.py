"""How fast the fused kernels of attention are, over the best one for the GPU."""

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.runtimes import AttentionKernel

TRITON_HALF_LENGTH = 230.0
"""Tokens at which FlashAttention in Triton reaches half its speed: its tiles are smaller.

Source: between 319 at 128 wide and 167 at 64, forward and backward, causal, 512 to 16k tokens,
assets/flash2_a100_fwd_bwd_benchmark.png of Dao-AILab/flash-attention@0251105a.
"""


def kernel_speed(
    machine: Machine, kernel: AttentionKernel, length: float | FloatColumn
) -> float | FloatColumn:
    """Speed of a fused kernel on sequences of `length` over that of the best one for the GPU.

    Source: `Constants`; efficiencies s / (s + s_half) of both kernels, TRITON_HALF_LENGTH.
    """
    constants, native = machine.constants, kernel == "flash" or machine.architecture != "hopper"
    speed = 1.0 if native else constants.flash2_on_hopper
    if kernel != "triton":
        return speed
    shorter = (length + machine.attention_half_length) / (length + TRITON_HALF_LENGTH)
    return speed * constants.triton_attention * shorter

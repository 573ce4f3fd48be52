"""How fast the fused kernels of attention are, over the best one for the GPU."""

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.runtimes import AttentionKernel

TRITON_HALF_LENGTH = 230.0
"""Tokens at which FlashAttention in Triton reaches half its speed: its tiles are smaller.

Source: between 319 at 128 wide and 167 at 64, forward and backward, causal, 512 to 16k tokens,
assets/flash2_a100_fwd_bwd_benchmark.png of Dao-AILab/flash-attention@0251105a.
"""


FLASH2_HALF_LENGTH = 484.0
"""As above of FlashAttention-2. Source: both passes, causal, within 2 %, the same figure."""
FLASH2_SHARE = {"hopper": 1.0, "cdna3": 1.0, "cdna4": 1.0, "blackwell": 0.6, "rubin": 0.3}
"""Speed of FlashAttention-2 over `flash2_on_hopper` where the best kernels are far faster.

Source: CDNA: of Composable Kernel on MI300X, 353 TFLOP/s forward, 223 to 231 of both passes
(ROCm/flash-attention issue 142), half of the kernels of AITER behind the catalog's fit. Blackwell:
derived; it runs on the instructions of Ampere, as fast for each multiprocessor as on Hopper, so
with 148 for 132 at 1.12 times the FLOP/s of H100, where the best kernel is at 1.9 times:
333 TFLOP/s of both passes of B200 (Dao-AILab/flash-attention issue 1589, 64 wide). Rubin: as
Blackwell, at 1.6 times the peak and 224 multiprocessors, assumed.
"""


def kernel_speed(
    machine: Machine, kernel: AttentionKernel, length: float | FloatColumn
) -> float | FloatColumn:
    """Speed of a fused kernel on sequences of `length` over that of the best one for the GPU.

    Source: `Constants`, of long sequences; efficiencies s / (s + s_half) of both kernels.
    """
    if kernel not in ("flash2", "triton"):
        return 1.0
    constants, share = machine.constants, FLASH2_SHARE.get(machine.architecture)
    speed = 1.0 if share is None else share * constants.flash2_on_hopper
    if kernel == "flash2":
        half = FLASH2_HALF_LENGTH
    else:
        speed, half = speed * constants.triton_attention, TRITON_HALF_LENGTH
    return speed * (length + machine.attention_half_length) / (length + half)
